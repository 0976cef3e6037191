// SPDX-License-Identifier: GPL-2.0
/*
 * Address spaces: PMD entries that point to shared PTE pages are installed by faults, and cleared
 * before anything in the kernel zaps, protects or frees what is below them.
 *
 * The kernel announces all that to MMU notifiers, before (start) and after (end). Whoever announces
 * may hold the mmap lock for writing, for reading, or only the lock of a VMA; a fault may run at
 * the same time. So:
 *
 *   start:  under the attachment's lock, count the invalidation; then clear the entries.
 *   fault:  under the attachment's lock, install, but nothing that is being invalidated.
 *   end:    under the attachment's lock, count it down.
 *
 * A fault that had the lock before start installed what start then clears; one that had it
 * afterwards installs nothing. Between start and end there is no entry of ours in the range.
 *
 * Locks nest so: mmap lock or VMA lock, attachment's lock, lock of the PMD page.
 */
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <asm/pgalloc.h>
#include "compat.h"
#include "segshm.h"

static struct segshm_attachment *attachment_of(struct mmu_notifier *notifier)
{
	return container_of(notifier, struct segshm_attachment, notifier);
}

/* --- clearing ------------------------------------------------------------------------------- */

/*
 * The PMD entry for an address: NULL where there is no PMD page, and then *next is the address
 * where the next one may be.
 */
static pmd_t *find_entry(struct mm_struct *mm, unsigned long addr, unsigned long *next)
{
	pgd_t *pgd = pgd_offset(mm, addr);
	p4d_t *p4d;
	pud_t *pud;

	*next = ALIGN(addr + 1, PGDIR_SIZE);
	if (pgd_none(*pgd))
		return NULL;
	p4d = p4d_offset(pgd, addr);
	*next = ALIGN(addr + 1, P4D_SIZE);
	if (p4d_none(*p4d))
		return NULL;
	pud = pud_offset(p4d, addr);
	*next = ALIGN(addr + 1, PUD_SIZE);
	if (!pud_present(*pud) || pud_leaf(*pud))
		return NULL;
	*next = ALIGN(addr + 1, PMD_SIZE);
	return pmd_offset(pud, addr);
}

/* Clears an entry, if it points to a table of a segment. */
static bool clear_entry(struct mm_struct *mm, pmd_t *pmd)
{
	struct segshm_master *master;
	spinlock_t *lock;

	if (!segshm_table_master(pmdp_get_lockless(pmd)))
		return false;
	lock = pmd_lock(mm, pmd);
	master = segshm_table_master(*pmd);
	if (master) {
		pmd_clear(pmd);
		atomic_long_dec(&master->segment->entries);
	}
	spin_unlock(lock);
	return master;
}

static bool clear_entries(struct segshm_attachment *attachment, unsigned long start,
			  unsigned long end)
{
	struct mm_struct *mm = attachment->notifier.mm;
	unsigned long addr, next;
	bool cleared = false;
	pmd_t *pmd;

	spin_lock(&attachment->lock);
	start = max(start, attachment->first) & PMD_MASK;
	end = min(end, attachment->last);
	spin_unlock(&attachment->lock);
	for (addr = start; addr < end; addr = next) {
		pmd = find_entry(mm, addr, &next);
		if (pmd && clear_entry(mm, pmd))
			cleared = true;
	}
	return cleared;
}

void segshm_clear(struct segshm_attachment *attachment, unsigned long start, unsigned long end)
{
	/* Whoever comes next finds no entry and so would not flush. */
	if (clear_entries(attachment, start, end))
		segshm_flush_mm(attachment->notifier.mm);
}

/* --- installing ----------------------------------------------------------------------------- */

static bool being_invalidated(struct segshm_attachment *attachment, unsigned long addr)
{
	return attachment->invalidations && addr < attachment->invalid_end &&
	       addr + PMD_SIZE > attachment->invalid_start;
}

/*
 * Installs what is missing in the gigabyte of the address, as far as the VMA goes: all of that is
 * in one PMD page, under one lock. Returns 0 if the entry of the address is there afterwards,
 * -EAGAIN if it is being invalidated, -EBUSY if the mm has a table of its own there.
 */
