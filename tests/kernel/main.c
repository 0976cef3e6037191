// SPDX-License-Identifier: GPL-2.0
/*
 * Runs the tests, each in a process of its own and all of its children with it, and prints a line
 * for each: `ok NAME`, `FAILED NAME why` or `skipped NAME why`. After each it looks whether the
 * module has given back all that it had.
 */
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include "test.h"

enum { PASSED = 0, FAILED = 91, SKIPPED = 92 };

static int said;	/* a pipe: why a test failed, and what it counted */

static void say(int status, const char *why, va_list values)
{
	char line[400];
	int length = vsnprintf(line, sizeof(line), why, values);

	if (length > (int)sizeof(line) - 1)
		length = sizeof(line) - 1;
	if (write(said, line, length) != length)
		perror("pipe");
	_exit(status);
}

void fail(const char *why, ...)
{
	va_list values;

	va_start(values, why);
	say(FAILED, why, values);
	__builtin_unreachable();
}

void skip(const char *why, ...)
{
	va_list values;

	va_start(values, why);
	say(SKIPPED, why, values);
	__builtin_unreachable();
}

void count(const char *name, double value)
{
	printf("count %s %g\n", name, value);
}

/*
 * Waits for the test, until its time is over, which a slow kernel has more of. Returns its status,
 * or -1.
 */
static int wait_for(pid_t pid, unsigned int seconds)
{
	struct timespec pause = { .tv_nsec = 10000000 };
	const char *patience = getenv("PATIENCE");
	unsigned int i;
	int status;

	if (patience)
		seconds *= atoi(patience);
	for (i = 0; i < seconds * 100; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		nanosleep(&pause, NULL);
	}
	return -1;
}

/* All that the test started is in its process group, or became a child of this process. */
static void end_all_of(pid_t pid)
{
	kill(-pid, SIGKILL);
	kill(pid, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
}

/* What is left of segments after all processes are gone. The kernel takes some time to free all. */
static const char *left_over(void)
{
	struct segshm_usage now = {};
	unsigned int i;

	for (i = 0; i < 100; i++) {
		now = usage(0);
		if (!now.bytes && !now.tables)
			return NULL;
		usleep(50000);
	}
	return "it left memory or tables of a segment";
}

static bool run(const struct test *test)
{
	const char *left;
	char why[401];
	int pipes[2], status;
	ssize_t length;
	pid_t pid;

	fflush(stdout);
	check(pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0);
	said = pipes[1];
	pid = fork();
	if (!pid) {
		setpgid(0, 0);
		test->run();
		fflush(stdout);
		_exit(PASSED);
	}
	status = wait_for(pid, test->seconds ? test->seconds : 60);
	end_all_of(pid);
	length = read(pipes[0], why, sizeof(why) - 1);
	why[length > 0 ? length : 0] = 0;
	close(pipes[0]);
	close(pipes[1]);
	left = left_over();
	if (status == -1)
		printf("FAILED %s it did not end %s\n", test->name, why);
	else if (WIFSIGNALED(status))
		printf("FAILED %s it was killed by signal %d %s\n", test->name, WTERMSIG(status), why);
	else if (WEXITSTATUS(status) == SKIPPED && !left)
		return printf("skipped %s %s\n", test->name, why), true;
	else if (WEXITSTATUS(status) != PASSED)
		printf("FAILED %s %s\n", test->name, why);
	else if (left)
		printf("FAILED %s %s\n", test->name, left);
	else
		return printf("ok %s\n", test->name), true;
	return false;
}

static bool wanted(const char *name, char **names)
{
	if (!*names)
		return true;
	for (; *names; names++)
		if (strstr(name, *names))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	const struct test *const all[] = {
		request_tests, sharing_tests, detach_tests, fork_tests, remap_tests, protection_tests,
		access_tests, io_tests, advice_tests, proc_tests, pressure_tests, numa_tests,
	};
	unsigned int failed = 0, ran = 0, i;
	const struct test *test;

	(void)argc;
	setvbuf(stdout, NULL, _IOLBF, 0);
	check(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		for (test = all[i]; test->name; test++)
			if (wanted(test->name, argv + 1)) {
				ran++;
				failed += !run(test);
			}
	printf("%u of %u tests failed\n", failed, ran);
	return failed != 0;
}
