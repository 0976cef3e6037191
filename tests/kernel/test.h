/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests of the module segshm have in common. They run as root within QEMU. */
#ifndef TEST_H
#define TEST_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <segshm.h>

#define PAGE	4096UL
#define UNIT	SEGSHM_UNIT
#define MIB	(1UL << 20)

/* --- the tests: each is a function, which ends with its process (main.c) --- */

struct test {
	const char *name;
	void (*run)(void);
	unsigned int seconds;	/* after which it has failed; 0: 60 */
};

extern const struct test sharing_tests[], detach_tests[], advice_tests[], fork_tests[],
	remap_tests[], access_tests[], io_tests[], protection_tests[], request_tests[],
	proc_tests[], pressure_tests[], numa_tests[];

/* Ends the test, in whichever of its processes it is called. */
void fail(const char *why, ...) __attribute__((format(printf, 1, 2), noreturn));
void skip(const char *why, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Prints a line `count NAME VALUE`. */
void count(const char *name, double value);

#define check(condition) \
	((condition) ? (void)0 : fail("%s:%d: not so: %s (%m)", __FILE__, __LINE__, #condition))
/* That a call fails, and with which error. */
#define fails(call, error) \
	do { \
		errno = 0; \
		if ((long)(call) != -1 || errno != (error)) \
			fail("%s:%d: %s is not %s (%m)", __FILE__, __LINE__, #call, #error); \
	} while (0)

/* --- segments (helpers.c) --- */

int device(void);
/* A memfd of that size, all of it there, sealed as segments need it. */
int memfd(size_t size);
int create(int memory);
/* A segment of a memfd that nobody else has. */
int segment(size_t size);
char *attach(int descriptor, size_t size, int prot);
char *attach_at(int descriptor, void *place, size_t size);
struct segshm_info info(int descriptor);
struct segshm_usage usage(unsigned int owner);
/* Writes what belongs to each page, or checks it. */
void write_pattern(char *at, size_t size, uint64_t seed);
void check_pattern(const char *at, size_t size, uint64_t seed);
void touch(volatile char *at, size_t size);

/* --- processes (helpers.c) --- */

pid_t start(void (*run)(void *), void *with);
/* Waits for a process that ends well: whatever it said was wrong, the test says. */
void finish(pid_t pid);
/* Waits for a process and returns the signal that killed it, 0 if none did. */
int killed_by(pid_t pid);
/* Whether reading, or writing, an address raises a signal: its number, or 0. */
int signal_of_read(const volatile char *at);
int signal_of_write(volatile char *at);
long faults(void);

/* --- the kernel's own counts (helpers.c) --- */

long number_in(const char *file, const char *name);
long page_tables_kib(void);
long pins_held(void);
bool write_file(const char *path, const char *text);

#endif
