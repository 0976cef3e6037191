//! Locks of the kernel that a process holds for as long as it likes.

use crate::wait;
use commonhold_sys::memory::{self, Wish};
use commonhold_sys::userfaultfd::{Kind, Modes, Userfaultfd};
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, AsRawFd};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of a page.
const PAGE: usize = 4096;

/// A write of a byte to a file, which never comes: the lock of the file's inode is held until this
/// value goes. Then it is zero.
pub struct StuckWrite {
    trap: Option<Userfaultfd>,
    thread: Option<JoinHandle<()>>,
}

impl StuckWrite {
    /// Begins it, in a thread of this process, which must be root's.
    pub fn new(file: impl AsFd, offset: u64) -> StuckWrite {
        let file = file.as_fd().try_clone_to_owned().expect("a descriptor");
        let (trap, kernel_faults) = Userfaultfd::create(Kind::Synchronous, None).expect("a userfaultfd");
        assert!(kernel_faults, "root notices what the kernel touches");
        let source = commonhold_sys::frames::create("trap", PAGE as u64).expect("memory");
        let page = memory::map(&source, 0, PAGE, wish(true)).expect("a page");
        let address = page.as_ptr().expose_provenance();
        let modes = Modes { missing: true, minor: false, write_protect: false };
        trap.register(address as u64, PAGE as u64, modes).expect("it is registered");
        let thread = std::thread::spawn(move || {
            let from = std::ptr::with_exposed_provenance(address);
            // SAFETY: reads a byte of a page that is mapped until the process ends. It is zeros as
            // soon as the userfaultfd is closed.
            unsafe { libc::pwrite(file.as_raw_fd(), from, 1, offset as i64) };
        });
        wait::until("the write waits for its bytes", || {
            let mut faults = Vec::new();
            trap.read_faults(&mut faults).ok()?;
            (!faults.is_empty()).then_some(())
        });
        StuckWrite { trap: Some(trap), thread: Some(thread) }
    }
}

impl Drop for StuckWrite {
    fn drop(&mut self) {
        self.trap.take();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Has this process hold the lock of its own address space for writing, from a moment from now
/// until the file system of that file answers or ends: a page of the file is being read, and a
/// mapping of the file waits for the page.
pub fn hold_address_space(path: &str) -> std::io::Result<()> {
    let reader = std::fs::File::open(path)?;
    let direct = rustix::fs::open(path, OFlags::RDONLY | OFlags::SYNC | OFlags::CLOEXEC, Mode::empty())?;
    std::thread::Builder::new().spawn(move || {
        let mut bytes = [0; 16];
        let _ = std::os::unix::fs::FileExt::read_at(&reader, &mut bytes, 0);
        // Not closed while it may wait.
        std::mem::forget(reader);
    })?;
    std::thread::Builder::new().spawn(move || {
        // The page is being read by then, and this process has said that it began.
        std::thread::sleep(Duration::from_millis(200));
        let _ = memory::map(&direct, 0, PAGE, wish(false));
        std::mem::forget(direct);
    })?;
    Ok(())
}

/// A mapping that may be written and is shared, or neither.
fn wish(write: bool) -> Wish {
    Wish {
        hint: std::ptr::null_mut(),
        fixed: false,
        write,
        private: !write,
        not_inherited: false,
        controlled: false,
    }
}

/// Whether a thread of that process waits in mmap(2).
pub fn holds_address_space(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().any(|thread| {
        let call = std::fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        call.split(' ').next() == Some(&libc::SYS_mmap.to_string())
    })
}
