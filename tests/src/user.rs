//! Being another user for a moment: connections say who made them, and the kernel notes who a file's owner is.

/// Runs this as that user, with that group alone. The other threads of the test stay who they are.
pub fn as_user<T: Send>(uid: u32, job: impl FnOnce() -> T + Send) -> T {
    let run = || {
        // By the kernel's own calls: those of the C library change every thread.
        // SAFETY: each changes numbers of this thread alone; the empty list of groups is not read.
        let changed = unsafe {
            libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) == 0
                && libc::syscall(libc::SYS_setresgid, uid, uid, uid) == 0
                && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
        };
        assert!(changed, "becoming user {uid}: {}", std::io::Error::last_os_error());
        job()
    };
    std::thread::scope(|threads| match threads.spawn(run).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
