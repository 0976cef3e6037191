//! `ping-partner`: answers by a futex, and does nothing else.

use crate::failure::{Result, failed};
use crate::view::{PAGE, RawMapping};
use crate::worker;
use commonhold_sys::socket::{self, Wait};
use rustix::thread::futex::{self, Flags};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Two words: how often was asked, and how often answered.
pub struct Words(RawMapping);

impl Words {
    /// Words in that memory, which another process has too.
    pub fn new(memory: OwnedFd) -> Result<Words> {
        Ok(Words(RawMapping::shared(memory, PAGE)?))
    }

    fn word(&self, number: usize) -> &AtomicU32 {
        let address = self.0.view().as_mut_ptr().cast::<u32>();
        // SAFETY: the mapping is a page and lives as long as this; the word is aligned, and all use it atomically.
        unsafe { AtomicU32::from_ptr(address.add(number)) }
    }

    /// Counts the word up, and wakes whoever waits for that.
    fn say(&self, number: usize) -> Result<u32> {
        let said = self.word(number).fetch_add(1, Ordering::SeqCst) + 1;
        futex::wake(self.word(number), Flags::empty(), 1)?;
        Ok(said)
    }

    /// Sleeps until the word is that.
    fn hear(&self, number: usize, wanted: u32) -> Result<()> {
        loop {
            let now = self.word(number).load(Ordering::SeqCst);
            if now == wanted {
                return Ok(());
            }
            match futex::wait(self.word(number), Flags::empty(), now, None) {
                Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Asks, and waits for the answer.
    pub fn ping(&self) -> Result<()> {
        let asked = self.say(0)?;
        self.hear(1, asked)
    }

    /// Answers, again and again.
    fn answer(&self) -> Result<()> {
        for asked in 1.. {
            self.hear(0, asked)?;
            self.say(1)?;
        }
        Ok(())
    }
}

/// Receives the memory over its standard input; dies with whoever started it.
pub fn run() -> Result<()> {
    worker::die_with_parent();
    worker::say("ready")?;
    let mut descriptors = Vec::new();
    socket::receive(std::io::stdin(), &mut [0; 8], &mut descriptors, Wait::Yes)?;
    match descriptors.pop() {
        Some(memory) => Words::new(memory)?.answer(),
        None => failed("ping-partner got no memory"),
    }
}
