//! What other hosts have, in the answers to `stat`, `list` and `incore`: names of objects whose home is another host,
//! what that home knows of them, and pages that are lost.

use super::Host;
use super::object::Object;
use super::session::Session;
use crate::cache::Cache;
use commonhold_object::system_v::Parts;
use commonhold_object::wire::Reply;
use commonhold_object::{EntryInfo, ErrorKind, Name, ObjectInfo, PageRange, PageState, Result, limits};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a message has beside the entries of a list.
const LIST_OVERHEAD_BYTES: usize = 1024;

impl Host {
    /// What has that name, on this host or, if nothing has it here, on another.
    pub(super) fn stat(self: &Arc<Self>, session: &Session, name: &Name) -> Result<Reply> {
        let own = self.stat_own(name, &session.credentials);
        let found = match (own, self.with_cluster().filter(|cluster| cluster.is_up())) {
            // Number and namespace of a System V segment are this machine's: elsewhere the name is another's.
            (Err(error), Some(cluster)) if error.kind == ErrorKind::NotFound && Parts::of(name).is_none() => {
                // Nobody has it who can be asked: then what is said of this host is as good.
                cluster.look(name, &session.credentials).map_err(|other| match other.kind {
                    ErrorKind::NotFound => error,
                    _ => other,
                })
            }
            (own, _) => own,
        };
        Ok(Reply::Entry(Box::new(found?)))
    }

    /// The same of an object that the session has open: what is in memory here, and what its home knows.
    pub(super) fn stat_object(self: &Arc<Self>, object: &Object) -> Reply {
        let mut info = self.info(object);
        let uuid = object.record().uuid;
        if let Some(cluster) = self.with_cluster().filter(|_| info.is_elsewhere) {
            match cluster.about(uuid) {
                Ok(home) => {
                    (info.home, info.is_elsewhere, info.losses) = (home.home, home.is_elsewhere, home.losses);
                    if info.warning.is_empty() {
                        info.warning = home.warning;
                    }
                }
                Err(error) => {
                    info.losses.generation = 0; // what was told last may be old, and would be taken for no loss
                    warn_of_losses(&mut info);
                    if info.warning.is_empty() {
                        info.warning = format!("what its home knows is not told here: {}", error.message);
                    }
                }
            }
        }
        Reply::Entry(Box::new(EntryInfo::Object(Box::new(info))))
    }

    /// What is in a directory, on all hosts that can be asked.
    pub(super) fn list(
        self: &Arc<Self>,
        session: &Session,
        directory: &Name,
        after: Option<&Name>,
    ) -> Result<Reply> {
        let own = self.list_own(directory, after, &session.credentials);
        let others = match self.with_cluster().filter(|cluster| cluster.is_up()) {
            Some(cluster) => cluster.lists(directory, after, &session.credentials),
            None => Vec::new(),
        };
        if own.as_ref().is_err_and(|error| others.is_empty() || error.kind != ErrorKind::NotFound) {
            return own.map(|(entries, more)| Reply::Entries { entries, more });
        }
        let (entries, more) = merged(own.into_iter().chain(others).collect(), limits::LIST_ENTRIES);
        Ok(Reply::Entries { entries, more })
    }

    /// Says of pages that nobody can have that they are lost.
    pub(super) fn note_lost(&self, object: &Object, pages: PageRange, states: &mut [u8]) {
        let record = object.record().clone();
        let absent = PageState::Absent.encode(false);
        let is_strict = record.options.coherence.is_strict();
        let Some(cluster) = self.with_cluster().filter(|_| is_strict) else { return };
        if states.iter().all(|state| state & 0x7f != absent) {
            return;
        }
        let here = || cluster.driver(record.uuid).map_or_else(Vec::new, |driver| driver.lost_in(pages));
        let lost = match record.is_elsewhere {
            true => cluster.lost_in(record.uuid, pages).unwrap_or_else(|_| here()),
            false => here(),
        };
        for page in lost.into_iter().flat_map(|run| run.first..run.end()) {
            let state = &mut states[(page - pages.first) as usize];
            if *state & 0x7f == absent {
                *state = PageState::Lost.encode(*state & 0x80 != 0);
            }
        }
    }
}

impl Host {
    /// Who opens an object learns which loss generation it has now.
    pub(super) fn tell_losses(&self, object: &Object, cache: &Cache) -> Result<()> {
        match object.losses_told.load(Ordering::Relaxed) {
            0 if !object.record().is_elsewhere || cache.loss_generation() != 0 => Ok(()),
            0 if object.record().options.coherence.is_strict() => cache.has_losses(), // its home is lost
            told => cache.is_opened_with_losses(told),
        }
    }

