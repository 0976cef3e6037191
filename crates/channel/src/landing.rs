//! Landings: places in memory of a receiver that messages may land in. The table in the channel
//! says where they are; whose they are each receiver knows for itself.
//!
//! A slot is free, posted, or taken by a sender, which copies to the place and then sends a message
//! about it; that makes the slot free when it is received. The generation is another at each
//! post: what a sender of an earlier one still has to say is refused.

use crate::layout::{
    GENERATION, LENGTH, NAME, NAME_BYTES, NAME_LENGTH, OBJECT, OFFSET, POSTS, SLOTS, STATE, TAKERS_SLEEP,
    slot,
};
use crate::lock::Held;
use crate::memory::Memory;
use crate::queue::{Queue, Refused};
use commonhold_futex::Wait;

const FREE: u32 = 0;
const POSTED: u32 = 1;
const TAKEN: u32 = 2;

/// Which landing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Landing {
    slot: u32,
    generation: u32,
}

impl Landing {
    /// As one number, which is never 0.
    pub fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// The landing of a number. There may be none.
    pub fn of_number(number: u64) -> Landing {
        Landing { slot: number as u32, generation: (number >> 32) as u32 }
    }
}

/// Where a landing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The object's number.
    pub object: u64,
    /// The object's name.
    pub name: String,
    /// Where in it.
    pub offset: u64,
    /// How much of it.
    pub length: u64,
}

impl<M: Memory> Queue<M> {
    fn word(&self, number: u32, field: usize) -> u32 {
        self.memory.load(slot(number) + field)
    }

    fn set_word(&self, number: u32, field: usize, value: u32) {
        self.memory.store(slot(number) + field, value);
    }

    fn long(&self, number: u32, field: usize) -> u64 {
        u64::from(self.word(number, field)) | u64::from(self.word(number, field + 4)) << 32
    }

    fn set_long(&self, number: u32, field: usize, value: u64) {
        self.set_word(number, field, value as u32);
        self.set_word(number, field + 4, (value >> 32) as u32);
    }

    /// Lets senders have a place. The longest name is one of 1024 bytes.
    pub fn post(&self, place: &Place, wait: Wait) -> Result<Landing, Refused> {
        self.post_new(place, wait, |_| true)
    }

    /// The same; before any sender can have it, `note` is told which landing it is, and says whether it is one that the caller
    /// did not have before. The numbers that tell landings apart lie where others write.
    pub fn post_new(
        &self,
        place: &Place,
        wait: Wait,
        note: impl FnOnce(Landing) -> bool,
    ) -> Result<Landing, Refused> {
        assert!(place.name.len() <= NAME_BYTES, "a name is as long as names may be");
        let held = Held::take(&self.memory, wait)?;
        let free = (0..SLOTS).find(|number| self.word(*number, STATE) == FREE);
        let slot = free.ok_or(Refused::NoSlot)?;
        let generation = self.word(slot, GENERATION).wrapping_add(1).max(1);
        let landing = Landing { slot, generation };
        if !note(landing) {
            return Err(Refused::Damaged("a landing has the number of another"));
        }
        self.set_word(slot, GENERATION, generation);
        self.set_long(slot, OBJECT, place.object);
        self.set_long(slot, OFFSET, place.offset);
        self.set_long(slot, LENGTH, place.length);
        self.set_word(slot, NAME_LENGTH, place.name.len() as u32);
        self.memory.write(self::slot(slot) + NAME, place.name.as_bytes());
        self.set_word(slot, STATE, POSTED);
        self.tell_takers(held);
        Ok(landing)
    }

    /// Takes the smallest landing that has room for so many bytes.
    pub fn take(&self, bytes: u64, wait: Wait) -> Result<(Landing, Place), Refused> {
        loop {
            let held = Held::take(&self.memory, wait)?;
            let posts = self.memory.load(POSTS);
            let posted = (0..SLOTS).filter(|number| self.word(*number, STATE) == POSTED);
            let posted: Vec<(u64, u32)> = posted.map(|number| (self.long(number, LENGTH), number)).collect();
            if let Some((length, slot)) = posted.iter().filter(|(length, _)| *length >= bytes).min() {
                let place = self.place(*slot, *length)?;
                let landing = Landing { slot: *slot, generation: self.word(*slot, GENERATION) };
                self.set_word(*slot, STATE, TAKEN);
                return Ok((landing, place));
            }
            let largest = posted.iter().map(|(length, _)| *length).max().unwrap_or(0);
            if wait == Wait::No {
                return Err(Refused::NoLanding { largest });
            }
            self.memory.store(TAKERS_SLEEP, 1);
            drop(held);
            self.sleep(POSTS, posts, wait).ok_or(Refused::NoLanding { largest })?;
        }
    }

    fn place(&self, number: u32, length: u64) -> Result<Place, Refused> {
        let name_length = self.word(number, NAME_LENGTH) as usize;
        let damaged = Refused::Damaged("the name in a landing is none");
        if name_length > NAME_BYTES {
            return Err(damaged);
        }
        let mut name = vec![0; name_length];
        self.memory.read(slot(number) + NAME, &mut name);
        let name = String::from_utf8(name).map_err(|_| damaged)?;
        Ok(Place { object: self.long(number, OBJECT), name, offset: self.long(number, OFFSET), length })
    }

    /// Whether a sender has that landing. The caller has the lock.
    pub(crate) fn check_taken(&self, _held: &Held<'_, M>, landing: Landing) -> Result<(), Refused> {
        if self.is_in(landing, TAKEN) { Ok(()) } else { Err(Refused::Withdrawn) }
    }

    fn is_in(&self, Landing { slot, generation }: Landing, state: u32) -> bool {
        slot < SLOTS && self.word(slot, GENERATION) == generation && self.word(slot, STATE) == state
    }

    /// A message about it was received.
    pub(crate) fn landed(&self, _held: &Held<'_, M>, landing: Landing) {
        if self.is_in(landing, TAKEN) {
            self.set_word(landing.slot, STATE, FREE);
        }
    }

    /// Lets others have a landing that was taken.
    pub fn release(&self, landing: Landing, wait: Wait) -> Result<(), Refused> {
        let held = Held::take(&self.memory, wait)?;
        self.check_taken(&held, landing)?;
        self.set_word(landing.slot, STATE, POSTED);
        self.tell_takers(held);
        Ok(())
    }

    /// Takes a landing back from senders. One that has taken it may still write there; what it says
    /// of it is refused.
    pub fn withdraw(&self, landing: Landing, wait: Wait) -> Result<(), Refused> {
        let _held = Held::take(&self.memory, wait)?;
        if !self.is_in(landing, POSTED) && !self.is_in(landing, TAKEN) {
            return Err(Refused::Withdrawn);
        }
        self.set_word(landing.slot, STATE, FREE);
        Ok(())
    }

    /// Takes all landings from senders, whoever posted them; gives how many there were.
    pub fn withdraw_all(&self, wait: Wait) -> Result<u32, Refused> {
        let _held = Held::take(&self.memory, wait)?;
        let taken: Vec<u32> = (0..SLOTS).filter(|number| self.word(*number, STATE) != FREE).collect();
        taken.iter().for_each(|number| self.set_word(*number, STATE, FREE));
        Ok(taken.len() as u32)
    }

    fn tell_takers(&self, held: Held<'_, M>) {
        self.memory.store(POSTS, self.memory.load(POSTS).wrapping_add(1));
        let sleep = self.nobody_sleeps(TAKERS_SLEEP);
        drop(held);
        if sleep {
            self.memory.wake(POSTS, u32::MAX);
        }
    }
}
