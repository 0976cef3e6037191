//! Signals that ask a long copy to end, so that it can take back what it half made.

use commonhold::{Error, ErrorKind, Result};
use commonhold_object::error::Doing;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Watches for SIGINT, SIGTERM and SIGHUP; the first is noted, a second one ends the process as it always would.
pub struct Interrupts {
    /// The signal that came; 0: none.
    came: Arc<AtomicUsize>,
}

impl Interrupts {
    /// Begins to watch. What the process was started to ignore (`nohup`) it goes on to ignore.
    pub fn watch() -> Result<Self> {
        let came = Arc::new(AtomicUsize::new(0));
        let again = Arc::new(AtomicBool::new(false));
        let ignored = ignored_signals();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if ignored & (1 << (signal - 1)) != 0 {
                continue;
            }
            // In this order: the first signal must find `again` still unset.
            flag::register_conditional_default(signal, again.clone())
                .and_then(|_| flag::register(signal, again.clone()))
                .and_then(|_| flag::register_usize(signal, came.clone(), signal as usize))
                .doing("cannot watch for signals")?;
        }
        Ok(Interrupts { came })
    }

    /// Watches for nothing.
    #[cfg(test)]
    pub fn none() -> Self {
        Interrupts { came: Arc::default() }
    }

    /// The signal that came, if one did.
    pub fn came(&self) -> Option<i32> {
        i32::try_from(self.came.load(Ordering::Relaxed)).ok().filter(|signal| *signal != 0)
    }

    /// An error once a signal came.
    pub fn check(&self) -> Result<()> {
        match self.came() {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::Io, "interrupted")),
        }
    }
}

/// Ends the process as that signal does. Nothing is unmapped in order: what was written to an object and not synced
/// stays unsynced.
pub fn end_by(signal: i32) -> ! {
    let _ = low_level::emulate_default_handler(signal);
    std::process::abort()
}

/// The signals that this process ignores: bit n - 1 is signal n.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
