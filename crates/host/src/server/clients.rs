//! `live/clients`: which processes have objects that only they could bring back (controlled ones and anonymous ones), if
//! host and keeper die together.
//!
//! A list of what came and went, read from the beginning: each change is one short write, however many clients there
//! are. Now and then it is written anew, without what is over. Of a write that a death cut short the rest is missing,
//! and whoever it was about had no answer yet.

use super::session::Session;
use super::{Host, lock};
use crate::formats::check_file;
use crate::live::WAY_OUT;
use commonhold_object::error::Doing;
use commonhold_object::{Format, ObjectId, Result};
use commonhold_sys::process::{self, Identity};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// How the list begins.
pub(super) const FORMAT: Format = Format { magic: *b"ChClnts", version: 1 };
/// What may be added before the list is written anew, if that is more than it was then.
const ADDED_BYTES: usize = 64 * 1024;

/// A client as the list names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub session: u64,
    pub pid: u32,
    pub start_ticks: u64,
    pub objects: BTreeSet<ObjectId>,
}

impl Expected {
    pub fn lives(&self) -> bool {
        process::is_alive(Identity { pid: self.pid, start_ticks: self.start_ticks })
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Line {
    /// The session, of that process, has the object.
    Has { session: u64, pid: u32, start_ticks: u64, object: ObjectId },
    /// It closed and unmapped the object.
    LetGo { session: u64, object: ObjectId },
    /// It has nothing any more.
    Gone { session: u64 },
}

/// Who has what.
type Listed = BTreeMap<u64, Expected>;

impl Line {
    fn apply(&self, listed: &mut Listed) {
        match *self {
            Line::Has { session, pid, start_ticks, object } => {
                let new = || Expected { session, pid, start_ticks, objects: BTreeSet::new() };
                listed.entry(session).or_insert_with(new).objects.insert(object);
            }
            Line::LetGo { session, object } => {
                let Some(client) = listed.get_mut(&session) else { return };
                client.objects.remove(&object);
                if client.objects.is_empty() {
                    listed.remove(&session);
                }
            }
            Line::Gone { session } => drop(listed.remove(&session)),
        }
    }
}

/// The file, open for more.
#[derive(Default)]
pub(super) struct ClientList {
    /// None until it is written for the first time, and after a write failed.
    file: Option<File>,
    /// What reading it would give.
    listed: Listed,
    written: usize,
    added: usize,
}

impl ClientList {
    /// Adds lines; whether they are in the file. If not, it must be written anew.
    fn add(&mut self, lines: &[Line]) -> bool {
        let Some(file) = &mut self.file else { return false };
        lines.iter().for_each(|line| line.apply(&mut self.listed));
        if self.listed.is_empty() && !lines.is_empty() {
            (self.written, self.added) = (Format::BYTES, 0);
            return self.empty().inspect_err(|_| self.file = None).is_ok();
        }
        let bytes = encode(lines);
        self.added += bytes.len();
        if self.added > self.written.max(ADDED_BYTES) {
            return false;
        }
        let done = file.write_all(&bytes).is_ok();
        if !done {
            self.file = None;
        }
        done
    }

    /// Nobody is left.
    fn empty(&mut self) -> std::io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.set_len(Format::BYTES as u64)?;
        file.seek(SeekFrom::Start(Format::BYTES as u64)).map(drop)
    }

    /// Writes the list anew.
    fn rewrite(&mut self, path: &Path, clients: &[Expected]) -> Result<()> {
        self.file = None;
        let lines: Vec<Line> = clients.iter().flat_map(lines_of).collect();
        let mut bytes = FORMAT.begin().to_vec();
        bytes.extend(encode(&lines));
        let fresh = path.with_extension("new");
        let write = || -> std::io::Result<File> {
            let mut file = File::create(&fresh)?;
            file.write_all(&bytes)?;
            std::fs::rename(&fresh, path)?;
            Ok(file)
        };
        let file = write().doing("noting the clients")?;
        (self.file, self.written, self.added) = (Some(file), bytes.len(), 0);
        self.listed = clients.iter().map(|client| (client.session, client.clone())).collect();
        Ok(())
    }
}

fn lines_of(client: &Expected) -> impl Iterator<Item = Line> {
    let Expected { session, pid, start_ticks, .. } = *client;
    client.objects.iter().map(move |object| Line::Has { session, pid, start_ticks, object: *object })
}

pub(super) fn encode(lines: &[Line]) -> Vec<u8> {
    lines.iter().flat_map(|line| postcard::to_stdvec(line).unwrap_or_default()).collect()
}

/// Who is in the list. An error: it is of another version, and whoever took it for empty would lose what they have.
pub(super) fn read(path: &Path) -> Result<Vec<Expected>> {
    read_bytes(&std::fs::read(path).unwrap_or_default(), path)
}

/// Refuses a list of another version.
pub(crate) fn check_clients(path: &Path) -> Result<()> {
    check_file(path, FORMAT, WAY_OUT)
}

/// Who is in a list of these bytes.
pub(super) fn read_bytes(bytes: &[u8], path: &Path) -> Result<Vec<Expected>> {
    let Some(mut rest) = FORMAT.body(bytes, path.display(), WAY_OUT)? else { return Ok(Vec::new()) };
    let mut listed = Listed::new();
    while let Ok((line, after)) = postcard::take_from_bytes::<Line>(rest) {
        rest = after;
        line.apply(&mut listed);
    }
    Ok(listed.into_values().collect())
}

impl Host {
    /// Writes down, once, that the session has an object which it could bring back.
    pub(super) fn note_client(&self, session: &Session, object: ObjectId) {
        if session.process.start_ticks == 0 || lock(&session.noted).contains(&object) {
            return;
        }
        // Nobody looks and writes in between: the last word must be the newest.
        let mut list = lock(&self.returning.list);
        if !self.sessions.read().unwrap_or_else(PoisonError::into_inner).contains_key(&session.id) {
            return; // it ended meanwhile
        }
        // Under the list's lock: who finds it noted relies on its being written.
        if !lock(&session.noted).insert(object) {
            return;
        }
        session.listed.store(true, Ordering::Release);
        let Identity { pid, start_ticks } = session.process;
        if !list.add(&[Line::Has { session: session.id.0, pid, start_ticks, object }]) {
            self.rewrite_clients(&mut list);
        }
    }

