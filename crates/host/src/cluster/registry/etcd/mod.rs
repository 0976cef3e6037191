//! The registry in etcd: its leases are the hosts' leases, and its revisions the order of losses. The cluster outlives the
//! loss of any host, and of a minority of etcd's members.
//!
//! | file | does |
//! |---|---|
//! | `keys` | the layout of keys |
//! | `addresses` | addresses of objects |
//! | `homes` | objects whose home moves |
//! | `mirror` | what a host knows of them. Pure |
//! | `client` | questions to etcd, with a limit to their time |
//! | `watch` | hears what changes |
//! | `given_up` | what hosts gave up of objects whose homes they cannot reach |

mod addresses;
mod client;
mod given_up;
mod homes;
mod mirror;
#[cfg(test)]
mod tests;
mod watch;

use super::departures::{followed, is_elsewhere, is_taken, no_such_name, no_such_object};
use super::keys::{GivenUp, Keys, SavedHost, SavedMember, SavedName, VERSION};
use super::place::EtcdPlace;
use super::{Homed, Joined, Joining, News, Registry, keeps_no_list, out_of_reach};
use crate::cluster::wire::{Answer, Call, Claim, Member, Moving};
use crate::cluster::{Cluster, PATIENCE, lock};
pub(super) use client::Client;
use commonhold_coherence::HostId;
use commonhold_object::format::other_version;
use commonhold_object::{Error, ErrorKind, Name, Result};
use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse};
use mirror::Mirror;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The registry as one host sees it.
pub struct Etcd {
    cluster: Weak<Cluster>,
    client: Client,
    keys: Keys,
    lease: Duration,
    mirror: Mutex<Mirror>,
    /// The mirror has more.
    further: Condvar,
    mine: Mutex<Mine>,
}

/// What this host has there.
#[derive(Debug, Default)]
struct Mine {
    /// 0: none yet.
    lease: i64,
    /// The revision that others know to have been heard here.
    told: u64,
    names: BTreeMap<Name, u128>,
    /// Objects that have addresses.
    addresses: BTreeSet<u128>,
    /// Of objects whose home moves all that was said of each, the last at the end. Their names hang on no lease.
    moving: BTreeMap<u128, Vec<Moving>>,
    /// What was given up, and said here: by key, under which number.
    passed: BTreeMap<String, u64>,
}

fn text(value: &impl serde::Serialize) -> Vec<u8> {
    // Plain data with text for keys: the only failure would be one of memory.
    serde_json::to_vec(value).unwrap_or_default()
}

impl Etcd {
    /// The registry there. `lease`: how long a host that says nothing belongs.
    pub fn new(
        cluster: &Arc<Cluster>,
        client: Client,
        place: &EtcdPlace,
        lease: Duration,
    ) -> Result<Arc<Etcd>> {
        let this = Arc::new(Etcd {
            cluster: Arc::downgrade(cluster),
            client,
            keys: Keys::new(&place.cluster),
            lease,
            mirror: Mutex::default(),
            further: Condvar::new(),
            mine: Mutex::default(),
        });
        watch::start(&this)?;
        Ok(this)
    }

    /// The first time: the name, and all that hangs on the lease. Gives the revision of it.
    fn join_first(&self, member: &Member, within: Duration) -> Result<u64> {
        self.check_version(within)?;
        let seconds = self.lease.as_secs().max(2) as i64;
        let lease =
            self.client.ask(within, async |mut etcd| Ok(etcd.lease_grant(seconds, None).await?.id()))?;
        self.join_under(member, lease, within)
    }

