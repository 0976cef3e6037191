//! The list of the host that keeps it: each change is written down before anybody is told, so that the next process
//! knows who may still have a lease. While that is written leases are renewed.

use super::addresses::{Addresses, Asking, SavedAddresses};
use super::list::{List, Saved};
use super::names::Names;
use super::{Before, Joining, News, out_of_reach};
use crate::cluster::wire::Claim;
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Format, Result};
use commonhold_points as points;
use commonhold_sys::clock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A list, and the state directory that it is in.
pub(super) struct Kept {
    /// Never held while a file is written, or names are gone through.
    list: Mutex<List>,
    /// One change at a time.
    changing: Mutex<()>,
    /// Taken before `list`, if both are.
    names: Mutex<Names>,
    /// Taken after `names`, if both are.
    addresses: Mutex<Addresses>,
    state: PathBuf,
}

/// A file in which a list is kept.
struct Kind {
    file: &'static str,
    format: Format,
    what: &'static str,
    /// What people are told of one that is damaged.
    damaged: &'static str,
}

const MEMBERS: Kind = Kind {
    file: "members",
    format: Format { magic: *b"ChMembs", version: 1 },
    what: "list of members",
    damaged: "stop all hosts of the cluster and remove it",
};
const ADDRESSES: Kind = Kind {
    file: "addresses",
    format: Format { magic: *b"ChAddrs", version: 1 },
    what: "list of addresses",
    damaged: "restore it from a copy; without it objects may get addresses that others have",
};
const WAY_OUT: &str = "start this host with the version that wrote it, or with a later one that reads it";

impl Kind {
    /// What is in the file, if it is there.
    fn read<T: DeserializeOwned>(&self, state: &Path) -> Result<Option<T>> {
        let bytes = match std::fs::read(self.path(state)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(format_args!("reading the {}", self.what), &error)),
        };
        // Before there were versions the file began with what is now behind them.
        let body = self.format.body(&bytes, self.path(state).display(), WAY_OUT)?.unwrap_or(&bytes);
        // What ails it helps nobody.
        postcard::from_bytes(body).map(Some).map_err(|_| self.is_damaged(state))
    }

    fn path(&self, state: &Path) -> PathBuf {
        state.join(self.file)
    }

    fn is_damaged(&self, state: &Path) -> Error {
        let (path, what, way_out) = (self.path(state), self.what, self.damaged);
        Error::new(ErrorKind::Corrupt, format!("{} holds no {what}: {way_out}", path.display()))
    }

    /// Puts it in the place of the file, whole.
    fn write(&self, state: &Path, saved: &impl Serialize) -> Result<()> {
        self.replace(state, saved).doing(format_args!("writing the {}", self.what))
    }

    fn replace(&self, state: &Path, saved: &impl Serialize) -> std::io::Result<()> {
        let path = self.path(state);
        let fresh = path.with_extension("new");
        let mut file = std::fs::File::create(&fresh)?;
        let bytes = postcard::to_extend(saved, self.format.begin().to_vec());
        file.write_all(&bytes.map_err(std::io::Error::other)?)?;
        points::fsync(|| file.sync_data())?;
        std::fs::rename(fresh, path)?;
        // The directory too: what others were told must not be forgotten by a power cut.
        points::fsync(|| std::fs::File::open(state)?.sync_all())
    }
}

/// Refuses lists that no host could begin with.
pub(super) fn check(state: &Path) -> Result<()> {
    saved_list(state, Duration::ZERO, 0)?;
    saved_addresses(state).map(drop)
}

fn saved_list(state: &Path, lease: Duration, now: u64) -> Result<Option<List>> {
    let saved = MEMBERS.read::<Saved>(state)?;
    let restored = saved.map(|saved| List::restored(saved, lease.as_nanos() as u64, now));
    restored.map(|list| list.ok_or_else(|| MEMBERS.is_damaged(state))).transpose()
}

fn saved_addresses(state: &Path) -> Result<Addresses> {
    let saved = ADDRESSES.read::<SavedAddresses>(state)?.unwrap_or_default();
    Addresses::restored(saved).ok_or_else(|| ADDRESSES.is_damaged(state))
}

