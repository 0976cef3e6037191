//! What both engines promise: Ko & Yoo's four operations (3.2), both kinds of attaching at once (5.3), protection (5.4), and that
//! the kernel itself reaches what is attached. Within the emulated machine of `./run test-kernel` the module's engine is
//! tried by this very program.

#[path = "../../../tests/left_out.rs"]
mod left_out;

use commonhold_tables::{Attachment, Engine, HUGE, Hugetlb, Made, Module, Pool};
use left_out::left_out;
use rustix::mm::{MprotectFlags, mprotect};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// Three units of 2 MiB: more than one table of either engine's, and less than a gigabyte.
const SIZE: u64 = 3 * HUGE;
const PAGE: usize = 4096;

/// With each engine that this machine has; one test at a time.
fn engines(each: impl Fn(&dyn Engine)) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match Pool::more(2 * SIZE / HUGE) {
        Ok(_pool) => each(&Hugetlb),
        Err(error) => left_out(&format!("shared tables of huge pages: {error}")),
    }
    match Module::open() {
        Ok(module) => each(&module),
        Err(error) => left_out(&format!("shared tables of 4 KiB pages: {error}")),
    }
}

fn made(engine: &dyn Engine) -> Made {
    engine.make("commonhold-conformance", SIZE, 0).unwrap_or_else(|error| panic!("{engine:?}: {error}"))
}

fn get(attached: &Attachment, at: u64) -> u8 {
    assert!(at < SIZE);
    // SAFETY: within the segment, of which no reference is held.
    unsafe { attached.address().as_ptr().add(at as usize).read_volatile() }
}

fn set(attached: &Attachment, at: u64, value: u8) {
    assert!(at < SIZE);
    // SAFETY: as above; attached to write, or the process is to end by it.
    unsafe { attached.address().as_ptr().add(at as usize).write_volatile(value) }
}

fn attach(engine: &dyn Engine, segment: BorrowedFd<'_>) -> Attachment {
    engine.attach(segment, SIZE, None, true).unwrap_or_else(|error| panic!("{engine:?}: {error}"))
}

/// How a forked child ends that does this: its code, or 1000 and the signal.
fn child(what: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child calls nothing that another thread's lock could hold up: it touches memory and asks the kernel.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let code = what();
        // SAFETY: nothing of this process is to be ended in order.
        unsafe { libc::_exit(i32::from(code)) };
    }
    let mut status = 0;
    // SAFETY: waits for that child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFSIGNALED(status) { 1000 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

fn faults() -> i64 {
    // SAFETY: a structure that is all numbers is filled.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_minflt
    }
}

#[test]
fn what_one_writes_all_see_and_it_outlives_them() {
    engines(|engine| {
        let made = made(engine);
        let segment = made.descriptor.as_fd();
        let written = child(|| {
            let attached = attach(engine, segment);
            set(&attached, 0, 7);
            set(&attached, SIZE - 1, 8);
            0
        });
        assert_eq!(written, 0, "{engine:?}");
        let (one, other) = (attach(engine, segment), attach(engine, segment));
        assert_eq!((get(&one, 0), get(&one, SIZE - 1)), (7, 8), "{engine:?}");
        set(&one, HUGE, 9);
        assert_eq!(get(&other, HUGE), 9);
        drop(one);
        assert_eq!(get(&other, HUGE), 9, "one that detaches takes nothing from others");
        // A child has what its parent has attached.
        assert_eq!(child(|| get(&other, HUGE)), 9);
        assert_eq!(child(|| (set(&other, 5, 4), 0).1), 0);
        assert_eq!(get(&other, 5), 4);
    });
}

#[test]
fn the_second_process_finds_the_tables_there() {
    engines(|engine| {
        let made = made(engine);
        let first = attach(engine, made.descriptor.as_fd());
        (0..SIZE).step_by(PAGE).for_each(|at| set(&first, at, 1));
        let faults_of_second = child(|| {
            let attached = attach(engine, made.descriptor.as_fd());
            let before = faults();
            let sum: u64 = (0..SIZE).step_by(PAGE).map(|at| u64::from(get(&attached, at))).sum();
            if sum != SIZE / PAGE as u64 { 255 } else { u8::try_from(faults() - before).unwrap_or(254) }
        });
        assert!(faults_of_second <= 4, "{engine:?}: {faults_of_second} faults");
    });
}

