// SPDX-License-Identifier: GPL-2.0
/* That memory is shared, and its page tables are: what the module is for. */
#include "test.h"

#define SIZE		(256 * MIB)
#define PROCESSES	50

static void writes_are_seen(void)
{
	int made = segment(4 * UNIT);
	char *mine = attach(made, 4 * UNIT, PROT_READ | PROT_WRITE);
	char *again = attach(made, 4 * UNIT, PROT_READ | PROT_WRITE);
	unsigned int i;
	pid_t child;

	check(mine != again);
	write_pattern(mine, 4 * UNIT, 0);
	for (i = 0; i < 8; i++) {
		child = fork();
		if (!child) {
			char *theirs = attach(made, 4 * UNIT, PROT_READ | PROT_WRITE);

			check_pattern(theirs, 4 * UNIT, i);
			write_pattern(theirs, 4 * UNIT, i + 1);
			_exit(0);
		}
		finish(child);
		check_pattern(mine, 4 * UNIT, i + 1);
		check_pattern(again, 4 * UNIT, i + 1);
	}
}

/* Processes that attach all of a segment, touch each page and wait. */
struct crowd {
	int descriptor;		/* -1: they attach nothing */
	long second_faults;
};

static void member(struct crowd *crowd, int ready)
{
	volatile char *at;
	long before, took = 0;
	size_t i;

	if (crowd->descriptor >= 0) {
		before = faults();
		at = attach(crowd->descriptor, SIZE, PROT_READ | PROT_WRITE);
		for (i = 0; i < SIZE; i += PAGE)
			at[i] = at[i];
		took = faults() - before;
	}
	check(write(ready, &took, sizeof(took)) == sizeof(took));
	pause();
	_exit(0);
}

