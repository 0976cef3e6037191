// SPDX-License-Identifier: GPL-2.0
/* What the module is asked for: what it refuses, limits, and what a segment is made of. */
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "test.h"

static void version(void)
{
	struct stat file;

	check(ioctl(device(), SEGSHM_VERSION) == SEGSHM_INTERFACE);
	fails(ioctl(device(), SEGSHM_INFO), ENOTTY);
	check(stat("/dev/segshm", &file) == 0);
	check((file.st_mode & 0777) == 0600);
}

/* A memfd that lacks something. */
static int unsealed(size_t size, unsigned int flags, int seals)
{
	int memory = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	if (memory < 0)
		return memory;
	check(ftruncate(memory, size) == 0);
	if (size && size <= 64 * MIB && !flags)
		check(fallocate(memory, 0, 0, size) == 0);
	if (seals)
		check(fcntl(memory, F_ADD_SEALS, seals) == 0);
	return memory;
}

static void malformed_requests(void)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct segshm_create request = { .memfd = -1 };
	int memory = memfd(UNIT), pipes[2];
	char path[64];

	fails(create(-1), EBADF);
	fails(create(100000), EBADF);
	fails(create(device()), EINVAL);
	check(pipe(pipes) == 0);
	fails(create(pipes[0]), EINVAL);
	fails(create(open("/proc/version", O_RDONLY)), EINVAL);
	fails(create(open("/init", O_RDONLY)), EINVAL);
	fails(create(unsealed(UNIT, 0, 0)), EINVAL);
	fails(create(unsealed(UNIT, 0, F_SEAL_SHRINK | F_SEAL_GROW)), EINVAL);
	fails(create(unsealed(UNIT, 0, F_SEAL_SHRINK | F_SEAL_SEAL)), EINVAL);
	fails(create(unsealed(UNIT, 0, seals | F_SEAL_WRITE)), EACCES);
	fails(create(unsealed(UNIT, 0, seals | F_SEAL_FUTURE_WRITE)), EACCES);
	fails(create(unsealed(0, 0, seals)), EINVAL);
	fails(create(unsealed(UNIT + PAGE, 0, seals)), EINVAL);
	fails(create(unsealed(UNIT - 1, 0, seals)), EINVAL);
	fails(create(unsealed(1UL << 46, 0, seals)), ENODATA);
	fails(create(unsealed(1UL << 62, 0, seals)), ENODATA);
	fails(create(unsealed(UNIT, MFD_HUGETLB, seals)), EINVAL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
	fails(create(open(path, O_RDONLY)), EACCES);
	request.memfd = memory;
	request.flags = 1;
	fails(ioctl(device(), SEGSHM_CREATE, &request), EINVAL);
	request.flags = 0;
	request.reserved = 1;
	fails(ioctl(device(), SEGSHM_CREATE, &request), EINVAL);
	request.reserved = 0;
	request.owner = -1;
	fails(ioctl(device(), SEGSHM_CREATE, &request), EINVAL);
	fails(ioctl(device(), SEGSHM_CREATE, NULL), EFAULT);
	fails(ioctl(device(), SEGSHM_CREATE + 9, &request), ENOTTY);
	fails(ioctl(create(memory), SEGSHM_INFO, NULL), EFAULT);
	fails(ioctl(create(memory), SEGSHM_CREATE, &request), ENOTTY);
}

static void without_privilege(void)
{
	int opened = device(), memory = memfd(UNIT);
	int made = create(memory);
	char *at;

	check(made >= 0);
	check(setgid(1000) == 0 && setuid(1000) == 0);
	fails(open("/dev/segshm", O_RDWR), EACCES);
	fails(ioctl(opened, SEGSHM_VERSION), EPERM);
	fails(ioctl(opened, SEGSHM_REOPEN, &made), EPERM);
	fails(create(memory), EPERM);
	/* Whoever was given a segment may use it. */
	at = attach(made, UNIT, PROT_READ | PROT_WRITE);
	at[0] = 1;
	check(ioctl(made, SEGSHM_READ_ONLY) >= 0);
}

