//! Hears what changes in etcd, in the order of its revisions, and tells the cluster.

use super::super::keys::Change;
use super::Etcd;
use crate::cluster::{PATIENCE, lock};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use etcd_client::{EventType, GetOptions, KeyValue, Txn, TxnOp, TxnOpResponse, WatchOptions};
use std::sync::Arc;
use std::time::Duration;

/// Between two attempts to hear.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts the thread that listens. It ends with the host.
pub(super) fn start(etcd: &Arc<Etcd>) -> Result<()> {
    let etcd = Arc::downgrade(etcd);
    let listening = move || {
        while let Some(etcd) = etcd.upgrade() {
            if etcd.cluster().is_err() {
                return;
            }
            // Why not is said by the attempts to join or renew.
            let _ = etcd.listen();
            drop(etcd);
            std::thread::sleep(PAUSE);
        }
    };
    points::thread(|| std::thread::Builder::new().name("registry's news".into()).spawn(listening))
        .map(drop)
        .doing("starting a thread")
}

impl Etcd {
    /// Listens until the connection ends, from where the last one ended.
    fn listen(self: &Arc<Self>) -> Result<()> {
        if lock(&self.mirror).number == 0 {
            self.look()?;
        }
        let compacted = self.client.converse(async |mut etcd| {
            let from = lock(&self.mirror).number + 1;
            let options = WatchOptions::new().with_prefix().with_start_revision(from as i64);
            let Ok(mut stream) = etcd.watch(self.keys.prefix.as_str(), Some(options)).await else {
                return false;
            };
            while let Ok(Some(response)) = stream.message().await {
                if response.canceled() {
                    return response.compact_revision() > 0;
                }
                let changes = response.events().iter().filter_map(|event| {
                    let kv = event.kv()?;
                    let value = (event.event_type() == EventType::Put).then(|| kv.value());
                    Some((self.keys.change(kv.key(), value), kv.mod_revision() as u64))
                });
                let changes: Vec<(Change, u64)> = changes.collect();
                // What follows may take a while, and asks etcd: not on this thread's own time with the stream.
                tokio::task::block_in_place(|| self.changed(changes));
            }
            false
        });
        if compacted {
            self.look()?; // too far behind to hear it all
        }
        Ok(())
    }

    fn changed(self: &Arc<Self>, changes: Vec<(Change, u64)>) {
        let mut given_up = Vec::new();
        let mut mirror = lock(&self.mirror);
        for (change, revision) in changes {
            if let Change::GaveUp(it) = change {
                given_up.push(it);
            }
            mirror.apply(change, revision);
        }
        let news = mirror.news();
        self.further.notify_all();
        drop(mirror);
        let Ok(cluster) = self.cluster() else { return };
        cluster.heard(news);
        given_up.into_iter().for_each(|it| self.act_on(it));
    }

    /// Everything there is, at one revision.
    fn look(self: &Arc<Self>) -> Result<()> {
        let prefix = || Some(GetOptions::new().with_prefix());
        let me = self.cluster()?.me.host;
        let txn = Txn::new().and_then([
            TxnOp::get(self.keys.members(), prefix()),
            TxnOp::get(self.keys.all_seen(), prefix()),
            TxnOp::get(self.keys.all_given_up(me), prefix()),
        ]);
        let found = self.client.ask(PATIENCE, async |mut etcd| etcd.txn(txn.clone()).await)?;
        let header =
            found.header().ok_or_else(|| Error::new(ErrorKind::Protocol, "etcd tells no revision"))?;
        let (epoch, number) = (header.cluster_id().into(), header.revision() as u64);
        let mut members = Vec::new();
        let (mut seen, mut given_up) = (Vec::new(), Vec::new());
        let all: Vec<KeyValue> = found
            .op_responses()
            .into_iter()
            .flat_map(|response| match response {
                TxnOpResponse::Get(got) => got.kvs().to_vec(),
                _ => Vec::new(),
            })
            .collect();
        for kv in all {
            match self.keys.change(kv.key(), Some(kv.value())) {
                Change::Joined(host, saved) => members.push((host, saved, kv.mod_revision() as u64)),
                Change::Heard(host, upto) => seen.push((host, upto)),
                Change::GaveUp(it) => given_up.push(it),
                _ => {}
            }
        }
        let mut mirror = lock(&self.mirror);
        mirror.replace(epoch, number, members, seen);
        let news = mirror.news();
        self.further.notify_all();
        drop(mirror);
        if let Ok(cluster) = self.cluster() {
            cluster.heard(news);
        }
        given_up.into_iter().for_each(|it| self.act_on(it));
        Ok(())
    }
}
