// SPDX-License-Identifier: GPL-2.0
/* What children inherit. */
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/uio.h>
#include "test.h"

#define SIZE	(4 * UNIT)
#define BOTH	(PROT_READ | PROT_WRITE)

static void children_share(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH);
	long before;
	pid_t pid;

	write_pattern(at, SIZE, 1);
	pid = fork();
	if (!pid) {
		before = faults();
		check_pattern(at, SIZE, 1);
		check(faults() - before <= 8);
		write_pattern(at, SIZE, 2);
		_exit(0);
	}
	finish(pid);
	check_pattern(at, SIZE, 2);
	check(info(made).mappings == 1);
}

static void grandchildren(char *at, int made, unsigned int depth)
{
	pid_t pid;

	if (!depth)
		return;
	pid = fork();
	if (!pid) {
		/* Every second one hands on what it has not touched. */
		if (depth % 2)
			__atomic_fetch_add((int *)at, 1, __ATOMIC_RELAXED);
		grandchildren(at, made, depth - 1);
		__atomic_fetch_add((int *)(at + UNIT), 1, __ATOMIC_RELAXED);
		_exit(0);
	}
	finish(pid);
}

static void chains_of_children(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH);

	grandchildren(at, made, 20);
	check(*(int *)at == 10 && *(int *)(at + UNIT) == 20);
	check(info(made).mappings == 1);
}

static void what_a_child_does_is_its_own(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH);
	pid_t pid;

	write_pattern(at, SIZE, 1);
	pid = fork();
	if (!pid) {
		check(munmap(at + UNIT, UNIT) == 0);
		check(signal_of_read(at + UNIT) == SIGSEGV);
		check(!signal_of_read(at));
		check(munmap(at, SIZE) == 0);
		_exit(0);
	}
	finish(pid);
	check_pattern(at, SIZE, 1);
}

static void advice_about_fork(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH);
	pid_t pid;

	write_pattern(at, SIZE, 1);
	fails(madvise(at, SIZE, MADV_WIPEONFORK), EINVAL);
	check(madvise(at, SIZE, MADV_KEEPONFORK) == 0);
	check(madvise(at, SIZE, MADV_DONTFORK) == 0);
	pid = fork();
	if (!pid) {
		check(signal_of_read(at) == SIGSEGV);
		_exit(0);
	}
	finish(pid);
	/* From Linux 7 on it stays so. */
	if (madvise(at, SIZE, MADV_DOFORK)) {
		check(errno == EINVAL);
		check(munmap(at, SIZE) == 0);
		at = attach(made, SIZE, BOTH);
	}
	pid = fork();
	if (!pid) {
		check_pattern(at, SIZE, 1);
		_exit(0);
	}
	finish(pid);
	/* A part of it, at a boundary and not. */
	fails(madvise(at + PAGE, PAGE, MADV_DONTFORK), EINVAL);
	check(madvise(at + UNIT, UNIT, MADV_DONTFORK) == 0);
	pid = fork();
	if (!pid) {
		check(signal_of_read(at + UNIT) == SIGSEGV);
		check(!signal_of_read(at) && !signal_of_read(at + 2 * UNIT));
		_exit(0);
	}
	finish(pid);
	check_pattern(at, SIZE, 1);
}

static void tick(int signal)
{
	(void)signal;
}

/*
 * Signals come all the time. A child's first touch is by the kernel, within a system call, which
 * cannot stop for a signal.
 */
static void children_under_signals(void)
{
	struct itimerval often = { { 0, 200 }, { 0, 200 } };
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	int made = segment(SIZE), file = memfd(SIZE);
	char *at = attach(made, SIZE, BOTH);
	unsigned int i;
	pid_t pid;

	touch(at, SIZE);
	sigaction(SIGALRM, &action, NULL);
	for (i = 0; i < 200; i++) {
		pid = fork();
		if (!pid) {
			setitimer(ITIMER_REAL, &often, NULL);
			check(pread(file, at + i % 4 * UNIT, 4 * PAGE, 0) == 4 * PAGE);
			at[PAGE] = 1;
			_exit(0);
		}
		finish(pid);
	}
	check(info(made).mappings == 1);
}

/* Others read and write what a child has not touched yet. */
static void untouched_child(void)
{
	int made = segment(SIZE), file;
	char *at = attach(made, SIZE, BOTH), path[64], bytes[8192];
	struct iovec local = { bytes, 8192 }, remote;
	pid_t pid;

	write_pattern(at, SIZE, 1);
	pid = fork();
	if (!pid) {
		pause();
		_exit(0);
	}
	check(ptrace(PTRACE_SEIZE, pid, 0, 0) == 0 && ptrace(PTRACE_INTERRUPT, pid, 0, 0) == 0);
	check(waitpid(pid, NULL, 0) == pid);
	check(ptrace(PTRACE_PEEKDATA, pid, at, 0) == *(long *)at);
	check(ptrace(PTRACE_POKEDATA, pid, at + UNIT, 77) == 0 && *(long *)(at + UNIT) == 77);
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	file = open(path, O_RDWR);
	check(pread(file, bytes, 8192, (off_t)at + UNIT - 4096) == 8192);
	check(!memcmp(bytes, at + UNIT - 4096, 8192));
	check(pwrite(file, "there", 5, (off_t)at + 2 * UNIT) == 5);
	check(!memcmp(at + 2 * UNIT, "there", 5));
	remote = (struct iovec){ at + 3 * UNIT - 4096, 8192 };
	check(process_vm_readv(pid, &local, 1, &remote, 1, 0) == 8192);
	check(!memcmp(bytes, remote.iov_base, 8192));
	kill(pid, SIGKILL);
}

static int in_our_memory(void *with)
{
	volatile char *at = with;

	at[UNIT] = 5;
	execl("/bin/busybox", "true", NULL);
	return 1;
}

static void vfork_and_threads_of_the_same_memory(void)
{
	static char stack[65536] __attribute__((aligned(16)));
	int made = segment(SIZE), status;
	volatile char *at = attach(made, SIZE, BOTH);
	pid_t pid = vfork();

	if (!pid) {
		at[0] = 4;
		_exit(0);
	}
	finish(pid);
	check(at[0] == 4);
	pid = clone(in_our_memory, stack + sizeof(stack), CLONE_VM | SIGCHLD, (void *)at);
	check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	check(at[UNIT] == 5 && info(made).mappings == 1);
}

static void exec_detaches(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH);
	pid_t pid;
	unsigned int i;

	touch(at, SIZE);
	for (i = 0; i < 50; i++) {
		pid = fork();
		if (!pid) {
			at[i] = 1;
			execl("/bin/busybox", "sleep", "0.01", NULL);
			_exit(1);
		}
		finish(pid);
	}
	check(info(made).mappings == 1 && info(made).entries <= 2 * SIZE / UNIT);
}

const struct test fork_tests[] = {
	{ "children_share", children_share, 0 },
	{ "chains_of_children", chains_of_children, 0 },
	{ "what_a_child_does_is_its_own", what_a_child_does_is_its_own, 0 },
	{ "advice_about_fork", advice_about_fork, 0 },
	{ "children_under_signals", children_under_signals, 0 },
	{ "untouched_child", untouched_child, 0 },
	{ "vfork_and_threads_of_the_same_memory", vfork_and_threads_of_the_same_memory, 0 },
	{ "exec_detaches", exec_detaches, 0 },
	{}
};
