//! At the home: which hosts are replicas. A host comes to count when it has everything, and the registry knows it only then.

use super::home::{Home, PATIENCE_OF_LEASE, PAUSE, Replica, State, is_final};
use super::{Answer, Call, Keep, MOST_PAGES, PAGE, busy, in_parts, unexpected};
use crate::cluster::{Cluster, lock};
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use rustix::fs::SeekFrom;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// Between two looks whether hosts that could not keep it are to be tried again, at least.
const LOOK: Duration = Duration::from_millis(500);

impl Home {
    /// At the next home, before anything is stored: those that count are made alike. They differ from what is here in nothing but
    /// pages that may be newer: what was under way when the last home was lost.
    pub fn take_over(&self, own: impl Fn(HostId) -> bool) -> Result<()> {
        let cluster = self.cluster()?;
        let mut state = lock(&self.state);
        let others = state.known.iter().copied().filter(|host| !own(*host)).collect::<Vec<_>>();
        state.own.retain(|host| own(*host) && *host != cluster.me.host);
        state.own.push(cluster.me.host);
        for host in others {
            let deadline = Instant::now() + cluster.lease_length() / PATIENCE_OF_LEASE;
            while let Some(process) = cluster.lives_as(host) {
                match self.make_alike(&cluster, &mut state, process) {
                    Ok(()) => {
                        let name = cluster.called(process);
                        state.replicas.push(Replica { host, name, process: Some(process), counts: true });
                        break;
                    }
                    Err(_) if cluster.lease.is_fenced() => return Err(busy("this host is fenced")),
                    Err(error) if is_final(error.kind) || Instant::now() > deadline => {
                        self.report_gone(&cluster, &cluster.called(process), &error.to_string());
                        break;
                    }
                    Err(_) => std::thread::sleep(PAUSE), // it, or its connection, may have begun just now
                }
            }
        }
        self.tell(&cluster, &mut state)
    }

    fn make_alike(&self, cluster: &Arc<Cluster>, state: &mut State, process: HostId) -> Result<()> {
        cluster.reach(process)?;
        cluster.check_may_decide(process)?;
        let within = cluster.patience_with_replicas(PATIENCE_OF_LEASE);
        if !self.asked_to_begin(cluster, state, process, false, within)? {
            return Err(Error::new(ErrorKind::Lost, "it has nothing of it any more"));
        }
        self.send_newer(cluster, state, process)
    }

    /// Pages that may be newer, as they are stored here, and which those are.
    fn send_newer(&self, cluster: &Cluster, state: &mut State, process: HostId) -> Result<()> {
        let pages = state.newer.clone();
        for run in crate::cache::book::runs(&pages) {
            for first in (run.first..run.end()).step_by(MOST_PAGES) {
                let count = (run.end() - first).min(MOST_PAGES as u64);
                self.send_pages(cluster, state, process, first, count)?;
            }
        }
        self.send_only_newer(cluster, state, process)
    }

    fn send_only_newer(&self, cluster: &Cluster, state: &mut State, process: HostId) -> Result<()> {
        let mut parts = in_parts(&state.newer.clone());
        let last = parts.pop().unwrap_or_default();
        for (runs, is_last) in parts.into_iter().map(|runs| (runs, false)).chain([(last, true)]) {
            self.done(cluster, state, process, Keep::OnlyNewer { runs, is_last }, &[])?;
        }
        Ok(())
    }

    fn send_pages(
        &self,
        cluster: &Cluster,
        state: &mut State,
        process: HostId,
        first: u64,
        count: u64,
    ) -> Result<()> {
        let offset = first * PAGE as u64;
        let length = (count * PAGE as u64).min(state.size_bytes.saturating_sub(offset));
        let mut bytes = vec![0; length as usize];
        state.file.read_exact_at(&mut bytes, offset).doing("reading what replicas are to keep")?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.done(cluster, state, process, Keep::Pages(first as u32), &bytes)
    }

