// SPDX-License-Identifier: GPL-2.0
/* Want of memory, holes in the memfd, and broken frames, while segments are attached. */
#include <sys/stat.h>
#include "test.h"

#define SIZE	(32 * UNIT)
#define BOTH	(PROT_READ | PROT_WRITE)
#define GROUP	"/sys/fs/cgroup/pressed"

/* Puts the calling process into a group of so much memory. */
static void limit_memory(const char *bytes, const char *swap)
{
	mkdir(GROUP, 0700);
	if (!write_file(GROUP "/memory.max", bytes))
		skip("there are no control groups of memory (%m)");
	(void)write_file(GROUP "/memory.swap.max", swap);
	check(write_file(GROUP "/cgroup.procs", "0"));
}

static void hog(void *with)
{
	size_t size = (size_t)with;
	char *at = mmap(NULL, size, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int round;

	check(at != MAP_FAILED);
	for (round = 0; round < 2; round++)
		write_pattern(at, size, round);
}

/* Swap, reclaim and compaction. */
static void pressure(void)
{
	int made = segment(SIZE), i;
	char *at = attach(made, SIZE, BOTH);
	pid_t pid;

	write_pattern(at, SIZE, 1);
	pid = fork();
	if (!pid) {
		limit_memory("50331648", "max");
		hog((void *)(96 * MIB));
		check_pattern(at, SIZE, 1);
		_exit(0);
	}
	for (i = 0; i < 6; i++) {
		check(write_file("/proc/sys/vm/drop_caches", "3"));
		(void)write_file("/proc/sys/vm/compact_memory", "1");
		check_pattern(at, SIZE, 1);
	}
	finish(pid);
	check_pattern(at, SIZE, 1);
	check(number_in("/proc/vmstat", "pswpout") > 0);
}

/* The segment itself was made in the group that has too little memory. */
static void pressure_on_the_creator(void)
{
	char *at;
	int made, i;
	pid_t pid;

	limit_memory("134217728", "max");
	made = segment(SIZE);
	at = attach(made, SIZE, BOTH);
	write_pattern(at, SIZE, 1);
	for (i = 0; i < 2; i++) {
		pid = start(hog, (void *)(96 * MIB));
		check_pattern(at, SIZE, 1);
		finish(pid);
	}
	check_pattern(at, SIZE, 1);
	check(number_in(GROUP "/memory.stat", "pagetables") >= (long)(SIZE / UNIT * PAGE));
}

static void use_and_hog(void *with)
{
	char *at = attach(*(int *)with, SIZE, BOTH);

	limit_memory("33554432", "0");
	touch(at, SIZE);
	for (;;)
		hog((void *)(256 * MIB));
}

static void killed_for_memory(void)
{
	int made = segment(SIZE), i;
	char *at = attach(made, SIZE, BOTH);

	write_pattern(at, SIZE, 1);
	for (i = 0; i < 4; i++)
		check(killed_by(start(use_and_hog, &made)) == SIGKILL);
	check_pattern(at, SIZE, 1);
	check(info(made).mappings == 1);
}

/* More than fits: creation fails, and leaves nothing. */
static void no_memory_for_tables(void)
{
	int memory = memfd(SIZE);
	pid_t pid = fork();

	if (!pid) {
		limit_memory("65536", "0");
		if (create(memory) >= 0)
			skip("the tables fitted");
		_exit(errno == ENOMEM || errno == EINTR ? 0 : 1);
	}
	/* It may also be killed. */
	waitpid(pid, NULL, 0);
	check(usage(0).bytes == 0);
	check(close(create(memory)) == 0);
}

/* --- what the owner of the memfd can do --- */

static void holes_and_truncation(void)
{
	const int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	int memory = memfd(SIZE), made = create(memory);
	char *at = attach(made, SIZE, BOTH), *own = attach(memory, SIZE, BOTH);

	write_pattern(at, SIZE, 1);
	touch(own, SIZE);
	fails(ftruncate(memory, 0), EPERM);
	fails(ftruncate(memory, 2 * SIZE), EPERM);
	check(fallocate(memory, hole, 3 * PAGE, PAGE) == 0);
	check(fallocate(memory, hole, UNIT, 4 * UNIT) == 0);
	check(madvise(own + 8 * UNIT, UNIT, MADV_REMOVE) == 0);
	/* The segment keeps its frames; the memfd has new ones there. */
	check_pattern(at, SIZE, 1);
	check(own[UNIT] == 0);
	at[UNIT] = 5;
	check(own[UNIT] == 0);
	check(pread(memory, at + 2 * UNIT, UNIT, UNIT) == (ssize_t)UNIT);
	check(write(memory, at + UNIT, PAGE) == (ssize_t)PAGE);
	munmap(at, SIZE);
	at = attach(made, SIZE, PROT_READ);
	touch(at, SIZE);
	check(write_file("/proc/sys/vm/drop_caches", "3"));
}

/* Somebody punches holes while a segment is made. */
static void punch_for_ever(void *with)
{
	int memory = *(int *)with;
	unsigned int i;

	for (i = 0;; i++) {
		(void)!fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				 i * 7 % (SIZE / PAGE) * PAGE, 3 * PAGE);
		(void)!fallocate(memory, 0, 0, SIZE);
	}
}

