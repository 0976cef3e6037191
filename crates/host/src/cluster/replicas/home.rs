//! At the home: whatever is stored goes to every replica that counts before anybody relies on it. One that cannot be reached in
//! time counts no more, which the registry knows before anything goes on without it.

use super::{Answer, Call, Keep, busy, in_parts, unexpected};
use crate::cluster::{Cluster, lock};
use crate::pagers::Replicas;
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use roaring::RoaringBitmap;
use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Between two attempts.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
/// A lease has so many times as long as a replica that does not answer is waited for, and so many attempts.
pub(super) const PATIENCE_OF_LEASE: u32 = 4;
const ATTEMPT_OF_LEASE: u32 = 16;
/// So many times as long as one attempt to tell the registry.
const REGISTRY_OF_LEASE: u32 = 8;
/// How long a host that could not keep the pages is left alone: at first, and at most.
const LEFT_ALONE: Duration = Duration::from_secs(1);
const LEFT_ALONE_AT_MOST: Duration = Duration::from_secs(60);

/// What one home asks of its replicas.
pub(in crate::cluster) struct Home {
    pub(super) cluster: Weak<Cluster>,
    pub(super) object: u128,
    /// How many there are to be.
    pub(super) wanted: usize,
    /// How many count.
    counting: AtomicUsize,
    /// The object is no more.
    pub(super) is_over: AtomicBool,
    pub(super) state: Mutex<State>,
    /// Pages that are not newer any more, which the replicas need not know yet. Nobody waits for this lock.
    cleared: Mutex<RoaringBitmap>,
}

/// Held while they are asked: what they do they do in one order.
pub(super) struct State {
    /// What is stored here, which is what they keep.
    pub file: File,
    pub size_bytes: u64,
    /// It became smaller, to `size_bytes`, since they were told its size last.
    is_cut: bool,
    /// Pages that they take for newer than what they keep.
    pub newer: RoaringBitmap,
    pub replicas: Vec<Replica>,
    /// Which the registry has.
    pub known: Vec<HostId>,
    /// Hosts that could not keep it lately.
    pub failed: HashMap<HostId, Failed>,
    /// This host's numbers in the record, as long as the registry does not know that it schedules.
    pub own: Vec<HostId>,
}

/// A host that could not keep it.
pub(super) struct Failed {
    /// Until then it is left alone.
    pub until: Instant,
    /// So long; the next time twice as long.
    pub pause: Duration,
    pub why: Error,
}

/// One host.
pub(super) struct Replica {
    /// As the registry has it.
    pub host: HostId,
    /// What people call it.
    pub name: String,
    /// Its process that is spoken with; none: it must be asked to go on first.
    pub process: Option<HostId>,
    /// It has everything.
    pub counts: bool,
}

impl Home {
    pub(super) fn new(cluster: &Arc<Cluster>, object: u128, wanted: u32, state: State) -> Arc<Home> {
        Arc::new(Home {
            cluster: Arc::downgrade(cluster),
            object,
            wanted: wanted as usize,
            counting: AtomicUsize::default(),
            is_over: AtomicBool::new(false),
            state: state.into(),
            cleared: Mutex::default(),
        })
    }

    /// One of no cluster.
    #[cfg(test)]
    pub(super) fn alone(object: u128, state: State) -> Home {
        Home {
            cluster: Weak::new(),
            object,
            wanted: 0,
            counting: AtomicUsize::default(),
            is_over: AtomicBool::new(false),
            state: state.into(),
            cleared: Mutex::default(),
        }
    }

    pub(super) fn cluster(&self) -> Result<Arc<Cluster>> {
        self.cluster.upgrade().ok_or_else(|| busy("this host is ending"))
    }

    /// How many hosts are missing.
    pub fn lacks(&self) -> usize {
        self.wanted.saturating_sub(self.counting.load(Ordering::Relaxed))
    }

