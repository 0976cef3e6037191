//! A process that reads and writes registers by turns, and notes it.

use crate::record::Recorder;
use std::io;
use std::path::Path;
use std::time::Duration;

/// What one process does.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The host of the process.
    pub host: u8,
    /// Its number among all processes of the history, from 1: no two write the same value.
    pub process: u32,
    /// How many registers there are. They are used in turn.
    pub registers: u32,
    /// How many of a hundred operations are writes.
    pub writes_percent: u32,
    /// Between two operations.
    pub pause: Duration,
    /// A sync after that many operations; 0: none.
    pub sync_every: u32,
}

/// How registers are touched.
pub trait Registers {
    /// Reads one.
    fn read(&self, register: u32) -> u64;
    /// Writes one.
    fn write(&self, register: u32, value: u64);
    /// Syncs one; false: that was an error.
    fn sync(&self, register: u32) -> bool;
}

impl Load {
    /// Goes on until `stop` says so; notes what is done in a new file. Gives how much was done.
    pub fn run(
        &self,
        path: &Path,
        registers: &impl Registers,
        mut stop: impl FnMut() -> bool,
    ) -> io::Result<u64> {
        let mut recorder = Recorder::create(path, self.host)?;
        let mut random = u64::from(self.process).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut done = 0;
        while !stop() {
            let register = ((done + u64::from(self.process)) % u64::from(self.registers)) as u32;
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            done += 1;
            if (random >> 20) % 100 < u64::from(self.writes_percent) {
                let value = u64::from(self.process) << 40 | done;
                recorder.write(register, value, |value| registers.write(register, value))?;
            } else {
                recorder.read(register, || registers.read(register))?;
            }
            if self.sync_every > 0 && done.is_multiple_of(u64::from(self.sync_every)) {
                recorder.sync(register, || registers.sync(register))?;
            }
            if !self.pause.is_zero() {
                std::thread::sleep(self.pause);
            }
        }
        Ok(done)
    }
}
