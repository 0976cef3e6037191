//! The clock that goes on while the machine sleeps and that nobody can set (CLOCK_BOOTTIME): now, waiting until then, and
//! a timer to be polled.

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const SECOND: u64 = 1_000_000_000;

/// Nanoseconds since boot, sleep included.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * SECOND + now.tv_nsec as u64
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / SECOND) as i64, tv_nsec: (ns % SECOND) as i64 }
}

/// Waits until that instant; a machine that sleeps over it goes on at once.
pub fn sleep_until(then: u64) {
    while let Err(Errno::INTR) =
        rustix::thread::clock_nanosleep_absolute(rustix::thread::ClockId::Boottime, &timespec(then))
    {}
}

/// A descriptor that is readable from a set instant on.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
    at: u64,
}

impl Timer {
    /// One that is not set.
    pub fn new() -> io::Result<Timer> {
        let fd = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Timer { fd, at: 0 })
    }

    /// Sets it to that instant; 0: never.
    pub fn set(&mut self, at: u64) -> io::Result<()> {
        if at == self.at {
            return Ok(());
        }
        let value = Itimerspec { it_interval: timespec(0), it_value: timespec(at) };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &value)?;
        self.at = at;
        Ok(())
    }

    /// For a set of descriptors to wait for.
    pub fn as_poll(&self) -> PollFd<'_> {
        PollFd::new(&self.fd, PollFlags::IN)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::readable_within;

    #[test]
    fn a_timer_is_readable_from_its_instant_on_until_it_is_set_anew() {
        let mut timer = Timer::new().unwrap();
        assert!(!readable_within(&timer, 0).unwrap());
        timer.set(now() + 20_000_000).unwrap();
        let at = timer.at;
        assert!(readable_within(&timer, 60_000).unwrap());
        assert!(now() >= at);
        timer.set(now() + 3600 * SECOND).unwrap();
        assert!(!readable_within(&timer, 0).unwrap());
        timer.set(1).unwrap();
        assert!(readable_within(&timer, 60_000).unwrap(), "an instant that is over");
        timer.set(0).unwrap();
        assert!(!readable_within(&timer, 0).unwrap());
        let then = now() + 1_000_000;
        sleep_until(then);
        assert!(now() >= then);
    }
}