/* The page tables of so many processes that wait, in KiB, and the faults of the second of them. */
static long crowd_kib(struct crowd *crowd)
{
	pid_t pids[PROCESSES];
	long before, after, took;
	int ready[2];
	unsigned int i;

	sleep(1);
	before = page_tables_kib();
	check(pipe(ready) == 0);
	for (i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		if (!pids[i])
			member(crowd, ready[1]);
		check(read(ready[0], &took, sizeof(took)) == sizeof(took));
		if (i == 1)
			crowd->second_faults = took;
	}
	after = page_tables_kib();
	for (i = 0; i < PROCESSES; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	return after - before;
}

static void tables_are_shared(void)
{
	struct crowd idle = { .descriptor = -1 }, shmem = { .descriptor = memfd(SIZE) };
	struct crowd shared = {};
	struct segshm_info known;
	long idle_kib, shared_kib, shmem_kib;
	double each;

	shared.descriptor = create(shmem.descriptor);
	check(shared.descriptor >= 0);
	idle_kib = crowd_kib(&idle);
	shared_kib = crowd_kib(&shared);
	shmem_kib = crowd_kib(&shmem);
	each = (double)(shared_kib - idle_kib) / PROCESSES;
	count("ptshare.module_kib_per_process", each);
	count("ptshare.memfd_kib_per_process", (double)(shmem_kib - idle_kib) / PROCESSES);
	count("ptshare.module_second_faults", shared.second_faults);
	count("ptshare.memfd_second_faults", shmem.second_faults);
	known = info(shared.descriptor);
	check(known.tables == SIZE / UNIT);
	check(each <= 8);
	check(shared.second_faults <= 4);
	check(shmem_kib - idle_kib > 10 * (shared_kib - idle_kib));
}

/* The master's tables are counted once, as PageTables. */
static void tables_are_counted_once(void)
{
	long before = page_tables_kib(), with, without;
	int made = segment(SIZE);

	with = page_tables_kib();
	check(with - before >= 512 && with - before < 600);
	close(made);
	without = page_tables_kib();
	check(with - without >= 512 && with - without < 600);
}

static void what_info_says(void)
{
	int made = segment(8 * UNIT);
	char *one = attach(made, 8 * UNIT, PROT_READ | PROT_WRITE), *two;
	int reader;

	check(info(made).size == 8 * UNIT && info(made).tables == 8);
	check(info(made).flags == SEGSHM_WRITABLE && info(made).owner == 0);
	check(info(made).entries == 0 && info(made).mappings == 1);
	one[0] = 1;
	/* One fault installs all of the gigabyte; the mapping may reach into the next one. */
	check(info(made).entries >= 1);
	touch(one, 8 * UNIT);
	check(info(made).entries == 8);
	two = attach(made, 8 * UNIT, PROT_READ | PROT_WRITE);
	touch(two, 8 * UNIT);
	check(info(made).entries == 16 && info(made).mappings == 2 && info(made).tables == 8);
	reader = ioctl(made, SEGSHM_READ_ONLY);
	check(reader >= 0 && info(reader).flags == 0 && info(reader).tables == 16);
	check(munmap(one, 8 * UNIT) == 0 && munmap(two, 8 * UNIT) == 0);
	check(info(made).entries == 0 && info(made).mappings == 0);
}

/* A process may map the memfd itself, with tables of its own, before or after. */
static void own_tables_beside(void)
{
	int memory = memfd(4 * UNIT), made;
	char *before = attach(memory, 4 * UNIT, PROT_READ | PROT_WRITE), *after, *shared;

	write_pattern(before, 4 * UNIT, 1);
	made = create(memory);
	shared = attach(made, 4 * UNIT, PROT_READ | PROT_WRITE);
	after = attach(memory, 4 * UNIT, PROT_READ | PROT_WRITE);
	check_pattern(shared, 4 * UNIT, 1);
	check_pattern(after, 4 * UNIT, 1);
	write_pattern(shared, 4 * UNIT, 2);
	check_pattern(before, 4 * UNIT, 2);
	write_pattern(after, 4 * UNIT, 3);
	check_pattern(shared, 4 * UNIT, 3);
	/* What one does with tables of its own, the shared ones do not see. */
	check(mprotect(before, 4 * UNIT, PROT_NONE) == 0);
	check(madvise(after, 4 * UNIT, MADV_DONTNEED) == 0);
	check(munmap(before, 4 * UNIT) == 0);
	check_pattern(shared, 4 * UNIT, 3);
	check(munmap(shared, 4 * UNIT) == 0);
	check_pattern(after, 4 * UNIT, 3);
}

/* The memory is the memfd's: it stays when the segment goes, and a new one has it. */
static void memory_outlives_the_segment(void)
{
	int memory = memfd(4 * UNIT), made = create(memory);
	char *at = attach(made, 4 * UNIT, PROT_READ | PROT_WRITE);

	write_pattern(at, 4 * UNIT, 9);
	check(munmap(at, 4 * UNIT) == 0);
	close(made);
	check(usage(0).bytes == 0);
	check(write_file("/proc/sys/vm/drop_caches", "3"));
	check_pattern(attach(memory, 4 * UNIT, PROT_READ), 4 * UNIT, 9);
	check_pattern(attach(create(memory), 4 * UNIT, PROT_READ), 4 * UNIT, 9);
}

/* A part of it, and places that share a PMD page with other mappings. */
static void parts_of_a_segment(void)
{
	int made = segment(8 * UNIT);
	char *all = attach(made, 8 * UNIT, PROT_READ | PROT_WRITE), *part;
	unsigned int i;

	write_pattern(all, 8 * UNIT, 4);
	for (i = 0; i < 7; i++) {
		part = mmap(NULL, 2 * UNIT, PROT_READ | PROT_WRITE, MAP_SHARED, made, i * UNIT);
		check(part != MAP_FAILED && (uintptr_t)part % UNIT == 0);
		check(!memcmp(part, all + i * UNIT, 2 * UNIT));
	}
	check(info(made).mappings == 8);
}

const struct test sharing_tests[] = {
	{ "writes_are_seen", writes_are_seen, 0 },
	{ "tables_are_shared", tables_are_shared, 120 },
	{ "tables_are_counted_once", tables_are_counted_once, 0 },
	{ "what_info_says", what_info_says, 0 },
	{ "own_tables_beside", own_tables_beside, 0 },
	{ "memory_outlives_the_segment", memory_outlives_the_segment, 0 },
	{ "parts_of_a_segment", parts_of_a_segment, 0 },
	{}
};
