/* SPDX-License-Identifier: GPL-2.0 */
/* What differs between the kernels that the module is built for: Linux 6.12 and later. */
#ifndef SEGSHM_COMPAT_H
#define SEGSHM_COMPAT_H

#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/version.h>
#include <asm/cpufeature.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#error "segshm needs Linux 6.12 or later"
#endif

#if !defined(CONFIG_X86_64) || !defined(CONFIG_MMU_NOTIFIER) || !defined(CONFIG_SHMEM)
#error "segshm needs x86-64, CONFIG_MMU_NOTIFIER and CONFIG_SHMEM"
#endif

/* Else the lock of a PTE page is that of an mm, and two processes would each take their own. */
#ifndef CONFIG_SPLIT_PTE_PTLOCKS
#error "segshm needs CONFIG_SPLIT_PTE_PTLOCKS: a kernel for four processors or more"
#endif

/* It counts the entries that map each frame, and would take those of shared tables for errors. */
#ifdef CONFIG_PAGE_TABLE_CHECK
#error "segshm cannot work with CONFIG_PAGE_TABLE_CHECK"
#endif

/* AMD's INVLPGB gives address spaces that many threads run an ASID for good (Linux 6.15). */
static inline bool segshm_has_global_asids(void)
{
#ifdef CONFIG_BROADCAST_TLB_FLUSH
	return cpu_feature_enabled(X86_FEATURE_INVLPGB);
#else
	return false;
#endif
}

/* The first parameter, always current->mm here, went away with Linux 7. */
static inline unsigned long segshm_mm_get_unmapped_area(struct file *file, unsigned long addr,
							unsigned long len, unsigned long pgoff,
							unsigned long flags)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 0, 0)
	return mm_get_unmapped_area(current->mm, file, addr, len, pgoff, flags);
#else
	return mm_get_unmapped_area(file, addr, len, pgoff, flags);
#endif
}

#endif
