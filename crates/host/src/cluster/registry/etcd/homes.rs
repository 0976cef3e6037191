//! Objects whose home moves: their names and homes hang on no lease, so that they outlive the home. Whoever takes its place
//! does so by one transaction, which demands that nothing has changed and that the home is lost.
//!
//! That nothing has changed the revisions say in which keys were changed last, not their values: an attempt whose answer did not
//! come may be carried out any time later, when other changes have cancelled each other out. Every transaction here changes the
//! keys whose revisions it demands, so that it is carried out once at most; whoever does not know whether it was reads again.

use super::super::keys::{SavedHost, SavedName};
use super::{Etcd, text};
use crate::cluster::PATIENCE;
use crate::cluster::lock;
use crate::cluster::registry::{Homed, out_of_reach};
use crate::cluster::wire::{Claim, Member, Moving};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Name, Result};
use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How often a change is tried that others come before.
const ATTEMPTS: usize = 4;

/// Whether a change was made.
#[derive(PartialEq, Eq)]
enum Done {
    /// By this call.
    Now,
    /// There was nothing to do.
    Before,
    /// Other changes came first each time.
    Never,
}

fn is_there(key: &str) -> Compare {
    Compare::version(key, CompareOp::Greater, 0)
}

fn is_not_there(key: &str) -> Compare {
    Compare::version(key, CompareOp::Equal, 0)
}

/// A key as it was read.
struct Read<T> {
    key: String,
    /// Of its last change; 0: it is not there.
    revision: i64,
    /// None also if it is something else.
    value: Option<T>,
}

impl<T> Read<T> {
    fn is_there(&self) -> bool {
        self.revision != 0
    }

    /// It is as it was read.
    fn is_unchanged(&self) -> Compare {
        Compare::mod_revision(self.key.as_str(), CompareOp::Equal, self.revision)
    }

    fn put(&self, value: &T) -> TxnOp
    where
        T: Serialize,
    {
        TxnOp::put(self.key.as_str(), text(value), None)
    }

    fn delete(&self) -> TxnOp {
        TxnOp::delete(self.key.as_str(), None)
    }
}

/// What is done if all of that holds.
pub(super) struct Attempt {
    pub when: Vec<Compare>,
    pub then: Vec<TxnOp>,
}

impl Etcd {
    /// Whether it was done.
    pub(super) fn transact(&self, attempt: &Attempt, within: Duration) -> Result<bool> {
        let txn = Txn::new().when(attempt.when.clone()).and_then(attempt.then.clone());
        let done = self.client.ask(within, async |mut etcd| etcd.txn(txn.clone()).await)?;
        Ok(done.succeeded())
    }

    fn read<T: DeserializeOwned>(&self, key: String, within: Duration) -> Result<Read<T>> {
        let got = self.client.ask(within, async |mut etcd| etcd.get(key.as_str(), None).await)?;
        let kv = got.kvs().first();
        let value = kv.and_then(|kv| serde_json::from_slice(kv.value()).ok());
        Ok(Read { key, revision: kv.map_or(0, KeyValue::mod_revision), value })
    }

    /// The object of a name, if one has it.
    fn named(&self, name: &Name) -> Result<Read<SavedName>> {
        self.read(self.keys.name(name), PATIENCE)
    }

    fn record(&self, object: u128) -> Result<Read<Homed>> {
        self.read(self.keys.object(object), PATIENCE)
    }

