// SPDX-License-Identifier: GPL-2.0
/*
 * Flushing TLBs. The kernel's own functions for that are not exported to modules, or to those of
 * KVM alone (Linux 7.2).
 *
 * What is flushed is more than needed: a processor that runs the address space forgets its
 * translations of other address spaces too. It refills them within some microseconds. This happens
 * when a part of a segment is unmapped, never when one is used.
 */
#include <linux/smp.h>
#include <asm/cpufeature.h>
#include <asm/invpcid.h>
#include <asm/special_insns.h>
#include "compat.h"
#include "segshm.h"

/* A write that changes CR4.PGE flushes everything. */
static void write_cr4(unsigned long value)
{
	asm volatile("mov %0, %%cr4" : : "r" (value) : "memory");
}

/*
 * Flushes user memory under all PCIDs, and what the processor cached of upper levels of page
 * tables. It is called without interrupts. CR4 has the value afterwards that the kernel knows it to have.
 */
static void flush_this_cpu(void *unused)
{
	unsigned long cr4;

	if (boot_cpu_has(X86_FEATURE_INVPCID)) {
		invpcid_flush_all_nonglobals();
		return;
	}
	cr4 = native_read_cr4();
	write_cr4(cr4 ^ X86_CR4_PGE);
	write_cr4(cr4);
}

/*
 * Makes all processors forget what they know of an address space, after entries were cleared.
 *
 * A processor may be in one of three states. It runs the mm, or a kernel thread that borrowed it
 * (lazy TLB): then it is in mm_cpumask and gets the interrupt. It ran the mm before: then its
 * translations may be there under another PCID; it compares the mm's generation when it switches
 * back, and flushes. It switches to the mm just now: it sets its bit in mm_cpumask before it
 * reads the generation, and the increment is a full barrier before the mask is read here, so it
 * gets the interrupt or sees the new generation. flush_tlb_mm_range() relies on the same order.
 * (Its inc_mm_tlb_gen() is hidden from modules, but the generation is not.)
 */
void segshm_flush_mm(struct mm_struct *mm)
{
	atomic64_inc_return(&mm->context.tlb_gen);
	/* An mm with a global ASID has no generation that is compared. */
	if (segshm_has_global_asids())
		on_each_cpu(flush_this_cpu, NULL, true);
	else
		on_each_cpu_mask(mm_cpumask(mm), flush_this_cpu, NULL, true);
}

/* Makes all processors forget all. It waits for whoever walks page tables without interrupts. */
void segshm_flush_all(void)
{
	on_each_cpu(flush_this_cpu, NULL, true);
}
