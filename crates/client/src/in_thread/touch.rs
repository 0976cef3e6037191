//! A read that fails instead of raising SIGBUS, for the SIGBUS handler.
//!
//! The reading instruction has a name. When a SIGBUS comes from there, the (nested) handler moves the thread on to the
//! failing end of the same function. No stack is left behind and nothing is jumped over, as siglongjmp would.

/// Reads one byte; false: it cannot be had.
pub(super) fn read(address: *const u8) -> bool {
    // SAFETY: the function reads one byte and changes nothing; if the page cannot be had, SIGBUS comes, whose handler
    // is the one that calls this, and which knows what to do with it (see `failed`).
    unsafe { commonhold_touch(address) == 0 }
}

/// Whether the signal comes from that read. If so, the thread goes on at its failing end when the handler returns.
pub(super) fn failed(context: *mut libc::c_void) -> bool {
    // SAFETY: the kernel passes the thread's ucontext, which the handler may change.
    let at = unsafe { program_counter(&mut *context.cast::<libc::ucontext_t>()) };
    let reads = &raw const commonhold_touch_reads as u64;
    if *at as u64 != reads {
        return false;
    }
    *at = &raw const commonhold_touch_failed as u64 as Register;
    true
}

#[cfg(target_arch = "x86_64")]
type Register = i64;
#[cfg(target_arch = "aarch64")]
type Register = u64;

#[cfg(target_arch = "x86_64")]
fn program_counter(context: &mut libc::ucontext_t) -> &mut Register {
    &mut context.uc_mcontext.gregs[libc::REG_RIP as usize]
}

#[cfg(target_arch = "aarch64")]
fn program_counter(context: &mut libc::ucontext_t) -> &mut Register {
    &mut context.uc_mcontext.pc
}

// SAFETY: the names are those of the code below: one function, and two places in it.
unsafe extern "C" {
    fn commonhold_touch(address: *const u8) -> u32;
    static commonhold_touch_reads: u8;
    static commonhold_touch_failed: u8;
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text",
    ".globl commonhold_touch",
    ".hidden commonhold_touch",
    ".type commonhold_touch, @function",
    "commonhold_touch:",
    ".globl commonhold_touch_reads",
    ".hidden commonhold_touch_reads",
    "commonhold_touch_reads:",
    "mov al, byte ptr [rdi]",
    "xor eax, eax",
    "ret",
    ".globl commonhold_touch_failed",
    ".hidden commonhold_touch_failed",
    "commonhold_touch_failed:",
    "mov eax, 1",
    "ret",
    ".size commonhold_touch, . - commonhold_touch",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text",
    ".globl commonhold_touch",
    ".hidden commonhold_touch",
    ".type commonhold_touch, @function",
    ".balign 4",
    "commonhold_touch:",
    ".globl commonhold_touch_reads",
    ".hidden commonhold_touch_reads",
    "commonhold_touch_reads:",
    "ldrb w1, [x0]",
    "mov w0, #0",
    "ret",
    ".globl commonhold_touch_failed",
    ".hidden commonhold_touch_failed",
    "commonhold_touch_failed:",
    "mov w0, #1",
    "ret",
    ".size commonhold_touch, . - commonhold_touch",
    ".popsection",
);
