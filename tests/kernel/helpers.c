// SPDX-License-Identifier: GPL-2.0
/* Segments, processes and the kernel's counts, as the tests need them. */
#include <setjmp.h>
#include <sys/resource.h>
#include "test.h"

/* --- segments --- */

int device(void)
{
	static int opened = -1;

	if (opened < 0)
		opened = open("/dev/segshm", O_RDWR | O_CLOEXEC);
	check(opened >= 0);
	return opened;
}

int memfd(size_t size)
{
	int memory = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	check(memory >= 0);
	check(ftruncate(memory, size) == 0);
	check(fallocate(memory, 0, 0, size) == 0);
	check(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	return memory;
}

int create(int memory)
{
	struct segshm_create request = { .memfd = memory };

	return ioctl(device(), SEGSHM_CREATE, &request);
}

int segment(size_t size)
{
	int memory = memfd(size);
	int made = create(memory);

	check(made >= 0);
	close(memory);
	return made;
}

char *attach(int descriptor, size_t size, int prot)
{
	char *at = mmap(NULL, size, prot, MAP_SHARED, descriptor, 0);

	check(at != MAP_FAILED);
	return at;
}

char *attach_at(int descriptor, void *place, size_t size)
{
	char *at = mmap(place, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0);

	check(at == place);
	return at;
}

struct segshm_info info(int descriptor)
{
	struct segshm_info known;

	check(ioctl(descriptor, SEGSHM_INFO, &known) == 0);
	return known;
}

struct segshm_usage usage(unsigned int owner)
{
	struct segshm_usage known = { .owner = owner };

	check(ioctl(device(), SEGSHM_USAGE, &known) == 0);
	return known;
}

static uint64_t belongs_to(size_t page, uint64_t seed)
{
	return (page + 1) * 0x9e3779b97f4a7c15UL ^ seed;
}

void write_pattern(char *at, size_t size, uint64_t seed)
{
	size_t page;

	for (page = 0; page < size / PAGE; page++)
		*(volatile uint64_t *)(at + page * PAGE) = belongs_to(page, seed);
}

void check_pattern(const char *at, size_t size, uint64_t seed)
{
	size_t page;

	for (page = 0; page < size / PAGE; page++)
		if (*(const volatile uint64_t *)(at + page * PAGE) != belongs_to(page, seed))
			fail("page %zu has not what was written", page);
}

void touch(volatile char *at, size_t size)
{
	size_t i;

	for (i = 0; i < size; i += PAGE)
		(void)at[i];
}

/* --- processes --- */

pid_t start(void (*run)(void *), void *with)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		run(with);
		_exit(0);
	}
	return pid;
}

void finish(pid_t pid)
{
	int status;

	check(waitpid(pid, &status, 0) == pid);
	if (WIFSIGNALED(status))
		fail("a process was killed by signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status))
		_exit(WEXITSTATUS(status));
}

int killed_by(pid_t pid)
{
	int status;

	check(waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status) && WEXITSTATUS(status))
		_exit(WEXITSTATUS(status));
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static _Thread_local sigjmp_buf back;

static void go_back(int signal)
{
	siglongjmp(back, signal);
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = go_back, .sa_flags = SA_NODEFER };

	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
}

int signal_of_read(const volatile char *at)
{
	int signal;

	catch_signals();
	signal = sigsetjmp(back, 1);
	if (!signal)
		(void)*at;
	return signal;
}

int signal_of_write(volatile char *at)
{
	int signal;

	catch_signals();
	signal = sigsetjmp(back, 1);
	if (!signal)
		*at = 1;
	return signal;
}

long faults(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return used.ru_minflt + used.ru_majflt;
}

/* --- the kernel's own counts --- */

/* The number that follows a name in a file such as /proc/meminfo; -1 if there is none. */
long number_in(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	size_t length = strlen(name);
	char line[256];
	long value = -1;

	if (!file)
		return -1;
	while (value < 0 && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, length) && strchr(" :\t", line[length]))
			value = atol(line + length + 1);
	fclose(file);
	return value;
}

/* Has processors add what each counted for itself. */
static void gather(void)
{
	check(write_file("/proc/sys/vm/stat_refresh", "1"));
}

long page_tables_kib(void)
{
	gather();
	return number_in("/proc/meminfo", "PageTables");
}

long pins_held(void)
{
	gather();
	return number_in("/proc/vmstat", "nr_foll_pin_acquired") -
	       number_in("/proc/vmstat", "nr_foll_pin_released");
}

bool write_file(const char *path, const char *text)
{
	ssize_t length = strlen(text);
	int file = open(path, O_WRONLY);
	bool written = file >= 0 && write(file, text, length) == length;

	if (file >= 0)
		close(file);
	return written;
}