impl Kept {
    /// The list that was kept in the state directory, or a new one.
    pub fn open(state: &Path, lease: Duration, now: u64) -> Result<Kept> {
        let list = match saved_list(state, lease, now)? {
            Some(list) => list,
            None => {
                let mut epoch = [0; 16];
                rustix::rand::getrandom(&mut epoch, rustix::rand::GetRandomFlags::empty())
                    .map_err(std::io::Error::from)
                    .doing("choosing the registry's epoch")?;
                List::new(u128::from_le_bytes(epoch), lease.as_nanos() as u64)
            }
        };
        let addresses = saved_addresses(state)?;
        let (changing, names) = (Mutex::default(), Mutex::default());
        Ok(Kept { list: list.into(), changing, names, addresses: addresses.into(), state: state.to_owned() })
    }

    /// The list as it is.
    pub fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose the names are.
    pub fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the list: `change` is told the time. What cannot be written down is not changed. Gives the news if there are any
    /// for the others.
    pub fn change<T>(&self, change: impl FnOnce(&mut List, u64) -> Result<T>) -> Result<(T, Option<News>)> {
        let changed = self.change_list(change)?;
        if changed.1.is_some() {
            self.forget_names_of_lost(&mut self.names());
        }
        Ok(changed)
    }

    /// A host joins, with these names. Nobody takes those of the process before it meanwhile.
    pub fn join(&self, joining: Joining) -> Result<Option<News>> {
        let (host, claims) = (joining.member.host, joining.claims.clone());
        let name = joining.member.name.clone();
        let mut names = self.names();
        let news = self.change_list(|list, now| list.join(joining, now))?.1;
        self.forget_names_of_lost(&mut names);
        self.keep_addresses(&name, &claims);
        names.replace(host, claims);
        Ok(news)
    }

    fn change_list<T>(&self, change: impl FnOnce(&mut List, u64) -> Result<T>) -> Result<(T, Option<News>)> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut next, before, now) = {
            let list = self.list();
            // Under the lock: who renews later than that has a later time.
            (list.clone(), list.number(), clock::now())
        };
        let outcome = change(&mut next, now)?;
        let changed = next.number() != before;
        if changed {
            MEMBERS.write(&self.state, &next.saved())?;
        }
        let mut list = self.list();
        let waited = list.waits_for_somebody();
        next.take_renewals(&list);
        *list = next;
        // Who waits for all to have heard of a loss is told that they have.
        let told = changed || waited && !list.waits_for_somebody();
        Ok((outcome, told.then(|| list.news())))
    }

    /// A host renews its lease. Gives the news for the others if all have heard of a loss by that: somebody waits for it.
    pub fn renew(&self, host: HostId, before: Before) -> Result<Option<News>> {
        let mut list = self.list();
        let waited = list.waits_for_somebody();
        list.renew(host, before, clock::now())?;
        let settles = waited && !list.waits_for_somebody();
        Ok(settles.then(|| list.news()))
    }

    /// Gives a name to a member, unless another has it.
    pub fn claim(&self, host: HostId, claim: Claim) -> Result<()> {
        let mut names = self.names();
        self.check_member(host)?;
        names.claim(host, claim, |host| self.list().called(host))
    }

    /// A member says which its names are.
    pub fn replace(&self, host: HostId, claims: Vec<Claim>) -> Result<()> {
        let mut names = self.names();
        self.check_member(host)?;
        let name = self.list().called(host);
        self.keep_addresses(&name, &claims);
        names.replace(host, claims);
        Ok(())
    }

    /// Gives an object of a member addresses. `room_bytes`: how many; `uid`: whose the object is.
    pub fn give_addresses(&self, from: HostId, object: u128, room_bytes: u64, uid: u32) -> Result<u64> {
        let names = self.names();
        self.check_member(from)?;
        if names.home_of(object) != Some(from) {
            let words = "an object has its name before it has addresses: only its home asks for them";
            return Err(Error::new(ErrorKind::Permission, words));
        }
        let host = self.list().called(from);
        self.change_addresses(|addresses| addresses.give(&Asking { object, room_bytes, uid, host }))
    }

    /// A host has these objects, and no others.
    fn keep_addresses(&self, host: &str, claims: &[Claim]) {
        let objects = claims.iter().map(|claim| claim.object).collect();
        let (gone, unknown) = {
            let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
            (addresses.gone(host, &objects), addresses.unknown(host, claims))
        };
        if !gone.is_empty() || !unknown.is_empty() {
            // What cannot be written down now stays as it is, until the host tells its names again.
            let _ = self.change_addresses(|addresses| {
                gone.into_iter().for_each(|object| drop(addresses.free(object)));
                for (asking, address) in &unknown {
                    // Where it is another's by now, the object is mapped only where that is not.
                    let _ = addresses.adopt(asking, *address);
                }
                Ok(())
            });
        }
    }

    /// What cannot be written down is not changed.
    fn change_addresses<T>(&self, change: impl FnOnce(&mut Addresses) -> Result<T>) -> Result<T> {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = addresses.clone();
        let outcome = change(&mut next)?;
        ADDRESSES.write(&self.state, &next.saved())?;
        *addresses = next;
        Ok(outcome)
    }

    /// Who is no member would have names for ever.
    fn check_member(&self, host: HostId) -> Result<()> {
        if self.list().is_member(host) { Ok(()) } else { Err(out_of_reach()) }
    }

    fn forget_names_of_lost(&self, names: &mut Names) {
        let is_lost = |host: &HostId| !self.list().is_member(*host);
        let lost: Vec<HostId> = names.owners().into_iter().filter(is_lost).collect();
        lost.into_iter().for_each(|host| names.forget(host));
    }
}