    /// Refuses keys that hosts of another version have put; where there are none, says of which version they will be. (Hosts
    /// of before there was a version put none.)
    fn check_version(&self, within: Duration) -> Result<()> {
        let key = self.keys.version();
        let put = TxnOp::put(key.as_str(), VERSION.to_string(), None);
        let is_new = Compare::version(key.as_str(), CompareOp::Equal, 0);
        let txn = Txn::new().when([is_new]).and_then([put]).or_else([TxnOp::get(key.as_str(), None)]);
        let done = self.client.ask(within, async |mut etcd| etcd.txn(txn.clone()).await)?;
        let found = done.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(got) => got.kvs().first().map(|kv| kv.value_str().ok()?.parse().ok()),
            _ => None,
        });
        match found {
            None => Ok(()),
            Some(found) if found == Some(VERSION) => Ok(()),
            Some(found) => {
                let what = format_args!("the registry under {}", self.keys.prefix);
                let way_out = "use the version that its other hosts have, or another name of the cluster";
                Err(other_version(what, found.unwrap_or(u64::MAX), VERSION, way_out))
            }
        }
    }

    fn join_under(&self, member: &Member, lease: i64, within: Duration) -> Result<u64> {
        let mut before: Option<(Vec<u8>, SavedHost)> = None;
        for _ in 0..4 {
            let txn = self.take_place(member, lease, before.take());
            let done = self.client.ask(within, async |mut etcd| etcd.txn(txn.clone()).await)?;
            if done.succeeded() {
                return Ok(self.has_joined(
                    &member.name,
                    lease,
                    done.header().map_or(0, |header| header.revision() as u64),
                ));
            }
            let there = done.op_responses().into_iter().find_map(|response| match response {
                TxnOpResponse::Get(got) => {
                    got.kvs().first().map(|kv| (kv.value().to_vec(), kv.mod_revision() as u64))
                }
                _ => None,
            });
            let Some((there, revision)) = there else { continue };
            let Ok(saved) = serde_json::from_slice::<SavedHost>(&there) else { continue };
            if (saved.number, saved.lease) == (member.host.0, lease) {
                return Ok(self.has_joined(&member.name, lease, revision)); // the answer to an earlier attempt was lost
            }
            if saved.address != member.address {
                self.revoke(lease);
                let other = Member { address: saved.address, ..member.clone() };
                return Err(is_elsewhere(&other, self.lease.as_secs()));
            }
            before = Some((there, saved));
        }
        self.revoke(lease);
        Err(Error::new(ErrorKind::Busy, "the earlier process of this host is still in the registry"))
    }

    /// Takes a name that nobody has, or the place of this host's earlier process, of which nothing is left but what it had
    /// newest: its loss, and who follows it, are one change.
    fn take_place(&self, member: &Member, lease: i64, before: Option<(Vec<u8>, SavedHost)>) -> Txn {
        let host_key = self.keys.host(&member.name);
        let others = before.as_ref().filter(|(_, saved)| saved.number != member.host.0);
        let mut former: Vec<HostId> =
            before.iter().flat_map(|(_, saved)| &saved.former).copied().map(HostId).collect();
        if let Some((_, saved)) = others {
            former = followed(&former, HostId(saved.number));
        }
        let former: Vec<u32> = former.into_iter().map(|host| host.0).collect();
        let ends = before.iter().flat_map(|(_, saved)| saved.ends.iter().rev().take(3).chain([&saved.lease]));
        let ends = ends.copied().collect();
        let gone = others.map(|(_, saved)| TxnOp::delete(self.keys.member(HostId(saved.number)), None));
        let number = member.host.0;
        let own = SavedHost { number, address: member.address, lease, ends, former: former.clone() };
        let saved = SavedMember { name: member.name.clone(), address: member.address, lease, former };
        let put =
            |key: &str, value: Vec<u8>| TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)));
        let joins = [put(&host_key, text(&own)), put(&self.keys.member(member.host), text(&saved))];
        let key = host_key.as_str();
        let (when, then) = match before {
            None => (Compare::version(key, CompareOp::Equal, 0), joins.to_vec()),
            Some((value, _)) => {
                (Compare::value(key, CompareOp::Equal, value), gone.into_iter().chain(joins).collect())
            }
        };
        Txn::new().when([when]).and_then(then).or_else([TxnOp::get(key, None)])
    }

    /// This host belongs since that revision, which is given.
    fn has_joined(&self, name: &str, lease: i64, revision: u64) -> u64 {
        *lock(&self.mine) = Mine { lease, ..Mine::default() };
        // What else hangs on leases of earlier processes goes: their names are this one's to take.
        let own = self.get(&self.keys.host(name)).ok().flatten();
        let own = own.and_then(|value| serde_json::from_slice::<SavedHost>(&value).ok());
        let former = own.into_iter().flat_map(|own| own.ends).filter(|former| *former != lease);
        former.for_each(|former| self.revoke(former));
        revision
    }

    fn revoke(&self, lease: i64) {
        // One that is not there any more is as good.
        let _ = self.client.ask(PATIENCE, async |mut etcd| etcd.lease_revoke(lease).await.map(drop));
    }

    fn renew(&self, me: HostId, seen: u64, within: Duration) -> Result<()> {
        let (lease, told) = {
            let mine = lock(&self.mine);
            (mine.lease, mine.told)
        };
        self.client.ask(within, async |mut etcd| etcd.lease_keep_alive(lease).await.map(drop))?;
        if seen > told {
            let (key, value) = (self.keys.seen(me), seen.to_string());
            let options = PutOptions::new().with_lease(lease);
            self.client.ask(within, async |mut etcd| {
                etcd.put(key.as_str(), value.as_str(), Some(options.clone())).await.map(drop)
            })?;
            lock(&self.mine).told = seen;
        }
        Ok(())
    }

    /// What the mirror tells, when it has come that far.
    fn news_from(&self, revision: u64, within: Duration) -> Result<News> {
        let deadline = Instant::now() + within;
        let mut mirror = lock(&self.mirror);
        while mirror.number < revision {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(ErrorKind::TimedOut, "etcd does not tell what changes"));
            }
            mirror = self.further.wait_timeout(mirror, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(mirror.news())
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let got = self.client.ask(PATIENCE, async |mut etcd| etcd.get(key, None).await)?;
        Ok(got.kvs().first().map(|kv| kv.value().to_vec()))
    }

    /// Takes a name that nobody has. What else it is, if it is not this host's now.
    fn take(&self, me: HostId, name: &Name, object: u128) -> Result<Option<SavedName>> {
        let lease = self.own_lease()?;
        let (name_key, object_key) = (self.keys.name(name), self.keys.object(object));
        let value = SavedName { number: me.0, object: format!("{object:032x}"), moves: false };
        // Nobody is the home of what another is the home of.
        let own = me.0.to_string();
        let there = self.client.ask(PATIENCE, async |mut etcd| etcd.get(object_key.as_str(), None).await)?;
        let there = there.kvs().first();
        if let Some(other) = there.filter(|there| there.value() != own.as_bytes()) {
            let number = other.value_str().ok().and_then(|other| other.parse().ok());
            return Ok(Some(SavedName { number: number.unwrap_or_default(), ..value }));
        }
        let revision = there.map_or(0, KeyValue::mod_revision);
        let is_free = Compare::mod_revision(object_key.as_str(), CompareOp::Equal, revision);
        let options = || Some(PutOptions::new().with_lease(lease));
        let txn = Txn::new()
            .when([Compare::version(name_key.as_str(), CompareOp::Equal, 0), is_free])
            .and_then([
                TxnOp::put(name_key.as_str(), text(&value), options()),
                TxnOp::put(object_key.as_str(), own.as_str(), options()),
            ])
            .or_else([TxnOp::get(name_key.as_str(), None)]);
        let done = self.client.ask(PATIENCE, async |mut etcd| etcd.txn(txn.clone()).await)?;
        if !done.succeeded() {
            let nobody = || Error::new(ErrorKind::Busy, "another host takes the object or its name just now");
            let there = done.op_responses().into_iter().find_map(|response| match response {
                TxnOpResponse::Get(got) => {
                    got.kvs().first().and_then(|kv| serde_json::from_slice::<SavedName>(kv.value()).ok())
                }
                _ => None,
            });
            if let Some(other) = Some(there.ok_or_else(nobody)?).filter(|there| *there != value) {
                return Ok(Some(other));
            }
        }
        lock(&self.mine).names.insert(name.clone(), object);
        Ok(None)
    }

    /// What hangs on no lease would stay for ever.
    fn own_lease(&self) -> Result<i64> {
        let lease = lock(&self.mine).lease;
        if lease == 0 { Err(out_of_reach()) } else { Ok(lease) }
    }

    fn cluster(&self) -> Result<Arc<Cluster>> {
        self.cluster.upgrade().ok_or_else(|| Error::new(ErrorKind::Disconnected, "this host is ending"))
    }
}

