//! Which processor a thread runs on. Where two processes take turns, a wake-up on the same processor and one on another
//! differ by several times, and the kernel's choice would be what is measured.

use crate::failure::{Result, failed};
use crate::measure::Pairs;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use std::collections::BTreeMap;

/// This thread's processors, which it has again when this goes.
pub struct Placement {
    whole: CpuSet,
    processors: Vec<usize>,
}

impl Placement {
    /// Puts this thread on the first of its processors.
    pub fn begin() -> Result<Placement> {
        let whole = sched_getaffinity(None).map_err(std::io::Error::from)?;
        let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| whole.is_set(*cpu)).collect();
        let Some(first) = processors.first() else { return failed("this process may run on no processor") };
        put(None, *first)?;
        Ok(Placement { whole, processors })
    }

    /// Where another process may be put: beside this thread, and (with more than one processor) apart from it.
    pub fn places(&self) -> Vec<(&'static str, usize)> {
        let apart = self.processors.get(1).map(|other| ("apart", *other));
        [("same processor", self.processors[0])].into_iter().chain(apart).collect()
    }

    /// Where this thread is.
    pub fn own(&self) -> usize {
        self.processors[0]
    }

    /// Puts the first thread of a process on a processor.
    pub fn put(&self, pid: u32, processor: usize) -> Result<()> {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return failed("no such process");
        };
        put(Some(pid), processor)
    }
}

/// This thread's processors, dealt out to that many parties, or nothing if they are too few for one each.
pub fn shares(parties: usize) -> Result<Vec<Vec<usize>>> {
    let whole = sched_getaffinity(None).map_err(std::io::Error::from)?;
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| whole.is_set(*cpu)).collect();
    if all.len() < parties {
        return Ok(Vec::new());
    }
    Ok((0..parties).map(|party| all.iter().copied().skip(party).step_by(parties).collect()).collect())
}

/// Does `work` on those processors, or anywhere if there are none: processes that it starts stay there.
pub fn on<T>(processors: &[usize], work: impl FnOnce() -> Result<T>) -> Result<T> {
    if processors.is_empty() {
        return work();
    }
    let whole = sched_getaffinity(None).map_err(std::io::Error::from)?;
    let mut those = CpuSet::new();
    processors.iter().for_each(|processor| those.set(*processor));
    sched_setaffinity(None, &those).map_err(std::io::Error::from)?;
    let result = work();
    sched_setaffinity(None, &whole).map_err(std::io::Error::from)?;
    result
}

/// The pairs of the place where Commonhold compares worse, and a summary of each place, in microseconds.
pub fn worse(places: Vec<(&'static str, Pairs)>) -> Result<(Pairs, BTreeMap<&'static str, Value>)> {
    let summaries = places.iter().map(|(place, pairs)| (*place, pairs.summary(1e6))).collect();
    let pairs = places.into_iter().map(|(_, pairs)| pairs);
    match pairs.max_by(|a, b| a.ratio().total_cmp(&b.ratio())) {
        Some(worse) => Ok((worse, summaries)),
        None => failed("nothing was measured"),
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.whole);
    }
}

fn put(pid: Option<Pid>, processor: usize) -> Result<()> {
    let mut one = CpuSet::new();
    one.set(processor);
    Ok(sched_setaffinity(pid, &one).map_err(std::io::Error::from)?)
}
