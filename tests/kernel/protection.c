// SPDX-License-Identifier: GPL-2.0
/* Segments that a process may read only, by its descriptor or by its own choice. */
#include <sys/ptrace.h>
#include <sys/uio.h>
#include "test.h"

#define SIZE	(4 * UNIT)
#define BOTH	(PROT_READ | PROT_WRITE)

static void read_only_descriptor(void)
{
	int made = segment(SIZE), reader = ioctl(made, SEGSHM_READ_ONLY), again;
	char *writable = attach(made, SIZE, BOTH), *at;

	check(reader >= 0);
	check((fcntl(reader, F_GETFL) & O_ACCMODE) == O_RDONLY);
	check(fcntl(reader, F_GETFD) == FD_CLOEXEC);
	fails(mmap(NULL, SIZE, BOTH, MAP_SHARED, reader, 0), EACCES);
	fails(mmap(NULL, SIZE, PROT_WRITE, MAP_SHARED, reader, 0), EACCES);
	at = attach(reader, SIZE, PROT_READ);
	fails(mprotect(at, SIZE, BOTH), EACCES);
	fails(mprotect(at, UNIT, PROT_WRITE), EACCES);
	write_pattern(writable, SIZE, 1);
	check_pattern(at, SIZE, 1);
	check(signal_of_write(at) == SIGSEGV);
	check(signal_of_write(at + SIZE - 1) == SIGSEGV);
	check_pattern(at, SIZE, 1);
	/* It gives no way to more. */
	again = ioctl(reader, SEGSHM_READ_ONLY);
	check(again >= 0);
	fails(mmap(NULL, SIZE, BOTH, MAP_SHARED, again, 0), EACCES);
	check(info(reader).flags == 0 && info(made).tables == 2 * SIZE / UNIT);
}

/* Whoever may write, but maps to read, gets no more than he asked for. */
static void read_only_by_choice(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, PROT_READ), *writable = attach(made, SIZE, BOTH);

	write_pattern(writable, SIZE, 1);
	check_pattern(at, SIZE, 1);
	check(signal_of_write(at + UNIT) == SIGSEGV);
	fails(mprotect(at, SIZE, BOTH), EACCES);
	check_pattern(at, SIZE, 1);
	check(info(made).tables == 2 * SIZE / UNIT);
}

/* The kernel writes nothing there on somebody's behalf, either. */
static void nothing_writes_through(void)
{
	int made = segment(SIZE), reader = ioctl(made, SEGSHM_READ_ONLY), file = memfd(UNIT);
	char *writable = attach(made, SIZE, BOTH), *at = attach(reader, SIZE, PROT_READ);
	struct iovec local, remote;
	char path[64];
	pid_t pid;

	write_pattern(writable, SIZE, 1);
	fails(pread(file, at, PAGE, 0), EFAULT);
	pid = fork();
	if (!pid) {
		/* Its first access is from outside; then it has touched all. */
		raise(SIGSTOP);
		touch(at, SIZE);
		raise(SIGSTOP);
		_exit(0);
	}
	check(waitpid(pid, NULL, WUNTRACED) == pid);
	check(ptrace(PTRACE_SEIZE, pid, 0, 0) == 0);
	local = (struct iovec){ path, 8 };
	remote = (struct iovec){ at + PAGE, 8 };
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	file = open(path, O_RDWR);
	check(file >= 0);
	fails(pwrite(file, "changed", 7, (off_t)at), EIO);
	fails(process_vm_writev(pid, &local, 1, &remote, 1, 0), EFAULT);
	check(pread(file, path, 8, (off_t)at) == 8 && !memcmp(path, writable, 8));
	check(ptrace(PTRACE_INTERRUPT, pid, 0, 0) == 0);
	kill(pid, SIGCONT);
	check(waitpid(pid, NULL, 0) == pid);
	check(ptrace(PTRACE_POKEDATA, pid, at, 1) == -1);
	check(ptrace(PTRACE_POKEDATA, pid, at + UNIT, 1) == -1);
	check_pattern(writable, SIZE, 1);
	kill(pid, SIGKILL);
}

/* Readers share their own tables. */
static void readers_share_too(void)
{
	int made = segment(SIZE), reader = ioctl(made, SEGSHM_READ_ONLY);
	unsigned int i;

	for (i = 0; i < 20; i++)
		touch(attach(reader, SIZE, PROT_READ), SIZE);
	check(info(reader).tables == 2 * SIZE / UNIT);
	check(info(reader).entries == 20 * SIZE / UNIT);
}

const struct test protection_tests[] = {
	{ "read_only_descriptor", read_only_descriptor, 0 },
	{ "read_only_by_choice", read_only_by_choice, 0 },
	{ "nothing_writes_through", nothing_writes_through, 0 },
	{ "readers_share_too", readers_share_too, 0 },
	{}
};
