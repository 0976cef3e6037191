//! Threads that do little at a time and are waited for.
//!
//! A thread that wakes beside one that computes waits until the scheduler thinks that enough of the other's time is used:
//! milliseconds, by default. One that asks for short times (sched_setattr, since Linux 6.12) is let in at once, and gets
//! no more time in all than others. Older kernels take no notice.

use std::io;
use std::num::NonZeroU64;

/// The shortest time that can be asked for.
const SLICE_NANOSECONDS: u64 = 100_000;

/// This thread works for short times only, and is to begin soon after it wakes; from a sleep it wakes in time, which is 50 µs
/// late by default.
pub fn ask_for_short() -> io::Result<()> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    // SAFETY: zeroed is a valid sched_attr (plain numbers).
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as u32;
    let call = libc::SYS_sched_getattr;
    // SAFETY: the kernel fills at most `size` bytes of the structure, which outlives the call.
    let got = unsafe { libc::syscall(call, 0, &raw mut attributes, size, 0u32) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(()); // somebody has chosen otherwise
    }
    attributes.sched_runtime = SLICE_NANOSECONDS;
    // SAFETY: the structure is whole, says its own size, and outlives the call.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0u32) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_thread_may_ask() {
        std::thread::spawn(|| super::ask_for_short().unwrap()).join().unwrap();
    }
}
