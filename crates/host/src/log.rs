//! Lines of the host's log: time, who, what.

use std::fmt::Display;
use std::io::Write;
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
        write(&what);
        self.last = Some((what, Instant::now()));
    }
}

/// Writes a line on standard error, which the keeper leads to `log`. A log that cannot be written, on a full disk for
/// example, ends nobody.
pub fn write(what: impl Display) {
    let text = line(what) + "\n";
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// A line with the time (UTC, RFC 3339) and this process in front.
pub fn line(what: impl Display) -> String {
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
    fn dates() {
        assert_eq!(super::civil(0), (1970, 1, 1));
        assert_eq!(super::civil(11_016), (2000, 2, 29));
        assert_eq!(super::civil(20_512), (2026, 2, 28));
        assert_eq!(super::civil(20_513), (2026, 3, 1));
    }
}
