/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of the module know of each other. */
#ifndef SEGSHM_H
#define SEGSHM_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <segshm.h>

struct mem_cgroup;
struct segshm_segment;
struct workqueue_struct;

/* device.c: they enter address spaces. */
extern struct workqueue_struct *segshm_workers;

/* --- owner.c: what each user's segments take ------------------------------------------------ */

struct segshm_owner {
	struct list_head node;
	kuid_t uid;
	unsigned int segments;
	u64 bytes;
	u64 tables;
};

/* Counts a segment in. Returns -EDQUOT where a limit does not allow it. */
struct segshm_owner *segshm_owner_charge(kuid_t uid, u64 bytes, u64 tables);
void segshm_owner_uncharge(struct segshm_owner *owner, u64 bytes, u64 tables);
int segshm_owner_charge_tables(struct segshm_owner *owner, u64 tables);
void segshm_owner_uncharge_tables(struct segshm_owner *owner, u64 tables);
void segshm_owner_usage(kuid_t uid, struct segshm_usage *usage);
void segshm_owner_init(void);

/* --- table.c: PTE pages --------------------------------------------------------------------- */

/* A master page table: the PTE pages of a whole segment, with one kind of entries. */
struct segshm_master {
	struct segshm_segment *segment;
	unsigned long nr;	/* how many PTE pages the segment takes */
	struct page *tables[];
};

struct segshm_master *segshm_master_alloc(struct segshm_segment *segment, unsigned long nr);
void segshm_master_free(struct segshm_master *master);
/* Allocates the PTE page of one unit, fills it with entries for frames, and makes it known. */
int segshm_master_add(struct segshm_master *master, unsigned long index,
		      struct page *(*frame)(void *from, unsigned int index), void *from,
		      pgprot_t prot);
/* The frame that an entry of a table maps. */
struct page *segshm_table_frame(struct page *table, unsigned int index);
/* Whose PTE page a PMD entry points to: NULL for one that is none of a segment. */
struct segshm_master *segshm_table_master(pmd_t pmd);

/* --- segment.c: frames and their masters ---------------------------------------------------- */

struct segshm_segment {
	refcount_t files;		/* descriptors and mappings hold files */
	struct file *memfd;
	struct segshm_owner *owner;
	struct mem_cgroup *memcg;	/* of who created it: tables are charged to it */
	unsigned long nr;		/* units of 2 MiB */
	struct mutex lock;		/* for making the read-only master */
	struct segshm_master *writable;
	struct segshm_master *read_only;	/* NULL until somebody asks for it */
	atomic_long_t entries;
	atomic_long_t mappings;
};

struct segshm_segment *segshm_segment_create(struct file *memfd, kuid_t uid);
void segshm_segment_put(struct segshm_segment *segment);
int segshm_segment_make_read_only(struct segshm_segment *segment);
void segshm_segment_info(struct segshm_segment *segment, struct segshm_info *info);
/* The master that a mapping takes its tables from, which is there if the mapping is. */
struct segshm_master *segshm_segment_master(struct segshm_segment *segment, bool writable);

/* --- mapping.c: VMAs ------------------------------------------------------------------------ */

extern const struct vm_operations_struct segshm_vm_ops;
int segshm_mmap(struct file *file, struct vm_area_struct *vma);
unsigned long segshm_get_unmapped_area(struct file *file, unsigned long addr, unsigned long len,
				       unsigned long pgoff, unsigned long flags);

/* --- attach.c: address spaces --------------------------------------------------------------- */

/* An address space in which segments are, or were, mapped. Each of their VMAs holds it. */
struct segshm_attachment {
	struct mmu_notifier notifier;
	spinlock_t lock;		/* protects all that follows */
	unsigned long first, last;	/* segments were mapped between these addresses only */
	unsigned long invalidations;	/* so many are in progress, */
	unsigned long invalid_start;	/* and all of them are between these */
	unsigned long invalid_end;
	wait_queue_head_t idle;		/* woken when none is in progress any more */
};

/* Enters a VMA. The caller holds the mmap lock of its mm for writing. */
int segshm_attach(struct vm_area_struct *vma);
void segshm_detach(struct vm_area_struct *vma);
/* Points PMD entries of the faulting VMA to the segment's tables. */
vm_fault_t segshm_install(struct vm_fault *vmf, struct segshm_master *master);
/* Clears what is installed in a part of an address space, and flushes the TLBs. */
void segshm_clear(struct segshm_attachment *attachment, unsigned long start, unsigned long end);

/* --- tlb.c ---------------------------------------------------------------------------------- */

void segshm_flush_mm(struct mm_struct *mm);
void segshm_flush_all(void);

#endif
