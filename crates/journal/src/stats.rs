//! Counters of what a journal has done since it was opened.

/// What a journal has done since it was opened. Only counts; the host turns them into metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Records that became part of the log.
    pub records: u64,
    /// Pages in those records.
    pub pages: u64,
    /// Bytes of those records, headers included.
    pub bytes_appended: u64,
    /// Appends that failed or were abandoned; none of them is part of the log.
    pub failed_appends: u64,
    /// Successful flushes, those of headers included.
    pub flushes: u64,
    /// Finished checkpoints.
    pub checkpoints: u64,
    /// Times the active file had to grow because no checkpoint had freed the other one.
    pub grows: u64,
    /// Pages handed out by replays.
    pub pages_replayed: u64,
}
