//! A second Ctrl-C ends a program that waits for a page. No instruction of Python ends while the
//! processor waits for memory, so the first Ctrl-C is noted by Python and not heard. The thread
//! runs its C handlers all the same, and then tries the access again. So this one stands before
//! Python's: the same thread at the same machine instruction with the same registers, twice, is a
//! thread that waits for memory. (A thread in a system call is not: Python hears of the signal when
//! the call ends.)

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Registers that are compared, the place of the next instruction among them.
const REGISTERS: usize = 34;

/// Where the last signal met the process.
static LAST: [AtomicUsize; REGISTERS] = [const { AtomicUsize::new(0) }; REGISTERS];
/// Python's handler, and whether it takes three arguments.
static BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static TAKES_ALL: AtomicBool = AtomicBool::new(false);

/// Stands before the handler that there is now. Where there is none Ctrl-C ends the program, or is
/// ignored, anyway.
pub(crate) fn watch() {
    // SAFETY: zeroed is a valid sigaction, and both calls are given structures that outlive them.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGINT, std::ptr::null(), &mut action) != 0 {
            return;
        }
        let ours = on_interrupt as *const () as usize;
        if [ours, libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
            return;
        }
        BEFORE.store(action.sa_sigaction, SeqCst);
        TAKES_ALL.store(action.sa_flags & libc::SA_SIGINFO != 0, SeqCst);
        action.sa_sigaction = ours;
        action.sa_flags |= libc::SA_SIGINFO;
        libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut());
    }
}

/// Everything here may be done in a signal handler: atomic words, two system calls, and what
/// Python's handler does.
extern "C" fn on_interrupt(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gave the context of the instruction that was interrupted.
    let now = unsafe { registers(context.cast()) };
    let mut same = now.is_some();
    for (last, now) in LAST.iter().zip(now.unwrap_or([0; REGISTERS])) {
        same &= last.swap(now, SeqCst) == now;
    }
    if same {
        // SAFETY: the default action ends the program as soon as this handler returns.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        return;
    }
    let before = BEFORE.load(SeqCst);
    // SAFETY: `watch` found this handler with these flags.
    unsafe {
        if TAKES_ALL.load(SeqCst) {
            type All = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            std::mem::transmute::<usize, All>(before)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(before)(signal);
        }
    }
}

type Registers = [usize; REGISTERS];

/// The registers and the thread, unless it is in a system call.
///
/// # Safety
/// The context must be one that the kernel gave a signal handler.
#[cfg(target_arch = "x86_64")]
unsafe fn registers(context: *const libc::ucontext_t) -> Option<Registers> {
    // SAFETY: the caller's promise.
    let all = unsafe { &(*context).uc_mcontext.gregs };
    let mut found = [0; REGISTERS];
    let compared = libc::REG_RIP as usize + 1;
    all[..compared].iter().zip(&mut found).for_each(|(register, place)| *place = *register as usize);
    // SAFETY: it cannot fail.
    found[compared] = unsafe { libc::gettid() } as usize;
    let next = all[libc::REG_RIP as usize] as *const [u8; 2];
    // `syscall`, which is over or begins again. SAFETY: instructions can be read, also the two
    // bytes before one.
    let calls = unsafe { [next.read_unaligned(), next.sub(1).read_unaligned()] };
    (!calls.contains(&[0x0f, 0x05])).then_some(found)
}

/// # Safety
/// The context must be one that the kernel gave a signal handler.
#[cfg(target_arch = "aarch64")]
unsafe fn registers(context: *const libc::ucontext_t) -> Option<Registers> {
    // SAFETY: the caller's promise.
    let all = unsafe { &(*context).uc_mcontext };
    let mut found = [0; REGISTERS];
    let named = all.regs.iter().chain([&all.sp, &all.pc]);
    named.zip(&mut found).for_each(|(register, place)| *place = *register as usize);
    // SAFETY: it cannot fail.
    found[REGISTERS - 1] = unsafe { libc::gettid() } as usize;
    let next = all.pc as *const u32;
    // `svc 0`, which is over or begins again. SAFETY: instructions can be read, also the one
    // before.
    let calls = unsafe { [next.read(), next.sub(1).read()] };
    (!calls.contains(&0xd400_0001)).then_some(found)
}