    /// All replicas do that, or count no more. Those that do not count yet do it too, or are not begun with.
    pub(super) fn all(&self, state: &mut State, what: &Keep, bytes: &[u8]) -> Result<()> {
        let cluster = self.cluster()?;
        if cluster.lease.is_fenced() {
            return Err(busy("this host is fenced"));
        }
        let number = cluster.next_to_keep();
        let attempt = cluster.patience_with_replicas(ATTEMPT_OF_LEASE);
        let ask = |process| {
            let call = Call::Keep { object: self.object, number, what: what.clone() };
            cluster.begin_to_ask(process, call, bytes)
        };
        let asked: Vec<_> = state.replicas.iter().map(|replica| replica.process.map(ask)).collect();
        let is_done = |asked| matches!(cluster.answer_to(asked, attempt), Ok((Answer::Done, _)));
        let done: Vec<bool> = asked.into_iter().map(|asked| asked.is_some_and(is_done)).collect();
        let mut left = Vec::new();
        for at in (0..done.len()).filter(|at| !done[*at]) {
            if let Err(error) = self.insist(&cluster, state, at, number, what, bytes) {
                left.push((at, error));
            }
        }
        if cluster.lease.is_fenced() {
            return Err(busy("this host is fenced"));
        }
        let gone: Vec<_> =
            left.into_iter().rev().map(|(at, error)| (state.replicas.remove(at), error)).collect();
        self.tell(&cluster, state)?;
        if !gone.is_empty() {
            cluster.looking.look_at(self.object, Instant::now());
        }
        for (replica, error) in gone {
            self.report_gone(&cluster, &replica.name, &error.to_string());
            state.has_failed(replica.process.unwrap_or(replica.host), error);
        }
        Ok(())
    }

    pub(super) fn report_gone(&self, cluster: &Cluster, name: &str, why: &str) {
        let object = self.object;
        cluster.report(format_args!("object {object:032x}: {name} keeps its pages no more: {why}"));
    }

