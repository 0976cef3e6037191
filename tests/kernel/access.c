// SPDX-License-Identifier: GPL-2.0
/* What the kernel does with memory of a segment for programs: futexes, and other processes. */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include "test.h"

#define SIZE	(4 * UNIT)
#define BOTH	(PROT_READ | PROT_WRITE)

static long futex(void *at, int operation, int value)
{
	struct timespec limit = { .tv_sec = 20 };

	return syscall(SYS_futex, at, operation, value, &limit, NULL, 0);
}

/* Waits until it is this side's turn, by the kernel. */
static void await_turn(atomic_int *turn, int mine)
{
	int now;

	while ((now = atomic_load(turn)) % 2 != mine)
		check(futex(turn, FUTEX_WAIT, now) == 0 || errno == EAGAIN || errno == EINTR);
}

static void pass_turn(atomic_int *turn)
{
	atomic_fetch_add(turn, 1);
	check(syscall(SYS_futex, turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0) >= 0);
}

static void play(atomic_int *turn, int mine)
{
	unsigned int i;

	for (i = 0; i < 500; i++) {
		await_turn(turn, mine);
		pass_turn(turn);
	}
}

/* Two processes, at different addresses, of which one may have tables of its own. */
static void futex_between(int first, int second)
{
	atomic_int *turn = (atomic_int *)(attach(first, SIZE, BOTH) + UNIT + 64);
	pid_t pid = fork();

	if (!pid) {
		play((atomic_int *)(attach(second, SIZE, BOTH) + UNIT + 64), 1);
		_exit(0);
	}
	play(turn, 0);
	finish(pid);
	check(atomic_load(turn) == 1000);
}

static void futexes(void)
{
	int made = segment(SIZE);

	futex_between(made, made);
}

static void futexes_with_own_tables(void)
{
	int memory = memfd(SIZE);

	futex_between(create(memory), memory);
}

/* A mutex of processes that may be killed while they have it. */
static void mutexes(void)
{
	struct {
		pthread_mutex_t plain, robust;
		long sum;
	} *shared = (void *)attach(segment(SIZE), SIZE, BOTH);
	pthread_mutexattr_t attributes;
	unsigned int i, j;
	pid_t pids[4];

	pthread_mutexattr_init(&attributes);
	check(!pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
	check(!pthread_mutex_init(&shared->plain, &attributes));
	check(!pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
	check(!pthread_mutex_init(&shared->robust, &attributes));
	for (i = 0; i < 4; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		for (j = 0; j < 2000; j++) {
			check(!pthread_mutex_lock(&shared->plain));
			shared->sum++;
			check(!pthread_mutex_unlock(&shared->plain));
		}
		_exit(0);
	}
	for (i = 0; i < 4; i++)
		finish(pids[i]);
	check(shared->sum == 8000);
	pids[0] = fork();
	if (!pids[0]) {
		check(!pthread_mutex_lock(&shared->robust));
		raise(SIGKILL);
	}
	check(killed_by(pids[0]) == SIGKILL);
	check(pthread_mutex_lock(&shared->robust) == EOWNERDEAD);
	check(!pthread_mutex_consistent(&shared->robust));
	check(!pthread_mutex_unlock(&shared->robust));
}

/* A private futex, and an operation that the kernel performs in a child's untouched memory. */
static void futex_operation(void)
{
	int made = segment(SIZE);
	atomic_int *at = (atomic_int *)attach(made, SIZE, BOTH);
	pid_t pid;

	atomic_store(at, 1);
	pid = fork();
	if (!pid) {
		check(syscall(SYS_futex, at, FUTEX_WAKE_OP, 1, 1, at + 1024 * 1024,
			      FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 0)) == 0);
		_exit(0);
	}
	finish(pid);
	check(atomic_load(at + 1024 * 1024) == 5);
}

static void other_processes_memory(void)
{
	int made = segment(SIZE), go[2];
	char *mine = attach(made, SIZE, BOTH), *at, bytes[2 * PAGE];
	struct iovec local = { bytes, sizeof(bytes) }, remote;
	pid_t pid;

	check(pipe(go) == 0);
	write_pattern(mine, SIZE, 1);
	pid = fork();
	if (!pid) {
		at = attach(made, SIZE, BOTH);
		check(write(go[1], &at, sizeof(at)) == sizeof(at));
		pause();
	}
	check(read(go[0], &at, sizeof(at)) == sizeof(at));
	remote = (struct iovec){ at + UNIT - PAGE, sizeof(bytes) };
	check(process_vm_readv(pid, &local, 1, &remote, 1, 0) == sizeof(bytes));
	check(!memcmp(bytes, mine + UNIT - PAGE, sizeof(bytes)));
	memset(bytes, 7, sizeof(bytes));
	check(process_vm_writev(pid, &local, 1, &remote, 1, 0) == sizeof(bytes));
	check(!memcmp(bytes, mine + UNIT - PAGE, sizeof(bytes)));
	check(ptrace(PTRACE_SEIZE, pid, 0, 0) == 0 && ptrace(PTRACE_INTERRUPT, pid, 0, 0) == 0);
	check(waitpid(pid, NULL, 0) == pid);
	check(ptrace(PTRACE_POKEDATA, pid, at + 3 * UNIT, 0x1234) == 0);
	check(*(volatile long *)(mine + 3 * UNIT) == 0x1234);
	check(ptrace(PTRACE_PEEKDATA, pid, at + 3 * UNIT, 0) == 0x1234);
	kill(pid, SIGKILL);
}

const struct test access_tests[] = {
	{ "futexes", futexes, 0 },
	{ "futexes_with_own_tables", futexes_with_own_tables, 0 },
	{ "mutexes", mutexes, 0 },
	{ "futex_operation", futex_operation, 0 },
	{ "other_processes_memory", other_processes_memory, 0 },
	{}
};
