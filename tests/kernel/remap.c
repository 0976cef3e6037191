// SPDX-License-Identifier: GPL-2.0
/* mremap, mprotect, userfaultfd and the like: what they may change, and what they may not. */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/syscall.h>
#include "test.h"

#define SIZE	(4 * UNIT)
#define BOTH	(PROT_READ | PROT_WRITE)

/* A free place that begins a unit. */
static char *elsewhere(int made)
{
	char *at = attach(made, SIZE, BOTH);

	check(munmap(at, SIZE) == 0);
	return at;
}

static void moves(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH), *to = elsewhere(made);

	write_pattern(at, SIZE, 1);
	check(mremap(at, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	check(signal_of_read(at) == SIGSEGV);
	check_pattern(to, SIZE, 1);
	/* To a place that begins no unit: refused, and nothing has changed. */
	fails(mremap(to, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, at + PAGE), EINVAL);
	check_pattern(to, SIZE, 1);
	/* A part of it. */
	check(mremap(to + UNIT, UNIT, UNIT, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at);
	check(signal_of_read(to + UNIT) == SIGSEGV);
	check(!memcmp(at, attach(made, SIZE, PROT_READ) + UNIT, UNIT));
	fails(mremap(to + 2 * UNIT, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + SIZE), EINVAL);
	check(info(made).mappings == 4);
}

static void other_kinds_of_mremap(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH), *to = elsewhere(made);

	write_pattern(at, SIZE, 1);
	/* Nothing is larger than it was. */
	fails(mremap(at, SIZE, 2 * SIZE, MREMAP_MAYMOVE), EFAULT);
	fails(mremap(at, UNIT, SIZE, MREMAP_MAYMOVE), EFAULT);
	check((void *)mremap(at, 0, SIZE, MREMAP_MAYMOVE) == MAP_FAILED);
	check((void *)mremap(at, 0, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED);
	fails(mremap(at, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP), EINVAL);
	check_pattern(at, SIZE, 1);
	/* It may become smaller, by whole units. */
	fails(mremap(at, SIZE, SIZE - PAGE, 0), EINVAL);
	check(mremap(at, SIZE, SIZE - UNIT, 0) == at);
	check(signal_of_read(at + SIZE - UNIT) == SIGSEGV);
	check_pattern(at, SIZE - UNIT, 1);
	check(mremap(at, 3 * UNIT, UNIT, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	check_pattern(to, UNIT, 1);
}

static void remap_file_pages_moves_within(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH);
	volatile char *same = at;

	write_pattern(at, SIZE, 1);
	fails(remap_file_pages(at, UNIT, 0, 1, 0), EINVAL);
	check_pattern(at, SIZE, 1);
	check(remap_file_pages(at, UNIT, 0, 512, 0) == 0);
	check(!memcmp(at, at + UNIT, UNIT));
	same[0] = 99;
	check(same[UNIT] == 99);
}

static void protection_stays(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH), *to = attach(made, SIZE, PROT_READ);

	write_pattern(at, SIZE, 1);
	fails(mprotect(at, SIZE, PROT_READ), EACCES);
	fails(mprotect(at, SIZE, PROT_NONE), EACCES);
	fails(mprotect(at, SIZE, BOTH | PROT_EXEC), EACCES);
	fails(mprotect(at + UNIT, UNIT, PROT_READ), EACCES);
	fails(mprotect(at + PAGE, PAGE, PROT_READ), EACCES);
	check(mprotect(at, SIZE, BOTH) == 0);
	check(mprotect(at + PAGE, PAGE, BOTH) == 0);
	fails(mprotect(to, SIZE, BOTH), EACCES);
	fails(mprotect(to, SIZE, PROT_NONE), EACCES);
	check(mprotect(to, SIZE, PROT_READ) == 0);
	write_pattern(at, SIZE, 2);
	check_pattern(to, SIZE, 2);
	check(info(made).mappings == 2);
}

static void protection_keys(void)
{
	int made = segment(SIZE), key = pkey_alloc(0, 0);
	char *at = attach(made, SIZE, BOTH);

	if (key < 0)
		skip("this processor has no protection keys");
	at[0] = 1;
	fails(pkey_mprotect(at, SIZE, BOTH, key), EACCES);
	at[0] = 2;
}

/* Opens a userfaultfd with these features. */
static int userfault(unsigned long features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	int opened = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (opened < 0)
		skip("there is no userfaultfd (%m)");
	if (ioctl(opened, UFFDIO_API, &api))
		skip("userfaultfd has not these features (%m)");
	return opened;
}

static int register_at(int opened, char *at, size_t size, unsigned long mode)
{
	struct uffdio_register range = { .range = { (unsigned long)at, size }, .mode = mode };

	return ioctl(opened, UFFDIO_REGISTER, &range);
}

#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC	(1 << 15)
#endif

static void userfaultfd_is_refused(void)
{
	int made = segment(SIZE), opened = userfault(0);
	char *at = attach(made, SIZE, BOTH);

	touch(at, SIZE);
	fails(register_at(opened, at, SIZE, UFFDIO_REGISTER_MODE_MISSING), EINVAL);
	fails(register_at(opened, at, SIZE, UFFDIO_REGISTER_MODE_WP), EINVAL);
	fails(register_at(opened, at, SIZE, UFFDIO_REGISTER_MODE_MINOR), EINVAL);
	write_pattern(at, SIZE, 1);
}

/* Linux 7 asks whose memory it is. */
static void refused_by_the_kernel(void)
{
	check(errno == EINVAL);
	skip("this kernel refuses it");
}

/*
 * Linux 6 lets any memory be registered for asynchronous write protection. Who does so loses
 * the segment, and nobody else does.
 */
static void userfaultfd_harms_only_its_user(void)
{
	int made = segment(SIZE), opened = userfault(UFFD_FEATURE_WP_ASYNC);
	char *at = attach(made, SIZE, BOTH), *other = attach(made, SIZE, BOTH);
	struct uffdio_writeprotect protect = { .mode = UFFDIO_WRITEPROTECT_MODE_WP };

	write_pattern(at, SIZE, 1);
	touch(other, SIZE);
	if (register_at(opened, at, SIZE, UFFDIO_REGISTER_MODE_WP))
		refused_by_the_kernel();
	protect.range.start = (unsigned long)at;
	protect.range.len = SIZE;
	check(ioctl(opened, UFFDIO_WRITEPROTECT, &protect) == 0);
	check(signal_of_read(at) == SIGBUS);
	check(signal_of_write(at + UNIT) == SIGBUS);
	write_pattern(other, SIZE, 2);
	check_pattern(other, SIZE, 2);
	check(munmap(at, SIZE) == 0);
	check_pattern(attach(made, SIZE, BOTH), SIZE, 2);
}

/* Reads what userfaultfd says: a fork waits for that. */
static void *listen(void *with)
{
	struct uffd_msg message;

	while (read(*(int *)with, &message, sizeof(message)) == sizeof(message))
		;
	return NULL;
}

/*
 * A child to which the registration is handed on: fork copies entries then, and must find none. A
 * frame that the kernel thought mapped would show when it is cut out of the memfd.
 */
static void userfaultfd_and_fork(void)
{
	int memory = memfd(SIZE), made = create(memory);
	int opened = userfault(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_EVENT_FORK);
	char *at = attach(made, SIZE, BOTH);
	pthread_t thread;
	pid_t pid;

	write_pattern(at, SIZE, 1);
	if (register_at(opened, at, SIZE, UFFDIO_REGISTER_MODE_WP))
		refused_by_the_kernel();
	check(pthread_create(&thread, NULL, listen, &opened) == 0);
	pid = fork();
	if (!pid) {
		check(signal_of_read(at) == SIGBUS);
		check(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, UNIT) == 0);
		_exit(0);
	}
	finish(pid);
	check(signal_of_read(at) == SIGBUS);
}

const struct test remap_tests[] = {
	{ "moves", moves, 0 },
	{ "other_kinds_of_mremap", other_kinds_of_mremap, 0 },
	{ "remap_file_pages_moves_within", remap_file_pages_moves_within, 0 },
	{ "protection_stays", protection_stays, 0 },
	{ "protection_keys", protection_keys, 0 },
	{ "userfaultfd_is_refused", userfaultfd_is_refused, 0 },
	{ "userfaultfd_harms_only_its_user", userfaultfd_harms_only_its_user, 0 },
	{ "userfaultfd_and_fork", userfaultfd_and_fork, 0 },
	{}
};
