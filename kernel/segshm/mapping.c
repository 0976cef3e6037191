// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings of a segment: what mmap, mprotect, mremap, munmap, fork and a fault do.
 *
 * A VMA that may be written takes the writable tables, another one the read-only tables, whichever
 * descriptor it was mapped with. It keeps that for good: one process's protection is in tables that
 * all have.
 */
#include <linux/completion.h>
#include <linux/highmem.h>
#include <linux/mman.h>
#include <linux/sched/mm.h>
#include <linux/userfaultfd_k.h>
#include <linux/workqueue.h>
#include "compat.h"
#include "segshm.h"

static struct segshm_segment *segment_of(struct vm_area_struct *vma)
{
	return vma->vm_file->private_data;
}

static struct segshm_master *master_of(struct vm_area_struct *vma)
{
	return segshm_segment_master(segment_of(vma), vma->vm_flags & VM_WRITE);
}

/* Whether a place in the address space and one in the segment lie alike in their units. */
static bool congruent(unsigned long addr, unsigned long pgoff)
{
	return !(addr % SEGSHM_UNIT) && !(pgoff % PTRS_PER_PTE);
}

static bool in_segment(struct segshm_segment *segment, unsigned long pgoff, unsigned long pages)
{
	unsigned long all = segment->nr * PTRS_PER_PTE;

	return pgoff <= all && pages <= all - pgoff;
}

/*
 * Chooses a place that begins a unit. A fixed place that does not is refused here, before mmap
 * and mremap unmap what was there.
 */
unsigned long segshm_get_unmapped_area(struct file *file, unsigned long addr, unsigned long len,
				       unsigned long pgoff, unsigned long flags)
{
	unsigned long found;

	if (pgoff % PTRS_PER_PTE)
		return -EINVAL;
	if (flags & MAP_FIXED)
		return congruent(addr, pgoff) ? addr : -EINVAL;
	if (len > TASK_SIZE - SEGSHM_UNIT)
		return -ENOMEM;
	if (addr && !(addr % SEGSHM_UNIT)) {
		found = segshm_mm_get_unmapped_area(file, addr, len, pgoff, flags);
		if (found == addr)
			return found;
	}
	found = segshm_mm_get_unmapped_area(file, 0, len + SEGSHM_UNIT - PAGE_SIZE, pgoff, flags);
	return IS_ERR_VALUE(found) ? found : ALIGN(found, SEGSHM_UNIT);
}

int segshm_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct segshm_segment *segment = file->private_data;
	bool writable = vma->vm_flags & VM_WRITE;
	int error;

	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	/* There are no tables without access, nor any whose frames may be executed. */
	if (!(vma->vm_flags & (VM_READ | VM_WRITE)) || (vma->vm_flags & VM_EXEC))
		return -EACCES;
	if (!congruent(vma->vm_start, vma->vm_pgoff) || vma->vm_end % SEGSHM_UNIT)
		return -EINVAL;
	if (!in_segment(segment, vma->vm_pgoff, vma_pages(vma)))
		return -EINVAL;
	if (!writable) {
		error = segshm_segment_make_read_only(segment);
		if (error)
			return error;
	}
	/*
	 * VM_DONTEXPAND also makes the VMA special: KSM, khugepaged, mlock, multi-generation LRU
	 * and merging of VMAs let it alone.
	 */
	vm_flags_set(vma, VM_DONTEXPAND);
	vm_flags_clear(vma, writable ? VM_MAYEXEC : VM_MAYEXEC | VM_MAYWRITE);
	vma->vm_ops = &segshm_vm_ops;
	vma->vm_private_data = NULL;
	atomic_long_inc(&segment->mappings);
	/* Where it fails, for a signal or want of memory, the first fault does it. */
	segshm_attach(vma);
	return 0;
}

/*
 * A VMA was copied: for a split, for a move, or for a child. A child's mm is entered at its first
 * fault: registering takes the locks of all VMAs, and while a process forks its child's tree of
 * VMAs is not complete.
 */
static void mapping_open(struct vm_area_struct *vma)
{
	struct segshm_attachment *attachment = vma->vm_private_data;

	atomic_long_inc(&segment_of(vma)->mappings);
	vma->vm_private_data = NULL;
	if (!attachment)
		return;
	if (attachment->notifier.mm == vma->vm_mm)
		/* It is known already, and so cannot fail. */
		WARN_ON_ONCE(segshm_attach(vma));
	else if (userfaultfd_wp(vma))
		/* fork copies the entries of such a VMA: let it find none. */
		segshm_clear(attachment, vma->vm_start, vma->vm_end);
}

