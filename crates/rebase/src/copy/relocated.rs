//! Relocations: those that are known are done and dropped, those that are left are moved together.

use super::Copy;
use crate::elf::dynamic as tag;
use crate::elf::{Kind, Relocation};
use crate::{Error, Result};

const ENTRY_BYTES: usize = 24;
/// In DT_FLAGS: functions are looked up when the file is loaded.
const BIND_NOW: u64 = 8;

impl Copy<'_> {
    pub(super) fn relocate(&mut self, bound: &[Option<u64>]) -> Result<()> {
        let elf = self.elf;
        for address in &elf.relocations.relative {
            let at = self.offset(*address)?;
            self.shift(at)?;
        }
        let table = &elf.relocations.table;
        let (of_table, of_jumps) = bound.split_at(table.len());
        let left = self.apply(table, of_table)?;
        self.write_left(tag::RELA, tag::RELASZ, &left)?;
        let left = self.apply(&elf.relocations.jumps, of_jumps)?;
        self.write_left(tag::JMPREL, tag::PLTRELSZ, &left)?;
        for (tag, value) in [(tag::RELACOUNT, 0), (tag::RELRSZ, 0)] {
            if let Some(entry) = elf.dynamic.entry(tag) {
                self.set(entry.offset + 8, value)?;
            }
        }
        if elf.relocations.jumps.is_empty() { Ok(()) } else { self.bind_now() }
    }

    /// Does what can be done; gives the rest, at their new addresses.
    fn apply(&mut self, all: &[Relocation], bound: &[Option<u64>]) -> Result<Vec<Relocation>> {
        let mut left = Vec::new();
        for (relocation, bound) in all.iter().zip(bound) {
            let mut moved = *relocation;
            moved.address = moved.address.wrapping_add(self.base);
            match (relocation.kind, bound) {
                (Kind::None, _) => {}
                (Kind::Relative, _) => {
                    let at = self.offset(relocation.address)?;
                    self.set(at, self.base.wrapping_add(relocation.addend as u64))?;
                }
                (Kind::Address | Kind::Global | Kind::Jump, Some(word)) => {
                    let at = self.offset(relocation.address)?;
                    self.set(at, *word)?;
                }
                (Kind::Indirect, _) => {
                    moved.addend = moved.addend.wrapping_add(self.base as i64);
                    left.push(moved);
                }
                _ => left.push(moved),
            }
            if relocation.kind == Kind::Jump && bound.is_none() {
                let at = self.offset(relocation.address)?;
                self.shift(at)?; // the way to the loader, of those who look up late
            }
        }
        Ok(left)
    }

    fn offset(&self, address: u64) -> Result<usize> {
        let outside = || Error::damaged(&self.elf.path, "a word to relocate is not in the file");
        self.elf.offset_of(address).ok_or_else(outside)
    }

    /// The table has room: it held at least as many.
    fn write_left(&mut self, table: u64, size: u64, left: &[Relocation]) -> Result<()> {
        let (Some(address), Some(size)) = (self.elf.dynamic.value(table), self.elf.dynamic.entry(size)) else {
            return Ok(());
        };
        if size.value == 0 {
            return Ok(());
        }
        let first = self.offset(address)?;
        for (index, one) in left.iter().enumerate() {
            let at = first + index * ENTRY_BYTES;
            self.set(at, one.address)?;
            self.set(at + 8, u64::from(one.symbol) << 32 | u64::from(one.raw))?;
            self.set(at + 16, one.addend as u64)?;
        }
        self.set(size.offset + 8, (left.len() * ENTRY_BYTES) as u64)
    }

    /// Jumps that are left have other places in their table than the code says that would look them up at the first
    /// call: the loader is told to do it at once.
    fn bind_now(&mut self) -> Result<()> {
        let dynamic = &self.elf.dynamic;
        if dynamic.flags().bind_now {
            return Ok(());
        }
        if let Some(flags) = dynamic.entry(tag::FLAGS) {
            return self.set(flags.offset + 8, flags.value | BIND_NOW);
        }
        // An entry that says nothing any more.
        let free = [tag::RELACOUNT, tag::RELRENT].into_iter().find_map(|tag| dynamic.entry(tag));
        let Some(free) = free else {
            return Err(Error::unfit(&self.elf.path, "its functions are looked up late, and there is no room to say otherwise"));
        };
        self.set(free.offset, tag::BIND_NOW)?;
        self.set(free.offset + 8, 0)
    }
}
