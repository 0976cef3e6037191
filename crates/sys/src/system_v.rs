//! System V segments, as much as the host asks of them.

/// The IPC namespace of this process, by the number that it has while it lives. None: /proc does not say.
pub fn namespace() -> Option<u64> {
    let link = std::fs::read_link("/proc/self/ns/ipc").ok()?;
    link.to_str()?.strip_prefix("ipc:[")?.strip_suffix(']')?.parse().ok()
}

/// Whether this namespace has no segment of that number any more. One that may not be looked at is there.
pub fn is_gone(number: i32) -> bool {
    // SAFETY: all zeros is a value of it.
    let mut stat: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // By the kernel's own call: a preloaded library may stand before the C library's.
    // SAFETY: the buffer is what the command fills, and lives until after the call.
    let answer = unsafe { libc::syscall(libc::SYS_shmctl, number, libc::IPC_STAT, &raw mut stat) };
    let errno = std::io::Error::last_os_error().raw_os_error();
    answer == -1 && matches!(errno, Some(libc::EINVAL | libc::EIDRM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_there_is_gone() {
        assert!(namespace().is_some());
        assert!(is_gone(-1) && is_gone(i32::MAX));
    }
}