/* As a service manager starts a host that is to make segments. */
static void root_without_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = {};
	int memory = memfd(UNIT);

	check(syscall(SYS_capset, &header, none) == 0);
	check(create(memory) >= 0);
}

static void a_reader_brings_a_segment_back(void)
{
	int made = segment(UNIT), reader = ioctl(made, SEGSHM_READ_ONLY), pipes[2], again;
	int none = 999;

	attach(made, UNIT, PROT_READ | PROT_WRITE)[0] = 7;
	check(close(made) == 0);
	again = ioctl(device(), SEGSHM_REOPEN, &reader);
	check(again >= 0 && info(again).flags == SEGSHM_WRITABLE);
	check(attach(again, UNIT, PROT_READ | PROT_WRITE)[0]++ == 7);
	check(attach(reader, UNIT, PROT_READ)[0] == 8);
	check(pipe(pipes) == 0);
	fails(ioctl(device(), SEGSHM_REOPEN, &pipes[0]), EINVAL);
	fails(ioctl(device(), SEGSHM_REOPEN, &none), EBADF);
	fails(ioctl(device(), SEGSHM_REOPEN, NULL), EFAULT);
	fails(ioctl(reader, SEGSHM_REOPEN, &reader), ENOTTY);
}

/* /proc/PID/maps tells by them what is mapped. */
static void descriptors_have_the_inode_of_the_memory(void)
{
	int made[2] = { segment(UNIT), segment(UNIT) };
	int all[] = { made[0], made[1], ioctl(made[0], SEGSHM_READ_ONLY),
		      ioctl(made[0], SEGSHM_MEMORY) };
	struct stat stats[4];
	int i;

	for (i = 0; i < 4; i++)
		check(fstat(all[i], &stats[i]) == 0);
	check(stats[0].st_dev == stats[1].st_dev && stats[0].st_ino != stats[1].st_ino);
	check(stats[0].st_dev == stats[2].st_dev && stats[0].st_ino == stats[2].st_ino);
	check(stats[0].st_dev != stats[3].st_dev && stats[0].st_ino == stats[3].st_ino);
}

static void malformed_mappings(void)
{
	int made = segment(4 * UNIT);
	char *free_place = attach(made, 4 * UNIT, PROT_READ);
	const int both = PROT_READ | PROT_WRITE;

	check(munmap(free_place, 4 * UNIT) == 0);
	fails(mmap(NULL, UNIT, both, MAP_PRIVATE, made, 0), EINVAL);
	fails(mmap(NULL, UNIT, PROT_NONE, MAP_SHARED, made, 0), EACCES);
	/* EPERM from Linux 7 on, which asks no module. */
	check(mmap(NULL, UNIT, PROT_READ | PROT_EXEC, MAP_SHARED, made, 0) == MAP_FAILED &&
	      (errno == EACCES || errno == EPERM));
	fails(mmap(NULL, UNIT - PAGE, both, MAP_SHARED, made, 0), EINVAL);
	fails(mmap(NULL, PAGE, both, MAP_SHARED, made, 0), EINVAL);
	fails(mmap(NULL, 5 * UNIT, both, MAP_SHARED, made, 0), EINVAL);
	fails(mmap(NULL, UNIT, both, MAP_SHARED, made, 4 * UNIT), EINVAL);
	fails(mmap(NULL, 2 * UNIT, both, MAP_SHARED, made, 3 * UNIT), EINVAL);
	fails(mmap(NULL, UNIT, both, MAP_SHARED, made, PAGE), EINVAL);
	fails(mmap(NULL, UNIT, both, MAP_SHARED, made, (1UL << 63) - UNIT), EINVAL);
	fails(mmap(NULL, 1UL << 46, both, MAP_SHARED, made, 0), EINVAL);
	fails(mmap(NULL, 1UL << 62, both, MAP_SHARED, made, 0), ENOMEM);
	fails(mmap(free_place + PAGE, UNIT, both, MAP_SHARED | MAP_FIXED, made, 0), EINVAL);
	/* A hint that does not fit is not followed. */
	check((uintptr_t)mmap(free_place + PAGE, UNIT, both, MAP_SHARED, made, 0) % UNIT == 0);
	check(info(made).mappings == 1);
}

