// SPDX-License-Identifier: GPL-2.0
/* Memory policies and migration between two nodes: nothing moves a segment's frames. */
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include "test.h"

#define SIZE	(8 * UNIT)
#define BOTH	(PROT_READ | PROT_WRITE)

static bool two_nodes(void)
{
	return !access("/sys/devices/system/node/node1", F_OK);
}

static void policies(void)
{
	int memory = memfd(SIZE), made = create(memory), status[64], nodes[64], node, i;
	char *at = attach(made, SIZE, BOTH), *own = attach(memory, SIZE, BOTH);
	unsigned long mask, all = 3;
	void *pages[64];

	if (!two_nodes())
		skip("there is one node of memory");
	write_pattern(at, SIZE, 1);
	touch(own, SIZE);
	for (i = 0; i < 6; i++) {
		mask = 1UL << i % 2;
		/* EIO: not all could be moved. */
		check(!syscall(SYS_mbind, i % 3 ? at : own, SIZE, MPOL_BIND, &mask, 3UL,
			       MPOL_MF_MOVE | MPOL_MF_MOVE_ALL | MPOL_MF_STRICT) || errno == EIO);
		check(syscall(SYS_migrate_pages, getpid(), 3UL, &all, &mask) >= 0);
		for (node = 0; node < 64; node++) {
			pages[node] = at + node * PAGE;
			nodes[node] = i % 2;
		}
		check(syscall(SYS_move_pages, 0, 64UL, pages, nodes, status, MPOL_MF_MOVE_ALL) >= 0);
		check_pattern(at, SIZE, 1);
		check_pattern(own, SIZE, 1);
	}
	check(syscall(SYS_get_mempolicy, &node, NULL, 0UL, at, MPOL_F_NODE | MPOL_F_ADDR) == 0);
	/* A policy for a part of a unit would split the VMA there. */
	mask = 1;
	fails(syscall(SYS_mbind, at + PAGE, PAGE, MPOL_BIND, &mask, 3UL, 0), EINVAL);
}

/* The kernel looks who uses what, by taking the access away for a moment. */
static void balancing(void)
{
	int made = segment(SIZE), i;
	char *at = attach(made, SIZE, BOTH);
	cpu_set_t set;

	if (!two_nodes() || !write_file("/proc/sys/kernel/numa_balancing", "1"))
		skip("there is no balancing between nodes");
	(void)write_file("/sys/kernel/debug/sched/numa_balancing/scan_delay_ms", "1");
	(void)write_file("/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms", "1");
	(void)write_file("/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms", "10");
	for (i = 0; i < 150; i++) {
		CPU_ZERO(&set);
		CPU_SET(i % 2, &set);
		check(sched_setaffinity(0, sizeof(set), &set) == 0);
		write_pattern(at, SIZE, i);
		check_pattern(at, SIZE, i);
	}
	check(number_in("/proc/vmstat", "numa_pte_updates") > 0);
	check(info(made).tables == SIZE / UNIT);
}

const struct test numa_tests[] = {
	{ "policies", policies, 0 },
	{ "balancing", balancing, 120 },
	{}
};