    /// Takes name and home of an object that this host is the home of. Whose the name is, if it is another object's.
    pub(super) fn take_moving(&self, me: HostId, object: u128, about: &Moving) -> Result<Option<SavedName>> {
        self.own_lease()?;
        let own = SavedName { number: me.0, object: format!("{object:032x}"), moves: true };
        // A few times: an attempt whose answer was lost has changed what the next one finds.
        for _ in 0..ATTEMPTS {
            let named = self.named(&about.name)?;
            if let Some(other) = named.value.as_ref().filter(|named| named.object != own.object) {
                return Ok(Some(other.clone()));
            }
            let record = self.record(object)?;
            let homed = match &record.value {
                Some(before) if before.home != me => {
                    let text = "another host is the home of that object by now: try again";
                    return Err(Error::new(ErrorKind::Busy, text));
                }
                Some(before) => Homed { about: about.clone(), ..before.clone() },
                None => Homed { home: me, served: me, term: 1, replicas: Vec::new(), about: about.clone() },
            };
            let when = vec![is_there(&self.keys.member(me)), record.is_unchanged(), named.is_unchanged()];
            let name = (!named.is_there()).then(|| named.put(&own));
            let attempt = Attempt { when, then: [record.put(&homed)].into_iter().chain(name).collect() };
            if self.transact(&attempt, PATIENCE)? {
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
        // A few times: what else is in the record may change at the same time.
        for _ in 0..ATTEMPTS {
            let record = self.record(object)?;
            if record.value.as_ref().is_none_or(|homed| homed.home != me) {
                return Ok(());
            }
            let (mut when, mut then) = (vec![record.is_unchanged()], Vec::new());
            for name in names {
                self.frees(object, name, &mut when, &mut then)?;
            }
            then.extend(is_gone.then(|| record.delete()));
            if then.is_empty() || self.transact(&Attempt { when, then }, PATIENCE)? {
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::Busy, "the object's record changes all the time: try again"))
    }

    /// The name is free, if it is that object's.
    pub(super) fn frees(
        &self,
        object: u128,
        name: &Name,
        when: &mut Vec<Compare>,
        then: &mut Vec<TxnOp>,
    ) -> Result<()> {
        let named = self.named(name)?;
        if named.value.as_ref().is_some_and(|named| named.object == format!("{object:032x}")) {
            when.push(named.is_unchanged());
            then.push(named.delete());
        }
        Ok(())
    }

    /// Takes the place of a lost home.
    pub(super) fn take_lost_home(&self, me: HostId, object: u128, of: &Homed) -> Result<bool> {
        let when_lost = vec![is_not_there(&self.keys.member(of.home))];
        self.replace_home(me, object, of, when_lost)
    }

    fn replace_home(&self, me: HostId, object: u128, of: &Homed, mut when: Vec<Compare>) -> Result<bool> {
        let record = self.record(object)?;
        if record.value.as_ref() != Some(of) {
            // Asked twice because an answer was lost, it has succeeded if this host is the home.
            return Ok(self.is_taken_by(me, object, of, record.value.as_ref()));
        }
        when.extend([is_there(&self.keys.member(me)), record.is_unchanged()]);
        let homed = Homed { home: me, term: of.term + 1, ..of.clone() };
        let name = SavedName { number: me.0, object: format!("{object:032x}"), moves: true };
        let named = TxnOp::put(self.keys.name(&of.about.name).as_str(), text(&name), None);
        let attempt = Attempt { when, then: vec![record.put(&homed), named] };
        if self.transact(&attempt, PATIENCE)? {
            return Ok(self.is_taken_by(me, object, of, Some(&homed)));
        }
        let now = self.record(object)?.value;
        Ok(self.is_taken_by(me, object, of, now.as_ref()))
    }

    /// Whether this host has taken that home's place, by what the record is now.
    fn is_taken_by(&self, me: HostId, object: u128, of: &Homed, now: Option<&Homed>) -> bool {
        let taken = now.is_some_and(|homed| homed.home == me);
        if taken {
            lock(&self.mine).moving.entry(object).or_default().push(of.about.clone());
        }
        taken
    }

    /// The home is the lost one again, until another takes its place.
    pub(super) fn give_home_back(&self, me: HostId, object: u128, of: &Homed) -> Result<()> {
        let given = self.attempt(
            || PATIENCE,
            |_| {
                let record = self.record(object)?;
                let own = record.value.clone().filter(|homed| homed.home == me && homed.served == of.served);
                Ok(own.map(|homed| Attempt {
                    when: vec![record.is_unchanged()],
                    then: vec![record.put(&Homed { home: of.home, ..homed })],
                }))
            },
        )?;
        match given {
            Done::Now => drop(lock(&self.mine).moving.remove(&object)),
            Done::Before => {}
            Done::Never => {
                return Err(Error::new(
                    ErrorKind::Busy,
                    "the object's record changes all the time: try again",
                ));
            }
        }
        Ok(())
    }

    /// Tries a few times what `next` says, which looks anew each time, with as much time as is `left`: another change may come
    /// first, and an attempt whose answer was lost has done it.
    fn attempt(
        &self,
        left: impl Fn() -> Duration,
        next: impl Fn(Duration) -> Result<Option<Attempt>>,
    ) -> Result<Done> {
        for _ in 0..ATTEMPTS {
            let Some(attempt) = next(left())? else { return Ok(Done::Before) };
            if self.transact(&attempt, left())? {
                return Ok(Done::Now);
            }
        }
        Ok(Done::Never)
    }

    fn home_of(&self, object: u128) -> Result<Option<Homed>> {
        Ok(self.record(object)?.value)
    }

    /// From now on whoever follows this home asks for what this process granted.
    pub(super) fn note_scheduling(&self, me: HostId, object: u128) -> Result<()> {
        let changed =
            || Error::new(ErrorKind::Busy, "another host is the object's home by now, or it has changed");
        let noted = self.attempt(
            || PATIENCE,
            |_| {
                let record = self.record(object)?;
                let before = record.value.clone().filter(|homed| homed.home == me).ok_or_else(changed)?;
                Ok((before.served != me).then(|| Attempt {
                    when: vec![is_there(&self.keys.member(me)), record.is_unchanged()],
                    then: vec![record.put(&Homed { served: me, ..before })],
                }))
            },
        )?;
        if noted == Done::Never { Err(changed()) } else { Ok(()) }
    }

    /// The home counts on other replicas from now on.
    pub(super) fn note_replicas(
        &self,
        me: HostId,
        object: u128,
        before: &[HostId],
        now: &[HostId],
        within: Duration,
    ) -> Result<()> {
        let deadline = Instant::now() + within;
        let left = || deadline.saturating_duration_since(Instant::now());
        let noted = self.attempt(left, |left| self.noting_replicas(me, object, before, now, left))?;
        if noted == Done::Never {
            let text = "the object's record changes all the time: try again";
            return Err(Error::new(ErrorKind::Disconnected, text));
        }
        Ok(())
    }

    /// How that is noted; none if it is.
    pub(super) fn noting_replicas(
        &self,
        me: HostId,
        object: u128,
        before: &[HostId],
        now: &[HostId],
        within: Duration,
    ) -> Result<Option<Attempt>> {
        let changed = || Error::new(ErrorKind::Busy, "another host is the object's home by now");
        let record: Read<Homed> = self.read(self.keys.object(object), within)?;
        let homed = record.value.clone().filter(|homed| homed.home == me).ok_or_else(changed)?;
        if homed.replicas == now {
            return Ok(None);
        }
        if homed.replicas != before {
            return Err(Error::new(ErrorKind::Busy, "the object has other replicas by now"));
        }
        Ok(Some(Attempt {
            when: vec![is_there(&self.keys.member(me)), record.is_unchanged()],
            then: vec![record.put(&Homed { replicas: now.to_vec(), ..homed })],
        }))
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
            let key = kv.key_str().unwrap_or_default();
            let Some(object) = key.strip_prefix(&prefix).and_then(|id| u128::from_str_radix(id, 16).ok())
            else {
                continue;
            };
            if !former.contains(&homed.home.0) || claims.iter().any(|claim| claim.object == object) {
                continue;
            }
            let record = Read { key: key.to_owned(), revision: kv.mod_revision(), value: None };
            let (mut when, mut then) = (vec![record.is_unchanged()], Vec::new());
            if former.contains(&homed.served.0) {
                then.push(record.delete());
                self.frees(object, &homed.about.name, &mut when, &mut then)?;
            } else {
                then.push(record.put(&Homed { home: homed.served, ..homed }));
            }
            self.transact(&Attempt { when, then }, PATIENCE)?;
        }
        Ok(())
    }

    /// Whether this process is the home of that object, which one before it was.
    fn take_home_again(&self, me: HostId, former: &[u32], object: u128) -> Result<bool> {
        for _ in 0..ATTEMPTS {
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
