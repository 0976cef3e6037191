//! `--every` and `--for`: looks at equal distances, and what they average. An interrupt ends it early, with a report.

use super::look;
use super::progress::Progress;
use crate::failure::Failure;
use commonhold_audit::report::Report;
use commonhold_audit::report::samples::{Gathered, Schedule};
use commonhold_audit::snapshot::{SnapshotOptions, Unseen};
use commonhold_object::error::Doing;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often it looks whether it was interrupted.
const SLICE: Duration = Duration::from_millis(100);
/// Exit code of a program that a second interrupt ends.
const INTERRUPTED: i32 = 130;

/// All samples: the last report, with the means of all.
pub fn sample(
    options: &SnapshotOptions,
    every: Duration,
    span: Duration,
    progress: &Progress,
) -> Result<Report, Failure> {
    let signals = Signals::take()?;
    let schedule = Schedule::new(every, span);
    let mut gathered = Gathered::new(every);
    let started = Instant::now();
    let mut due = Duration::ZERO;
    let mut report = Report::default();
    for number in 1u64.. {
        progress.say(format!("sample {number} of {}", schedule.count()));
        match look(options) {
            Ok(next) => report = next,
            // What was asked for has ended: what it was until then is worth a report.
            Err(why) if number > 1 => return Ok(ended(report, &gathered, &why)),
            Err(why) => return Err(why),
        }
        gathered.add(&report);
        let next = schedule.after(due, started.elapsed());
        if next.overrun {
            gathered.overran();
        }
        let Some(next_due) = next.due else { break };
        due = next_due;
        if !signals.sleep_until(started, due, |left| {
            progress.say(format!("{number} of {} samples; the next in {left} s", schedule.count()));
        }) {
            report.samples = Some(gathered.finish(true));
            return Ok(report);
        }
    }
    report.samples = Some(gathered.finish(false));
    Ok(report)
}

fn ended(mut report: Report, gathered: &Gathered, why: &Failure) -> Report {
    let samples = gathered.finish(true);
    let why = match why {
        Failure::Errors(errors) => errors.first().map_or(String::new(), |error| error.message.clone()),
        _ => String::new(),
    };
    report.unseen.push(Unseen { what: format!("anything after sample {}", samples.count), why });
    report.samples = Some(samples);
    report
}

/// Interrupts while samples are taken: the first is noted, a second ends the program as it always would.
struct Signals {
    ids: Vec<SigId>,
    interrupted: Arc<AtomicBool>,
}

impl Signals {
    fn take() -> Result<Self, Failure> {
        let interrupted = Arc::new(AtomicBool::new(false));
        let mut ids = Vec::new();
        for signal in [SIGINT, SIGTERM] {
            let what = "cannot watch for signals";
            // In this order: the first signal is noted only after it was found that none came before.
            ids.push(
                flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&interrupted))
                    .doing(what)?,
            );
            ids.push(flag::register(signal, Arc::clone(&interrupted)).doing(what)?);
        }
        Ok(Self { ids, interrupted })
    }

    /// Sleeps until so long after the start; false if it was interrupted. `each_second` is told the seconds left.
    fn sleep_until(&self, started: Instant, due: Duration, each_second: impl Fn(u64)) -> bool {
        let mut told = u64::MAX;
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return false;
            }
            let left = due.saturating_sub(started.elapsed());
            if left.is_zero() {
                return true;
            }
            if left.as_secs() != told {
                told = left.as_secs();
                each_second(told);
            }
            std::thread::sleep(left.min(SLICE));
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::error;
    use commonhold_object::ErrorKind;

    #[test]
    fn what_ends_while_it_is_sampled_is_reported_until_then() {
        let mut gathered = Gathered::new(Duration::from_secs(1));
        gathered.add(&Report { processes: 2, ..Report::default() });
        gathered.add(&Report { processes: 4, ..Report::default() });
        let why = error(ErrorKind::NotFound, "process 7 does not exist");
        let report = ended(Report { processes: 4, ..Report::default() }, &gathered, &why);
        assert_eq!(report.unseen[0].what, "anything after sample 2");
        assert_eq!(report.unseen[0].why, "process 7 does not exist");
        let samples = report.samples.expect("means");
        assert!(samples.ended_early);
        assert_eq!(samples.figures[0].mean, 3.0);
    }
}
