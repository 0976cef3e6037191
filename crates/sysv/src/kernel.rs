//! The kernel's four calls, past those of the C library: a preloaded library stands before these.

use libc::{c_int, c_long, shmid_ds};
use rustix::io::Errno;

pub use commonhold_sys::system_v::is_gone;

/// Not in libc.
pub(crate) const SHM_STAT: c_int = 13;
pub(crate) const SHM_STAT_ANY: c_int = 15;

fn result(answer: c_long) -> Result<c_long, Errno> {
    if answer == -1 {
        // SAFETY: the address of this thread's own number.
        let errno = unsafe { *libc::__errno_location() };
        return Err(Errno::from_raw_os_error(errno));
    }
    Ok(answer)
}

/// `shmget`.
pub fn get(key: i32, size: usize, flags: c_int) -> Result<c_int, Errno> {
    // SAFETY: numbers alone.
    result(unsafe { libc::syscall(libc::SYS_shmget, key, size, flags) }).map(|id| id as c_int)
}

/// `shmat`.
///
/// # Safety
/// With `SHM_REMAP`, nobody uses what is mapped there.
pub unsafe fn attach(id: c_int, address: usize, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: without SHM_REMAP the kernel takes free addresses alone; with it, the caller's promise.
    result(unsafe { libc::syscall(libc::SYS_shmat, id, address, flags) }).map(|address| address as usize)
}

/// `shmdt`.
///
/// # Safety
/// Nobody uses what is attached there.
pub unsafe fn detach(address: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    result(unsafe { libc::syscall(libc::SYS_shmdt, address) }).map(drop)
}

/// `shmctl`.
///
/// # Safety
/// `buffer` is what the command asks for.
pub unsafe fn control(id: c_int, command: c_int, buffer: *mut shmid_ds) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise.
    result(unsafe { libc::syscall(libc::SYS_shmctl, id, command, buffer) }).map(|answer| answer as c_int)
}

/// `IPC_STAT`.
pub fn stat(id: c_int) -> Result<shmid_ds, Errno> {
    // SAFETY: all zeros is a value of it.
    let mut stat: shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: the buffer is of the command's type, and lives until after the call.
    unsafe { control(id, libc::IPC_STAT, &raw mut stat) }?;
    Ok(stat)
}

/// What the kernel says of a segment that this process may not read, too.
pub fn stat_any(id: c_int) -> Result<shmid_ds, Errno> {
    match stat(id) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    // By its index, which is in the number's lowest 15 bits (`ipcmni_extend`: 24).
    for bits in [15, 24] {
        // SAFETY: all zeros is a value of it.
        let mut stat: shmid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: the buffer is of the command's type, and lives until after the call.
        if unsafe { control(id & ((1 << bits) - 1), SHM_STAT_ANY, &raw mut stat) } == Ok(id) {
            return Ok(stat);
        }
    }
    Err(Errno::ACCESS)
}

/// `IPC_RMID`.
pub fn remove(id: c_int) -> Result<(), Errno> {
    // SAFETY: the command takes no buffer.
    unsafe { control(id, libc::IPC_RMID, std::ptr::null_mut()) }.map(drop)
}