impl Registry for Etcd {
    fn join(&self, joining: &Joining, within: Duration) -> Result<Joined> {
        let me = joining.member.host;
        match joining.before {
            Some(before) => {
                self.renew(me, before.seen, within)?;
                // What has changed was told by the watch, or will be.
                Ok(Joined { lease: self.lease, news: lock(&self.mirror).news(), begin_at: 0 })
            }
            None => {
                // An error of this says more than that of waiting for news.
                self.get(&self.keys.host(&joining.member.name))?;
                // First, so that an earlier process's end is seen.
                self.news_from(1, within)?;
                let revision = self.join_first(&joining.member, within)?;
                self.take_homes_again(&joining.member, &joining.claims)?;
                self.replace(joining.claims.clone())?;
                self.keep_addresses(&joining.claims)?;
                let news = self.news_from(revision, within).inspect_err(|_| self.leave())?;
                Ok(Joined { lease: self.lease, news, begin_at: revision })
            }
        }
    }

    fn leave(&self) {
        let lease = std::mem::take(&mut *lock(&self.mine)).lease;
        if lease != 0 {
            self.revoke(lease);
        }
    }

    fn claim(&self, claim: Claim) -> Result<()> {
        let cluster = self.cluster()?;
        let taken = match &claim.moving {
            Some(about) => self.take_moving(cluster.me.host, claim.object, about)?,
            None => self.take(cluster.me.host, &claim.name, claim.object)?,
        };
        let Some(other) = taken else { return Ok(()) };
        Err(is_taken(&claim.name, &cluster.called(HostId(other.number))))
    }

