//! Cutting the power: from a recording, every state of the files that a crash could have left.
//!
//! The model: a successful flush of a file makes everything written to it before durable. Anything
//! written since may be on disk or not, in any combination, and a single write may be there in part, by
//! sectors of 512 bytes. A *failed* flush leaves what it should have written in doubt for ever: later
//! flushes do not write it (the kernel has marked the pages clean). Overlapping writes that did reach the
//! disk did so in order.

use super::disk::{Event, Recording};
use super::memory;
use super::rng::Rng;
use std::sync::Arc;

const SECTOR_BYTES: usize = 512;

/// One state that a crash could have left.
#[derive(Debug, Clone)]
pub struct Crash {
    /// Contents of every file.
    pub files: Vec<Vec<u8>>,
    /// The last state that had been acknowledged.
    pub acknowledged: u64,
    /// The last state that had been attempted.
    pub attempted: u64,
    /// How many events had happened, for messages.
    pub event: usize,
    /// Which of the writes not yet durable are there, for messages.
    pub kept: String,
}

/// How thoroughly to cut.
#[derive(Debug, Clone)]
pub struct PowerLoss {
    /// With at most so many writes in doubt, every subset of them; else all, none, each alone, each
    /// missing alone, each prefix, and samples.
    pub exhaustive_writes: usize,
    /// Random subsets when there are more.
    pub samples: u64,
    /// Random choices of the sectors of a torn write, besides every prefix of a short one.
    pub torn_samples: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for PowerLoss {
    fn default() -> Self {
        PowerLoss { exhaustive_writes: 12, samples: 64, torn_samples: 16, seed: 0x636d_6e68 }
    }
}

#[derive(Clone)]
enum Change {
    Write { offset: u64, data: Arc<[u8]> },
    Truncate { len: u64 },
}

struct Pending {
    file: usize,
    change: Change,
    durable: bool,
    /// A flush that should have written it failed.
    dropped: bool,
}

/// The disk at one moment: what is settled, and what came after, in order.
struct Timeline {
    settled: Vec<Vec<u8>>,
    pending: Vec<Pending>,
}

impl PowerLoss {
    /// Calls `check` with every state, at every event. Returns how many there were.
    pub fn run(&self, recording: &Recording, mut check: impl FnMut(Crash)) -> u64 {
        let mut timeline = Timeline::new(recording);
        let mut rng = Rng::new(self.seed);
        let (mut acknowledged, mut attempted, mut states) = (0, 0, 0);
        for (index, event) in recording.events.iter().enumerate() {
            let newest = timeline.take(event);
            match event {
                Event::Attempted(n) => attempted = *n,
                Event::Acknowledged(n) => acknowledged = *n,
                _ => {}
            }
            // A flush alone adds no state: all it makes certain was possible before. Nor does an attempt.
            if newest.is_none() && !matches!(event, Event::Acknowledged(_)) {
                continue;
            }
            let mut cut = |keep: Vec<bool>, torn: Option<Vec<bool>>| {
                states += 1;
                check(Crash {
                    files: timeline.image(&keep, torn.as_deref()),
                    acknowledged,
                    attempted,
                    event: index + 1,
                    kept: describe(&keep, torn.as_deref()),
                });
            };
            let doubtful = timeline.doubtful();
            // States without the newest write were all made before it.
            for mut keep in self.subsets(doubtful - usize::from(newest.is_some()), &mut rng) {
                keep.resize(doubtful, true);
                cut(keep, None);
            }
            if let Some(sectors) = newest {
                self.torn(doubtful, sectors, &mut rng, &mut cut);
            }
        }
        states
    }

    /// Which of `count` doubtful writes to keep, in all the ways to be tried.
    fn subsets(&self, count: usize, rng: &mut Rng) -> Vec<Vec<bool>> {
        if count <= self.exhaustive_writes {
            return (0..1u64 << count)
                .map(|mask| (0..count).map(|bit| mask & (1 << bit) != 0).collect())
                .collect();
        }
        let mut subsets = Vec::new();
        for one in 0..count {
            subsets.push((0..count).map(|bit| bit != one).collect());
            subsets.push((0..count).map(|bit| bit == one).collect());
            subsets.push((0..count).map(|bit| bit < one).collect());
        }
        subsets.push(vec![true; count]);
        for _ in 0..self.samples {
            subsets.push((0..count).map(|_| rng.one_in(2)).collect());
        }
        subsets
    }