    /// The session closed the object, or unmapped a part of it: if it has nothing of it any more, nobody need wait for
    /// it.
    pub(super) fn forget_client(&self, session: &Session, object: ObjectId) {
        let mut list = lock(&self.returning.list);
        let mut noted = lock(&session.noted);
        // Looked at while nobody can note it: another thread of the process may be opening it.
        if !noted.contains(&object) || lock(&session.opened).contains_key(&object) {
            return;
        }
        let map = session.space.map.read().unwrap_or_else(PoisonError::into_inner);
        if map.iter().any(|region| region.value.cache.id == object) {
            return;
        }
        drop(map);
        noted.remove(&object);
        drop(noted);
        if !list.add(&[Line::LetGo { session: session.id.0, object }]) {
            self.rewrite_clients(&mut list);
        }
    }

    /// The same for who closed a direct object, when it has not been opened again within moments: whoever attaches again
    /// and again is not to have it written each time.
    pub(super) fn forget_client_soon(&self, session: &Session, object: ObjectId) {
        if lock(&session.noted).contains(&object) {
            lock(&self.lapsed).insert((session.id, object));
            self.machine.arm();
        }
    }

    /// Moments have passed.
    pub(super) fn forget_lapsed(&self) {
        for (session, object) in std::mem::take(&mut *lock(&self.lapsed)) {
            let session = self.sessions.read().unwrap_or_else(PoisonError::into_inner).get(&session).cloned();
            if let Some(session) = session {
                self.forget_client(&session, object);
            }
        }
    }

    /// Writes down that the session is over: a process that lives on without a connection has nothing to bring, and
    /// nobody must wait for it.
    pub(super) fn unlist_client(&self, session: &Session) {
        lock(&session.noted).clear();
        let mut list = lock(&self.returning.list);
        if session.listed.swap(false, Ordering::AcqRel) && !list.add(&[Line::Gone { session: session.id.0 }])
        {
            self.rewrite_clients(&mut list);
        }
    }

