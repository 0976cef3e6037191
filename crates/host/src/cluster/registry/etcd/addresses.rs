//! Addresses of objects in etcd. They hang on no lease: a host that is away keeps what its objects have.
//!
//! Every transaction that gives some demands that none were given since they were read, and says so by the key `addresses/next`.

use super::super::addresses::{Addresses, Asking, Given, SavedAddresses};
use super::super::keys::SavedAddress;
use super::homes::Attempt;
use super::{Etcd, text};
use crate::cluster::wire::Claim;
use crate::cluster::{PATIENCE, lock};
use commonhold_object::{Error, ErrorKind, Result};
use etcd_client::{Compare, CompareOp, GetOptions, TxnOp};
use std::collections::HashMap;

/// How often addresses are asked for that others come before.
const ATTEMPTS: usize = 16;

/// What is there, as it was read at once.
struct Read {
    all: Addresses,
    /// In which change any were given last; 0: none were.
    given_at: i64,
    /// In which change each was given, by address.
    revisions: HashMap<u64, i64>,
}

impl Etcd {
    /// Gives an object of this host addresses. An attempt whose answer was lost is found by the next.
    pub(super) fn give(&self, object: u128, room_bytes: u64, uid: u32) -> Result<u64> {
        let cluster = self.cluster()?;
        self.own_lease()?;
        let asking = Asking { object, room_bytes, uid, host: cluster.me.name.clone() };
        for _ in 0..ATTEMPTS {
            let mut read = self.read_addresses()?;
            let address = read.all.give(&asking)?;
            let is_there = read.revisions.contains_key(&address);
            if !is_there && !self.put_address(&asking, address, &read)? {
                continue;
            }
            lock(&self.mine).addresses.insert(object);
            return Ok(address);
        }
        Err(Error::new(ErrorKind::Busy, "other hosts are given addresses all the time: try again"))
    }

    /// This host has these objects, and no others: what others of it had is free. Those that stay are remembered.
    pub(super) fn keep_addresses(&self, claims: &[Claim]) -> Result<()> {
        let cluster = self.cluster()?;
        let mut read = self.read_addresses()?;
        let claimed = claims.iter().map(|claim| claim.object).collect();
        for object in read.all.gone(&cluster.me.name, &claimed) {
            let Some(given) = read.all.free(object) else { continue };
            let key = self.keys.address(given.address);
            let revision = read.revisions.get(&given.address).copied().unwrap_or_default();
            let when = vec![
                Compare::mod_revision(key.as_str(), CompareOp::Equal, revision),
                Compare::version(self.keys.member(cluster.me.host), CompareOp::Greater, 0),
            ];
            let then = vec![TxnOp::delete(key, None)];
            // Where it is not done another process of this host has come: that one tells its names.
            self.transact(&Attempt { when, then }, PATIENCE)?;
        }
        self.tell_addresses(claims)?;
        let left = read.all.gone(&cluster.me.name, &[].into());
        let told = claims.iter().filter(|claim| claim.fixed.is_some()).map(|claim| claim.object);
        lock(&self.mine).addresses = left.into_iter().chain(told).collect();
        Ok(())
    }

    /// Objects of this host may have addresses that another registry gave: etcd hears of them, unless they are another's by now.
    fn tell_addresses(&self, claims: &[Claim]) -> Result<()> {
        let cluster = self.cluster()?;
        for _ in 0..=claims.len() {
            let mut read = self.read_addresses()?;
            let unknown = read.all.unknown(&cluster.me.name, claims);
            let Some((asking, address)) = unknown.iter().find(|(asking, at)| read.all.adopt(asking, *at))
            else {
                return Ok(());
            };
            self.put_address(asking, *address, &read)?; // where others came first it is looked at again
        }
        Ok(())
    }

    /// Puts what was given, if nobody else was given anything since it was read. Whether it was put.
    fn put_address(&self, asking: &Asking, address: u64, read: &Read) -> Result<bool> {
        let Asking { object, room_bytes, uid, host } = asking;
        let (key, next) = (self.keys.address(address), self.keys.next_address());
        let value = SavedAddress {
            object: format!("{object:032x}"),
            room_bytes: *room_bytes,
            uid: *uid,
            host: host.clone(),
        };
        let none_since = Compare::mod_revision(next.as_str(), CompareOp::Equal, read.given_at);
        let me = self.cluster()?.me.host;
        let belongs = Compare::version(self.keys.member(me), CompareOp::Greater, 0);
        let then =
            vec![TxnOp::put(key, text(&value), None), TxnOp::put(next, text(&read.all.saved().next), None)];
        self.transact(&Attempt { when: vec![none_since, belongs], then }, PATIENCE)
    }

    fn read_addresses(&self) -> Result<Read> {
        let (prefix, next_key) = (self.keys.addresses(), self.keys.next_address());
        let got = self.client.ask(PATIENCE, async |mut etcd| {
            etcd.get(prefix.as_str(), Some(GetOptions::new().with_prefix())).await
        })?;
        let (mut saved, mut given_at, mut revisions) = (SavedAddresses::default(), 0, HashMap::new());
        for kv in got.kvs() {
            let Ok(key) = kv.key_str() else { continue };
            if key == next_key {
                given_at = kv.mod_revision();
                saved.next = serde_json::from_slice(kv.value()).unwrap_or_default(); // else from the beginning
                continue;
            }
            let damaged = || {
                Error::new(
                    ErrorKind::Corrupt,
                    format!("etcd's key {key} says of no object which addresses it has"),
                )
            };
            let address = key.strip_prefix(&prefix).and_then(|hex| u64::from_str_radix(hex, 16).ok());
            let value = serde_json::from_slice::<SavedAddress>(kv.value()).ok();
            let (address, value) = address.zip(value).ok_or_else(damaged)?;
            let SavedAddress { object, room_bytes, uid, host } = value;
            let object = u128::from_str_radix(&object, 16).map_err(|_| damaged())?;
            saved.given.push((object, Given { address, room_bytes, uid, host }));
            revisions.insert(address, kv.mod_revision());
        }
        let all = Addresses::restored(saved).ok_or_else(|| {
            Error::new(
                ErrorKind::Corrupt,
                format!("etcd's keys {prefix} give two objects the same addresses"),
            )
        })?;
        Ok(Read { all, given_at, revisions })
    }
}
