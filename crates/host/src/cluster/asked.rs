//! What other hosts ask of this one: slow answers to one host are in no other host's way.

use super::{Cluster, lock};
use crate::workers::{Share, Workers};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Questions of one host that are not answered yet.
const MOST: usize = 4096;

/// Who asks.
#[derive(Default)]
pub(super) struct Asked {
    hosts: Mutex<HashMap<HostId, Arc<Asker>>>,
}

/// One host.
struct Asker {
    share: Arc<Share>,
    under_way: AtomicUsize,
}

impl Asked {
    /// Runs the job on these threads when it is its turn. Refuses it, if too many of that host's wait.
    fn run(&self, from: HostId, pool: &Arc<Workers>, job: impl FnOnce() + Send + 'static) -> Result<()> {
        let new = || Arc::new(Asker { share: Arc::new(Share::of_host()), under_way: AtomicUsize::new(0) });
        let asker = lock(&self.hosts).entry(from).or_insert_with(new).clone();
        if asker.under_way.fetch_add(1, Ordering::Relaxed) >= MOST {
            asker.under_way.fetch_sub(1, Ordering::Relaxed);
            let words = format!("{MOST} questions of this host are not answered yet: ask again later");
            return Err(Error::new(ErrorKind::TooMany, words));
        }
        let share = asker.share.clone();
        share.run(pool, move || {
            job();
            asker.under_way.fetch_sub(1, Ordering::Relaxed);
        });
        Ok(())
    }

    /// Nothing comes from that host any more.
    pub fn forget(&self, from: HostId) {
        lock(&self.hosts).remove(&from);
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
        drop(release);
    }
}