    fn done(
        &self,
        cluster: &Cluster,
        state: &mut State,
        process: HostId,
        what: Keep,
        bytes: &[u8],
    ) -> Result<()> {
        let within = cluster.patience_with_replicas(PATIENCE_OF_LEASE);
        match self.one(cluster, state, process, what, bytes, within)? {
            Answer::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Others come to count, as far as there are any, and those that are lost count no more. Gives when it should be tried
    /// again; none: when other hosts belong.
    pub fn fill(&self) -> Result<Option<Instant>> {
        let cluster = self.cluster()?;
        {
            let mut state = lock(&self.state);
            let (left, lost): (Vec<_>, Vec<_>) = std::mem::take(&mut state.replicas)
                .into_iter()
                .partition(|replica| cluster.lives_as(replica.host).is_some());
            state.replicas = left;
            self.tell(&cluster, &mut state)?;
            for replica in lost {
                self.report_gone(&cluster, &replica.name, "it is lost");
            }
        }
        for host in self.candidates(&cluster) {
            if self.lacks() == 0 || self.is_over.load(Ordering::Relaxed) || cluster.lease.is_fenced() {
                break;
            }
            if let Err(error) = self.add(&cluster, host) {
                if error.kind == ErrorKind::Busy && cluster.lease.is_fenced() {
                    lock(&self.state).replicas.retain(|replica| replica.host != host || replica.counts);
                    return Err(error);
                }
                self.could_not_add(&cluster, host, error);
            }
        }
        if self.lacks() == 0 {
            return Ok(None);
        }
        let state = lock(&self.state);
        let others = state.failed.iter().filter(|(host, _)| !cluster.is_reader(**host));
        Ok(others.map(|(_, failed)| failed.until).min().map(|until| until.max(Instant::now() + LOOK)))
    }

    /// It keeps nothing of it, and is left alone for a while.
    fn could_not_add(&self, cluster: &Cluster, host: HostId, why: Error) {
        let mut state = lock(&self.state);
        if state.replicas.iter().any(|replica| replica.host == host && replica.counts) {
            return; // it counts, which the registry has heard
        }
        state.replicas.retain(|replica| replica.host != host);
        let text = why.to_string();
        if state.has_failed(host, why) {
            let (object, who) = (self.object, cluster.called(host));
            cluster.report(format_args!("object {object:032x}: {who} cannot keep its pages: {text}"));
        }
        self.forget_at(cluster, host);
    }

    /// That process removes what it keeps of it, as soon as it hears it. Nobody waits for that.
    pub(super) fn forget_at(&self, cluster: &Cluster, process: HostId) {
        let call = Call::Keep { object: self.object, number: cluster.next_to_keep(), what: Keep::Forget };
        drop(cluster.begin_to_ask(process, call, &[]));
    }

    /// Hosts that may keep it and do not, those first that come first for this object.
    fn candidates(&self, cluster: &Arc<Cluster>) -> Vec<HostId> {
        let keep: Vec<HostId> = {
            let mut state = lock(&self.state);
            state.failed.retain(|host, _| cluster.member(*host).is_some());
            let left_alone = state.failed.iter().filter(|(_, failed)| Instant::now() < failed.until);
            let keep = state.replicas.iter().filter_map(|replica| cluster.lives_as(replica.host));
            keep.chain(left_alone.map(|(host, _)| *host)).collect()
        };
        let may =
            |host: &HostId| *host != cluster.me.host && !keep.contains(host) && !cluster.is_reader(*host);
        let mut hosts: Vec<HostId> =
            cluster.members().into_iter().map(|member| member.host).filter(may).collect();
        let rank = |host: &HostId| {
            let mixed = (self.object as u64 ^ u64::from(host.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 29
        };
        hosts.sort_by_key(rank);
        hosts
    }

    /// One host gets everything, a part at a time: what is stored meanwhile it gets with the others.
    fn add(&self, cluster: &Arc<Cluster>, host: HostId) -> Result<()> {
        cluster.reach(host)?;
        cluster.check_may_decide(host)?;
        {
            let mut state = lock(&self.state);
            let within = cluster.patience_with_replicas(PATIENCE_OF_LEASE);
            if !self.asked_to_begin(cluster, &mut state, host, true, within)? {
                return Err(busy("it keeps nothing"));
            }
            let name = cluster.called(host);
            state.replicas.push(Replica { host, name, process: Some(host), counts: false });
        }
        let mut at = 0;
        loop {
            let mut state = self.still_adding(host)?;
            let Some((first, count)) = stored_from(&state, at)? else { break };
            self.send_pages(cluster, &mut state, host, first, count)?;
            at = first + count;
        }
        let mut state = self.still_adding(host)?;
        self.send_only_newer(cluster, &mut state, host)?;
        state
            .replicas
            .iter_mut()
            .filter(|replica| replica.host == host)
            .for_each(|replica| replica.counts = true);
        self.tell(cluster, &mut state)?;
        state.failed.remove(&host);
        let (object, who) = (self.object, cluster.called(host));
        cluster.report(format_args!("object {object:032x}: {who} keeps its pages"));
        Ok(())
    }

    fn still_adding(&self, host: HostId) -> Result<MutexGuard<'_, State>> {
        let state = lock(&self.state);
        // By the process that began: another has nothing.
        let is_there = |replica: &Replica| replica.host == host && replica.process == Some(host);
        if state.replicas.iter().any(is_there) && !self.is_over.load(Ordering::Relaxed) {
            return Ok(state);
        }
        Err(busy("it could not be reached"))
    }

    /// The home schedules: what it was to the registry as a replica it is no more.
    pub fn has_begun(&self) -> Result<()> {
        let cluster = self.cluster()?;
        let mut state = lock(&self.state);
        state.own.clear();
        self.tell(&cluster, &mut state)
    }
}

/// The first pages from that one on that are stored, and are no hole: where they begin, and how many follow.
fn stored_from(state: &State, page: u64) -> Result<Option<(u64, u64)>> {
    let looking = || "looking for what is stored".to_owned();
    let at = page * PAGE as u64;
    if at >= state.size_bytes {
        return Ok(None);
    }
    let begin = match rustix::fs::seek(&state.file, SeekFrom::Data(at)) {
        Ok(begin) => begin / PAGE as u64,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        Err(error) => return Err(Error::io(looking(), &error.into())),
    };
    let hole = rustix::fs::seek(&state.file, SeekFrom::Hole(begin * PAGE as u64));
    let hole = hole.map_err(std::io::Error::from).doing(looking())?;
    let end = hole.min(state.size_bytes).div_ceil(PAGE as u64).max(begin + 1);
    Ok(Some((begin, (end - begin).min(MOST_PAGES as u64))))
}

impl Cluster {
    /// The process that is that host now, unless it is lost.
    pub(super) fn lives_as(&self, host: HostId) -> Option<HostId> {
        let is_not_lost = |host: &HostId| self.check_not_lost(*host).is_ok();
        let is_here = |host: &HostId| is_not_lost(host) && self.member(*host).is_some();
        // Who follows may be known before it is known as a member: it cannot be reached yet, and is not lost.
        Some(host).filter(is_here).or_else(|| self.follower(host).filter(is_not_lost))
    }

    /// Of an object of this home these are the replicas.
    pub(in crate::cluster) fn note_replicas(&self, home: &Arc<Home>) {
        lock(&self.replicated).insert(home.object, home.clone());
    }

    /// Those of an object of this home.
    pub(in crate::cluster) fn replicas_of(&self, object: u128) -> Option<Arc<Home>> {
        lock(&self.replicated).get(&object).cloned()
    }

    /// An object of this home is no more, or was never made.
    pub fn end_replicas(&self, object: u128) {
        if let Some(home) = lock(&self.replicated).remove(&object) {
            self.looking.forget(object);
            home.end();
        }
    }

    /// What is to be said of an object that fewer hosts keep than should.
    pub fn lacks_replicas(&self, object: u128) -> Option<String> {
        let home = self.replicas_of(object)?;
        let (lacks, wanted) = (home.lacks(), home.wanted);
        (lacks > 0).then(|| {
            let state = lock(&home.state);
            let failed =
                state.failed.iter().map(|(host, failed)| format!("{}: {}", self.called(*host), failed.why));
            let why = match failed.reduce(|all, one| all + "; " + &one) {
                Some(why) => format!("free room there, or start another host ({why})"),
                None => "start another host, if no more are joining".to_owned(),
            };
            format!(
                "{} of {wanted} replicas have its pages: losing more than those hosts loses pages; {why}",
                wanted - lacks
            )
        })
    }
}
