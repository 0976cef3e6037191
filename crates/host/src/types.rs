//! The host's machine type, and what it has translated for it (`docs/TYPES.md`).

use crate::seeing::Seen;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_tags::{Machine, Translated};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// What the bytes in this host's memory mean.
#[derive(Default)]
pub struct HostTypes {
    machine: OnceLock<Machine>,
    counts: Mutex<[Translated; 2]>,
}

/// Where bytes of another format come from, or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From another host.
    Received,
    /// From or to where the object is stored.
    Stored,
}

impl HostTypes {
    /// Said once, at the start: of which type this host is.
    pub fn is_of(&self, machine: Machine) {
        let _ = self.machine.set(machine);
    }

    /// Of which type this host is.
    pub fn here(&self) -> Machine {
        self.machine.get().copied().unwrap_or(Machine::HERE)
    }

    /// Something of the object with these numbers was translated.
    pub fn translated(&self, seen: &Seen, way: Way, done: Translated) {
        if done == Translated::default() {
            return;
        }
        seen.translated(way, done);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_way = &mut counts[way as usize];
        *of_way = of_way.and(done);
    }

    /// What was translated since this process began.
    pub fn count(&self, way: Way) -> Translated {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)[way as usize]
    }
}

fn note_in(directory: &Path) -> PathBuf {
    directory.join("machine")
}

/// Refuses to go on as another type with memory that processes, a keeper or a spill file may have of the host before; notes of
/// which type this one is.
pub fn begins_as(machine: Machine, directory: &Path, boot: &str) -> Result<()> {
    let path = note_in(directory);
    let now = format!("{boot} {machine}");
    match std::fs::read_to_string(&path) {
        // Of an earlier boot no memory is left.
        Ok(before) if before != now && before.starts_with(boot) && !boot.is_empty() => {
            let was = before.rsplit(' ').next().unwrap_or_default().to_owned();
            let text = format!(
                "the host before was a {was} machine and did not end in order: what is in memory of its objects is in that \
                 format. Start it with --machine {was}, end it by `commonhold host stop`, then start it as {machine}"
            );
            Err(Error::new(ErrorKind::Invalid, text))
        }
        Ok(before) if before == now => Ok(()),
        _ => std::fs::write(&path, now).doing(format!("noting the machine type in {}", path.display())),
    }
}

/// This host ends in order: the next may be of any type.
pub fn ends(directory: &Path) {
    let _ = std::fs::remove_file(note_in(directory)); // where it stays the next is asked to be of this type
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_left_keeps_its_type() {
        let directory = tempfile::tempdir().unwrap();
        let begins = |machine, boot| begins_as(machine, directory.path(), boot);
        begins(Machine::VAX, "one").unwrap();
        begins(Machine::VAX, "one").unwrap();
        let why = begins(Machine::BIG, "one").unwrap_err();
        assert!(
            why.message.contains("--machine vax") && why.message.contains("start it as big-ieee"),
            "{why}"
        );
        begins(Machine::VAX, "one").unwrap();
        begins(Machine::BIG, "two").unwrap();
        ends(directory.path());
        begins(Machine::LITTLE, "two").unwrap();
        assert!(begins(Machine::BIG, "two").is_err());
    }
}
