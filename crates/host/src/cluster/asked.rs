//! What other hosts ask of this one: slow answers to one host are in no other host's way.

use super::{Cluster, lock};
use crate::workers::{Share, Workers};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Questions of one host that are not answered yet.
const MOST: usize = 4096;

/// Who asks.
#[derive(Default)]
pub(super) struct Asked {
    hosts: Arc<Mutex<HashMap<HostId, Arc<Asker>>>>,
}

/// One host.
struct Asker {
    share: Arc<Share>,
    under_way: AtomicUsize,
    /// It may ask no more: what is under way still has its share of the threads, also if it comes again meanwhile.
    is_over: AtomicBool,
}

impl Asked {
    /// Runs the job on these threads when it is its turn. Refuses it, if too many of that host's wait.
    fn run(&self, from: HostId, pool: &Arc<Workers>, job: impl FnOnce() + Send + 'static) -> Result<()> {
        let new = || {
            let (share, under_way) = (Arc::new(Share::of_host()), AtomicUsize::new(0));
            Arc::new(Asker { share, under_way, is_over: AtomicBool::new(false) })
        };
        let mut known = lock(&self.hosts);
        let asker = known.entry(from).or_insert_with(new).clone();
        asker.is_over.store(false, Ordering::Relaxed);
        let before = asker.under_way.fetch_add(1, Ordering::Relaxed);
        drop(known);
        if before >= MOST {
            asker.under_way.fetch_sub(1, Ordering::Relaxed);
            let words = format!("{MOST} questions of this host are not answered yet: ask again later");
            return Err(Error::new(ErrorKind::TooMany, words));
        }
        let (share, hosts) = (asker.share.clone(), self.hosts.clone());
        share.run(pool, move || {
            job();
            if asker.under_way.fetch_sub(1, Ordering::Relaxed) == 1 && asker.is_over.load(Ordering::Relaxed) {
                forget_idle(&hosts, from);
            }
        });
        Ok(())
    }

    /// Nothing comes from that host any more, unless it connects again.
    pub fn forget(&self, from: HostId) {
        if let Some(asker) = lock(&self.hosts).get(&from) {
            asker.is_over.store(true, Ordering::Relaxed);
        }
        forget_idle(&self.hosts, from);
    }
}

/// Forgets a host that asks for nothing any more, and waits for nothing.
fn forget_idle(hosts: &Mutex<HashMap<HostId, Arc<Asker>>>, from: HostId) {
    let is_idle = |asker: &Arc<Asker>| {
        asker.is_over.load(Ordering::Relaxed) && asker.under_way.load(Ordering::Relaxed) == 0
    };
    let mut hosts = lock(hosts);
    if hosts.get(&from).is_some_and(is_idle) {
        hosts.remove(&from);
    }
}

impl Cluster {
    /// Does what another host asks for, on another thread.
    pub(super) fn run_for(
        &self,
        from: HostId,
        pool: &Arc<Workers>,
        job: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        self.asked.run(from, pool, job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn one_host_that_asks_without_end_is_in_nobodys_way() {
        let (asked, pool) = (Asked::default(), Workers::new(64));
        let (one, other) = (HostId(1), HostId(2));
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        for _ in 0..MOST {
            let released = released.clone();
            asked.run(one, &pool, move || drop(released.lock().map(|released| released.recv()))).unwrap();
        }
        let why = asked.run(one, &pool, || ()).unwrap_err();
        assert_eq!(why.kind, ErrorKind::TooMany, "{why}");
        let (done, is_done) = channel();
        asked.run(other, &pool, move || done.send(()).unwrap()).unwrap();
        is_done.recv().unwrap();
        // Nor if it comes again and again: its threads are counted until they are done.
        asked.forget(one);
        let why = asked.run(one, &pool, || ()).unwrap_err();
        assert_eq!(why.kind, ErrorKind::TooMany, "{why}");
        asked.forget(one);
        drop(release);
        while !lock(&asked.hosts).is_empty() {
            asked.forget(other);
            std::thread::yield_now(); // all that it had asked for is done some time
        }
    }
}
