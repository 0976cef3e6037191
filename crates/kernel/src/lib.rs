//! Calls to Linux without a C library, on x86-64: for what is in a program before its C library is, or where there is
//! none (`crates/start`, `crates/code/runtime`). It allocates nothing, has no data, and calls nothing that would have
//! to be linked; what only one of these two needs is there, by [`call`].
#![no_std]
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod file;
pub mod number;
mod process;

pub use file::{File, Plain, Status};
pub use process::{exit, say, user};

use core::arch::asm;

/// Calls the kernel; a number below 0 is an error.
///
/// # Safety
/// The arguments are what the call of that number wants.
#[inline(always)]
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller passes what the call wants.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}