#[test]
fn an_address_is_one_where_tables_begin() {
    engines(|engine| {
        let made = made(engine);
        let segment = made.descriptor.as_fd();
        let at = attach(engine, segment).address().as_ptr() as u64; // free again
        assert!(at.is_multiple_of(engine.unit_bytes()), "{engine:?}: {at:#x}");
        let attached = engine.attach(segment, SIZE, Some(at), true).unwrap();
        assert_eq!(attached.address().as_ptr() as u64, at);
        assert!(engine.attach(segment, SIZE, Some(at), true).is_err(), "{engine:?}: something is there");
        drop(attached);
        let error = engine.attach(segment, SIZE, Some(at + PAGE as u64), true).unwrap_err();
        assert!(error.to_string().contains("nearest"), "{engine:?}: {error}");
    });
}

#[test]
fn who_attaches_to_read_writes_nothing() {
    engines(|engine| {
        let made = made(engine);
        let writer = attach(engine, made.descriptor.as_fd());
        set(&writer, 3, 5);
        let readers: OwnedFd = engine.for_readers(made.descriptor.as_fd()).unwrap();
        assert!(engine.attach(readers.as_fd(), SIZE, None, true).is_err(), "{engine:?}");
        let reader = engine.attach(readers.as_fd(), SIZE, None, false).unwrap();
        assert_eq!(get(&reader, 3), 5);
        assert_eq!(child(|| (set(&reader, 3, 6), 0).1), 1000 + libc::SIGSEGV, "{engine:?}");
        let more = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: nothing is mapped otherwise by it.
        let raised = unsafe { mprotect(reader.address().as_ptr().cast(), SIZE as usize, more) };
        assert!(raised.is_err(), "{engine:?}");
        assert_eq!(get(&writer, 3), 5);
    });
}

#[test]
fn tables_of_ones_own_are_beside() {
    engines(|engine| {
        let made = made(engine);
        let segment = made.descriptor.as_fd();
        let own = |at| engine.attach_own(segment, 0, SIZE as usize, at, true).unwrap();
        let before = own(None);
        set(&before, 1, 1);
        let shared = attach(engine, segment);
        let after = own(None);
        assert_eq!((get(&shared, 1), get(&after, 1)), (1, 1), "{engine:?}");
        set(&shared, HUGE, 2);
        assert_eq!((get(&before, HUGE), get(&after, HUGE)), (2, 2));
        // A protection of its own, which no other has.
        // SAFETY: the part is read alone from here on.
        unsafe { mprotect(before.address().as_ptr().cast(), HUGE as usize, MprotectFlags::READ) }.unwrap();
        assert_eq!(child(|| (set(&before, 1, 9), 0).1), 1000 + libc::SIGSEGV, "{engine:?}");
        set(&shared, 1, 3);
        assert_eq!(get(&before, 1), 3);
        // One to read alone is no way to more.
        let readers = engine.for_readers(segment).unwrap();
        assert!(engine.attach_own(readers.as_fd(), 0, SIZE as usize, None, true).is_err(), "{engine:?}");
        let part = engine.attach_own(readers.as_fd(), HUGE, HUGE as usize, None, false).unwrap();
        assert_eq!(get(&part, 0), 2);
    });
}

#[test]
fn the_kernel_reaches_it_too() {
    engines(|engine| {
        let made = made(engine);
        let attached = attach(engine, made.descriptor.as_fd());
        let place = attached.address().as_ptr();
        // Calls that read and write.
        let mut file = tempfile();
        std::io::Write::write_all(&mut file, b"bytes").unwrap();
        // SAFETY: five bytes within the segment.
        let read = unsafe { libc::pread(std::os::fd::AsRawFd::as_raw_fd(&file), place.cast(), 5, 0) };
        assert_eq!((read, get(&attached, 4)), (5, b's'), "{engine:?}");
        // Another process's view of this one.
        let mut copy = [0u8; 5];
        let local = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: 5 };
        let remote = libc::iovec { iov_base: place.cast(), iov_len: 5 };
        // SAFETY: five bytes each.
        let copied =
            unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
        assert_eq!((copied, &copy), (5, b"bytes"), "{engine:?}");
        // A futex that processes share: a child wakes its parent.
        let word = place.wrapping_add(HUGE as usize).cast::<u32>();
        let woken = std::thread::scope(|threads| {
            let word = word as usize;
            let waits = threads.spawn(move || {
                let time = libc::timespec { tv_sec: 20, tv_nsec: 0 };
                // SAFETY: an aligned word of the segment, which stays attached.
                unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, 0, &raw const time) }
            });
            let wake = || {
                // SAFETY: as above.
                let woken = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, 1) };
                u8::try_from(woken).unwrap_or(0)
            };
            while child(wake) == 0 {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            waits.join().unwrap()
        });
        assert_eq!(woken, 0, "{engine:?}: {}", std::io::Error::last_os_error());
    });
}

fn tempfile() -> std::fs::File {
    rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into()
}