static void limit_of_a_user(void)
{
	struct segshm_create request = { .owner = 4242 };
	unsigned int i;
	int made[2];

	check(write_file("/sys/module/segshm/parameters/user_bytes", "12582912"));
	for (i = 0; i < 2; i++) {
		request.memfd = memfd(2 * UNIT);
		made[i] = ioctl(device(), SEGSHM_CREATE, &request);
		check(made[i] >= 0);
	}
	check(usage(4242).bytes == 4 * UNIT && usage(4242).tables == 4);
	check(usage(4242).bytes_limit == 6 * UNIT);
	request.memfd = memfd(4 * UNIT);
	fails(ioctl(device(), SEGSHM_CREATE, &request), EDQUOT);
	check(usage(4242).bytes == 4 * UNIT && usage(4242).tables == 4);
	/* Another user has limits of his own. */
	request.owner = 4243;
	check(close(ioctl(device(), SEGSHM_CREATE, &request)) == 0);
	check(usage(4243).bytes == 0);
	check(write_file("/sys/module/segshm/parameters/user_tables", "5"));
	fails(ioctl(made[0], SEGSHM_READ_ONLY), EDQUOT);
	fails(mmap(NULL, UNIT, PROT_READ, MAP_SHARED, made[0], 0), EDQUOT);
	check(usage(4242).tables == 4);
	check(write_file("/sys/module/segshm/parameters/user_tables", "0"));
	check(write_file("/sys/module/segshm/parameters/user_bytes", "0"));
	check(ioctl(made[0], SEGSHM_READ_ONLY) >= 0);
	check(usage(4242).tables == 6);
	close(made[1]);
	check(usage(4242).bytes == 2 * UNIT && usage(4242).tables == 4);
}

/* fallocate() reserves frames and clears none: a segment must not show what was in them. */
static void memory_that_nobody_wrote_is_zero(void)
{
	const size_t size = 256 * MIB;
	char *used = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const uint64_t *words;
	size_t i;

	check(used != MAP_FAILED);
	memset(used, 0xA5, size);
	check(munmap(used, size) == 0);
	words = (const uint64_t *)attach(segment(size), size, PROT_READ);
	for (i = 0; i < size / sizeof(*words); i++)
		if (words[i])
			fail("byte %zu has what somebody else wrote", i * sizeof(*words));
}

static void memory_of_which_a_part_is_missing(void)
{
	int memory = memfd(2 * UNIT);

	check(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, UNIT, PAGE) == 0);
	fails(create(memory), ENODATA);
	check(fallocate(memory, 0, UNIT, PAGE) == 0);
	check(close(create(memory)) == 0);
}

static void two_segments_of_one_memfd(void)
{
	int memory = memfd(UNIT);
	char *one = attach(create(memory), UNIT, PROT_READ | PROT_WRITE);
	char *two = attach(create(memory), UNIT, PROT_READ | PROT_WRITE);

	one[5] = 7;
	check(two[5] == 7);
	check(usage(0).bytes == 2 * UNIT);
}

const struct test request_tests[] = {
	{ "version_and_mode", version, 0 },
	{ "malformed_requests", malformed_requests, 0 },
	{ "without_privilege", without_privilege, 0 },
	{ "root_without_capabilities", root_without_capabilities, 0 },
	{ "a_reader_brings_a_segment_back", a_reader_brings_a_segment_back, 0 },
	{ "descriptors_have_the_inode_of_the_memory", descriptors_have_the_inode_of_the_memory, 0 },
	{ "malformed_mappings", malformed_mappings, 0 },
	{ "limit_of_a_user", limit_of_a_user, 0 },
	{ "memory_that_nobody_wrote_is_zero", memory_that_nobody_wrote_is_zero, 0 },
	{ "memory_of_which_a_part_is_missing", memory_of_which_a_part_is_missing, 0 },
	{ "two_segments_of_one_memfd", two_segments_of_one_memfd, 0 },
	{}
};
