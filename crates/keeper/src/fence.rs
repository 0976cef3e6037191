//! Fencing: when the host's lease ends without the host having said so, no process may use what it shares any more.
//!
//! The host writes down at each renewal of its lease when the keeper is to act ([`FenceWord`], in memory that both have).
//! If that instant comes and the word is still the same, the host is dead, stopped or hung: it is killed, and the frames of
//! everything kept as [`FENCED`] leave all page tables. `docs/LEASES.md` has the reasons and the margins.

use crate::kept::Key;
use crate::log::StateLog;
use crate::marks::{Marks, Others};
use crate::store::Store;
use commonhold_points as points;
use commonhold_sys::{clock, frames};
use rustix::event::PollFd;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// Under which the memory of the word is kept.
pub const FENCE_KEY: &str = "fence";
/// Blob of kept frames that are to be fenced.
pub const FENCED: &[u8] = b"fenced";
/// The same, after all others.
pub const FENCED_LAST: &[u8] = b"fenced last";
/// How long it may take to fence everything, and how much longer for each GiB.
const TAKES: Duration = Duration::from_secs(20);
const A_GIB_TAKES: Duration = Duration::from_secs(4);
/// How soon to try again what failed.
const AGAIN: u64 = 100_000_000;

/// When the keeper is to act, in nanoseconds since boot; 0: there is nothing to fence.
#[derive(Clone, Copy, Debug)]
pub struct FenceWord<F>(pub F);

impl<F: AsFd> FenceWord<F> {
    /// Writes it down. By a system call: a process that is stopped has written it or not.
    pub fn write(&self, at: u64) -> io::Result<()> {
        let [plain, inverse] = [at, !at].map(u64::to_ne_bytes);
        let bytes: [u8; 16] = std::array::from_fn(|n| if n < 8 { plain[n] } else { inverse[n - 8] });
        match points::pwrite(|| rustix::io::pwrite(&self.0, &bytes, 0))? {
            16 => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// What is written there. None while it is being written, and of memory that nobody wrote to.
    pub fn read(&self) -> Option<u64> {
        let mut bytes = [0; 16];
        rustix::io::pread(&self.0, &mut bytes, 0).ok().filter(|read| *read == 16)?;
        let (plain, inverse) = bytes.split_at(8);
        let [plain, inverse] =
            [plain, inverse].map(|half| u64::from_ne_bytes(half.try_into().unwrap_or_default()));
        (plain == !inverse || points::mutant("keeper.fence_word_unchecked")).then_some(plain)
    }
}

/// Makes the memory of a word that says 0.
pub fn new_fence_word() -> io::Result<OwnedFd> {
    let fd = frames::create("commonhold-fence", 16)?;
    FenceWord(&fd).write(0)?;
    Ok(fd)
}

/// The keeper's side.
#[derive(Debug)]
pub(crate) struct Fence {
    timer: clock::Timer,
    /// The host has been killed; what follows, follows its end.
    pub killing: bool,
    /// Not before, after a failure.
    not_before: u64,
}

impl Fence {
    pub fn new() -> io::Result<Fence> {
        Ok(Fence { timer: clock::Timer::new()?, killing: false, not_before: 0 })
    }

    /// When to act; 0: not at all.
    fn at(&self, store: &Store) -> u64 {
        let word = store.get(&Key::new(FENCE_KEY)).and_then(|thing| thing.fd.as_ref());
        let at = word.and_then(|fd| FenceWord(fd).read()).unwrap_or(0);
        if at == 0 { 0 } else { at.max(self.not_before) }
    }

    /// Whether it is time to act.
    pub fn is_due(&self, store: &Store) -> bool {
        (1..=clock::now()).contains(&self.at(store))
    }

    /// What becomes readable when it is worth looking again.
    pub fn wait_for(&mut self, store: &Store) -> io::Result<PollFd<'_>> {
        // Once the host is killed its end is waited for.
        let at = if self.killing { 0 } else { self.at(store) };
        self.timer.set(at)?;
        Ok(self.timer.as_poll())
    }

    /// Once no host process lives: everything that is to be fenced leaves all page tables.
    pub fn act(&mut self, store: &Store, log: &StateLog) {
        self.killing = false;
        let (mut done, mut failed) = (0, None);
        for mark in [FENCED, FENCED_LAST] {
            for (key, outcome) in take_all(store, mark, log.directory()) {
                match outcome {
                    Some(Ok(())) => done += 1,
                    Some(Err(error)) => failed = Some(format!("{key}: {error}")),
                    None => log.say(&format!(
                        "{key} is not fenced yet, and is not waited for: a process that may write it can hold its \
                         memory"
                    )),
                }
            }
        }
        if let Some(what) = failed {
            self.not_before = clock::now() + AGAIN;
            log.say(&format!("fencing failed, and is tried again: {what}"));
            return;
        }
        self.clear(store);
        log.say(&format!("the lease is about to end: fenced {done} shared objects"));
    }

    /// The keeper ends: nobody else would act later.
    pub fn end(&mut self, store: &Store, log: &StateLog) {
        if self.at(store) != 0 {
            self.act(store, log);
        }
    }

    fn clear(&mut self, store: &Store) {
        self.not_before = 0;
        if let Some(fd) = store.get(&Key::new(FENCE_KEY)).and_then(|thing| thing.fd.as_ref()) {
            // It would be done again: nothing is lost by that.
            let _ = FenceWord(fd).write(0);
        }
    }
}

/// Takes everything that is kept so out of all page tables, each by a thread of its own: a process
/// that may write to the memory can hold a lock that is needed for it, and that for ever. None: it
/// does.
fn take_all<'s>(store: &'s Store, mark: &[u8], directory: &Path) -> Vec<(&'s Key, Option<io::Result<()>>)> {
    let marked = store.keys().filter_map(|key| {
        let thing = store.get(key).filter(|thing| thing.blob == mark)?;
        Some((key, thing.fd.clone()?))
    });
    let mut bytes = 0;
    let begun: Vec<_> = marked
        .map(|(key, fd)| {
            bytes += frames::resident_bytes(&*fd).unwrap_or(0);
            let (tell, told) = sync_channel(1);
            let marks = store.get(&Marks::key_of(key)).and_then(|thing| Marks::decode(&thing.blob));
            let directory = directory.to_owned();
            // Nobody hears it any more, where it took too long.
            let take = move || drop(tell.send(take_one(&fd, marks.as_ref(), &directory)));
            let spawned = points::thread(|| std::thread::Builder::new().name("fencing".into()).spawn(take));
            (key, spawned.map(|_| told))
        })
        .collect();
    let until = Instant::now() + TAKES + A_GIB_TAKES * (bytes >> 30) as u32;
    let outcome = |told: Receiver<io::Result<()>>| {
        told.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    };
    begun.into_iter().map(|(key, told)| (key, told.map_or_else(|error| Some(Err(error)), outcome))).collect()
}

