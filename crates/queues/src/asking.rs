//! The host's end of the submission queue. Which call owns which slot, and where its bytes are to
//! lie, stands in the host's own memory.

use crate::answers::Completion;
use crate::area::Area;
use crate::layout::{DATA, ENTRIES, LONGEST_NAME, PAGE, QUESTION_BYTES, SUBMITTED, submission};
use crate::memory::Memory;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct PageIn<'q> {
    /// The number of the call.
    pub call: u64,
    /// The object's name.
    pub object: &'q str,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// Where in the memory the bytes of an answer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// From there on.
    pub at: usize,
    /// So many.
    pub length: usize,
}

/// A slot belongs to a call until the pager has answered it: until then it may write there.
#[derive(Clone, Copy, Debug)]
struct Slot {
    call: u64,
    first_page: u32,
    length: u32,
}

impl Slot {
    fn pages(&self) -> u32 {
        self.length.div_ceil(PAGE as u32)
    }
}

/// Submits questions.
#[derive(Debug)]
pub struct Asking<M> {
    memory: M,
    submitted: u32,
    slots: [Option<Slot>; ENTRIES as usize],
    area: Area,
}

impl<M: Memory> Asking<M> {
    /// Of memory that is all zeros, and that nobody else has yet.
    pub fn new(memory: M) -> Asking<M> {
        Asking { memory, submitted: 0, slots: [None; ENTRIES as usize], area: Area::new() }
    }

    /// Submits a question, of which the pager is to be told ([`wake_pager`](crate::wake_pager)).
    /// False: there is no room for it.
    ///
    /// A question is never written over before it was read: there are as many entries as slots.
    pub fn ask(&mut self, question: &PageIn<'_>) -> bool {
        let name = question.object.as_bytes();
        let free = self.slots.iter().position(Option::is_none);
        let Some(slot) = free.filter(|_| name.len() <= LONGEST_NAME) else { return false };
        let pages = question.length.div_ceil(PAGE as u32);
        let Some(first_page) = self.area.allocate(pages) else { return false };
        self.slots[slot] = Some(Slot { call: question.call, first_page, length: question.length });
        let mut bytes = [0; QUESTION_BYTES];
        bytes[..8].copy_from_slice(&question.call.to_le_bytes());
        bytes[8..16].copy_from_slice(&question.offset.to_le_bytes());
        let words = [question.length, slot as u32, first_page, name.len() as u32];
        for (word, to) in words.iter().zip(bytes[16..].chunks_exact_mut(4)) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let at = submission(self.submitted);
        self.memory.write(at, &bytes);
        self.memory.write(at + QUESTION_BYTES, name);
        self.submitted = self.submitted.wrapping_add(1);
        self.memory.store(SUBMITTED, self.submitted);
        true
    }

    /// Where the bytes lie that a completion is about. None: the slot is not that call's.
    pub fn place_of(&self, completion: &Completion) -> Option<Place> {
        let slot = self.slots.get(completion.slot as usize)?.filter(|slot| slot.call == completion.call)?;
        Some(Place { at: DATA + slot.first_page as usize * PAGE, length: slot.length as usize })
    }

    /// The slot of a call that was answered is free again, once its bytes were copied.
    pub fn free(&mut self, completion: &Completion) {
        if self.place_of(completion).is_some()
            && let Some(slot) = self.slots[completion.slot as usize].take()
        {
            self.area.free(slot.first_page, slot.pages());
        }
    }
}
