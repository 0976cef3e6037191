// SPDX-License-Identifier: GPL-2.0
/*
 * PTE pages. Each is filled when its master is made and does not change afterwards, but for bits
 * that the processor sets. The kernel may meet it through any mm that has it installed; so it
 * looks as those that the kernel allocates itself: it has a lock, counts as page table, and is
 * charged to a control group.
 */
#include <linux/memcontrol.h>
#include <linux/slab.h>
#include <linux/xarray.h>
#include <asm/pgtable.h>
#include "compat.h"
#include "segshm.h"

/* All PTE pages of all segments: page frame number to master. Read without a lock. */
static DEFINE_XARRAY(known_tables);

/*
 * The lock of a PTE page lies in its descriptor, unless it is too large for that (PREEMPT_RT,
 * lockdep). The kernel has a cache for those, which is not exported; nobody but this file frees
 * the lock of a shared PTE page, so it may come from anywhere.
 */
static bool make_lock(struct ptdesc *table)
{
#if ALLOC_SPLIT_PTLOCKS
	table->ptl = kmalloc(sizeof(*table->ptl), GFP_KERNEL_ACCOUNT);
	if (!table->ptl)
		return false;
#endif
	spin_lock_init(ptlock_ptr(table));
	return true;
}

static void free_lock(struct ptdesc *table)
{
#if ALLOC_SPLIT_PTLOCKS
	kfree(table->ptl);
	table->ptl = NULL;
#endif
}

/* Does what pagetable_pte_ctor() does, which does not link where locks are too large. */
static struct page *alloc_table(void)
{
	struct page *page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);

	if (!page)
		return NULL;
	if (!make_lock(page_ptdesc(page))) {
		__free_page(page);
		return NULL;
	}
	__folio_set_pgtable(page_folio(page));
	lruvec_stat_add_folio(page_folio(page), NR_PAGETABLE);
	return page;
}

static void free_table(struct page *page)
{
	free_lock(page_ptdesc(page));
	__folio_clear_pgtable(page_folio(page));
	lruvec_stat_sub_folio(page_folio(page), NR_PAGETABLE);
	__free_page(page);
}

struct segshm_master *segshm_master_alloc(struct segshm_segment *segment, unsigned long nr)
{
	struct segshm_master *master;

	master = kvzalloc(struct_size(master, tables, nr), GFP_KERNEL_ACCOUNT);
	if (master) {
		master->segment = segment;
		master->nr = nr;
	}
	return master;
}

/* Frees all PTE pages. No page table of any mm, and no TLB, may know them any more. */
void segshm_master_free(struct segshm_master *master)
{
	unsigned long i;

	for (i = 0; i < master->nr && master->tables[i]; i++) {
		xa_erase(&known_tables, page_to_pfn(master->tables[i]));
		free_table(master->tables[i]);
		cond_resched();
	}
	kvfree(master);
}

/*
 * Entries are as if the frame had been touched already: neither processor nor kernel has a reason
 * to write them later.
 */
static pte_t make_entry(struct page *frame, pgprot_t prot)
{
	pte_t entry = pte_mkyoung(mk_pte(frame, prot));

	return pte_write(entry) ? pte_mkdirty(entry) : entry;
}

int segshm_master_add(struct segshm_master *master, unsigned long index,
		      struct page *(*frame)(void *from, unsigned int index), void *from,
		      pgprot_t prot)
{
	struct page *table = alloc_table();
	unsigned int i;
	pte_t *entries;
	int error;

	if (!table)
		return -ENOMEM;
	entries = page_address(table);
	for (i = 0; i < PTRS_PER_PTE; i++)
		set_pte(&entries[i], make_entry(frame(from, i), prot));
	error = xa_err(xa_store(&known_tables, page_to_pfn(table), master, GFP_KERNEL_ACCOUNT));
	if (error) {
		free_table(table);
		return error;
	}
	master->tables[index] = table;
	return 0;
}

struct page *segshm_table_frame(struct page *table, unsigned int index)
{
	pte_t *entries = page_address(table);
	pte_t entry = READ_ONCE(entries[index]);

	/* A kernel path that was not thought of changed it: leak the frame rather than crash. */
	if (WARN_ON_ONCE(!pte_present(entry)))
		return NULL;
	return pte_page(entry);
}

struct segshm_master *segshm_table_master(pmd_t pmd)
{
	if (!pmd_present(pmd) || pmd_leaf(pmd))
		return NULL;
	return xa_load(&known_tables, pmd_pfn(pmd));
}