    /// Tears the newest write, with all, none or some of the others there.
    fn torn(
        &self,
        doubtful: usize,
        sectors: usize,
        rng: &mut Rng,
        cut: &mut impl FnMut(Vec<bool>, Option<Vec<bool>>),
    ) {
        if sectors < 2 {
            return;
        }
        let mut tears: Vec<Vec<bool>> = Vec::new();
        let step = sectors.div_ceil(32);
        for at in (1..sectors).step_by(step) {
            tears.push((0..sectors).map(|sector| sector < at).collect());
            tears.push((0..sectors).map(|sector| sector >= at).collect());
        }
        for _ in 0..self.torn_samples {
            tears.push((0..sectors).map(|_| rng.one_in(2)).collect());
        }
        for tear in tears {
            cut(vec![true; doubtful], Some(tear.clone()));
            let mut keep: Vec<bool> = (1..doubtful).map(|_| rng.one_in(2)).collect();
            keep.push(true);
            cut(keep, Some(tear));
        }
    }
}

/// One random state at the end of a recording.
pub(super) fn random_cut(recording: &Recording, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut timeline = Timeline::new(recording);
    let mut sectors = None;
    for event in &recording.events {
        sectors = timeline.take(event).or(sectors);
    }
    // Sometimes all or nothing: random choices of many writes hardly ever hit those.
    let choice = rng.below(4);
    let keep: Vec<bool> = (0..timeline.doubtful())
        .map(|_| match choice {
            0 => false,
            1 => true,
            _ => rng.one_in(2),
        })
        .collect();
    let newest_is_doubtful = timeline.pending.last().is_some_and(|last| !last.durable);
    let torn: Option<Vec<bool>> = sectors
        .filter(|_| newest_is_doubtful && choice == 3)
        .map(|sectors| (0..sectors).map(|_| rng.one_in(2)).collect());
    timeline.image(&keep, torn.as_deref())
}

impl Timeline {
    fn new(recording: &Recording) -> Self {
        Timeline { settled: recording.bases.clone(), pending: Vec::new() }
    }

    /// Takes one event in. For a change, gives its number of sectors (0 for a truncation).
    fn take(&mut self, event: &Event) -> Option<usize> {
        match event {
            Event::Write { file, offset, data } => {
                let data = Arc::clone(data);
                let sectors = data.len().div_ceil(SECTOR_BYTES);
                self.push(*file, Change::Write { offset: *offset, data });
                Some(sectors)
            }
            Event::Truncate { file, len } => {
                self.push(*file, Change::Truncate { len: *len });
                Some(0)
            }
            Event::Flush { file, ok } => {
                self.flush(*file, *ok);
                None
            }
            Event::Attempted(_) | Event::Acknowledged(_) => None,
        }
    }

    fn push(&mut self, file: usize, change: Change) {
        self.pending.push(Pending { file, change, durable: false, dropped: false });
    }

    fn flush(&mut self, file: usize, ok: bool) {
        for pending in self.pending.iter_mut().filter(|pending| pending.file == file) {
            if ok {
                pending.durable |= !pending.dropped;
            } else {
                pending.dropped |= !pending.durable;
            }
        }
        self.forget_overwritten();
        // What is durable and has nothing doubtful of the same file before it is settled.
        let mut blocked = vec![false; self.settled.len()];
        let settled = &mut self.settled;
        self.pending.retain(|pending| {
            let settle = pending.durable && !blocked[pending.file];
            if settle {
                pending.change.apply(&mut settled[pending.file], None);
            }
            blocked[pending.file] |= !settle;
            !settle
        });
    }

    /// A dropped write under a durable one no longer matters.
    fn forget_overwritten(&mut self) {
        let mut index = 0;
        while index < self.pending.len() {
            let old = &self.pending[index];
            let covered = old.dropped
                && self.pending[index + 1..]
                    .iter()
                    .any(|new| new.file == old.file && new.durable && new.change.covers(&old.change));
            if covered {
                self.pending.remove(index);
            } else {
                index += 1;
            }
        }
    }

    fn doubtful(&self) -> usize {
        self.pending.iter().filter(|pending| !pending.durable).count()
    }

    /// The files with the doubtful changes chosen by `keep`, the last of them torn by `torn`.
    fn image(&self, keep: &[bool], torn: Option<&[bool]>) -> Vec<Vec<u8>> {
        let mut files = self.settled.clone();
        let mut choices = keep.iter();
        let last = self.pending.len().saturating_sub(1);
        for (index, pending) in self.pending.iter().enumerate() {
            if pending.durable || choices.next() == Some(&true) {
                let torn = torn.filter(|_| index == last);
                pending.change.apply(&mut files[pending.file], torn);
            }
        }
        files
    }
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>, torn: Option<&[bool]>) {
        match (self, torn) {
            (Change::Truncate { len }, _) => file.truncate(*len as usize),
            (Change::Write { offset, data }, None) => memory::write(file, *offset, data),
            (Change::Write { offset, data }, Some(sectors)) => {
                for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
                    if sectors.get(index) == Some(&true) {
                        memory::write(file, offset + (index * SECTOR_BYTES) as u64, sector);
                    }
                }
            }
        }
    }

    fn covers(&self, other: &Change) -> bool {
        match (self, other) {
            (Change::Write { offset, data }, Change::Write { offset: at, data: under }) => {
                offset <= at && at + under.len() as u64 <= offset + data.len() as u64
            }
            _ => false,
        }
    }
}

fn describe(keep: &[bool], torn: Option<&[bool]>) -> String {
    let bits = |bits: &[bool]| -> String { bits.iter().map(|&bit| if bit { '1' } else { '0' }).collect() };
    match torn {
        None => format!("writes {}", bits(keep)),
        Some(torn) => format!("writes {}, sectors of the last {}", bits(keep), bits(torn)),
    }
}