    /// Writes down that nobody waits for these sessions of the host before any more.
    pub(super) fn unlist_former(&self, sessions: &[u64]) {
        let lines: Vec<Line> = sessions.iter().map(|session| Line::Gone { session: *session }).collect();
        let mut list = lock(&self.returning.list);
        if !list.add(&lines) {
            self.rewrite_clients(&mut list);
        }
    }

    /// Writes `live/clients` anew.
    pub(super) fn note_clients(&self) {
        self.rewrite_clients(&mut lock(&self.returning.list));
    }

    fn rewrite_clients(&self, list: &mut ClientList) {
        let mut clients = Vec::new();
        for session in self.sessions() {
            let objects: BTreeSet<ObjectId> = lock(&session.noted).iter().copied().collect();
            let Identity { pid, start_ticks } = session.process;
            if !objects.is_empty() && start_ticks != 0 {
                session.listed.store(true, Ordering::Release);
                clients.push(Expected { session: session.id.0, pid, start_ticks, objects });
            }
        }
        // Those that are expected back still are so if this host and its keeper die too.
        clients.extend(self.returning.expected_back());
        let path = self.machine.directory.join("live").join("clients");
        if let Err(error) = list.rewrite(&path, &clients) {
            self.machine.log(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(session: u64, object: u64) -> Line {
        Line::Has { session, pid: 7, start_ticks: 1 << 40, object: ObjectId(object) }
    }

    fn expected(session: u64, objects: &[u64]) -> Expected {
        let objects = objects.iter().map(|id| ObjectId(*id)).collect();
        Expected { session, pid: 7, start_ticks: 1 << 40, objects }
    }

    #[test]
    fn nobody_left_is_an_empty_list() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clients");
        let mut list = ClientList::default();
        list.rewrite(&path, &[expected(1, &[10])]).unwrap();
        assert!(list.add(&[has(2, 11), has(2, 12), Line::LetGo { session: 2, object: ObjectId(11) }]));
        assert_eq!(read(&path).unwrap(), [expected(1, &[10]), expected(2, &[12])]);
        assert!(list.add(&[Line::Gone { session: 1 }, Line::LetGo { session: 2, object: ObjectId(12) }]));
        assert_eq!(std::fs::read(&path).unwrap(), FORMAT.begin());
        assert!(list.add(&[has(3, 13)]));
        assert_eq!(read(&path).unwrap(), [expected(3, &[13])]);
    }

    #[test]
    fn what_came_and_went_is_read_again_up_to_where_a_death_cut_it_short() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clients");
        assert!(read(&path).unwrap().is_empty());
        let mut list = ClientList::default();
        assert!(!list.add(&[has(1, 1)]), "there is no file yet");
        list.rewrite(&path, &[expected(1, &[10, 11])]).unwrap();
        assert!(list.add(&[has(2, 10)]) && list.add(&[has(1, 12), has(3, 9)]));
        assert!(list.add(&[Line::Gone { session: 2 }]) && list.add(&[has(1, 12)]));
        assert_eq!(read(&path).unwrap(), [expected(1, &[10, 11, 12]), expected(3, &[9])]);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(read(&path).unwrap().len() <= 3);
        }
        for version in [FORMAT.version - 1, FORMAT.version + 1] {
            let mut other = whole.clone();
            other[7] = version;
            std::fs::write(&path, &other).unwrap();
            let why = check_clients(&path).unwrap_err();
            assert!(why.message.contains("clients") && why.message.contains(WAY_OUT), "{why}");
            assert_eq!(std::fs::read(&path).unwrap(), other);
        }
        std::fs::write(&path, b"something else").unwrap();
        assert!(read(&path).unwrap().is_empty());
    }

    #[test]
    fn what_is_over_does_not_stay_in_the_file_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clients");
        let mut list = ClientList::default();
        list.rewrite(&path, &[]).unwrap();
        let mut rewritten = 0;
        let stays = [expected(20_000, &[1])];
        assert!(list.add(&[has(20_000, 1)]));
        for session in 0..20_000 {
            if !list.add(&[has(session, 1), Line::Gone { session }]) {
                list.rewrite(&path, &stays).unwrap();
                rewritten += 1;
            }
        }
        assert!(rewritten > 0 && std::fs::metadata(&path).unwrap().len() <= 2 * ADDED_BYTES as u64);
        assert_eq!(read(&path).unwrap(), stays);
    }
}