    fn replace(&self, claims: Vec<Claim>) -> Result<()> {
        let me = self.cluster()?.me.host;
        let has_gone = |object: &u128| claims.iter().all(|claim| claim.object != *object);
        if lock(&self.mine).addresses.iter().any(has_gone) {
            self.keep_addresses(&claims)?;
        }
        let (claims, moving): (Vec<Claim>, Vec<Claim>) =
            claims.into_iter().partition(|claim| claim.moving.is_none());
        self.replace_moving(me, moving)?;
        let before = lock(&self.mine).names.clone();
        let now: BTreeMap<Name, u128> = claims.into_iter().map(|claim| (claim.name, claim.object)).collect();
        for (name, object) in before.iter().filter(|(name, object)| now.get(*name) != Some(*object)) {
            let mut gone = vec![TxnOp::delete(self.keys.name(name), None)];
            if !now.values().any(|left| left == object) {
                gone.push(TxnOp::delete(self.keys.object(*object), None)); // else it has another name
            }
            let txn = Txn::new().and_then(gone);
            self.client.ask(PATIENCE, async |mut etcd| etcd.txn(txn.clone()).await.map(drop))?;
            lock(&self.mine).names.remove(name);
        }
        for (name, object) in now.iter().filter(|(name, object)| before.get(*name) != Some(*object)) {
            // Where two have one, who was first keeps it.
            self.take(me, name, *object)?;
        }
        Ok(())
    }

    fn give_addresses(&self, object: u128, room_bytes: u64, uid: u32) -> Result<u64> {
        self.give(object, room_bytes, uid)
    }

    fn look_up(&self, name: &Name) -> Result<(HostId, u128)> {
        let found = self.get(&self.keys.name(name))?;
        let found = found.and_then(|value| serde_json::from_slice::<SavedName>(&value).ok());
        let nothing = || no_such_name(name);
        let saved = found.ok_or_else(nothing)?;
        match saved.object_that_moves() {
            Some(object) => self.homed(object)?.map(|homed| (homed.home, object)).ok_or_else(nothing),
            None => Ok((HostId(saved.number), saved.identity().ok_or_else(nothing)?)),
        }
    }

    fn where_is(&self, object: u128) -> Result<HostId> {
        let found = self.get(&self.keys.object(object))?;
        let home = |value: Vec<u8>| {
            let number = std::str::from_utf8(&value).ok()?.parse().ok().map(HostId);
            number.or_else(|| Some(serde_json::from_slice::<Homed>(&value).ok()?.home))
        };
        found.and_then(home).ok_or_else(no_such_object)
    }

    fn homed(&self, object: u128) -> Result<Option<Homed>> {
        let found = self.get(&self.keys.object(object))?;
        Ok(found.and_then(|value| serde_json::from_slice(&value).ok()))
    }

    fn homed_as(&self, name: &Name) -> Result<Option<(u128, Homed)>> {
        let found = self.get(&self.keys.name(name))?;
        let saved = found.and_then(|value| serde_json::from_slice::<SavedName>(&value).ok());
        let Some(object) = saved.and_then(|saved| saved.object_that_moves()) else { return Ok(None) };
        Ok(self.homed(object)?.map(|homed| (object, homed)))
    }

    fn take_home(&self, object: u128, of: &Homed) -> Result<bool> {
        self.take_lost_home(self.cluster()?.me.host, object, of)
    }

    fn return_home(&self, object: u128, of: &Homed) -> Result<()> {
        self.give_home_back(self.cluster()?.me.host, object, of)
    }

    fn schedules(&self, object: u128) -> Result<()> {
        self.note_scheduling(self.cluster()?.me.host, object)
    }

    fn count_on(&self, object: u128, before: &[HostId], now: &[HostId], within: Duration) -> Result<()> {
        self.note_replicas(self.cluster()?.me.host, object, before, now, within)
    }

    fn pass_given_up(&self, home: HostId, object: u128, number: u64) -> Result<()> {
        self.say_given_up(&GivenUp { home, object, former: self.cluster()?.me.host, number })
    }

    fn broken(&self, _host: HostId) {}

    fn kept_by(&self) -> Option<HostId> {
        None
    }

    fn answer(&self, _from: HostId, _call: Call) -> Result<Answer> {
        Err(keeps_no_list(&self.cluster()?.me.name))
    }
}
