// SPDX-License-Identifier: GPL-2.0
/* What is looked at, and reset, through /proc, and core dumps. */
#include <sys/prctl.h>
#include <sys/resource.h>
#include "test.h"

#define SIZE	(4 * UNIT)
#define BOTH	(PROT_READ | PROT_WRITE)

static void come_and_go(void *with)
{
	int made = *(int *)with;
	char *at;

	for (;;) {
		at = attach(made, SIZE, BOTH);
		touch(at, SIZE);
		munmap(at + UNIT, UNIT);
		munmap(at, SIZE);
	}
}

static void read_all(const char *path)
{
	static char bytes[1 << 16];
	int file = open(path, O_RDONLY);

	if (file < 0)
		return;
	while (read(file, bytes, sizeof(bytes)) > 0)
		;
	close(file);
}

/* What is in the page map for a range, of which a page may be in no table. */
static void read_page_map(pid_t pid, const char *at)
{
	static uint64_t entries[SIZE / PAGE];
	char path[64];
	int file;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	file = open(path, O_RDONLY);
	if (file < 0)
		return;
	(void)!pread(file, entries, sizeof(entries), (uintptr_t)at / PAGE * 8);
	close(file);
}

static void looked_at_meanwhile(void)
{
	static const char *const names[] = {
		"maps", "smaps", "smaps_rollup", "numa_maps", "status", "statm",
	};
	int made = segment(SIZE), i;
	char *at = attach(made, SIZE, BOTH), path[64];
	pid_t pid;
	unsigned int j;

	write_pattern(at, SIZE, 1);
	pid = start(come_and_go, &made);
	for (i = 0; i < 300; i++) {
		for (j = 0; j < sizeof(names) / sizeof(names[0]); j++) {
			snprintf(path, sizeof(path), "/proc/%d/%s", pid, names[j]);
			read_all(path);
			snprintf(path, sizeof(path), "/proc/self/%s", names[j]);
			read_all(path);
		}
		read_page_map(pid, at);
	}
	check(waitpid(pid, NULL, WNOHANG) == 0);
	kill(pid, SIGKILL);
	check_pattern(at, SIZE, 1);
}

/* Both kinds of tables name the same frames. */
static void page_map(void)
{
	int memory = memfd(SIZE), made = create(memory), file = open("/proc/self/pagemap", O_RDONLY);
	char *own = attach(memory, SIZE, BOTH), *at = attach(made, SIZE, BOTH);
	uint64_t a, b;
	size_t i;

	write_pattern(own, SIZE, 1);
	touch(at, SIZE);
	for (i = 0; i < SIZE; i += 61 * PAGE) {
		check(pread(file, &a, 8, (uintptr_t)(own + i) / PAGE * 8) == 8);
		check(pread(file, &b, 8, (uintptr_t)(at + i) / PAGE * 8) == 8);
		check(a >> 63 && b >> 63);
		check((a & ((1UL << 55) - 1)) == (b & ((1UL << 55) - 1)));
	}
}

static unsigned char present[SIZE / PAGE];

static void residence(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH);
	size_t i;

	touch(at, SIZE);
	check(mincore(at, SIZE, present) == 0);
	for (i = 0; i < SIZE / PAGE; i++)
		check(present[i] & 1);
}

struct page_region {
	uint64_t start, end, categories;
};

struct pm_scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, any,
		 returned;
};

#define SCAN	_IOWR('f', 16, struct pm_scan_arg)

