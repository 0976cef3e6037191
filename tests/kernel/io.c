// SPDX-License-Identifier: GPL-2.0
/* Input and output from and to memory of a segment, directly too, and pins that outlast it. */
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include "test.h"

#define SIZE	(4 * UNIT)
#define BOTH	(PROT_READ | PROT_WRITE)
#define DISK	"/dev/ram0"

static void reads_and_writes(void)
{
	int made = segment(SIZE), file = memfd_create("file", MFD_CLOEXEC), pipes[2];
	char *at = attach(made, SIZE, BOTH), *other = attach(made, SIZE, BOTH);

	write_pattern(at, UNIT, 1);
	check(write(file, at, UNIT) == (ssize_t)UNIT);
	check(pread(file, at + UNIT, UNIT, 0) == (ssize_t)UNIT);
	check_pattern(other + UNIT, UNIT, 1);
	check(pipe(pipes) == 0);
	check(write(pipes[1], at, 4 * PAGE) == 4 * (ssize_t)PAGE);
	check(read(pipes[0], other + 2 * UNIT, 4 * PAGE) == 4 * (ssize_t)PAGE);
	check_pattern(at + 2 * UNIT, 4 * PAGE, 1);
	check(getcwd(at, PAGE) != NULL && at[0] == '/');
	check(msync(at, SIZE, MS_SYNC) == 0 && msync(at, SIZE, MS_ASYNC) == 0);
}

/* Pages in a pipe are the segment's, and stay when it is gone. */
static void vmsplice_outlasts_the_segment(void)
{
	int made = segment(SIZE), pipes[2];
	char *at = attach(made, SIZE, BOTH), bytes[PAGE];
	struct iovec part = { at + UNIT, 4 * PAGE };
	unsigned int i;

	write_pattern(at + UNIT, 4 * PAGE, 1);
	check(pipe(pipes) == 0);
	check(vmsplice(pipes[1], &part, 1, 0) == 4 * (ssize_t)PAGE);
	check(munmap(at, SIZE) == 0);
	close(made);
	check(usage(0).bytes == 0);
	for (i = 0; i < 4; i++) {
		check(read(pipes[0], bytes, PAGE) == (ssize_t)PAGE);
		check(*(uint64_t *)bytes == ((i + 1) * 0x9e3779b97f4a7c15UL ^ 1));
	}
}

static void direct(void)
{
	int made = segment(SIZE), disk = open(DISK, O_RDWR | O_DIRECT);
	char *at = attach(made, SIZE, BOTH);

	if (disk < 0)
		skip("there is no %s (%m)", DISK);
	write_pattern(at, SIZE, 1);
	check(pwrite(disk, at, SIZE, 0) == (ssize_t)SIZE);
	memset(at, 0, SIZE);
	check(pread(disk, at, SIZE, 0) == (ssize_t)SIZE);
	check_pattern(at, SIZE, 1);
	/* To read only: what is read cannot be put there. */
	at = attach(made, SIZE, PROT_READ);
	check(pwrite(disk, at, UNIT, 0) == (ssize_t)UNIT);
	fails(pread(disk, at, UNIT, 0), EFAULT);
}

/* --- io_uring, with a buffer that is registered: pinned for long --- */

struct ring {
	int descriptor;
	struct io_uring_params params;
	char *rings;
	struct io_uring_sqe *entries;
};

static struct ring open_ring(void)
{
	struct ring ring = {};

	ring.descriptor = syscall(SYS_io_uring_setup, 4, &ring.params);
	if (ring.descriptor < 0)
		skip("there is no io_uring (%m)");
	check(ring.params.features & IORING_FEAT_SINGLE_MMAP);
	ring.rings = mmap(NULL, 64 * PAGE, BOTH, MAP_SHARED, ring.descriptor, IORING_OFF_SQ_RING);
	if (ring.rings == MAP_FAILED)
		ring.rings = mmap(NULL, PAGE, BOTH, MAP_SHARED, ring.descriptor,
				  IORING_OFF_SQ_RING);
	check(ring.rings != MAP_FAILED);
	ring.entries = mmap(NULL, PAGE, BOTH, MAP_SHARED, ring.descriptor, IORING_OFF_SQES);
	check(ring.entries != MAP_FAILED);
	return ring;
}

/* Reads or writes with the registered buffer, and returns what the kernel says of it. */
static int transfer(struct ring *ring, int operation, int file, char *at, size_t size)
{
	unsigned int *tail = (void *)(ring->rings + ring->params.sq_off.tail);
	unsigned int *head = (void *)(ring->rings + ring->params.cq_off.head);
	struct io_uring_cqe *done = (void *)(ring->rings + ring->params.cq_off.cqes);
	unsigned int *array = (void *)(ring->rings + ring->params.sq_off.array);
	unsigned int slot = *tail % ring->params.sq_entries;

	ring->entries[slot] = (struct io_uring_sqe){
		.opcode = operation, .fd = file, .addr = (uintptr_t)at, .len = size,
	};
	array[slot] = slot;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	check(syscall(SYS_io_uring_enter, ring->descriptor, 1, 1, IORING_ENTER_GETEVENTS, NULL,
		      0) == 1);
	slot = *head % ring->params.cq_entries;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return done[slot].res;
}

static void registered_buffers(void)
{
	int memory = memfd(SIZE), made = create(memory), file = memfd_create("file", MFD_CLOEXEC);
	char *at = attach(made, SIZE, BOTH), *own = attach(memory, SIZE, BOTH);
	struct iovec buffer = { at, UNIT };
	struct ring ring = open_ring();

	write_pattern(at, UNIT, 1);
	if (syscall(SYS_io_uring_register, ring.descriptor, IORING_REGISTER_BUFFERS, &buffer, 1))
		fail("a buffer in a segment cannot be registered (%m)");
	check(transfer(&ring, IORING_OP_WRITE_FIXED, file, at, UNIT) == (int)UNIT);
	memset(own, 0, UNIT);
	check(transfer(&ring, IORING_OP_READ_FIXED, file, at, UNIT) == (int)UNIT);
	check_pattern(own, UNIT, 1);
	/* The buffer is the memory, wherever it was mapped, and after the segment is gone. */
	check(munmap(at, SIZE) == 0);
	close(made);
	check(usage(0).bytes == 0);
	memset(own, 0, UNIT);
	check(transfer(&ring, IORING_OP_READ_FIXED, file, at, UNIT) == (int)UNIT);
	check_pattern(own, UNIT, 1);
}

const struct test io_tests[] = {
	{ "reads_and_writes", reads_and_writes, 0 },
	{ "vmsplice_outlasts_the_segment", vmsplice_outlasts_the_segment, 0 },
	{ "direct_input_and_output", direct, 0 },
	{ "registered_buffers", registered_buffers, 0 },
	{}
};
