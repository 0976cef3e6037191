//! What the host does when a process has ended that had primitives open: nobody else pays for it.

use crate::barrier::Barrier;
use crate::kind::Kind;
use crate::members::{self, Members};
use crate::memory::Memory;
use crate::mutex::{self, Mutex};
use crate::rwlock::RwLock;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

/// So much is looked at before it is asked who lives.
const PART: usize = 1 << 16;

/// A word that names a process.
pub(crate) struct Named {
    pub primitive: usize,
    pub at: usize,
    pub word: u64,
    pub member: u32,
}

impl Named {
    /// It is empty from now on, unless it is another by now; gives whether it was not.
    pub fn forget(&self, memory: &impl Memory) -> bool {
        memory.exchange(self.at, self.word, 0).is_ok()
    }
}

/// Frees all primitives in a part of some memory from processes that are none of the living. `left`: that process let go of
/// them by itself, so that no barrier misses it; `None`: it ended.
///
/// `living` is asked after words were read: who wrote them had the object open before. A word that is another by then is left:
/// its process may have come back. It takes as long as there is memory, asks for each 64 KiB once, and waits for nobody. Words
/// that no program of ours wrote are freed, or left: who wrote them harmed those who may write there.
pub fn free_of_the_dead(
    memory: &impl Memory,
    part: Range<usize>,
    kind: Kind,
    living: impl FnMut() -> HashSet<u32>,
    left: Option<u32>,
) {
    let has_owner = matches!(kind, Kind::Mutex | Kind::RwLock);
    if has_owner || kind.has_members() {
        each_of_the_dead(memory, part, (kind, has_owner), living, |dead| free(memory, kind, dead, left));
    }
}

/// Calls `free` with all words of a primitive that name processes which are none of the living, as [`free_of_the_dead`] says.
/// `has_owner`: its first word is a mutex's.
pub(crate) fn each_of_the_dead(
    memory: &impl Memory,
    part: Range<usize>,
    (kind, has_owner): (Kind, bool),
    mut living: impl FnMut() -> HashSet<u32>,
    mut free: impl FnMut(&[Named]),
) {
    // What a process did before it ended is seen.
    fence(Ordering::SeqCst);
    let mut known = HashSet::new();
    let mut named = Vec::new();
    for start in part.clone().step_by(PART) {
        let end = part.end.min(start + PART);
        for primitive in (start..end).step_by(kind.bytes()).filter(|at| at + kind.bytes() <= end) {
            name(memory, (kind, has_owner), primitive, |word| {
                if !known.contains(&word.member) {
                    named.push(word);
                }
            });
        }
        if named.is_empty() {
            continue;
        }
        known = living();
        named.retain(|word| !known.contains(&word.member));
        for of_one in named.chunk_by(|a, b| a.primitive == b.primitive) {
            free(of_one);
        }
        named.clear();
    }
}

/// Calls `each` with the words of a primitive that name a process.
fn name(
    memory: &impl Memory,
    (kind, has_owner): (Kind, bool),
    primitive: usize,
    mut each: impl FnMut(Named),
) {
    if has_owner {
        let word = memory.load(primitive);
        if mutex::is_owned(word) {
            each(Named { primitive, at: primitive, word, member: mutex::member(word) });
        }
    }
    if !kind.has_members() {
        return;
    }
    for at in Members(primitive).places() {
        let word = memory.load(at);
        if word != 0 {
            each(Named { primitive, at, word, member: members::member(word) });
        }
    }
}

/// Frees one primitive of what these words name.
fn free(memory: &impl Memory, kind: Kind, named: &[Named], left: Option<u32>) {
    let Some(&Named { primitive, .. }) = named.first() else { return };
    match kind {
        Kind::Mutex => named.iter().for_each(|word| Mutex(primitive).free_of(memory, word.word, 1)),
        Kind::RwLock => {
            let (writer, readers): (Vec<&Named>, Vec<&Named>) =
                named.iter().partition(|word| word.at == primitive);
            writer.iter().for_each(|word| Mutex(primitive).free_of(memory, word.word, u32::MAX));
            if readers.into_iter().filter(|word| word.forget(memory)).count() > 0 {
                RwLock(primitive).has_fewer_readers(memory);
            }
        }
        Kind::Barrier { parties } => {
            // Another one's end is for whoever hears of that: here it would be missed by nobody.
            let is_for_us = |word: &&Named| left.is_none_or(|left| left == word.member);
            if left.is_none() {
                // Said before they are forgotten: if the host dies in between, the next one says it again.
                Barrier { at: primitive, parties }.misses(memory, named.len() as u64);
            }
            named.iter().filter(is_for_us).for_each(|word| _ = word.forget(memory));
        }
        Kind::Condition | Kind::Semaphore { .. } | Kind::Counter => {}
    }
}
