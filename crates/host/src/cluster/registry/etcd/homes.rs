//! Objects whose home moves: their names and homes hang on no lease, so that they outlive the home. Whoever takes its place
//! does so by one transaction, which demands that nothing has changed and that the home is lost.

use super::keys::{SavedHost, SavedName};
use super::{Etcd, text};
use crate::cluster::PATIENCE;
use crate::cluster::lock;
use crate::cluster::registry::{Homed, out_of_reach};
use crate::cluster::wire::{Claim, Member, Moving};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Name, Result};
use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use std::collections::{BTreeMap, BTreeSet};

fn is_there(key: &str) -> Compare {
    Compare::version(key, CompareOp::Greater, 0)
}

fn is_not_there(key: &str) -> Compare {
    Compare::version(key, CompareOp::Equal, 0)
}

impl Etcd {
    fn transact(&self, when: Vec<Compare>, then: Vec<TxnOp>) -> Result<bool> {
        let txn = Txn::new().when(when).and_then(then);
        let done = self.client.ask(PATIENCE, async |mut etcd| etcd.txn(txn.clone()).await)?;
        Ok(done.succeeded())
    }

    /// The object of a name, if one has it.
    fn named(&self, key: &str) -> Result<Option<SavedName>> {
        Ok(self.get(key)?.and_then(|value| serde_json::from_slice(&value).ok()))
    }

    /// Takes name and home of an object that this host is the home of. Whose the name is, if it is another object's.
    pub(super) fn take_moving(&self, me: HostId, object: u128, about: &Moving) -> Result<Option<SavedName>> {
        self.own_lease()?;
        let (name_key, object_key) = (self.keys.name(&about.name), self.keys.object(object));
        let member_key = self.keys.member(me);
        let own = SavedName { number: me.0, object: format!("{object:032x}"), moves: true };
        // A few times: an attempt whose answer was lost has changed what the next one finds.
        for _ in 0..4 {
            let named = self.named(&name_key)?;
            if let Some(other) = named.as_ref().filter(|named| named.object != own.object) {
                return Ok(Some(other.clone()));
            }
            let there = self.get(&object_key)?;
            let before: Option<Homed> = there.as_ref().and_then(|value| serde_json::from_slice(value).ok());
            let homed = match &before {
                Some(before) if before.home != me => {
                    let text = "another host is the home of that object by now: try again";
                    return Err(Error::new(ErrorKind::Busy, text));
                }
                Some(before) => Homed { about: about.clone(), ..before.clone() },
                None => Homed { home: me, served: me, term: 1, replicas: Vec::new(), about: about.clone() },
            };
            let mut when = vec![is_there(&member_key)];
            let mut then = vec![TxnOp::put(object_key.as_str(), text(&homed), None)];
            when.push(match there {
                Some(there) => Compare::value(object_key.as_str(), CompareOp::Equal, there),
                None => is_not_there(&object_key),
            });
            if named.is_none() {
                when.push(is_not_there(&name_key));
                then.push(TxnOp::put(name_key.as_str(), text(&own), None));
            }
            if self.transact(when, then)? {
                lock(&self.mine).moving.entry(object).or_default().push(about.clone());
                return Ok(None);
            }
        }
        Err(Error::new(
            ErrorKind::Busy,
            format!("{} is being claimed by another host: try again", about.name),
        ))
    }

    /// These are all the objects of this host whose home moves.
    pub(super) fn replace_moving(&self, me: HostId, claims: Vec<Claim>) -> Result<()> {
        let before = lock(&self.mine).moving.clone();
        let now: BTreeMap<u128, Moving> =
            claims.into_iter().filter_map(|claim| Some((claim.object, *claim.moving?))).collect();
        let last = |object: &u128| before.get(object).and_then(|said| said.last());
        for (object, about) in now.iter().filter(|(object, about)| last(object) != Some(*about)) {
            // Where two have one name, who was first keeps it.
            self.take_moving(me, *object, about)?;
        }
        let cluster = self.cluster()?;
        for (object, said) in &before {
            let still = now.get(object);
            // Its home is this host by now, or is about to be: what was told to be all is older.
            let begins = || self.home_of(*object).map(|homed| homed.is_some_and(|homed| homed.served != me));
            if still.is_none() && (cluster.claims().iter().any(|claim| claim.object == *object) || begins()?)
            {
                continue;
            }
            let names: BTreeSet<&Name> = said.iter().map(|about| &about.name).collect();
            let gone =
                names.into_iter().filter(|name| still.is_none_or(|still| still.name != **name)).cloned();
            self.give_names_up(me, *object, &gone.collect::<Vec<_>>(), still.is_none())?;
            lock(&self.mine).moving.remove(object);
        }
        lock(&self.mine).moving.extend(now.into_iter().map(|(object, about)| (object, vec![about])));
        Ok(())
    }

