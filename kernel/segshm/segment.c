// SPDX-License-Identifier: GPL-2.0
/*
 * Segments: the frames of a memfd, pinned, and the master page tables that map them. A segment
 * lives as long as a descriptor of it or a mapping: both hold a file, and each file holds the
 * segment.
 */
#include <linux/err.h>
#include <linux/file.h>
#include <linux/memcontrol.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>
#include <uapi/linux/fcntl.h>
#include "compat.h"
#include "segshm.h"

#define FRAMES PTRS_PER_PTE	/* of a PTE page, and so of a unit */

/* Whether a segment can be made of a file, and of how many bytes. */
static loff_t usable_size(struct file *memfd)
{
	const unsigned int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	const unsigned int against_writing = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
	struct inode *inode = file_inode(memfd);
	unsigned int seals;
	loff_t size;

	/* Memory of huge pages is no shmem: it has tables that the kernel can share itself. */
	if (!shmem_file(memfd))
		return -EINVAL;
	seals = READ_ONCE(SHMEM_I(inode)->seals);
	if ((seals & needed) != needed)
		return -EINVAL;
	if (!(memfd->f_mode & FMODE_READ) || !(memfd->f_mode & FMODE_WRITE) ||
	    (seals & against_writing))
		return -EACCES;
	size = i_size_read(inode);
	if (size <= 0 || size % SEGSHM_UNIT)
		return -EINVAL;
	/* What is missing would be allocated here, where nobody can be told that there is none. */
	if (inode->i_blocks < size >> SECTOR_SHIFT)
		return -ENODATA;
	return size;
}

/* What was pinned for one unit. */
struct unit {
	struct folio *folios[FRAMES];
	unsigned int nr;
	struct page *frames[FRAMES];
};

static struct page *frame_of_unit(void *from, unsigned int index)
{
	return ((struct unit *)from)->frames[index];
}

/* Memory that was reserved by fallocate() alone still has the bytes of who had it before. */
static int initialize(struct address_space *mapping, struct folio *folio)
{
	struct folio *same;

	if (folio_test_uptodate(folio))
		return 0;
	same = shmem_read_folio(mapping, folio->index);
	if (IS_ERR(same))
		return PTR_ERR(same);
	folio_put(same);
	/* It is another one if a hole was punched meanwhile. */
	return folio_test_uptodate(folio) ? 0 : -EAGAIN;
}

static int pin_unit(struct file *memfd, unsigned long index, struct unit *unit)
{
	loff_t start = (loff_t)index * SEGSHM_UNIT;
	unsigned int filled = 0, i;
	pgoff_t offset = 0;
	long nr, page;
	int error = 0;

	nr = memfd_pin_folios(memfd, start, start + SEGSHM_UNIT - 1, unit->folios, FRAMES, &offset);
	if (nr < 0)
		return nr;
	unit->nr = nr;
	page = offset >> PAGE_SHIFT;
	for (i = 0; i < unit->nr && !error; i++) {
		error = initialize(memfd->f_mapping, unit->folios[i]);
		for (; page < folio_nr_pages(unit->folios[i]) && filled < FRAMES; page++)
			unit->frames[filled++] = folio_page(unit->folios[i], page);
		page = 0;
	}
	if (!error && filled < FRAMES)
		error = -EAGAIN;
	if (error)
		unpin_folios(unit->folios, unit->nr);
	return error;
}

static int pin_and_map(struct segshm_segment *segment)
{
	pgprot_t prot = vm_get_page_prot(VM_READ | VM_WRITE | VM_SHARED);
	struct unit *unit = kmalloc(sizeof(*unit), GFP_KERNEL);
	unsigned long i;
	int error = 0;

	if (!unit)
		return -ENOMEM;
	for (i = 0; i < segment->nr && !error; i++) {
		error = fatal_signal_pending(current) ? -EINTR : pin_unit(segment->memfd, i, unit);
		if (error)
			break;
		error = segshm_master_add(segment->writable, i, frame_of_unit, unit, prot);
		if (error)
			unpin_folios(unit->folios, unit->nr);
		cond_resched();
	}
	kfree(unit);
	return error;
}

/* Frames may have been written by processors, of which their folios do not know. */
static void unpin_dirty(struct folio *folio)
{
	folio_lock(folio);
	folio_mark_dirty(folio);
	folio_unlock(folio);
	unpin_folio(folio);
}

/* A folio of several frames was pinned once for each unit, and its frames are side by side. */
static void unpin_all(struct segshm_master *master)
{
	struct folio *folio, *last;
	struct page *frame;
	unsigned long i;
	unsigned int j;

	for (i = 0; i < master->nr && master->tables[i]; i++) {
		last = NULL;
		for (j = 0; j < FRAMES; j++) {
			frame = segshm_table_frame(master->tables[i], j);
			folio = frame ? page_folio(frame) : last;
			if (folio != last)
				unpin_dirty(folio);
			last = folio;
		}
		cond_resched();
	}
}