    /// Asks one that did not do it until it has, or is waited for no longer.
    fn insist(
        &self,
        cluster: &Arc<Cluster>,
        state: &mut State,
        at: usize,
        mut number: u64,
        what: &Keep,
        bytes: &[u8],
    ) -> Result<()> {
        let deadline = Instant::now() + cluster.patience_with_replicas(PATIENCE_OF_LEASE);
        let left = || deadline.saturating_duration_since(Instant::now());
        loop {
            let host = state.replicas[at].host;
            let lost = || Error::new(ErrorKind::Lost, "it is lost");
            let process = cluster.lives_as(host).ok_or_else(lost)?;
            let outcome = (|| {
                cluster.reach_within(process, left())?;
                if state.replicas[at].process != Some(process) {
                    self.begin(cluster, state, at, process, left())?;
                    number = cluster.next_to_keep();
                }
                let call = Call::Keep { object: self.object, number, what: what.clone() };
                let asked = cluster.begin_to_ask(process, call, bytes);
                cluster.answer_to(asked, cluster.patience_with_replicas(ATTEMPT_OF_LEASE))
            })();
            match outcome {
                Ok((Answer::Done, _)) => return Ok(()),
                Ok(_) => return Err(unexpected()),
                // It has begun anew, or does not take it from this home.
                Err(error) if error.kind == ErrorKind::NotFound => state.replicas[at].process = None,
                Err(error) if is_final(error.kind) => return Err(error),
                Err(_) if cluster.lease.is_fenced() => return Err(busy("this host is fenced")),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => {}
            }
            if Instant::now() > deadline {
                return Err(Error::new(ErrorKind::TimedOut, "it does not do what it is asked to"));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// A process that has what the one before it kept goes on with that.
    fn begin(
        &self,
        cluster: &Cluster,
        state: &mut State,
        at: usize,
        process: HostId,
        within: Duration,
    ) -> Result<()> {
        if self.asked_to_begin(cluster, state, process, false, within)? {
            state.replicas[at].process = Some(process);
            return Ok(());
        }
        Err(Error::new(ErrorKind::Lost, "it has nothing of it any more"))
    }

    /// Whether that process has everything that it was told to keep.
    pub(super) fn asked_to_begin(
        &self,
        cluster: &Cluster,
        state: &mut State,
        process: HostId,
        anew: bool,
        within: Duration,
    ) -> Result<bool> {
        let what = Keep::Begin { size_bytes: state.size_bytes, anew };
        match self.one(cluster, state, process, what, &[], within)? {
            Answer::Keeps(keeps) => Ok(keeps),
            _ => Err(unexpected()),
        }
    }

    /// Asks one process, once.
    pub(super) fn one(
        &self,
        cluster: &Cluster,
        _: &mut State,
        process: HostId,
        what: Keep,
        bytes: &[u8],
        within: Duration,
    ) -> Result<Answer> {
        let call = Call::Keep { object: self.object, number: cluster.next_to_keep(), what };
        let asked = cluster.begin_to_ask(process, call, bytes);
        let (answer, _) = cluster.answer_to(asked, within)?;
        Ok(answer)
    }

    /// The registry knows who counts, when this returns.
    pub(super) fn tell(&self, cluster: &Cluster, state: &mut State) -> Result<()> {
        let counting = state.replicas.iter().filter(|replica| replica.counts).map(|replica| replica.host);
        let now: Vec<HostId> = counting.chain(state.own.iter().copied()).collect();
        while now != state.known {
            if cluster.lease.is_fenced() {
                return Err(busy("this host is fenced"));
            }
            // Whoever fences this host waits for this: it is over before the keeper acts.
            let within = cluster.patience_with_replicas(REGISTRY_OF_LEASE);
            match cluster.registry()?.count_on(self.object, &state.known, &now, within) {
                Ok(()) => state.known.clone_from(&now),
                Err(error) if error.kind == ErrorKind::Busy => return Err(error),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        let counting = state.replicas.iter().filter(|replica| replica.counts).count();
        self.counting.store(counting, Ordering::Relaxed);
        Ok(())
    }

    /// The object is no more.
    pub fn end(self: Arc<Self>) {
        self.is_over.store(true, Ordering::Relaxed);
        let Ok(cluster) = self.cluster() else { return };
        let ending = move || {
            let Ok(cluster) = self.cluster() else { return };
            let replicas = std::mem::take(&mut lock(&self.state).replicas);
            // One that does not hear it finds it out from the registry.
            replicas
                .into_iter()
                .filter_map(|replica| replica.process)
                .for_each(|process| self.forget_at(&cluster, process));
        };
        cluster.pools.waiting.run(ending);
    }
}

/// Whether asking again is in vain.
pub(super) fn is_final(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Lost | ErrorKind::NoSpace | ErrorKind::Unsupported)
}

impl State {
    /// That process is left alone for a while. Whether that is news.
    pub fn has_failed(&mut self, process: HostId, why: Error) -> bool {
        let before = self.failed.remove(&process);
        let is_new = before.as_ref().is_none_or(|before| before.why.to_string() != why.to_string());
        let pause = before.map_or(LEFT_ALONE, |before| (before.pause * 2).min(LEFT_ALONE_AT_MOST));
        self.failed.insert(process, Failed { until: Instant::now() + pause, pause, why });
        is_new
    }

    pub fn new(file: File, size_bytes: u64, newer: RoaringBitmap, known: Vec<HostId>) -> State {
        let (replicas, own) = (Vec::new(), known.clone());
        State { file, size_bytes, is_cut: false, newer, failed: HashMap::new(), replicas, known, own }
    }
}

impl Cluster {
    /// Greater than all before, of whatever object and attempt to begin as its home: what is late is known by that.
    pub(super) fn next_to_keep(&self) -> u64 {
        self.keep_asked.fetch_add(1, Ordering::Relaxed)
    }

    /// That part of a lease, but no longer than this host may go on.
    pub(super) fn patience_with_replicas(&self, part: u32) -> Duration {
        (self.lease_length() / part).min(self.lease.left())
    }
}

impl Replicas for Home {
    fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut state = lock(&self.state);
        let (mut offset, most) = (offset, super::MOST_PAGES * super::PAGE);
        for part in data.chunks(most) {
            self.all(&mut state, &Keep::Pages((offset / super::PAGE as u64) as u32), part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    fn set_newer(&self, pages: &RoaringBitmap) -> Result<()> {
        let mut state = lock(&self.state);
        *lock(&self.cleared) -= pages; // they take it for newer still
        let new = pages - &state.newer;
        if new.is_empty() {
            return Ok(());
        }
        state.newer |= &new;
        in_parts(&new)
            .into_iter()
            .try_for_each(|runs| self.all(&mut state, &Keep::Newer { runs, are: true }, &[]))
            .inspect_err(|_| state.newer -= &new) // it is said again
    }

    fn clear_newer(&self, pages: &RoaringBitmap) {
        *lock(&self.cleared) |= pages;
    }

    fn settle(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let cleared = std::mem::take(&mut *lock(&self.cleared)) & &state.newer;
        if cleared.is_empty() {
            return Ok(());
        }
        state.newer -= &cleared;
        in_parts(&cleared)
            .into_iter()
            .try_for_each(|runs| self.all(&mut state, &Keep::Newer { runs, are: false }, &[]))
    }

    fn resize(&self, size_bytes: u64) -> Result<()> {
        let mut state = lock(&self.state);
        if size_bytes < state.size_bytes {
            // They cut theirs when the object grows again: before the registry knows the smaller size, the next home needs
            // what is past it.
            (state.size_bytes, state.is_cut) = (size_bytes, true);
            return Ok(());
        }
        let before = std::mem::replace(&mut state.size_bytes, size_bytes);
        if std::mem::take(&mut state.is_cut) {
            self.all(&mut state, &Keep::Resize(before), &[])?;
        }
        self.all(&mut state, &Keep::Resize(size_bytes), &[])
    }
}
