// SPDX-License-Identifier: GPL-2.0
/* madvise while others fault and write: what is zapped must never be a shared PTE page. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include "test.h"

#define SIZE	(4 * UNIT)
#define BOTH	(PROT_READ | PROT_WRITE)
#define WRITERS	2

struct advised {
	char *at;
	atomic_bool over;
	unsigned int own[WRITERS];	/* which word of each page a writer counts in */
};

static struct advised advised;

/* Counts in a word of its own on each page, again and again: what it wrote must be there. */
static void *writer(void *with)
{
	unsigned int mine = *(unsigned int *)with;
	volatile uint64_t *word;
	uint64_t round;
	size_t page;

	for (round = 1; !atomic_load(&advised.over); round++)
		for (page = 0; page < SIZE / PAGE; page += 3) {
			word = (uint64_t *)(advised.at + page * PAGE) + mine;
			if (*word != round - 1)
				fail("a write was lost: %lu instead of %lu", *word, round - 1);
			*word = round;
		}
	return NULL;
}

/* Gives one kind of advice again and again while threads write. */
static void under_writers(void (*give)(char *at, unsigned int turn), unsigned int turns)
{
	int made = segment(SIZE);
	char *other = attach(made, SIZE, BOTH);
	pthread_t threads[WRITERS];
	unsigned int i;

	advised.at = attach(made, SIZE, BOTH);
	for (i = 0; i < WRITERS; i++) {
		advised.own[i] = 8 * i + 1;
		check(pthread_create(&threads[i], NULL, writer, &advised.own[i]) == 0);
	}
	for (i = 0; i < turns; i++)
		give(advised.at, i);
	atomic_store(&advised.over, true);
	for (i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	check(!memcmp(advised.at, other, SIZE));
	check(info(made).tables == SIZE / UNIT);
}

static void give_dontneed(char *at, unsigned int turn)
{
	switch (turn % 3) {
	case 0:
		check(madvise(at, SIZE, MADV_DONTNEED) == 0);
		break;
	case 1:
		check(madvise(at + turn % 512 * PAGE, PAGE, MADV_DONTNEED) == 0);
		break;
	case 2:
		check(madvise(at + UNIT, 2 * UNIT, MADV_DONTNEED) == 0);
		break;
	}
}

static void dontneed(void)
{
	under_writers(give_dontneed, 8000);
}

/* Two threads that invalidate overlapping parts at once. */
static void *second_adviser(void *with)
{
	unsigned int i;

	(void)with;
	for (i = 0; !atomic_load(&advised.over); i++)
		give_dontneed(advised.at, i);
	return NULL;
}

static void give_from_two(char *at, unsigned int turn)
{
	static pthread_t thread;

	if (!turn)
		check(pthread_create(&thread, NULL, second_adviser, NULL) == 0);
	give_dontneed(at, turn);
}

static void dontneed_by_two(void)
{
	under_writers(give_from_two, 4000);
}

static void give_other(char *at, unsigned int turn)
{
	static const int kinds[] = {
		MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, MADV_POPULATE_WRITE, MADV_POPULATE_READ,
		MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL,
	};
	int kind = kinds[turn % (sizeof(kinds) / sizeof(kinds[0]))];

	if (madvise(at, SIZE, kind))
		fail("advice %d: %m", kind);
}

static void cold_and_pageout(void)
{
	under_writers(give_other, 300);
}

/* Where one process maps the memory with tables of its own, the kernel tries to write it out. */
static void pageout_with_own_tables(void)
{
	int memory = memfd(SIZE), made = create(memory), i;
	char *own = attach(memory, SIZE, BOTH), *at = attach(made, SIZE, BOTH);

	write_pattern(own, SIZE, 1);
	for (i = 0; i < 20; i++) {
		touch(at, SIZE);
		touch(own, SIZE);
		check(madvise(at, SIZE, i % 2 ? MADV_COLD : MADV_PAGEOUT) == 0);
		check(madvise(own, SIZE, MADV_PAGEOUT) == 0);
		check_pattern(at, SIZE, 1);
		check_pattern(own, SIZE, 1);
	}
}

static void refused_advice(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH);

	write_pattern(at, SIZE, 1);
	fails(madvise(at, SIZE, MADV_FREE), EINVAL);
	check(madvise(at, SIZE, MADV_REMOVE) == -1);
	check(madvise(at, SIZE, 25 /* MADV_COLLAPSE */) == -1);
	fails(madvise(at, SIZE, MADV_DODUMP), EINVAL);
	fails(madvise(at, SIZE, 102 /* MADV_GUARD_INSTALL */), EINVAL);
	check(madvise(at, SIZE, MADV_MERGEABLE) == 0 || errno == EINVAL);
	check(madvise(at, SIZE, MADV_HUGEPAGE) == 0 || errno == EINVAL);
	check(madvise(at, SIZE, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
	check(madvise(at, SIZE, MADV_DONTDUMP) == 0);
	check_pattern(at, SIZE, 1);
}

/* Advice from another process. */
static void process_advice(void)
{
	static const int kinds[] = { MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED };
	int made = segment(SIZE), process, round;
	char *at = attach(made, SIZE, BOTH);
	struct iovec range = { at, SIZE };
	pid_t pid;

	write_pattern(at, SIZE, 1);
	pid = fork();
	if (!pid)
		for (;;)
			check_pattern(at, SIZE, 1);
	process = syscall(SYS_pidfd_open, pid, 0);
	check(process >= 0);
	for (round = 0; round < 60; round++)
		check(syscall(SYS_process_madvise, process, &range, 1, kinds[round % 3], 0) ==
		      (long)SIZE);
	check(waitpid(pid, NULL, WNOHANG) == 0);
	kill(pid, SIGKILL);
	check_pattern(at, SIZE, 1);
}

static void locks(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH), *also;

	check(mlock(at, SIZE) == 0 && munlock(at, SIZE) == 0);
	check(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
	also = mmap(NULL, SIZE, BOTH, MAP_SHARED | MAP_LOCKED | MAP_POPULATE, made, 0);
	check(also != MAP_FAILED);
	write_pattern(at, SIZE, 1);
	check_pattern(also, SIZE, 1);
	check(munlockall() == 0);
}

const struct test advice_tests[] = {
	{ "dontneed", dontneed, 120 },
	{ "dontneed_by_two", dontneed_by_two, 120 },
	{ "cold_and_pageout", cold_and_pageout, 120 },
	{ "pageout_with_own_tables", pageout_with_own_tables, 0 },
	{ "refused_advice", refused_advice, 0 },
	{ "process_advice", process_advice, 0 },
	{ "locks", locks, 0 },
	{}
};