#[cfg(test)]
mod tests {
    use super::super::addresses::Given;
    use super::*;
    use crate::cluster::wire::Member;
    use crate::golden;
    use commonhold_object::{Fixed, Name, Part};

    fn joining(number: u32, claims: Vec<Claim>) -> Joining {
        let (host, name, address) = (HostId(number), number.to_string(), ([127, 0, 0, 1], 1).into());
        Joining { member: Member { host, name, address, former: Vec::new() }, claims, before: None }
    }

    #[test]
    fn leases_are_renewed_while_names_are_gone_through_and_a_change_is_written_down() {
        let state = tempfile::tempdir().unwrap();
        let kept = Kept::open(state.path(), Duration::from_secs(600), clock::now()).unwrap();
        let claim = Claim { name: Name::new("/x").unwrap(), object: 1, moving: None, fixed: None };
        kept.join(joining(1, vec![claim.clone()])).unwrap();
        kept.join(joining(2, Vec::new())).unwrap();
        assert_eq!(kept.claim(HostId(2), claim.clone()).unwrap_err().kind, ErrorKind::Permission);
        assert_eq!(kept.claim(HostId(3), claim.clone()).unwrap_err().kind, ErrorKind::Disconnected);
        {
            let (_names, _changing) = (kept.names(), kept.changing.lock().unwrap());
            let epoch = kept.list().news().epoch;
            assert_eq!(kept.renew(HostId(1), Before { epoch, heard: 2, seen: 2 }).unwrap(), None);
        }
        // Its names are free when it is lost, and what all have heard of is told.
        let lose = |list: &mut List, now| {
            list.lose(HostId(1), now);
            Ok(())
        };
        let news = kept.change(lose).unwrap().1.unwrap();
        assert!(news.settled < news.number);
        kept.claim(HostId(2), claim).unwrap();
        let heard = Before { epoch: news.epoch, heard: news.number, seen: news.number };
        assert_eq!(kept.renew(HostId(2), heard).unwrap().unwrap().settled, news.number);
    }

