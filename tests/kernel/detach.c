// SPDX-License-Identifier: GPL-2.0
/* That whoever does not map a segment any more cannot reach it, whatever else happens meanwhile. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "test.h"

#define SIZE		(8 * UNIT)
#define BOTH		(PROT_READ | PROT_WRITE)

static void after_munmap(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH), *other = attach(made, SIZE, BOTH);

	write_pattern(at, SIZE, 1);
	check(munmap(at, SIZE) == 0);
	check(signal_of_read(at) == SIGSEGV);
	check(signal_of_write(at + SIZE - 1) == SIGSEGV);
	check_pattern(other, SIZE, 1);
}

/* A place at which a segment is mapped and unmapped, and threads that use it. */
struct place {
	char *at;
	int descriptor;
	atomic_uint round;	/* odd: it is mapped, even: it is not */
	atomic_uint seen;	/* the last even round that the thread has tried a read in */
	atomic_bool over;
	atomic_long reached;	/* how often it could read what was unmapped */
};

/* A place that begins a unit, which nothing else will take. */
static char *reserve(size_t size)
{
	char *at = mmap(NULL, size + UNIT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(at != MAP_FAILED);
	return (char *)(((uintptr_t)at + UNIT - 1) & ~(UNIT - 1));
}

static void *reader(void *with)
{
	struct place *place = with;
	volatile char *at = place->at + 3 * UNIT + 17;
	unsigned int round;

	while (!atomic_load(&place->over)) {
		round = atomic_load(&place->round);
		if (round % 2) {
			signal_of_read(at);
		} else if (round != atomic_load(&place->seen)) {
			/* munmap has returned: no read may succeed. */
			if (!signal_of_read(at))
				atomic_fetch_add(&place->reached, 1);
			atomic_store(&place->seen, round);
		}
	}
	return NULL;
}

/* A processor that runs another thread must forget the translations it has. */
static void other_threads_after_munmap(void)
{
	struct place place = { .at = reserve(SIZE), .descriptor = segment(SIZE) };
	pthread_t thread;
	unsigned int i;

	attach_at(place.descriptor, place.at, SIZE);
	atomic_store(&place.round, 1);
	check(pthread_create(&thread, NULL, reader, &place) == 0);
	for (i = 0; i < 3000; i++) {
		if (i % 8 == 0)
			usleep(50);
		check(munmap(place.at, SIZE) == 0);
		atomic_fetch_add(&place.round, 1);
		while (atomic_load(&place.seen) != atomic_load(&place.round))
			sched_yield();
		attach_at(place.descriptor, place.at, SIZE);
		atomic_fetch_add(&place.round, 1);
	}
	atomic_store(&place.over, true);
	pthread_join(thread, NULL);
	if (place.reached)
		fail("%ld of 3000 times a thread read what was unmapped", (long)place.reached);
}

static void *toucher(void *with)
{
	struct place *place = with;
	unsigned int i;

	for (i = 0; !atomic_load(&place->over); i++)
		signal_of_write(place->at + (i * 37 % (SIZE / PAGE)) * PAGE);
	return NULL;
}

/* Threads fault all the time while the place comes and goes. */
static void faults_against_munmap(void)
{
	struct place place = { .at = reserve(SIZE), .descriptor = segment(SIZE) };
	char *kept = attach(place.descriptor, SIZE, BOTH);
	pthread_t threads[3];
	unsigned int i;

	for (i = 0; i < 3; i++)
		check(pthread_create(&threads[i], NULL, toucher, &place) == 0);
	for (i = 0; i < 5000; i++) {
		attach_at(place.descriptor, place.at, SIZE);
		if (i % 3 == 0)
			sched_yield();
		/* In parts, in one go, or by a mapping over it. */
		if (i % 4 == 0)
			check(munmap(place.at + 2 * UNIT, 3 * UNIT) == 0);
		if (i % 4 == 1)
			check(mmap(place.at, SIZE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				   -1, 0) == place.at);
		check(munmap(place.at, SIZE) == 0);
	}
	atomic_store(&place.over, true);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	check(info(place.descriptor).mappings == 1);
	write_pattern(kept, SIZE, 5);
	check_pattern(kept, SIZE, 5);
	check(info(place.descriptor).entries == SIZE / UNIT);
}

static void parts_are_unmapped(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH);
	size_t i;

	write_pattern(at, SIZE, 3);
	fails(munmap(at + PAGE, PAGE), EINVAL);
	fails(munmap(at, UNIT - PAGE), EINVAL);
	fails(munmap(at + UNIT + PAGE, UNIT), EINVAL);
	fails(mmap(at + PAGE, PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), EINVAL);
	check_pattern(at, SIZE, 3);
	check(munmap(at + 2 * UNIT, UNIT) == 0);
	check(info(made).mappings == 2 && info(made).entries == 7);
	check(munmap(at, UNIT) == 0);
	check(munmap(at + 7 * UNIT, UNIT) == 0);
	for (i = 0; i < 8; i++)
		check(signal_of_read(at + i * UNIT) ==
		      (i == 0 || i == 2 || i == 7 ? SIGSEGV : 0));
	/* What was unmapped may become something else. */
	check(mmap(at + 2 * UNIT, PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
	      MAP_FAILED);
	at[2 * UNIT] = 1;
	check(munmap(at + 2 * UNIT, PAGE) == 0);
	check(mmap(at + 2 * UNIT, UNIT, BOTH, MAP_SHARED | MAP_FIXED, made, 2 * UNIT) !=
	      MAP_FAILED);
	check(!memcmp(at + 2 * UNIT, attach(made, SIZE, PROT_READ) + 2 * UNIT, UNIT));
}

/* --- many processes that come and go --- */

static void use_and_go(void *with)
{
	int made = *(int *)with;
	char *at = attach(made, SIZE, BOTH);
	size_t i;

	for (i = 0; i < SIZE; i += 16 * PAGE)
		__atomic_fetch_add((int *)(at + i), 1, __ATOMIC_RELAXED);
	if (getpid() % 3 == 0)
		check(munmap(at, SIZE) == 0);
	if (getpid() % 3 == 1)
		execl("/bin/busybox", "true", NULL);
}

static void many_come_and_go(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH);
	long tables, pins;
	pid_t pids[8];
	unsigned int i;

	touch(at, SIZE);
	usleep(500000);
	tables = page_tables_kib();
	pins = pins_held();
	for (i = 0; i < 600; i++) {
		if (i >= 8)
			finish(pids[i % 8]);
		pids[i % 8] = start(use_and_go, &made);
	}
	for (i = 0; i < 8; i++)
		finish(pids[i]);
	check(*(int *)at == 600 && *(int *)(at + SIZE - 16 * PAGE) == 600);
	usleep(500000);
	check(info(made).mappings == 1 && info(made).entries == SIZE / UNIT);
	check(labs(page_tables_kib() - tables) < 256);
	check(pins_held() == pins);
}

