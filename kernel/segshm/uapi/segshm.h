/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * How programs speak with the module segshm, which lets processes share the page tables of a
 * segment. README.md says what each call does, and who may do it.
 */
#ifndef _UAPI_SEGSHM_H
#define _UAPI_SEGSHM_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* The version of this interface. A module of version N does all that a host of version N asks. */
#define SEGSHM_INTERFACE	3

/* Sizes, addresses and offsets of segments are multiples of this: what one PTE page maps. */
#define SEGSHM_UNIT		(2UL << 20)

/* Makes a segment of a memfd. */
struct segshm_create {
	__s32 memfd;	/* a descriptor of it, open for reading and writing */
	__u32 owner;	/* the user whose limits the segment counts against */
	__u32 flags;	/* 0 */
	__u32 reserved;	/* 0 */
};

/* What a user's segments take, and what they may take. A limit of 0 means that there is none. */
struct segshm_usage {
	__u32 owner;		/* in: the user */
	__u32 reserved;		/* 0 */
	__u64 bytes;		/* pinned memory */
	__u64 bytes_limit;
	__u64 tables;		/* PTE pages */
	__u64 tables_limit;
};

/* struct segshm_info.flags: what is mapped with this descriptor may be written. */
#define SEGSHM_WRITABLE		1

/* What is known of a segment. */
struct segshm_info {
	__u64 size;	/* bytes */
	__u64 tables;	/* PTE pages that there are, however many processes attach */
	__u64 entries;	/* PMD entries that point to them, of all address spaces, now */
	__u64 mappings;	/* VMAs of the segment, of all address spaces, now */
	__u32 owner;
	__u32 flags;
};

#define SEGSHM_MAGIC		0xE7

/*
 * On /dev/segshm. The first returns SEGSHM_INTERFACE, the second a descriptor of the segment, the
 * last another one to write, too, of the segment of any descriptor.
 */
#define SEGSHM_VERSION		_IO(SEGSHM_MAGIC, 0)
#define SEGSHM_CREATE		_IOW(SEGSHM_MAGIC, 1, struct segshm_create)
#define SEGSHM_USAGE		_IOWR(SEGSHM_MAGIC, 2, struct segshm_usage)
#define SEGSHM_REOPEN		_IOW(SEGSHM_MAGIC, 3, __s32)

/*
 * On a segment's descriptor. The second returns another one, which maps to read only; the third one
 * of the memory itself, for what the descriptor is for: to be mapped with tables of a process's own.
 */
#define SEGSHM_INFO		_IOR(SEGSHM_MAGIC, 16, struct segshm_info)
#define SEGSHM_READ_ONLY	_IO(SEGSHM_MAGIC, 17)
#define SEGSHM_MEMORY		_IO(SEGSHM_MAGIC, 18)

#endif
