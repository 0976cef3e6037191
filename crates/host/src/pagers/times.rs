//! What the times of a file tell: whether others changed it since the host looked.
//!
//! The kernel's clock for files moves in steps of up to 10 ms. Who writes twice within a step leaves
//! the time as it was. Newer kernels give a change another time whenever somebody looked at the
//! time before it (multigrain times, since 6.13, on the file systems that have them). Elsewhere the
//! host gives the file a time of its own, which no step of that clock has. Where it can do neither,
//! it trusts no time that is recent; and none of a file in memory (tmpfs), which a store by way of a
//! mapping never changes.

use commonhold_sys::inspect::is_in_memory;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longer than any step of the kernel's clock for files.
const CLOCK_STEP: Duration = Duration::from_millis(50);
/// Changes within so short a time have the same time of that clock, or two.
const WITHIN_A_STEP: Duration = Duration::from_micros(500);
/// Changes that the probe makes.
const PROBES: usize = 4;
/// Of another's time the host keeps away by so much: a nanosecond.
const APART: i64 = 1;

/// Size and times of a file: equal stamps mean that nobody wrote in between, if they tell each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Size, bytes.
    pub size_bytes: u64,
    /// When it was changed last: seconds and nanoseconds.
    pub changed: (i64, i64),
    /// When its bytes were changed last, which its owner may set.
    pub written: (i64, i64),
}

impl Stamp {
    fn of(file: &File) -> Option<Stamp> {
        let now = file.metadata().ok()?;
        let (changed, written) = ((now.ctime(), now.ctime_nsec()), (now.mtime(), now.mtime_nsec()));
        Some(Stamp { size_bytes: now.len(), changed, written })
    }

    /// Whether the file was changed so lately that one more change could leave its time as it is.
    fn is_recent(&self) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let after_epoch = Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds as u32);
        let apart = match SystemTime::now().duration_since(UNIX_EPOCH + after_epoch) {
            Ok(age) => age,
            Err(in_the_future) => in_the_future.duration(),
        };
        apart < CLOCK_STEP
    }
}

/// What is known of the times of one file.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// Whether each change that is looked at has a time of its own.
    are_fine: OnceLock<bool>,
    /// Whether stores by way of mappings change them.
    tell_of_stores: OnceLock<bool>,
    /// The time that the host gave the file.
    own: Mutex<Option<(i64, i64)>>,
}

impl Times {
    /// The host has written to the file, and changes its times anyway: whoever changes it from now on leaves
    /// another stamp. May wait for the file system.
    pub(super) fn written(&self, file: &File) {
        if !self.tell_of_stores(file) || *self.are_fine.get_or_init(|| are_fine(file)) {
            return;
        }
        let own = Stamp::of(file).and_then(|now| own_time(file, now.written));
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) = own;
    }

    /// The stamp of the file now, and whether it tells each change to come.
    pub(super) fn stamp(&self, file: &File) -> Option<(Stamp, bool)> {
        let now = Stamp::of(file)?;
        let is_own = *self.own.lock().unwrap_or_else(PoisonError::into_inner) == Some(now.written);
        let is_fine = self.are_fine.get() == Some(&true);
        Some((now, self.tell_of_stores(file) && (is_own || is_fine || !now.is_recent())))
    }

    /// Pages that are written back are clean then, and the next store changes a time.
    fn tell_of_stores(&self, file: &File) -> bool {
        *self.tell_of_stores.get_or_init(|| !is_in_memory(file))
    }
}

/// Gives the file a time that the kernel's clock passes over, and tells it; `None` if the file is not
/// the host's to do so, or keeps no such times.
fn own_time(file: &File, (seconds, nanoseconds): (i64, i64)) -> Option<(i64, i64)> {
    let own = if nanoseconds + APART < 1_000_000_000 { nanoseconds + APART } else { nanoseconds - APART };
    let time = Timespec { tv_sec: seconds, tv_nsec: own };
    let untouched = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    futimens(file, &Timestamps { last_access: untouched, last_modification: time }).ok()?;
    (Stamp::of(file)?.written == (seconds, own)).then_some((seconds, own))
}

/// Tries it: several changes in a row, each looked at, all with other times.
fn are_fine(file: &File) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let now = Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: now };
    let began = Instant::now();
    let mut before = Stamp::of(file);
    for _ in 0..PROBES {
        if futimens(file, &now).is_err() {
            return false;
        }
        let after = Stamp::of(file);
        if after.is_none() || after == before {
            return false;
        }
        before = after;
    }
    // One that took longer has seen the clock move.
    began.elapsed() < WITHIN_A_STEP * PROBES as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    /// Writes again and again right after the host's write and look; how many of the looks claimed to tell the next
    /// change, of which each must.
    fn told(times: &Times, file: &File) -> usize {
        let told = (0..200).filter(|round| {
            file.write_all_at(&[*round as u8], 0).unwrap();
            times.written(file);
            let (before, tells) = times.stamp(file).unwrap();
            assert_eq!(times.stamp(file).unwrap().0, before, "nobody wrote in between");
            file.write_all_at(&[!*round as u8], 0).unwrap();
            let (after, _) = times.stamp(file).unwrap();
            assert!(!tells || after != before, "round {round}: {before:?}");
            tells
        });
        told.count()
    }

    fn file_in(directory: &Path) -> File {
        let file = tempfile::tempfile_in(directory).unwrap();
        file.write_all_at(&[0; 4096], 0).unwrap();
        file
    }

    #[test]
    fn a_write_right_after_the_hosts_own_leaves_another_stamp() {
        let file = file_in(&std::env::temp_dir());
        let all = if is_in_memory(&file) { 0 } else { 200 };
        assert_eq!(told(&Times::default(), &file), all);
    }

    /// Stores by way of a mapping change none of its times.
    #[test]
    fn no_time_of_a_file_in_memory_is_trusted() {
        let file = file_in(Path::new("/dev/shm"));
        std::thread::sleep(CLOCK_STEP + Duration::from_millis(5));
        assert_eq!(told(&Times::default(), &file), 0);
    }

    /// As an older kernel, where the times of all writes of one step of the clock are the same.
    #[test]
    fn without_fine_times_the_host_gives_a_time_of_its_own() {
        let fine = |fine: bool| OnceLock::from(fine);
        let times = Times { are_fine: fine(false), tell_of_stores: fine(true), ..Times::default() };
        assert_eq!(told(&times, &file_in(&std::env::temp_dir())), 200);
    }

    /// Of a file that nobody of the host has written, a recent time tells nothing.
    #[test]
    fn a_recent_time_of_others_is_not_trusted() {
        let file = file_in(&std::env::temp_dir());
        let times = Times { tell_of_stores: OnceLock::from(true), ..Times::default() };
        assert!(!times.stamp(&file).unwrap().1);
        std::thread::sleep(CLOCK_STEP + Duration::from_millis(5));
        assert!(times.stamp(&file).unwrap().1);
    }

    #[test]
    fn an_own_time_is_one_that_the_file_keeps() {
        let file = file_in(&std::env::temp_dir());
        let own = own_time(&file, (1_000_000, 999_999_999)).unwrap();
        assert_eq!(own, (1_000_000, 999_999_998));
        assert_eq!(Stamp::of(&file).unwrap().written, own);
    }
}
