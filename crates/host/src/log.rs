//! Lines of the host's log: time, who, what.

use commonhold_object::misleads;
use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a line is not said again that was just said.
const SAME_AGAIN: Duration = Duration::from_secs(5);

/// The host's log. What fails again and again, such as writing to a full disk, fills neither log nor disk.
#[derive(Debug, Default)]
pub struct Log {
    /// What was said last, and when.
    last: Option<(String, Instant)>,
    /// How often it would have been said again.
    again: u64,
    lately: Lately,
}

/// What was said in the present while. A user whose object fails in many ways is not to push
/// everything else out of the log.
#[derive(Debug, Default)]
struct Lately {
    since: Option<Instant>,
    /// How many lines were about what stands before the colon.
    about: HashMap<String, u32>,
    /// Lines about objects, of which one user may have thousands, and all others.
    said: [u32; 2],
    left_out: u32,
}

/// How long that is; how many lines it has about one thing, and about all objects or all else.
const WHILE: Duration = Duration::from_secs(10);
const ABOUT_ONE: u32 = 32;
const ABOUT_ALL: u32 = 512;

impl Lately {
    /// Whether a line about that is said. Before it comes how many were not, when the while is over.
    fn takes(&mut self, about: &str, now: Instant) -> (Option<u32>, bool) {
        let mut left_out = None;
        if self.since.is_none_or(|since| now - since >= WHILE) {
            left_out = Some(self.left_out).filter(|lines| *lines > 0);
            *self = Lately { since: Some(now), ..Lately::default() };
        }
        let said = &mut self.said[usize::from(about.starts_with("object "))];
        let takes = *said < ABOUT_ALL && {
            let same = self.about.entry(about.to_owned()).or_default();
            *same += 1;
            *same <= ABOUT_ONE
        };
        *(if takes { said } else { &mut self.left_out }) += 1;
        (left_out, takes)
    }
}

impl Log {
    /// Says a line, unless it is what was said last.
    pub fn say(&mut self, what: impl Display) {
        let what = what.to_string();
        if self.last.as_ref().is_some_and(|(last, at)| *last == what && at.elapsed() < SAME_AGAIN) {
            self.again += 1;
            return;
        }
        if self.again > 0 {
            write(format_args!("the last line {} times more", std::mem::take(&mut self.again)));
        }
        let about = what.split_once(':').map_or(&*what, |(about, _)| about);
        let (left_out, takes) = self.lately.takes(about, Instant::now());
        if let Some(lines) = left_out {
            write(format_args!("{lines} lines were left out: too many at once about the same"));
        }
        if takes {
            write(&what);
        }
        self.last = Some((what, Instant::now()));
    }
}

/// Length at which the log is put aside as `log.1`, in place of the one put aside before: as the keeper does.
const LONGEST_BYTES: u64 = 8 << 20;

/// The log in the state directory, if standard error is that.
static FILE: OnceLock<PathBuf> = OnceLock::new();

/// From now on the log is put aside when it is long, if standard error is the file `log` of that directory.
pub fn keep_short(state: &Path) {
    let path = state.join("log");
    let is_log = |(own, there): (Metadata, Metadata)| (own.dev(), own.ino()) == (there.dev(), there.ino());
    if own().zip(std::fs::metadata(&path).ok()).is_some_and(is_log) {
        let _ = FILE.set(path);
    }
}

/// What standard error is.
fn own() -> Option<Metadata> {
    let own = std::io::stderr().as_fd().try_clone_to_owned().ok()?;
    File::from(own).metadata().ok()
}

/// Puts a long log aside, and writes on to the one that is there: the keeper may have put it aside.
fn turn_over(path: &Path) -> std::io::Result<()> {
    let Some(own) = own() else { return Ok(()) };
    let there = std::fs::metadata(path).ok();
    let is_there = there.is_some_and(|there| (own.dev(), own.ino()) == (there.dev(), there.ino()));
    if is_there && own.len() <= LONGEST_BYTES {
        return Ok(());
    }
    if is_there {
        std::fs::rename(path, path.with_extension("1"))?;
    }
    let next = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    Ok(rustix::stdio::dup2_stderr(next)?)
}

/// Writes a line on standard error, which the keeper leads to `log`. A log that cannot be written, on a full disk for
/// example, ends nobody.
pub fn write(what: impl Display) {
    let text = line(what) + "\n";
    let mut out = std::io::stderr().lock();
    if let Some(path) = FILE.get() {
        let _ = turn_over(path);
    }
    let _ = out.write_all(text.as_bytes());
}

/// The words of others make no lines of their own, and nothing that a terminal obeys.
fn plain(what: String) -> String {
    if !what.contains(misleads) {
        return what;
    }
    what.chars().map(|c| if misleads(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A line with the time (UTC, RFC 3339) and this process in front.
pub fn line(what: impl Display) -> String {
    let what = plain(what.to_string());
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    let of_day = seconds % 86_400;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z host[{}]: {what}",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60,
        std::process::id()
    )
}

/// Days since 1970 as year, month and day (the era algorithm for the Gregorian calendar).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_of_others_make_no_lines() {
        let line = super::line("host 7 says\n2026-01-01T00:00:00Z host[1]: all is well\u{1b}[2J");
        assert!(line.lines().count() == 1 && !line.contains('\u{1b}') && line.ends_with("[2J"), "{line}");
    }

    #[test]
    fn one_thing_does_not_fill_the_log_and_what_is_left_out_is_counted() {
        let (mut lately, now) = (super::Lately::default(), std::time::Instant::now());
        let said = (0..100).filter(|_| lately.takes("object 7", now).1).count();
        assert_eq!((said, lately.takes("object 8", now)), (super::ABOUT_ONE as usize, (None, true)));
        assert_eq!(lately.takes("object 7", now + super::WHILE), (Some(68), true));
        let all = (0..5000).filter(|n| lately.takes(&format!("object {n}"), now + super::WHILE).1).count();
        assert_eq!(all + 1, super::ABOUT_ALL as usize);
        assert!(lately.takes("no keeper", now + super::WHILE).1);
    }

    #[test]
    fn dates() {
        assert_eq!(super::civil(0), (1970, 1, 1));
        assert_eq!(super::civil(11_016), (2000, 2, 29));
        assert_eq!(super::civil(20_512), (2026, 2, 28));
        assert_eq!(super::civil(20_513), (2026, 3, 1));
    }
}
