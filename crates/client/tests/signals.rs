//! In-thread service beside other handlers of SIGBUS, with a real host (see `common/real.rs`). Each test has a process of
//! its own, because a handler is the whole process's.

mod common;

use common::real::{PAGE, PAGES, RealHost};
use common::{in_own_process, ordered, word};
use commonhold::{Host, MapFlags, MapOptions, Mapping, Object};
use libc::{c_int, c_void, siginfo_t};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Gives the action that was there before.
fn install(handler: Option<Handler>, flags: c_int) -> libc::sigaction {
    // SAFETY: zeroed sigactions are valid; the handlers of this file have the signature that SA_SIGINFO names.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler.map_or(libc::SIG_DFL, |handler| handler as *const () as usize);
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | flags;
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, &mut before), 0);
        before
    }
}

static SEEN: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);
static WAS_BLOCKED: AtomicBool = AtomicBool::new(false);

/// What programs do that read files which others truncate: a page of zeroes is put where the access failed.
extern "C" fn repair(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo; the page at the address is one that cannot be had.
    unsafe {
        let address = (*info).si_addr() as usize;
        SEEN.store(address, Ordering::SeqCst);
        CALLS.fetch_add(1, Ordering::SeqCst);
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        WAS_BLOCKED.store(libc::sigismember(&mask, libc::SIGBUS) == 1, Ordering::SeqCst);
        libc::mmap(
            (address & !(PAGE - 1)) as *mut c_void,
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        );
    }
}

fn mapped(real: &RealHost) -> (Object, Mapping) {
    let host = Host::connect_to(&real.directory).unwrap();
    let object = host.create("/own", &ordered((PAGES * PAGE) as u64), None).unwrap();
    let flags = MapFlags { in_thread: true, ..MapFlags::default() };
    let mapping = object.map(&MapOptions { flags, ..MapOptions::default() }).unwrap();
    (object, mapping)
}

fn count_up(mapping: &Mapping, pages: std::ops::Range<usize>) {
    for page in pages {
        let before = word(mapping.as_ptr(), page * PAGE).fetch_add(page as u64 + 1, Ordering::SeqCst);
        assert_eq!(before, 0, "page {page}");
    }
}

/// A page of a file that is too short.
fn past_the_end() -> usize {
    let file = commonhold_sys::frames::create("too-short", 0).unwrap();
    // SAFETY: a new mapping at an address that the kernel chooses.
    let address = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        libc::mmap(std::ptr::null_mut(), PAGE, protection, libc::MAP_SHARED, fd, 0)
    };
    assert_ne!(address, libc::MAP_FAILED);
    address as usize
}

#[test]
fn a_handler_from_before_gets_what_is_not_ours_and_what_cannot_be_had() {
    if !in_own_process("a_handler_from_before_gets_what_is_not_ours_and_what_cannot_be_had") {
        return;
    }
    let Some(real) = RealHost::start() else { return };
    install(Some(repair), 0);
    let (object, mapping) = mapped(&real);
    count_up(&mapping, 0..20);
    assert_eq!(CALLS.load(Ordering::SeqCst), 0, "these are ours");
    let foreign = past_the_end();
    assert_eq!(word(foreign as *mut u8, 16).load(Ordering::SeqCst), 0);
    assert_eq!(SEEN.load(Ordering::SeqCst), foreign + 16);
    assert!(WAS_BLOCKED.load(Ordering::SeqCst), "as its flags ask for");
    object.resize(30 * PAGE as u64).unwrap();
    // Its own access failed, whatever the library tried in between.
    assert_eq!(word(mapping.as_ptr(), 40 * PAGE + 8).load(Ordering::SeqCst), 0);
    assert_eq!(SEEN.load(Ordering::SeqCst), mapping.as_ptr() as usize + 40 * PAGE + 8);
    assert_eq!(CALLS.load(Ordering::SeqCst), 2);
    count_up(&mapping, 20..30);
    assert_eq!(CALLS.load(Ordering::SeqCst), 2);
}

static OURS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn passes_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the library's handler, as `sigaction` gave it; it is of that signature.
    let ours: Handler = unsafe { std::mem::transmute(OURS.load(Ordering::SeqCst)) };
    ours(signal, info, context);
}