static void holes_while_it_is_made(void)
{
	int memory = memfd(SIZE), made, i, succeeded = 0;
	pid_t pid = start(punch_for_ever, &memory);
	char *at;

	for (i = 0; i < 60; i++) {
		made = create(memory);
		if (made < 0)
			continue;
		succeeded++;
		at = attach(made, SIZE, BOTH);
		write_pattern(at, SIZE, i);
		check_pattern(at, SIZE, i);
		munmap(at, SIZE);
		close(made);
	}
	kill(pid, SIGKILL);
	check(killed_by(pid) == SIGKILL);
	check(succeeded || close(create(memory)) == 0);
}

static void folios_of_many_pages(void)
{
	const char *setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	char *at, *own;
	int memory, i;

	if (!write_file(setting, "force"))
		skip("there are no huge pages in shmem (%m)");
	memory = memfd(SIZE);
	check(write_file(setting, "never"));
	own = attach(memory, SIZE, BOTH);
	write_pattern(own, SIZE, 1);
	for (i = 0; i < 5; i++) {
		at = attach(create(memory), SIZE, BOTH);
		check_pattern(at, SIZE, i + 1);
		write_pattern(at, SIZE, i + 2);
		check(madvise(at, SIZE, MADV_PAGEOUT) == 0);
		check(madvise(own + PAGE, UNIT, MADV_PAGEOUT) == 0);
		check_pattern(own, SIZE, i + 2);
		munmap(at, SIZE);
	}
	check(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, PAGE) == 0);
}

/* The kernel is told that a frame is broken: it cannot take it away, and says that it is busy. */
static void broken_frame(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH), *other = attach(made, SIZE, BOTH);

	write_pattern(at, SIZE, 1);
	(void)!madvise(at + PAGE, PAGE, 101 /* MADV_SOFT_OFFLINE */);
	check_pattern(at, SIZE, 1);
	if (madvise(at + 5 * PAGE, PAGE, MADV_HWPOISON) && errno != EBUSY)
		skip("frames cannot be made broken here (%m)");
	check_pattern(other, 5 * PAGE, 1);
	check(!memcmp(at + UNIT, other + UNIT, SIZE - UNIT));
}

const struct test pressure_tests[] = {
	{ "pressure", pressure, 120 },
	{ "pressure_on_the_creator", pressure_on_the_creator, 120 },
	{ "killed_for_memory", killed_for_memory, 120 },
	{ "no_memory_for_tables", no_memory_for_tables, 0 },
	{ "holes_and_truncation", holes_and_truncation, 0 },
	{ "holes_while_it_is_made", holes_while_it_is_made, 120 },
	{ "folios_of_many_pages", folios_of_many_pages, 0 },
	{ "broken_frame", broken_frame, 0 },
	{}
};