    /// Names are free again; and the object is no more, if those were all.
    fn give_names_up(&self, me: HostId, object: u128, names: &[Name], is_gone: bool) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let object_key = self.keys.object(object);
        let Some(there) = self.get(&object_key)? else { return Ok(()) };
        let homed: Option<Homed> = serde_json::from_slice(&there).ok();
        if homed.is_none_or(|homed| homed.home != me) {
            return Ok(());
        }
        let mut then = Vec::new();
        for key in names.iter().map(|name| self.keys.name(name)) {
            let own = self.named(&key)?.is_some_and(|named| named.object == format!("{object:032x}"));
            then.extend(own.then(|| TxnOp::delete(key.as_str(), None)));
        }
        then.extend(is_gone.then(|| TxnOp::delete(object_key.as_str(), None)));
        self.transact(vec![Compare::value(object_key.as_str(), CompareOp::Equal, there)], then).map(drop)
    }

    /// Takes the place of a lost home.
    pub(super) fn take_lost_home(&self, me: HostId, object: u128, of: &Homed) -> Result<bool> {
        let when_lost = vec![is_not_there(&self.keys.member(of.home))];
        self.replace_home(me, object, of, when_lost)
    }

    fn replace_home(&self, me: HostId, object: u128, of: &Homed, mut when: Vec<Compare>) -> Result<bool> {
        let (name_key, object_key) = (self.keys.name(&of.about.name), self.keys.object(object));
        when.push(is_there(&self.keys.member(me)));
        when.push(Compare::value(object_key.as_str(), CompareOp::Equal, text(of)));
        let homed = Homed { home: me, term: of.term + 1, ..of.clone() };
        let name = SavedName { number: me.0, object: format!("{object:032x}"), moves: true };
        let then = vec![
            TxnOp::put(object_key.as_str(), text(&homed), None),
            TxnOp::put(name_key.as_str(), text(&name), None),
        ];
        // Asked twice because an answer was lost, it has succeeded if this host is the home.
        let taken = self.transact(when, then)? || self.home_of(object)?.is_some_and(|homed| homed.home == me);
        if taken {
            lock(&self.mine).moving.entry(object).or_default().push(of.about.clone());
        }
        Ok(taken)
    }

    /// The home is the lost one again, until another takes its place.
    pub(super) fn give_home_back(&self, me: HostId, object: u128, of: &Homed) -> Result<()> {
        let Some(homed) = self.home_of(object)?.filter(|homed| homed.home == me && homed.served == of.served)
        else {
            return Ok(());
        };
        let key = self.keys.object(object);
        let when = vec![Compare::value(key.as_str(), CompareOp::Equal, text(&homed))];
        let back = Homed { home: of.home, ..homed };
        self.transact(when, vec![TxnOp::put(key.as_str(), text(&back), None)])?;
        lock(&self.mine).moving.remove(&object);
        Ok(())
    }

    fn home_of(&self, object: u128) -> Result<Option<Homed>> {
        Ok(self.get(&self.keys.object(object))?.and_then(|value| serde_json::from_slice(&value).ok()))
    }

    /// From now on whoever follows this home asks for what this process granted.
    pub(super) fn note_scheduling(&self, me: HostId, object: u128) -> Result<()> {
        let changed =
            || Error::new(ErrorKind::Busy, "another host is the object's home by now, or it has changed");
        let before = self.home_of(object)?.filter(|homed| homed.home == me).ok_or_else(changed)?;
        if before.served == me {
            return Ok(());
        }
        let key = self.keys.object(object);
        let after = Homed { served: me, ..before.clone() };
        let when = vec![
            is_there(&self.keys.member(me)),
            Compare::value(key.as_str(), CompareOp::Equal, text(&before)),
        ];
        if self.transact(when, vec![TxnOp::put(key.as_str(), text(&after), None)])? {
            Ok(())
        } else {
            Err(changed())
        }
    }

    /// The home counts on other replicas from now on.
    pub(super) fn note_replicas(
        &self,
        me: HostId,
        object: u128,
        before: &[HostId],
        now: &[HostId],
    ) -> Result<()> {
        let key = self.keys.object(object);
        // A few times: its name, or what else the next home must know, may change at the same time.
        for _ in 0..4 {
            let changed = || Error::new(ErrorKind::Busy, "another host is the object's home by now");
            let homed = self.home_of(object)?.filter(|homed| homed.home == me).ok_or_else(changed)?;
            if homed.replicas == now {
                return Ok(());
            }
            if homed.replicas != before {
                return Err(Error::new(ErrorKind::Busy, "the object has other replicas by now"));
            }
            let after = Homed { replicas: now.to_vec(), ..homed.clone() };
            let when = vec![
                is_there(&self.keys.member(me)),
                Compare::value(key.as_str(), CompareOp::Equal, text(&homed)),
            ];
            if self.transact(when, vec![TxnOp::put(key.as_str(), text(&after), None)])? {
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::Disconnected, "the object's record changes all the time: try again"))
    }

    /// This process joins as the next of a host that was the home of these objects. Of those that others took meanwhile it is
    /// not any more, and ends.
    pub(super) fn take_homes_again(&self, member: &Member, claims: &[Claim]) -> Result<()> {
        let me = member.host;
        let own = self.get(&self.keys.host(&member.name))?;
        let own: SavedHost =
            own.and_then(|own| serde_json::from_slice(&own).ok()).ok_or_else(out_of_reach)?;
        self.undo_unfinished(&own.former, claims)?;
        let mut elsewhere = Vec::new();
        for claim in claims.iter().filter(|claim| claim.moving.is_some()) {
            if !self.take_home_again(me, &own.former, claim.object)? {
                elsewhere.push(claim.object);
            }
        }
        if !elsewhere.is_empty() {
            use crate::cluster::registry::Registry;
            self.leave();
            self.cluster()?.is_home_no_more(&elsewhere);
        }
        Ok(())
    }

    /// What a process before this one began, and died before its record said so: a creation is no more, and an object whose
    /// home it wanted to become is to be had by anybody again.
    fn undo_unfinished(&self, former: &[u32], claims: &[Claim]) -> Result<()> {
        let prefix = self.keys.objects();
        let all = self.client.ask(PATIENCE, async |mut etcd| {
            etcd.get(prefix.as_str(), Some(GetOptions::new().with_prefix())).await
        })?;
        for kv in all.kvs() {
            let Ok(homed) = serde_json::from_slice::<Homed>(kv.value()) else { continue };
            let is_known = |claim: &Claim| self.keys.object(claim.object).as_bytes() == kv.key();
            if !former.contains(&homed.home.0) || claims.iter().any(is_known) {
                continue;
            }
            let then = if former.contains(&homed.served.0) {
                let name_key = self.keys.name(&homed.about.name);
                let id = kv.key_str().unwrap_or_default().strip_prefix(prefix.as_str()).unwrap_or_default();
                let own = self.named(&name_key)?.is_some_and(|named| named.object == id);
                let name = own.then(|| TxnOp::delete(name_key.as_str(), None));
                [TxnOp::delete(kv.key(), None)].into_iter().chain(name).collect()
            } else {
                vec![TxnOp::put(kv.key(), text(&Homed { home: homed.served, ..homed }), None)]
            };
            self.transact(vec![Compare::value(kv.key(), CompareOp::Equal, kv.value())], then)?;
        }
        Ok(())
    }

    /// Whether this process is the home of that object, which one before it was.
    fn take_home_again(&self, me: HostId, former: &[u32], object: u128) -> Result<bool> {
        for _ in 0..4 {
            // None: a process died between its record and this.
            let Some(homed) = self.home_of(object)? else { return Ok(true) };
            if homed.home == me {
                return Ok(true);
            }
            let follows = former.contains(&homed.home.0);
            if !follows && self.get(&self.keys.member(homed.home))?.is_some() {
                return Ok(false);
            }
            let when = if follows { Vec::new() } else { vec![is_not_there(&self.keys.member(homed.home))] };
            if self.replace_home(me, object, &homed, when)? {
                return Ok(true);
            }
        }
        Err(Error::new(ErrorKind::Busy, "the homes of objects change: try again"))
    }
}
