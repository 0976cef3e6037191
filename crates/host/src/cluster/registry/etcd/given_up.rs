//! What hosts gave up of objects whose homes they cannot reach: said by way of etcd, done by the home, which then removes it.

use super::super::keys::GivenUp;
use super::Etcd;
use crate::cluster::{PATIENCE, lock};
use commonhold_object::Result;
use commonhold_points as points;
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use std::sync::Arc;
use std::time::Duration;

/// Between two attempts to do what follows.
const PAUSE: Duration = Duration::from_millis(200);

impl Etcd {
    /// Says it, unless it was said.
    pub(super) fn say_given_up(&self, it: &GivenUp) -> Result<()> {
        let (key, lease) = (self.keys.given_up(it), self.own_lease()?);
        if lock(&self.mine).passed.get(&key) == Some(&it.number) {
            return Ok(());
        }
        let (value, options) = (it.number.to_string(), PutOptions::new().with_lease(lease));
        self.client.ask(PATIENCE, async |mut etcd| {
            etcd.put(key.as_str(), value.as_str(), Some(options.clone())).await.map(drop)
        })?;
        lock(&self.mine).passed.insert(key, it.number);
        Ok(())
    }

    /// At the home: does what follows. That takes as long as pages are asked back, and news must not wait for it.
    pub(super) fn act_on(self: &Arc<Self>, it: GivenUp) {
        if !self.cluster().is_ok_and(|cluster| cluster.me.host == it.home) {
            return;
        }
        let this = Arc::downgrade(self);
        let acting = move || {
            while let Some(this) = this.upgrade()
                && let Ok(cluster) = this.cluster()
                && cluster.waits_for(it.former)
            {
                if cluster.other_gave_up(it.former, it.home, it.object, it.former, it.number).is_ok() {
                    return this.remove_given_up(&it);
                }
                drop((this, cluster));
                std::thread::sleep(PAUSE);
            }
        };
        if points::thread(|| std::thread::Builder::new().name("given up".into()).spawn(acting)).is_err() {
            std::process::abort(); // the keeper starts the next, which asks everybody
        }
    }

    /// Unless that host has given it up again by now.
    fn remove_given_up(&self, it: &GivenUp) {
        let (key, value) = (self.keys.given_up(it), it.number.to_string());
        let txn = Txn::new()
            .when([Compare::value(key.as_str(), CompareOp::Equal, value)])
            .and_then([TxnOp::delete(key.as_str(), None)]);
        // What stays goes with that host's lease.
        let _ = self.client.ask(PATIENCE, async |mut etcd| etcd.txn(txn.clone()).await.map(drop));
    }
}
