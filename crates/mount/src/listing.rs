//! Open directories: what lies in one is asked for when somebody begins to list it, and given in parts.

use crate::entry;
use crate::failure::{Failure, Outcome};
use crate::fuse::Opened;
use crate::fuse::bytes::Writer;
use crate::fuse::flags::ROOT;
use crate::fuse::reply::directory_entry;
use crate::lock;
use crate::server::{Request, Server};
use commonhold::EntryInfo;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Entries of a directory that are listed at most; and of all directories that one user lists at a time.
const MOST: usize = 1 << 20;

/// One entry: a number for `d_ino`, kind, name.
type Entry = (u64, u32, String);

/// By number: by whom, and what lies in it.
type Open = HashMap<u64, (u32, Arc<Vec<Entry>>)>;

/// All open directories. The next server has none of them, and lists anew.
#[derive(Default)]
pub struct Listings {
    open: Mutex<Open>,
    last: AtomicU64,
}

impl Listings {
    fn lock(&self) -> MutexGuard<'_, Open> {
        lock(&self.open)
    }

    fn keep(&self, number: u64, uid: u32, listing: Arc<Vec<Entry>>) -> Outcome<()> {
        let mut open = self.lock();
        let others = open.iter().filter(|(other, (of, _))| **other != number && *of == uid);
        let kept: usize = others.map(|(_, (_, listing))| listing.len()).sum();
        if kept + listing.len() > MOST {
            return Err(Failure(Errno::NOMEM));
        }
        open.insert(number, (uid, listing));
        Ok(())
    }

    /// It is open no longer.
    pub fn remove(&self, number: u64) {
        self.lock().remove(&number);
    }
}

impl Server {
    pub(crate) fn open_directory(&self, request: &Request<'_>) -> Outcome<Vec<u8>> {
        self.list(request, 1)?; // may it be listed?
        // Numbers of a server before are not used again: they are of other listings.
        let number =
            (self.listings.last.fetch_add(1, Ordering::Relaxed) + 1) | (u64::from(std::process::id()) << 32);
        Ok(Opened { file: number, flags: 0, backing: 0 }.reply())
    }

    pub(crate) fn read_directory(
        &self,
        request: &Request<'_>,
        number: u64,
        offset: u64,
        size: u32,
    ) -> Outcome<Vec<u8>> {
        let known = self.listings.lock().get(&number).map(|(_, listing)| listing.clone());
        let known = known.filter(|_| offset > 0);
        let listing = match known {
            Some(listing) => listing,
            None => {
                let listing = Arc::new(self.list(request, MOST)?);
                self.listings.keep(number, request.caller.uid, listing.clone())?;
                listing
            }
        };
        let mut answer = Writer::default();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (node, kind, name)) in listing.iter().enumerate().skip(start) {
            if !directory_entry(&mut answer, size as usize, *node, at as u64 + 1, *kind, name.as_bytes()) {
                break;
            }
        }
        if answer.0.is_empty() {
            self.listings.remove(number); // who goes on from its end begins anew
        }
        Ok(answer.0)
    }

    fn list(&self, request: &Request<'_>, most: usize) -> Outcome<Vec<Entry>> {
        let node = request.header.node;
        let path = self.path(node)?;
        let mut all: Vec<Entry> = vec![(node, libc::S_IFDIR, ".".into()), (ROOT, libc::S_IFDIR, "..".into())];
        let mut after = None;
        loop {
            let from = after.take();
            let (entries, more) =
                self.callers.ask(&request.caller, |errand| errand.entries(&path, from.clone()))?;
            after = entries.last().and_then(|entry| entry.name().cloned());
            all.extend(entries.iter().filter_map(|entry| as_entry(entry, &path)));
            // A directory that was replaced by an object lists as that.
            if all.get(2).is_some_and(|(_, _, name)| name.is_empty()) {
                return Err(Failure(Errno::NOTDIR));
            }
            if !more || after.is_none() || all.len() > most {
                all.truncate(MOST);
                return Ok(all);
            }
        }
    }
}

fn as_entry(found: &EntryInfo, directory: &str) -> Option<Entry> {
    let name = found.name()?.as_str();
    let leaf = name.strip_prefix(directory)?.trim_start_matches('/').to_owned();
    let kind = match found {
        EntryInfo::Object(_) => libc::S_IFREG,
        EntryInfo::Directory { .. } => libc::S_IFDIR,
    };
    // Only that it is not zero matters: nobody finds a file by it.
    let number = entry::identity(found).map_or(0, |identity| identity as u64 >> 1);
    Some((number + 2, kind, leaf))
}
