//! What the next process of this host has to know of an object that is scheduled by forwarding, and what it needs of it: which
//! pages this host owns, to whom it handed others over, and what it keeps of those. In memory that the keeper keeps, beside
//! the object's frames. (`docs/LEASES.md`, "Giving back"; what is made of it says `coherence/forwarding/following`.)
//!
//! ```text
//! 0      the home with whose process all this was begun, plus one: with another home all begins anew; in which layout; how
//!        many processes of this host have kept notes here, and the numbers of the last 17
//! 4096   a slot of 32 bytes for each page of the scheduler, sparse: state, to whom, number, the last number that was here
//! then   the versions that are kept, each in its page's place, sparse
//! ```
//!
//! A slot is written at once (`slots.rs`), and always before anybody else can learn of what it says:
//!
//! | state | the newest version, if it is here | set |
//! |---|---|---|
//! | owned | the frame; without one the page never came | before the frame is made, or may be used |
//! | leaving | the kept version | when it is whole, before the frame goes |
//! | sent | the kept version, if whoever it went to has not got it | before it is sent |
//! | kept | is elsewhere, or lost | after the bytes |

mod slots;

use crate::live::WAY_OUT;
use commonhold_coherence::HostId;
use commonhold_coherence::forwarding::Standing;
use commonhold_object::error::Doing;
use commonhold_object::format::other_version;
use commonhold_object::limits::OBJECT_PAGES;
use commonhold_object::{PAGE_SIZE_BYTES, Result};
use commonhold_points as points;
use commonhold_sys::frames;
use rustix::io::{Errno, pread, pwrite};
use slots::{SLOT_BYTES, Slot, Slots, State};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SLOTS_AT: u64 = PAGE_SIZE_BYTES;
const VERSIONS_AT: u64 = SLOTS_AT + OBJECT_PAGES * SLOT_BYTES as u64;
/// Which layout this is. With notes in another no host begins ([`check_layout`]): it would take what they keep for lost.
const LAYOUT: u64 = 3;
/// This one, and as many before it as the registry knows.
const PROCESSES: usize = 17;
const END: u64 = VERSIONS_AT + OBJECT_PAGES * PAGE_SIZE_BYTES;

/// The memory.
pub struct Handovers {
    memory: Arc<OwnedFd>,
    slots: Mutex<Slots>,
    /// Bytes of a page of the scheduler.
    page_bytes: u64,
}

/// Whose notes these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The process of the home with which they were begun.
    pub home: HostId,
    /// The processes of this host that noted what came to them, the latest last.
    pub by: Vec<HostId>,
}

/// A page of which the process before this one had something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// What its scheduler says of it.
    pub standing: Standing,
    /// If it owned the page: whether the newest version is the one that is kept, and not in the frame.
    pub is_kept: bool,
}