#[test]
fn a_handler_from_after_may_pass_on() {
    if !in_own_process("a_handler_from_after_may_pass_on") {
        return;
    }
    let Some(real) = RealHost::start() else { return };
    install(Some(repair), 0);
    let (object, mapping) = mapped(&real);
    let ours = install(Some(passes_on), libc::SA_NODEFER);
    OURS.store(ours.sa_sigaction, Ordering::SeqCst);
    count_up(&mapping, 0..20);
    assert!(CALLS.load(Ordering::SeqCst) >= 1);
    object.resize(30 * PAGE as u64).unwrap();
    assert_eq!(word(mapping.as_ptr(), 40 * PAGE).load(Ordering::SeqCst), 0);
    assert_eq!(SEEN.load(Ordering::SeqCst), mapping.as_ptr() as usize + 40 * PAGE);
    let foreign = past_the_end();
    assert_eq!(word(foreign as *mut u8, 8).load(Ordering::SeqCst), 0);
    assert_eq!(SEEN.load(Ordering::SeqCst), foreign + 8);
}

#[test]
fn without_another_handler_sigbus_ends_the_process_as_ever() {
    if !in_own_process("without_another_handler_sigbus_ends_the_process_as_ever") {
        return;
    }
    let Some(real) = RealHost::start() else { return };
    install(None, 0);
    let (object, mapping) = mapped(&real);
    count_up(&mapping, 0..5);
    object.resize(10 * PAGE as u64).unwrap();
    let ends: [&dyn Fn(); 3] = [
        // SAFETY: sends this process a signal.
        &|| assert_eq!(unsafe { libc::raise(libc::SIGBUS) }, 0),
        &|| assert_eq!(word(past_the_end() as *mut u8, 0).load(Ordering::SeqCst), 0),
        &|| assert_eq!(word(mapping.as_ptr(), 20 * PAGE).load(Ordering::SeqCst), 0),
    ];
    for (i, end) in ends.iter().enumerate() {
        // SAFETY: the child does one thing and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            end();
            // SAFETY: ends the child, which should not have come here.
            unsafe { libc::_exit(3) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert!(libc::WIFSIGNALED(status), "way {i}: status {status:#x}");
        assert_eq!(libc::WTERMSIG(status), libc::SIGBUS, "way {i}");
    }
    count_up(&mapping, 5..10);
}

/// What the handler itself may need of an alternate stack, without optimization, beside the kernel's frame.
const HANDLER_BYTES: usize = 4096;

#[test]
fn a_small_alternate_stack_is_enough() {
    if !in_own_process("a_small_alternate_stack_is_enough") {
        return;
    }
    let Some(real) = RealHost::start() else { return };
    install(Some(repair), 0);
    let (object, mapping) = mapped(&real);
    object.resize(30 * PAGE as u64).unwrap();
    // SAFETY: asks for a number.
    let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    let used = std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            let mut stack = vec![0xa5u8; 256 * 1024];
            let ours = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
            // SAFETY: a zeroed stack_t is filled in; the stack lives until the former is set again.
            let mut before: libc::stack_t = unsafe { std::mem::zeroed() };
            // SAFETY: as above.
            assert_eq!(unsafe { libc::sigaltstack(&ours, &mut before) }, 0);
            count_up(&mapping, 0..30);
            // The deepest: the read behind it fails too, within the handler.
            word(mapping.as_ptr(), 40 * PAGE).load(Ordering::SeqCst);
            // SAFETY: as above.
            assert_eq!(unsafe { libc::sigaltstack(&before, std::ptr::null_mut()) }, 0);
            // SAFETY: volatile, because the compiler does not know who wrote there.
            let at = |i: usize| unsafe { stack.as_ptr().add(i).read_volatile() };
            stack.len() - (0..stack.len()).find(|i| at(*i) != 0xa5).unwrap()
        });
        thread.join().unwrap()
    });
    assert_eq!(CALLS.load(Ordering::SeqCst), 1);
    println!("{used} bytes were used; the kernel's frame may have {frame}");
    assert!(used > 512, "the handler ran there");
    assert!(used <= 2 * frame + HANDLER_BYTES, "{used} bytes were used, with two frames of at most {frame}");
}