static void destroy(struct segshm_segment *segment)
{
	u64 tables = segment->nr;

	if (segment->read_only)
		tables += segment->nr;
	/*
	 * No VMA is left, and with each its entries went. Somebody may still walk a table: with a
	 * lock of it (RCU), without interrupts (get_user_pages_fast), or a processor that runs a
	 * kernel thread on a dead mm.
	 */
	synchronize_rcu();
	segshm_flush_all();
	WARN_ON_ONCE(atomic_long_read(&segment->entries) || atomic_long_read(&segment->mappings));
	if (segment->read_only)
		segshm_master_free(segment->read_only);
	if (segment->writable) {
		unpin_all(segment->writable);
		segshm_master_free(segment->writable);
	}
	segshm_owner_uncharge(segment->owner, (u64)segment->nr * SEGSHM_UNIT, tables);
	mem_cgroup_put(segment->memcg);
	fput(segment->memfd);
	kfree(segment);
}

/* Takes over nothing: the segment has a reference of its own to the memfd. */
struct segshm_segment *segshm_segment_create(struct file *memfd, kuid_t uid)
{
	loff_t size = usable_size(memfd);
	struct segshm_segment *segment;
	int error = -ENOMEM;

	if (size < 0)
		return ERR_PTR(size);
	segment = kzalloc(sizeof(*segment), GFP_KERNEL_ACCOUNT);
	if (!segment)
		return ERR_PTR(-ENOMEM);
	segment->nr = size / SEGSHM_UNIT;
	segment->owner = segshm_owner_charge(uid, size, segment->nr);
	if (IS_ERR(segment->owner)) {
		error = PTR_ERR(segment->owner);
		kfree(segment);
		return ERR_PTR(error);
	}
	refcount_set(&segment->files, 1);
	mutex_init(&segment->lock);
	segment->memfd = get_file(memfd);
	segment->memcg = get_mem_cgroup_from_mm(current->mm);
	segment->writable = segshm_master_alloc(segment, segment->nr);
	if (segment->writable)
		error = pin_and_map(segment);
	if (error) {
		destroy(segment);
		return ERR_PTR(error);
	}
	return segment;
}

void segshm_segment_put(struct segshm_segment *segment)
{
	if (refcount_dec_and_test(&segment->files))
		destroy(segment);
}

static struct page *frame_of_table(void *from, unsigned int index)
{
	return segshm_table_frame(from, index);
}

/* Fills the read-only master from the writable one, on the account of the segment's creator. */
static struct segshm_master *make_read_only(struct segshm_segment *segment)
{
	pgprot_t prot = vm_get_page_prot(VM_READ | VM_SHARED);
	struct segshm_master *master = segshm_master_alloc(segment, segment->nr);
	unsigned long i;
	int error;

	if (!master)
		return ERR_PTR(-ENOMEM);
	for (i = 0; i < segment->nr; i++) {
		error = fatal_signal_pending(current) ? -EINTR :
			segshm_master_add(master, i, frame_of_table, segment->writable->tables[i],
					  prot);
		if (error) {
			segshm_master_free(master);
			return ERR_PTR(error);
		}
		cond_resched();
	}
	return master;
}

int segshm_segment_make_read_only(struct segshm_segment *segment)
{
	struct segshm_master *master;
	struct mem_cgroup *before;
	int error = 0;

	if (segshm_segment_master(segment, false))
		return 0;
	mutex_lock(&segment->lock);
	if (segment->read_only)
		goto out;
	error = segshm_owner_charge_tables(segment->owner, segment->nr);
	if (error)
		goto out;
	before = set_active_memcg(segment->memcg);
	master = make_read_only(segment);
	set_active_memcg(before);
	if (IS_ERR(master)) {
		error = PTR_ERR(master);
		segshm_owner_uncharge_tables(segment->owner, segment->nr);
	} else {
		/* Whoever sees the master sees its tables filled. */
		smp_store_release(&segment->read_only, master);
	}
out:
	mutex_unlock(&segment->lock);
	return error;
}

struct segshm_master *segshm_segment_master(struct segshm_segment *segment, bool writable)
{
	return writable ? segment->writable : smp_load_acquire(&segment->read_only);
}

void segshm_segment_info(struct segshm_segment *segment, struct segshm_info *info)
{
	info->size = (u64)segment->nr * SEGSHM_UNIT;
	info->tables = segment->nr;
	if (segshm_segment_master(segment, false))
		info->tables += segment->nr;
	info->entries = atomic_long_read(&segment->entries);
	info->mappings = atomic_long_read(&segment->mappings);
	info->owner = from_kuid_munged(current_user_ns(), segment->owner->uid);
}