fn read_at(memory: &OwnedFd, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match pread(memory, &mut *buffer, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buffer = &mut buffer[count..];
                at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn write_at(memory: &OwnedFd, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match points::pwrite(|| pwrite(memory, bytes, at)) {
            Ok(count) => {
                bytes = &bytes[count..];
                at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// New memory for one object.
pub fn new_memory() -> Result<OwnedFd> {
    frames::create("commonhold-handovers", END).doing("making memory for what is handed over")
}

/// Refuses notes in another layout.
pub fn check_layout(memory: &OwnedFd) -> Result<()> {
    let mut words = [0; 16];
    read_at(memory, &mut words, 0).doing("looking at what was handed over")?;
    let [home, layout] =
        [0, 8].map(|at| u64::from_le_bytes(words[at..at + 8].try_into().unwrap_or_default()));
    if home == 0 || layout == LAYOUT {
        return Ok(()); // nothing is noted, or in this one
    }
    Err(other_version("what is handed over between hosts", layout, LAYOUT, WAY_OUT))
}

impl Handovers {
    /// In that memory, with what a process before left there. `page_bytes`: of the scheduler's pages.
    pub fn new(memory: Arc<OwnedFd>, page_bytes: u64) -> Result<Handovers> {
        let file = memory.try_clone().doing("taking memory for what is handed over")?;
        let slots = Mutex::new(Slots::new(file.into(), SLOTS_AT));
        Ok(Handovers { memory, slots, page_bytes })
    }

    /// What the keeper is to keep.
    pub fn memory(&self) -> &Arc<OwnedFd> {
        &self.memory
    }

    /// Whose notes these are, if anything is noted.
    pub fn begun(&self) -> Option<Begun> {
        let mut bytes = [0; 8 * (3 + PROCESSES)];
        read_at(&self.memory, &mut bytes, 0).ok()?;
        let words: Vec<u64> = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect();
        let (&[home, layout, count], processes) = words.split_first_chunk()?;
        let is_known = layout == LAYOUT && count < 1 << 62;
        let home = HostId(home.checked_sub(1).filter(|_| is_known)? as u32);
        let known = count.saturating_sub(PROCESSES as u64)..count;
        Some(Begun { home, by: known.map(|n| HostId(processes[n as usize % PROCESSES] as u32)).collect() })
    }

    /// All begins anew, with that process of the home, and this one.
    pub fn begin(&self, home: HostId, me: HostId) -> Result<()> {
        let words = [u64::from(home.0) + 1, LAYOUT, 1, u64::from(me.0)].map(u64::to_le_bytes);
        let mut slots = self.slots();
        slots.forget();
        frames::punch(&*self.memory, 0, END)
            .and_then(|()| write_at(&self.memory, words.as_flattened(), 0))
            .doing("beginning anew with what is handed over")
    }

    /// Another process of this host goes on with them. Said before anything can come to it.
    pub fn go_on(&self, me: HostId) -> Result<()> {
        let mut count = [0; 8];
        let noted = read_at(&self.memory, &mut count, 16).and_then(|()| {
            let count = u64::from_le_bytes(count);
            // In this order: only then it counts.
            let at = 8 * (3 + count % PROCESSES as u64);
            write_at(&self.memory, &u64::from(me.0).to_le_bytes(), at)?;
            write_at(&self.memory, &(count + 1).to_le_bytes(), 16)
        });
        noted.doing("going on with what is handed over")
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn version_at(&self, page: u32) -> u64 {
        VERSIONS_AT + u64::from(page) * self.page_bytes
    }

    /// This host owns the page from now on. If a version of it is kept, that is the newest, until [`restored`](Self::restored).
    pub fn own(&self, page: u32, number: u64) -> Result<()> {
        let mut slots = self.slots();
        let has_version = matches!(slots.get(page)?.state, State::Sent(_) | State::Kept | State::Leaving);
        slots.put(page, if has_version { State::Leaving } else { State::Owned }, number, false)
    }

    /// What is kept of an owned page is in its frame now.
    pub fn restored(&self, page: u32) -> Result<()> {
        self.becomes(page, State::Owned)?;
        self.drop_version(page)
    }

    /// These are the bytes of a page that goes: they are kept, if this host owns it, before its frame goes.
    pub fn leaves(&self, page: u32, bytes: &[u8]) -> Result<()> {
        if self.slots().get(page)?.state != State::Owned {
            return Ok(());
        }
        write_at(&self.memory, bytes, self.version_at(page)).doing("keeping what is handed over")?;
        self.becomes(page, State::Leaving)
    }

    /// It is about to be sent. Whether its bytes are kept.
    pub fn sent(&self, page: u32, number: u64, to: HostId) -> Result<bool> {
        let mut slots = self.slots();
        let is_kept = slots.get(page)?.state == State::Leaving;
        let state = if is_kept { State::Sent(to) } else { State::Nothing };
        slots.put(page, state, number, true).map(|()| is_kept)
    }

    /// A version of a page of another host is kept.
    pub fn keep(&self, page: u32, number: u64, bytes: &[u8]) -> Result<()> {
        self.becomes(page, State::Nothing)?; // else the version before could be taken for what is there by half
        write_at(&self.memory, bytes, self.version_at(page)).doing("keeping a version")?;
        self.slots().put(page, State::Kept, number, false)
    }

    /// What was sent has arrived.
    pub fn is_old(&self, page: u32) -> Result<()> {
        let state = self.slots().get(page)?.state;
        if matches!(state, State::Sent(_)) { self.becomes(page, State::Kept) } else { Ok(()) }
    }

    /// What is kept of a page is of no use any more.
    pub fn drop_kept(&self, page: u32) -> Result<()> {
        self.becomes(page, State::Nothing)?;
        self.drop_version(page)
    }

    /// The numbers stay.
    fn becomes(&self, page: u32, state: State) -> Result<()> {
        let mut slots = self.slots();
        let number = slots.get(page)?.number;
        slots.put(page, state, number, false)
    }

    fn drop_version(&self, page: u32) -> Result<()> {
        frames::punch(&*self.memory, self.version_at(page), self.page_bytes).doing("dropping what was kept")
    }

    /// The version that is kept, as far as the buffer goes.
    pub fn version(&self, page: u32, buffer: &mut [u8]) -> Result<()> {
        self.part(page, 0, buffer)
    }

    /// What is to be known of one page.
    pub fn left_of(&self, page: u32) -> Result<Left> {
        Ok(self.slots().get(page)?.left(page, |_| true))
    }

    /// A part of the version that is kept: that many bytes behind its beginning.
    pub fn part(&self, page: u32, behind: u64, buffer: &mut [u8]) -> Result<()> {
        read_at(&self.memory, buffer, self.version_at(page) + behind).doing("reading what is kept")
    }

    /// What the process before left. `has_frame`: whether all frames of a page are there that it may have written.
    pub fn left(&self, has_frame: impl Fn(u32) -> bool) -> Result<Vec<Left>> {
        let mut found = Vec::new();
        let mut runs = Vec::new();
        frames::resident_runs_in(&*self.memory, SLOTS_AT..VERSIONS_AT, |begin, length| {
            runs.push((begin, (begin + length).min(VERSIONS_AT)));
        })
        .doing("looking for what was handed over")?;
        for (begin, end) in runs {
            let mut bytes = vec![0; (end - begin) as usize];
            read_at(&self.memory, &mut bytes, begin).doing("reading what was handed over")?;
            let first = (begin - SLOTS_AT) / SLOT_BYTES as u64;
            let slots = (first..).zip(bytes.chunks_exact(SLOT_BYTES).map(Slot::decode));
            let slots = slots.filter(|(_, slot)| *slot != Slot::default());
            found.extend(slots.map(|(page, slot)| slot.left(page as u32, &has_frame)));
        }
        Ok(found)
    }
}

impl Slot {
    fn left(self, page: u32, has_frame: impl Fn(u32) -> bool) -> Left {
        let Slot { state, number, seen } = self;
        let nothing = Standing { number: seen, ..Standing::nothing(page) };
        let standing = match state {
            State::Owned if has_frame(page) => Standing { owned: true, number, ..nothing },
            State::Leaving => Standing { owned: true, number, ..nothing },
            State::Sent(to) => Standing { kept: Some(number), sent_to: Some(to), ..nothing },
            State::Kept => Standing { kept: Some(number), ..nothing },
            State::Owned | State::Nothing => nothing,
        };
        Left { standing, is_kept: state == State::Leaving }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = PAGE_SIZE_BYTES as usize;

    fn standing(handovers: &Handovers, page: u32, has_frame: bool) -> Option<(Standing, bool)> {
        let left = handovers.left(|_| has_frame).unwrap();
        left.into_iter().find(|left| left.standing.page == page).map(|left| (left.standing, left.is_kept))
    }

    #[test]
    fn the_next_process_knows_what_became_of_each_page() {
        let memory = Arc::new(new_memory().unwrap());
        let handovers = Handovers::new(memory.clone(), BYTES as u64).unwrap();
        assert_eq!(handovers.begun(), None);
        check_layout(&memory).unwrap();
        handovers.begin(HostId(3), HostId(1)).unwrap();
        let last = (OBJECT_PAGES - 1) as u32;
        for page in [7, last] {
            let now =
                |has_frame| standing(&Handovers::new(memory.clone(), BYTES as u64).unwrap(), page, has_frame);
            let nothing = Standing::nothing(page);
            // It comes, and is written; it goes, and may not arrive.
            handovers.own(page, 4).unwrap();
            assert_eq!(now(false), Some((nothing, false)), "it never came");
            assert_eq!(now(true), Some((Standing { owned: true, number: 4, ..nothing }, false)));
            handovers.leaves(page, &[9; BYTES]).unwrap();
            assert_eq!(now(false), Some((Standing { owned: true, number: 4, ..nothing }, true)));
            assert!(handovers.sent(page, 5, HostId(8)).unwrap());
            let sent = Standing { kept: Some(5), sent_to: Some(HostId(8)), number: 5, ..nothing };
            assert_eq!(now(false), Some((sent, false)));
            let mut version = [0; BYTES];
            handovers.version(page, &mut version).unwrap();
            assert_eq!(version, [9; BYTES]);
            // It did not arrive, and is the newest again.
            handovers.own(page, 6).unwrap();
            assert_eq!(now(true), Some((Standing { owned: true, number: 6, ..nothing }, true)));
            handovers.restored(page).unwrap();
            assert_eq!(now(true), Some((Standing { owned: true, number: 6, ..nothing }, false)));
            // Another's version is kept, and is not any more.
            handovers.leaves(page, &[1; BYTES]).unwrap();
            assert!(handovers.sent(page, 7, HostId(9)).unwrap());
            handovers.is_old(page).unwrap();
            assert_eq!(now(false), Some((Standing { kept: Some(7), number: 7, ..nothing }, false)));
            handovers.keep(page, 12, &[2; BYTES]).unwrap();
            assert_eq!(now(false), Some((Standing { kept: Some(12), number: 7, ..nothing }, false)));
            handovers.leaves(page, &[3; BYTES]).unwrap(); // it is not this host's
            handovers.version(page, &mut version).unwrap();
            assert_eq!(version, [2; BYTES]);
            handovers.drop_kept(page).unwrap();
            assert_eq!(now(true), Some((Standing { number: 7, ..nothing }, false)));
            assert!(!handovers.sent(page, 8, HostId(1)).unwrap(), "nothing is kept of it");
        }
        let begun = |home, by: &[u32]| {
            Some(Begun { home: HostId(home), by: by.iter().copied().map(HostId).collect() })
        };
        assert_eq!(handovers.begun(), begun(3, &[1]));
        handovers.begin(HostId(4), HostId(2)).unwrap();
        assert_eq!((handovers.begun(), handovers.left(|_| true).unwrap()), (begun(4, &[2]), vec![]));
        check_layout(&memory).unwrap();
        for other in [LAYOUT - 1, LAYOUT + 1] {
            write_at(&memory, &other.to_le_bytes(), 8).unwrap();
            let why = check_layout(&memory).unwrap_err();
            assert!(
                why.kind == commonhold_object::ErrorKind::Version && why.message.contains(WAY_OUT),
                "{why}"
            );
        }
        write_at(&memory, &LAYOUT.to_le_bytes(), 8).unwrap();
        // Process follows process: the last are known, in their order.
        let all: Vec<u32> = (2..40).collect();
        for last in 1..all.len() {
            handovers.go_on(HostId(all[last])).unwrap();
            let known = &all[(last + 1).saturating_sub(PROCESSES)..=last];
            assert_eq!(handovers.begun(), begun(4, known));
        }
    }

    #[test]
    fn the_memory_is_that_of_its_layout() {
        let memory = Arc::new(new_memory().unwrap());
        let handovers = Handovers::new(memory.clone(), BYTES as u64).unwrap();
        handovers.begin(HostId(3), HostId(1)).unwrap();
        handovers.go_on(HostId(2)).unwrap();
        handovers.own(1, 4).unwrap();
        handovers.leaves(1, &[9; BYTES]).unwrap();
        handovers.sent(1, 5, HostId(8)).unwrap();
        let mut written = vec![0; 8 * (3 + PROCESSES)];
        read_at(&memory, &mut written, 0).unwrap();
        let mut slots = vec![0; 2 * SLOT_BYTES];
        read_at(&memory, &mut slots, SLOTS_AT).unwrap();
        written.extend(&slots);
        let kept = crate::golden::check(env!("CARGO_MANIFEST_DIR"), "handovers", LAYOUT, &written);
        let (begins, slots) = kept.split_at(8 * (3 + PROCESSES));
        let memory = Arc::new(new_memory().unwrap());
        write_at(&memory, begins, 0).unwrap();
        write_at(&memory, slots, SLOTS_AT).unwrap();
        let handovers = Handovers::new(memory, BYTES as u64).unwrap();
        assert_eq!(handovers.begun(), Some(Begun { home: HostId(3), by: vec![HostId(1), HostId(2)] }));
        let sent = Standing { kept: Some(5), sent_to: Some(HostId(8)), number: 5, ..Standing::nothing(1) };
        assert_eq!(standing(&handovers, 1, false), Some((sent, false)));
    }
}