/// Takes an object's frames out of all page tables. Where it is known which may be the newest versions, the others go.
fn take_one(fd: &OwnedFd, marks: Option<&Marks>, directory: &Path) -> io::Result<()> {
    let size_bytes = u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0);
    let known = marks.and_then(|marks| Some((marks.others, marks.marked(directory, size_bytes).ok()?)));
    let Some((others, stay)) = known else { return frames::take_from_page_tables(fd) };
    if others == Others::Go {
        punch_others(fd, &stay, size_bytes)?; // what grows old first
    }
    stay.into_iter().try_for_each(|run| frames::take_part_from_page_tables(fd, run))
}

fn punch_others(fd: &OwnedFd, stay: &[Range<u64>], size_bytes: u64) -> io::Result<()> {
    let mut from = 0;
    for run in stay.iter().cloned().chain(std::iter::once(size_bytes..size_bytes)) {
        if run.start > from {
            frames::punch(fd, from, run.start - from)?;
        }
        from = run.end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Thing;
    use std::sync::Arc;

    #[test]
    fn a_word_is_what_was_written_last_and_garbage_is_none() {
        let fd = new_fence_word().unwrap();
        let word = FenceWord(&fd);
        assert_eq!(word.read(), Some(0));
        word.write(u64::MAX / 3).unwrap();
        assert_eq!(word.read(), Some(u64::MAX / 3));
        rustix::io::pwrite(&fd, &[1; 16], 0).unwrap();
        assert_eq!(word.read(), None);
        assert_eq!(FenceWord(frames::create("empty", 16).unwrap()).read(), None);
    }

    #[test]
    fn only_what_is_marked_is_fenced_and_when_it_is_due() {
        let directory = tempfile::tempdir().unwrap();
        let log = StateLog::new(directory.path(), "keeper");
        let mut store = Store::new(10);
        let mut fence = Fence::new().unwrap();
        assert!(!fence.is_due(&store), "without a word");
        let word = Arc::new(new_fence_word().unwrap());
        store.put(Key::new(FENCE_KEY), Thing { blob: Vec::new(), fd: Some(word.clone()) });
        for (name, blob) in [("a", &b""[..]), ("b", FENCED), ("c", FENCED_LAST)] {
            let fd = frames::create("fence test", 8192).unwrap();
            rustix::io::pwrite(&fd, &[7; 8192], 0).unwrap();
            store.put(Key::new(name), Thing { blob: blob.to_vec(), fd: Some(Arc::new(fd)) });
        }
        assert!(!fence.is_due(&store), "of 0");
        FenceWord(&word).write(clock::now() + 3_600_000_000_000).unwrap();
        assert!(!fence.is_due(&store), "before its time");
        FenceWord(&word).write(clock::now()).unwrap();
        assert!(fence.is_due(&store));
        fence.act(&store, &log);
        assert!(!fence.is_due(&store), "twice");
        let said = std::fs::read_to_string(directory.path().join("log")).unwrap();
        assert!(said.contains("fenced 2 shared objects"), "{said}");
    }

    #[test]
    fn where_marks_are_known_only_marked_pages_stay() {
        let directory = tempfile::tempdir().unwrap();
        let fd = frames::create("fence test", 8 * 4096).unwrap();
        rustix::io::pwrite(&fd, &[7; 6 * 4096], 0).unwrap();
        let inode = rustix::fs::fstat(&fd).unwrap().st_ino;
        let marks = Marks { file: "marks".into(), inode_at: 0, inode, bitmaps: vec![8], others: Others::Go };
        let bytes = [&inode.to_le_bytes()[..], &[0b1000_0110]].concat();
        std::fs::write(directory.path().join("marks"), bytes).unwrap();
        let stay = |marks: Option<&Marks>| {
            take_one(&fd, marks, directory.path()).unwrap();
            (0..8).filter(|page| frames::has_page(&fd, page * 4096).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(stay(None), [0, 1, 2, 3, 4, 5], "nothing is known");
        let of_others = Marks { inode: inode + 1, ..marks.clone() };
        assert_eq!(stay(Some(&of_others)), [0, 1, 2, 3, 4, 5], "of other frames");
        let staying = Marks { others: Others::StayMapped, ..marks.clone() };
        assert_eq!(stay(Some(&staying)), [0, 1, 2, 3, 4, 5]);
        assert_eq!(stay(Some(&marks)), [1, 2]);
        let mut page = [0; 4096];
        rustix::io::pread(&fd, &mut page, 2 * 4096).unwrap();
        assert_eq!(page, [7; 4096]);
    }
}
