//! Ends waits of the kernel that nothing else ends: a signal for the thread that may wait, again and again.
//!
//! The close of a socket may wait until what was sent has arrived (SO_LINGER), for as long as whoever opened it likes. A
//! signal ends that wait, and the close is done all the same.

use std::cell::OnceCell;
use std::ptr;
use std::sync::Once;

/// How long a wait lasts at most.
const TICK_NS: i64 = 2_000_000;

/// Nothing else uses it here, and without a handler it does nothing.
const SIGNAL: libc::c_int = libc::SIGURG;

extern "C" fn nothing(_: libc::c_int) {}

fn install_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a zeroed sigaction is a valid one; the handler touches nothing. It is without SA_RESTART: calls that wait
        // end. Refused it cannot be: the signal exists, and is not one of those that nobody may handle.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            action.sa_flags = libc::SA_ONSTACK;
            libc::sigaction(SIGNAL, &action, ptr::null_mut());
        }
    });
}

/// A timer that signals the thread which made it.
struct Timer(Option<libc::timer_t>);

impl Timer {
    fn new() -> Timer {
        install_handler();
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: a zeroed sigevent is a valid one, and its thread is this one; the kernel writes the timer's number.
        let made = unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_notify_thread_id = libc::gettid();
            libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) == 0
        };
        // Refused where the user has too many signals queued (RLIMIT_SIGPENDING): then the wait takes what it takes.
        Timer(made.then_some(timer))
    }

    fn set(&self, nanoseconds: i64) {
        let Some(timer) = self.0 else { return };
        let every = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds as libc::c_long };
        let setting = libc::itimerspec { it_interval: every, it_value: every };
        // SAFETY: the timer is this thread's, and lives; the setting is read during the call. It is not refused: the times
        // are in range.
        unsafe { libc::timer_settime(timer, 0, &setting, ptr::null_mut()) };
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(timer) = self.0 {
            // SAFETY: made by `new`, and deleted once.
            unsafe { libc::timer_delete(timer) };
        }
    }
}

thread_local! {
    static TIMER: OnceCell<Timer> = const { OnceCell::new() };
}

/// Stops the signals, whatever the job did.
struct Stop;

impl Drop for Stop {
    fn drop(&mut self) {
        // At the end of a thread the timer may be gone, and then signals nobody.
        let _ = TIMER.try_with(|timer| timer.get_or_init(Timer::new).set(0));
    }
}

/// Does a job whose waits are ended by a signal after some milliseconds, each of them. Its calls may end with EINTR.
pub fn interrupting<T>(job: impl FnOnce() -> T) -> T {
    // At the end of a thread there may be no timer any more: then the wait takes what it takes.
    let _ = TIMER.try_with(|timer| timer.get_or_init(Timer::new).set(TICK_NS));
    let _stop = Stop;
    job()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_wait_without_end_is_ended_and_others_are_not() {
        let (read, _write) = rustix::pipe::pipe().unwrap();
        for _ in 0..3 {
            let ended = interrupting(|| rustix::io::read(&read, &mut [0; 1]));
            assert_eq!(ended, Err(rustix::io::Errno::INTR));
        }
        let began = Instant::now();
        // Sleeping goes on after a signal; what is left of it is looked at here.
        let left = rustix::thread::nanosleep(&rustix::fs::Timespec { tv_sec: 0, tv_nsec: 50_000_000 });
        assert!(matches!(left, rustix::thread::NanosleepRelativeResult::Ok), "no signal comes afterwards");
        assert!(began.elapsed() >= Duration::from_millis(50));
    }
}