    /// What is said of an object of this cluster: where its home is, and what it has lost.
    pub(super) fn note_home(&self, object: &Object, info: &mut ObjectInfo) {
        let Some(cluster) = self.with_cluster().filter(|cluster| cluster.is_up()) else { return };
        let record = object.record().clone();
        info.is_elsewhere = record.is_elsewhere;
        let driver = cluster.driver(record.uuid);
        if !record.is_elsewhere {
            info.home = cluster.me.name.clone();
        } else if let Some(home) = driver.as_ref().and_then(|driver| driver.home()) {
            info.home = cluster.called(home);
        }
        let Some(driver) = driver.filter(|_| info.options.coherence.is_strict()) else {
            return;
        };
        info.losses = driver.losses();
        if !record.is_elsewhere {
            warn_of_losses(info); // of others their home warns, which knows of all
        }
    }
}

/// Says that pages are lost, if there is nothing else to say.
fn warn_of_losses(info: &mut ObjectInfo) {
    if info.warning.is_empty() && info.losses.lost_pages > 0 {
        info.warning = format!(
            "the newest versions of {} pages were lost with hosts (`commonhold incore` says which): \
             `commonhold revert` makes the versions before them serve again",
            info.losses.lost_pages
        );
    }
}

/// One list of several, each in the order of names, of which some have more behind their last name: as far as all are
/// known, no longer than `most`, and than fits into a message; and whether there is more. A directory that several have
/// is there once; of objects of one name each is.
fn merged(lists: Vec<(Vec<EntryInfo>, bool)>, most: usize) -> (Vec<EntryInfo>, bool) {
    let ends =
        lists.iter().filter(|(_, more)| *more).filter_map(|(entries, _)| entries.last()?.name().cloned());
    let end = ends.min();
    let mut all: Vec<EntryInfo> = lists.into_iter().flat_map(|(entries, _)| entries).collect();
    all.sort_by(|a, b| a.name().cmp(&b.name())); // stable: this host's first
    let is_again = |a: &EntryInfo, b: &EntryInfo| {
        a.name() == b.name() && matches!((a, b), (EntryInfo::Directory { .. }, EntryInfo::Directory { .. }))
    };
    all.dedup_by(|a, b| is_again(a, b));
    let known = all.partition_point(|entry| match entry.name().cmp(&end.as_ref()) {
        _ if end.is_none() => true,
        Less | Equal => true,
        Greater => false,
    });
    let mut more = end.is_some() || known < all.len();
    all.truncate(known);
    let most = most.min(fitting(&all));
    if all.len() > most {
        // The next part begins behind a name: what has the same one is not torn apart.
        let next = all[most].name().cloned();
        let whole = all.partition_point(|entry| entry.name() < next.as_ref());
        all.truncate(if whole == 0 { most } else { whole });
        more = true;
    }
    (all, more)
}

/// How many of the first of these fit into a message; one in any case.
fn fitting(entries: &[EntryInfo]) -> usize {
    let mut room = limits::MESSAGE_BYTES - LIST_OVERHEAD_BYTES;
    let fits = |entry: &&EntryInfo| {
        let bytes = postcard::to_stdvec(entry).map_or(usize::MAX, |bytes| bytes.len());
        let left = room.checked_sub(bytes);
        room = left.unwrap_or(0);
        left.is_some()
    };
    entries.iter().take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_object::Ownership;

    fn directories(names: &str) -> Vec<EntryInfo> {
        let ownership = Ownership { uid: 0, gid: 0, mode: 0o755 };
        let directory = |name: &str| EntryInfo::Directory { name: Name::new(name).unwrap(), ownership };
        names.split_whitespace().map(directory).collect()
    }

    fn names(entries: &[EntryInfo]) -> String {
        let names: Vec<&str> = entries.iter().map(|entry| entry.name().unwrap().as_str()).collect();
        names.join(" ")
    }

    #[test]
    fn lists_of_several_hosts_are_one_as_far_as_all_are_known() {
        let lists = || {
            vec![(directories("/a /c /f"), false), (directories("/b /c /d"), true), (directories(""), false)]
        };
        let (entries, more) = merged(lists(), 10);
        assert_eq!((names(&entries).as_str(), more), ("/a /b /c /d", true));
        let (entries, more) = merged(lists(), 2);
        assert_eq!((names(&entries).as_str(), more), ("/a /b", true));
        let (entries, more) = merged(lists().into_iter().map(|(list, _)| (list, false)).collect(), 5);
        assert_eq!((names(&entries).as_str(), more), ("/a /b /c /d /f", false));
    }

    #[test]
    fn a_list_fits_into_a_message() {
        let long = "x".repeat(200);
        let all: Vec<String> =
            (100..999).map(|number| format!("/{long}/{long}/{long}/{long}/{number}")).collect();
        let (entries, more) = merged(vec![(directories(&all.join(" ")), false)], 512);
        assert!(more && entries.len() > 100, "{}", entries.len());
        assert_eq!(names(&entries), all[..entries.len()].join(" "));
        let reply = Reply::Entries { entries, more };
        assert!(postcard::to_stdvec(&reply).unwrap().len() <= limits::MESSAGE_BYTES);
    }
}