static void new_segments_again_and_again(void)
{
	long tables, pins;
	unsigned int i;
	char *at, *reading;
	int made;

	usleep(500000);
	tables = page_tables_kib();
	pins = pins_held();
	for (i = 0; i < 100; i++) {
		made = segment(2 * UNIT);
		at = attach(made, 2 * UNIT, BOTH);
		reading = attach(made, UNIT, PROT_READ);
		/* The descriptor is closed first or last, and either mapping goes first. */
		if (i % 2)
			close(made);
		write_pattern(at, 2 * UNIT, i);
		touch(reading, UNIT);
		check(munmap(i % 3 ? at : reading, i % 3 ? 2 * UNIT : UNIT) == 0);
		check(munmap(i % 3 ? reading : at, i % 3 ? UNIT : 2 * UNIT) == 0);
		if (i % 2 == 0)
			close(made);
	}
	check(labs(page_tables_kib() - tables) < 64 && pins_held() == pins);
}

static void attach_for_ever(void *with)
{
	int made = *(int *)with;
	char *at;

	for (;;) {
		at = attach(made, SIZE, BOTH);
		touch(at, SIZE);
		munmap(at, SIZE);
	}
}

static void killed_at_any_time(void)
{
	int made = segment(SIZE);
	char *at = attach(made, SIZE, BOTH);
	unsigned int i;
	pid_t pid;

	write_pattern(at, SIZE, 6);
	for (i = 0; i < 150; i++) {
		pid = start(attach_for_ever, &made);
		usleep(i * 97 % 9000);
		kill(pid, SIGKILL);
		check(killed_by(pid) == SIGKILL);
	}
	check_pattern(at, SIZE, 6);
	check(info(made).mappings == 1 && info(made).entries == SIZE / UNIT);
}

/* The last one to leave is a mapping whose descriptor is closed, in a process that is killed. */
static void the_last_one_is_killed(void)
{
	int made = segment(SIZE);
	pid_t pid = start(attach_for_ever, &made);

	close(made);
	usleep(100000);
	check(usage(0).bytes == SIZE);
	kill(pid, SIGKILL);
	check(killed_by(pid) == SIGKILL);
	check(usage(0).bytes == 0);
}

const struct test detach_tests[] = {
	{ "after_munmap", after_munmap, 0 },
	{ "other_threads_after_munmap", other_threads_after_munmap, 0 },
	{ "faults_against_munmap", faults_against_munmap, 0 },
	{ "parts_are_unmapped", parts_are_unmapped, 0 },
	{ "many_come_and_go", many_come_and_go, 0 },
	{ "new_segments_again_and_again", new_segments_again_and_again, 0 },
	{ "killed_at_any_time", killed_at_any_time, 0 },
	{ "the_last_one_is_killed", the_last_one_is_killed, 0 },
	{}
};
