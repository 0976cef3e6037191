//! A lock that one thread has to write, or several have to read.
//!
//! Who writes has a mutex. Who reads counts itself in the table of processes, in a word that its
//! process alone changes, and looks then whether somebody writes: readers of several processes do
//! not meet in one word, and of a process that ends the host knows how often it read.
//!
//! Who waits to write goes before readers that come later.

use crate::members::{Members, number};
use crate::memory::{Memory, Refused, Who, nap};
use crate::mutex::{DIED, Mutex, OWNER, SLEEPERS, word};
use commonhold_futex::Wait;

/// Changed by readers that leave while somebody waits to write.
const GATE: usize = 8;

/// A lock at a place of some memory.
#[derive(Clone, Copy, Debug)]
pub struct RwLock(pub usize);

impl RwLock {
    fn writer(self) -> Mutex {
        Mutex(self.0)
    }

    fn gate(self) -> usize {
        self.0 + GATE
    }

    /// Takes it to read. [`Refused::OwnerDied`]: what it guards may be half written.
    pub fn read(self, memory: &impl Memory, who: Who, wait: Wait) -> Result<(), Refused> {
        loop {
            Members(self.0).add(memory, who.member)?;
            let seen = memory.load(self.0);
            if seen & OWNER == 0 && seen & DIED == 0 {
                return Ok(());
            }
            self.end_read(memory, who)?;
            if seen & OWNER == word(who) {
                return Err(Refused::Deadlock);
            }
            if seen & OWNER == 0 {
                return Err(Refused::OwnerDied);
            }
            let nap = nap(wait, memory)?;
            if seen & SLEEPERS == 0 && memory.exchange(self.0, seen, seen | SLEEPERS).is_err() {
                continue;
            }
            memory.sleep(self.0, (seen | SLEEPERS) as u32, nap);
        }
    }

    /// Lets it go that was taken to read.
    pub fn end_read(self, memory: &impl Memory, who: Who) -> Result<(), Refused> {
        Members(self.0).subtract(memory, who.member)?;
        if memory.load(self.0) & OWNER != 0 {
            self.open_gate(memory);
        }
        Ok(())
    }

    fn open_gate(self, memory: &impl Memory) {
        memory.add(self.gate(), 1);
        memory.wake(self.gate(), u32::MAX);
    }

    /// Takes it to write; gives whether its last writer died with it.
    pub fn write(self, memory: &impl Memory, who: Who, wait: Wait) -> Result<bool, Refused> {
        let died = self.writer().lock(memory, who, wait)?;
        for place in Members(self.0).places() {
            loop {
                let gate = memory.load(self.gate());
                if number(memory.load(place)) == 0 {
                    break;
                }
                match nap(wait, memory) {
                    Ok(nap) => memory.sleep(self.gate(), gate as u32, nap),
                    Err(refused) => return self.end_write(memory, who).and(Err(refused)),
                }
            }
        }
        Ok(died)
    }

    /// Lets it go that was taken to write.
    pub fn end_write(self, memory: &impl Memory, who: Who) -> Result<(), Refused> {
        match memory.exchange(self.0, word(who), 0) {
            Ok(()) => Ok(()),
            Err(seen) => self.writer().unlock_slowly(memory, word(who), seen, u32::MAX),
        }
    }

    /// Who has it to write says that what it guards is whole, after another died with it.
    pub fn mend(self, memory: &impl Memory, who: Who) -> Result<(), Refused> {
        self.writer().mend(memory, who)
    }

    /// Processes that read ended: their share is out of the table.
    pub(crate) fn has_fewer_readers(self, memory: &impl Memory) {
        self.open_gate(memory);
    }
}