/* The ioctl that write protects what it finds. */
static void page_map_scan(void)
{
	int made = segment(SIZE), file = open("/proc/self/pagemap", O_RDONLY);
	char *at = attach(made, SIZE, BOTH);
	struct page_region found[16];
	struct pm_scan_arg scan = {
		.size = sizeof(scan), .start = (uintptr_t)at, .end = (uintptr_t)at + SIZE,
		.vec = (uintptr_t)found, .vec_len = 16, .mask = 8 /* present */,
		.returned = 8,
	};

	write_pattern(at, SIZE, 1);
	if (ioctl(file, SCAN, &scan) < 0)
		skip("there is no PAGEMAP_SCAN (%m)");
	scan.flags = 1;		/* PM_SCAN_WP_MATCHING */
	(void)!ioctl(file, SCAN, &scan);
	scan.flags = 3;		/* and PM_SCAN_CHECK_WPASYNC */
	fails(ioctl(file, SCAN, &scan), EPERM);
	write_pattern(at, SIZE, 2);
	check_pattern(at, SIZE, 2);
}

static void write_for_ever(void *with)
{
	uint64_t seed;

	for (seed = 1;; seed++) {
		write_pattern(with, SIZE, seed);
		check_pattern(with, SIZE, seed);
	}
}

/* Soft-dirty write protects entries: it must not meet those of a segment. */
static void references_are_cleared(void)
{
	int made = segment(2 * SIZE), i;
	char *at = attach(made, 2 * SIZE, BOTH), path[64], what[2] = "1";
	pid_t pid = start(write_for_ever, at);

	write_pattern(at + SIZE, SIZE, 1);
	snprintf(path, sizeof(path), "/proc/%d/clear_refs", pid);
	for (i = 0; i < 200; i++) {
		what[0] = '1' + i % 5;
		check(write_file(i % 4 ? path : "/proc/self/clear_refs", what));
		/* Here no write may fault more than to install an entry. */
		if (i % 20 == 0) {
			long before = faults();

			write_pattern(at + SIZE, SIZE, i);
			check(faults() - before <= 4);
		}
	}
	check(waitpid(pid, NULL, WNOHANG) == 0);
	kill(pid, SIGKILL);
	check_pattern(at + SIZE, SIZE, 180);
}

/* --- core dumps --- */

static long core_with(const char *filter)
{
	const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	static const char mark[] = "a mark that is in the segment and nowhere else";
	int made = segment(UNIT), core, status;
	char *at = attach(made, UNIT, BOTH), *bytes;
	size_t i;
	long size, found = 0;
	pid_t pid;

	for (i = 0; i < sizeof(mark); i++)
		((volatile char *)at)[12345 + i] = mark[i] ^ 0x55;
	unlink("/tmp/core");
	pid = fork();
	if (!pid) {
		setrlimit(RLIMIT_CORE, &unlimited);
		prctl(PR_SET_DUMPABLE, 1);
		check(write_file("/proc/self/coredump_filter", filter));
		at[0] = 1;
		abort();
	}
	check(waitpid(pid, &status, 0) == pid);
	if (!WCOREDUMP(status))
		skip("this kernel dumps no core");
	core = open("/tmp/core", O_RDONLY);
	size = lseek(core, 0, SEEK_END);
	check(core >= 0 && size > 0);
	bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, core, 0);
	for (i = 0; i < sizeof(mark); i++)
		at[12345 + i] ^= 0x55;
	for (i = 0; i + sizeof(mark) < (size_t)size && !found; i++)
		found = bytes[i] == (mark[0] ^ 0x55) && bytes[i + 1] == (mark[1] ^ 0x55) &&
			bytes[i + 20] == (mark[20] ^ 0x55);
	unlink("/tmp/core");
	munmap(at, UNIT);
	return found;
}

/* As with any shared file: not in a core, unless the process asks for it. */
static void core_dumps(void)
{
	check(!core_with("0x33"));
	check(core_with("0x3b"));
}

const struct test proc_tests[] = {
	{ "looked_at_meanwhile", looked_at_meanwhile, 120 },
	{ "page_map", page_map, 0 },
	{ "residence", residence, 0 },
	{ "page_map_scan", page_map_scan, 0 },
	{ "references_are_cleared", references_are_cleared, 120 },
	{ "core_dumps", core_dumps, 0 },
	{}
};
