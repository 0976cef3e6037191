//! The state directory's log: one line for each thing that happened, `2026-01-01T00:00:00Z keeper[17]: started`.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Length at which the log is put aside as `log.1`, in place of the one put aside before.
const LONGEST_BYTES: u64 = 8 << 20;

/// A log that several processes append to.
#[derive(Clone, Debug)]
pub struct StateLog {
    path: PathBuf,
    who: &'static str,
}

impl StateLog {
    /// The log in a state directory, for lines of `who` ("keeper", "host").
    pub fn new(directory: &Path, who: &'static str) -> Self {
        StateLog { path: directory.join("log"), who }
    }

    /// The state directory.
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Appends a line. A log that cannot be written stops nobody.
    pub fn say(&self, message: &str) {
        let message = message.replace('\n', " ");
        let line =
            format!("{} {}[{}]: {message}\n", timestamp(SystemTime::now()), self.who, std::process::id());
        let _ = self.open().and_then(|mut file| file.write_all(line.as_bytes()));
    }

    /// The file, for appending: also where a started program's stderr goes. Opened for each line, so that a log put
    /// aside by another process is not written on.
    pub(crate) fn open(&self) -> io::Result<File> {
        if std::fs::metadata(&self.path).is_ok_and(|found| found.len() > LONGEST_BYTES) {
            let _ = std::fs::rename(&self.path, self.path.with_extension("1"));
        }
        let mut options = OpenOptions::new();
        // A link would have another file written.
        options
            .create(true)
            .append(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(&self.path)
    }
}

/// UTC, to the second.
fn timestamp(now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date of a day since 1970-01-01. Years are counted from March, so that a leap day ends one.
fn date(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468; // from 0000-03-01
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds| timestamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_767_225_600), "2026-01-01T00:00:00Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn lines_are_appended_and_a_long_log_is_put_aside() {
        let directory = tempfile::tempdir().unwrap();
        let log = StateLog::new(directory.path(), "keeper");
        log.say("one\nline");
        log.say("two");
        let text = std::fs::read_to_string(directory.path().join("log")).unwrap();
        let expected = format!("keeper[{}]: one line\n", std::process::id());
        assert!(text.lines().count() == 2 && text.contains(&expected), "{text}");
        log.open().unwrap().set_len(LONGEST_BYTES + 1).unwrap();
        log.say("three");
        let text = std::fs::read_to_string(directory.path().join("log")).unwrap();
        assert!(text.lines().count() == 1 && text.ends_with("three\n"), "{text}");
        assert_eq!(std::fs::metadata(directory.path().join("log.1")).unwrap().len(), LONGEST_BYTES + 1);
    }
}