/* Its page table entries are gone: invalidate_range_start saw to that. */
static void mapping_close(struct vm_area_struct *vma)
{
	atomic_long_dec(&segment_of(vma)->mappings);
	if (vma->vm_private_data)
		segshm_detach(vma);
}

static int mapping_may_split(struct vm_area_struct *vma, unsigned long addr)
{
	return addr % SEGSHM_UNIT ? -EINVAL : 0;
}

/* The entries of the old place are gone by now; those of the new one come by faults. */
static int mapping_mremap(struct vm_area_struct *vma)
{
	return congruent(vma->vm_start, vma->vm_pgoff) ? 0 : -EINVAL;
}

/* Lets only that pass which changes nothing. */
static int mapping_mprotect(struct vm_area_struct *vma, unsigned long start, unsigned long end,
			    unsigned long newflags)
{
	return newflags == vma->vm_flags ? 0 : -EACCES;
}

/* An address whose VMA has to be entered. */
struct entering {
	struct work_struct work;
	struct mm_struct *mm;
	unsigned long address;
};

static void enter(struct work_struct *work)
{
	struct entering *entering = container_of(work, struct entering, work);
	struct vm_area_struct *vma;

	mmap_write_lock(entering->mm);
	vma = vma_lookup(entering->mm, entering->address);
	if (vma && vma->vm_ops == &segshm_vm_ops && !vma->vm_private_data)
		segshm_attach(vma);
	mmap_write_unlock(entering->mm);
}

/*
 * Enters a VMA that a child inherited. That needs the mmap lock for writing, so the fault is tried
 * again afterwards. It is done by a kernel thread, because registering gives up where a signal is
 * pending, and a fault within a system call would be tried again until the signal was handled,
 * which is after the system call. The mm stays: whoever faults has a user of it.
 */
static vm_fault_t enter_and_retry(struct vm_fault *vmf)
{
	struct entering entering = { .mm = vmf->vma->vm_mm, .address = vmf->address };

	if (!(vmf->flags & FAULT_FLAG_ALLOW_RETRY))
		return VM_FAULT_SIGBUS;
	if (vmf->flags & FAULT_FLAG_RETRY_NOWAIT)
		return VM_FAULT_RETRY;
	mmap_read_unlock(entering.mm);
	INIT_WORK_ONSTACK(&entering.work, enter);
	queue_work(segshm_workers, &entering.work);
	flush_work(&entering.work);
	destroy_work_on_stack(&entering.work);
	return VM_FAULT_RETRY;
}

/* The mmap lock is held for reading: the kernel calls no .fault under the lock of a VMA alone. */
static vm_fault_t mapping_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;

	/*
	 * Write protection by userfaultfd is in the tables, which are not this process's own. It
	 * can be asked for any kind of memory, and no VMA can refuse.
	 */
	if (userfaultfd_armed(vma) || !congruent(vma->vm_start, vma->vm_pgoff))
		return VM_FAULT_SIGBUS;
	if (!READ_ONCE(vma->vm_private_data))
		return enter_and_retry(vmf);
	return segshm_install(vmf, master_of(vma));
}

/*
 * For ptrace and /proc/PID/mem, where the fault could not be tried again: a child's memory that it
 * has not touched yet.
 */
static int mapping_access(struct vm_area_struct *vma, unsigned long addr, void *buf, int len,
			  int write)
{
	unsigned long page = vma->vm_pgoff + ((addr - vma->vm_start) >> PAGE_SHIFT);
	unsigned int offset = offset_in_page(addr);
	struct page *frame;
	void *bytes;

	if (!(vma->vm_flags & (write ? VM_WRITE : VM_READ)))
		return -EFAULT;
	frame = segshm_table_frame(master_of(vma)->tables[page / PTRS_PER_PTE],
				   page % PTRS_PER_PTE);
	if (!frame)
		return -EFAULT;
	len = min_t(int, len, PAGE_SIZE - offset);
	bytes = kmap_local_page(frame);
	if (write)
		memcpy(bytes + offset, buf, len);
	else
		memcpy(buf, bytes + offset, len);
	kunmap_local(bytes);
	return len;
}

const struct vm_operations_struct segshm_vm_ops = {
	.open = mapping_open,
	.close = mapping_close,
	.may_split = mapping_may_split,
	.mremap = mapping_mremap,
	.mprotect = mapping_mprotect,
	.fault = mapping_fault,
	.access = mapping_access,
};