    #[test]
    fn addresses_outlive_the_process_that_gave_them_and_the_hosts_that_have_them() {
        let state = tempfile::tempdir().unwrap();
        let open = || Kept::open(state.path(), Duration::from_secs(600), clock::now()).unwrap();
        let claim = |object| {
            let name = Name::new(&format!("/{object}")).unwrap();
            Claim { name, object, moving: None, fixed: None }
        };
        let room = 4 << 20;
        let kept = open();
        kept.join(joining(1, vec![claim(1)])).unwrap();
        kept.join(joining(2, vec![claim(2)])).unwrap();
        let first = kept.give_addresses(HostId(1), 1, room, 0).unwrap();
        assert_eq!(kept.give_addresses(HostId(1), 1, room, 0).unwrap(), first);
        for (host, object) in [(1, 2), (1, 3), (3, 1)] {
            kept.give_addresses(HostId(host), object, room, 0).unwrap_err();
        }
        // The list's next process, and the host that has them away.
        drop(kept);
        let kept = open();
        kept.join(joining(2, vec![claim(2)])).unwrap();
        let second = kept.give_addresses(HostId(2), 2, room, 0).unwrap();
        assert_eq!(second, first + room);
        // It comes back as another process, and has it still; then it has it no more, and nobody gets it soon.
        let next = |number, claims| {
            let mut joining = joining(number, claims);
            joining.member.name = "1".into();
            joining
        };
        kept.join(next(4, vec![claim(1)])).unwrap();
        assert_eq!(kept.give_addresses(HostId(4), 1, room, 0).unwrap(), first);
        kept.replace(HostId(4), vec![claim(5)]).unwrap();
        assert_eq!(kept.give_addresses(HostId(4), 5, room, 0).unwrap(), second + room);
        // A list that forgot all takes from hosts what they have, unless it is another's by then.
        let saved = std::fs::read(state.path().join("addresses")).unwrap();
        drop(kept);
        std::fs::remove_file(state.path().join("addresses")).unwrap();
        let kept = open();
        let with = |object, address| {
            let fixed = Some((Fixed { address, room_bytes: room }, 0));
            Claim { fixed, ..claim(object) }
        };
        kept.join(next(5, vec![with(7, second), with(8, second), with(9, 4096)])).unwrap();
        assert_eq!(kept.give_addresses(HostId(5), 7, room, 0).unwrap(), second);
        assert_eq!(kept.give_addresses(HostId(5), 8, room, 0).unwrap(), first);
        assert_eq!(kept.give_addresses(HostId(5), 9, room, 0).unwrap(), second + room);
        assert_ne!(std::fs::read(state.path().join("addresses")).unwrap(), saved);
        std::fs::write(state.path().join("addresses"), b"garbage").unwrap();
        let refused = Kept::open(state.path(), Duration::from_secs(600), clock::now()).err().unwrap();
        assert!(refused.kind == ErrorKind::Corrupt && refused.message.contains("addresses"), "{refused}");
    }

    fn opened(state: &Path) -> Result<Kept> {
        Kept::open(state, Duration::from_secs(600), clock::now())
    }

    #[test]
    fn the_files_are_those_of_their_versions_and_of_before_there_were_any() {
        let state = tempfile::tempdir().unwrap();
        let member = Member {
            host: HostId(7),
            name: "left".into(),
            address: ([127, 0, 0, 1], 7000).into(),
            former: vec![HostId(3)],
        };
        let saved = Saved {
            epoch: 1 << 100,
            number: 9,
            lease_ns: 10,
            members: vec![member],
            lost: vec![(8, HostId(3))],
        };
        let first = Part::Shared.addresses().start;
        let given = Given { address: first, room_bytes: 4 << 20, uid: 5, host: "left".into() };
        let addresses = SavedAddresses { next: first + (4 << 20), given: vec![(1 << 100, given)] };
        let directory = env!("CARGO_MANIFEST_DIR");
        let write = |kind: &Kind, before: Vec<u8>| {
            let bytes = std::fs::read(state.path().join(kind.file)).unwrap();
            let kept = golden::check(directory, kind.file, kind.format.version.into(), &bytes);
            [golden::check(directory, kind.file, 0, &before), kept]
        };
        MEMBERS.write(state.path(), &saved).unwrap();
        ADDRESSES.write(state.path(), &addresses).unwrap();
        let members = write(&MEMBERS, postcard::to_stdvec(&saved).unwrap());
        let all = write(&ADDRESSES, postcard::to_stdvec(&addresses).unwrap());
        for (members, addresses) in members.iter().zip(&all) {
            std::fs::write(state.path().join("members"), members).unwrap();
            std::fs::write(state.path().join("addresses"), addresses).unwrap();
            let kept = opened(state.path()).unwrap();
            assert_eq!(kept.list().number(), 9);
            assert_eq!(kept.list().called(HostId(7)), "left");
            let given = kept.addresses.lock().unwrap().saved();
            assert_eq!((given.next, given.given[0].1.address), (first + (4 << 20), first));
        }
    }

    #[test]
    fn lists_of_another_version_are_told_from_damaged_ones_and_stay() {
        let state = tempfile::tempdir().unwrap();
        for kind in [&MEMBERS, &ADDRESSES] {
            for version in [0, kind.format.version + 1] {
                let bytes = Format { version, ..kind.format }.begin();
                std::fs::write(kind.path(state.path()), bytes).unwrap();
                for why in [opened(state.path()).err().unwrap(), check(state.path()).unwrap_err()] {
                    assert!(why.kind == ErrorKind::Version && why.message.contains(WAY_OUT), "{why}");
                    assert!(why.message.contains(kind.file), "{why}");
                }
                assert_eq!(std::fs::read(kind.path(state.path())).unwrap(), bytes);
            }
            std::fs::remove_file(kind.path(state.path())).unwrap();
        }
    }
}