static int install_entries(struct segshm_attachment *attachment, struct vm_fault *vmf,
			   struct segshm_master *master)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long wanted = vmf->address & PMD_MASK;
	unsigned long addr = max(vmf->address & PUD_MASK, vma->vm_start);
	unsigned long last = min(vmf->address | ~PUD_MASK, vma->vm_end - 1);
	unsigned long index = (vma->vm_pgoff + ((addr - vma->vm_start) >> PAGE_SHIFT)) /
			      PTRS_PER_PTE;
	pmd_t *pmd = vmf->pmd - pmd_index(vmf->address) + pmd_index(addr);
	spinlock_t *lock = pmd_lock(vma->vm_mm, vmf->pmd);
	int result = -EAGAIN;

	for (; addr < last; addr += PMD_SIZE, index++, pmd++) {
		if (being_invalidated(attachment, addr))
			continue;
		if (pmd_none(*pmd)) {
			pmd_populate(vma->vm_mm, pmd, master->tables[index]);
			atomic_long_inc(&master->segment->entries);
		}
		if (addr == wanted)
			result = segshm_table_master(*pmd) == master ? 0 : -EBUSY;
	}
	spin_unlock(lock);
	return result;
}

vm_fault_t segshm_install(struct vm_fault *vmf, struct segshm_master *master)
{
	struct segshm_attachment *attachment = vmf->vma->vm_private_data;
	int result;

	spin_lock(&attachment->lock);
	result = install_entries(attachment, vmf, master);
	spin_unlock(&attachment->lock);
	if (result == -EBUSY)
		return VM_FAULT_SIGBUS;
	/*
	 * Gives way to who invalidates, who may run with less priority. The time is limited, so that
	 * nobody can wait for each other for good.
	 */
	if (result == -EAGAIN && !(vmf->flags & FAULT_FLAG_RETRY_NOWAIT))
		wait_event_timeout(attachment->idle, !READ_ONCE(attachment->invalidations), HZ / 50);
	return VM_FAULT_NOPAGE;
}

/* --- the notifier --------------------------------------------------------------------------- */

/* Nothing here waits for memory or for a lock that is held for long: it need not be blockable. */
static int invalidate_start(struct mmu_notifier *notifier, const struct mmu_notifier_range *range)
{
	struct segshm_attachment *attachment = attachment_of(notifier);

	spin_lock(&attachment->lock);
	if (attachment->invalidations++) {
		attachment->invalid_start = min(attachment->invalid_start, range->start);
		attachment->invalid_end = max(attachment->invalid_end, range->end);
	} else {
		attachment->invalid_start = range->start;
		attachment->invalid_end = range->end;
	}
	spin_unlock(&attachment->lock);
	segshm_clear(attachment, range->start, range->end);
	return 0;
}

static void invalidate_end(struct mmu_notifier *notifier, const struct mmu_notifier_range *range)
{
	struct segshm_attachment *attachment = attachment_of(notifier);
	bool idle;

	spin_lock(&attachment->lock);
	idle = !--attachment->invalidations;
	spin_unlock(&attachment->lock);
	if (idle)
		wake_up_all(&attachment->idle);
}

/*
 * The mm has no user any more: nobody faults, and no thread runs in it. Processors that keep it for
 * a kernel thread are made to forget it before tables are freed (segment.c).
 */
static void release(struct mmu_notifier *notifier, struct mm_struct *mm)
{
	clear_entries(attachment_of(notifier), 0, ULONG_MAX);
}

static struct mmu_notifier *alloc_notifier(struct mm_struct *mm)
{
	struct segshm_attachment *attachment = kzalloc(sizeof(*attachment), GFP_KERNEL_ACCOUNT);

	if (!attachment)
		return ERR_PTR(-ENOMEM);
	/* The caller has a file of the module. */
	__module_get(THIS_MODULE);
	spin_lock_init(&attachment->lock);
	init_waitqueue_head(&attachment->idle);
	attachment->first = ULONG_MAX;
	return &attachment->notifier;
}

static void free_notifier(struct mmu_notifier *notifier)
{
	kfree(attachment_of(notifier));
	/* What remains to be run of this is waited for by mmu_notifier_synchronize(). */
	module_put(THIS_MODULE);
}

static const struct mmu_notifier_ops notifier_ops = {
	.invalidate_range_start = invalidate_start,
	.invalidate_range_end = invalidate_end,
	.release = release,
	.alloc_notifier = alloc_notifier,
	.free_notifier = free_notifier,
};

int segshm_attach(struct vm_area_struct *vma)
{
	struct mmu_notifier *notifier = mmu_notifier_get_locked(&notifier_ops, vma->vm_mm);
	struct segshm_attachment *attachment;

	if (IS_ERR(notifier))
		return PTR_ERR(notifier);
	attachment = attachment_of(notifier);
	spin_lock(&attachment->lock);
	attachment->first = min(attachment->first, vma->vm_start);
	attachment->last = max(attachment->last, vma->vm_end);
	spin_unlock(&attachment->lock);
	WRITE_ONCE(vma->vm_private_data, attachment);
	return 0;
}

void segshm_detach(struct vm_area_struct *vma)
{
	struct segshm_attachment *attachment = vma->vm_private_data;

	mmu_notifier_put(&attachment->notifier);
}
