//! Relocations: those that are known are done and dropped, those that are left are moved together.

use super::{Copy, lazy};
use crate::elf::dynamic as tag;
use crate::elf::{Kind, Relocation};
use crate::{Error, Result};

const ENTRY_BYTES: usize = 24;

impl Copy<'_> {
    pub(super) fn relocate(&mut self, bound: &[Option<u64>]) -> Result<()> {
        let elf = self.elf;
        for address in &elf.relocations.relative {
            let at = self.offset(*address)?;
            self.shift(at)?;
        }
        let (of_table, of_jumps) = bound.split_at(elf.relocations.table.len());
        let left = self.apply(&elf.relocations.table, of_table)?;
        self.write_left(tag::RELA, tag::RELASZ, &left)?;
        self.relocate_jumps(of_jumps)?;
        for tag in [tag::RELACOUNT, tag::RELRSZ] {
            if let Some(entry) = elf.dynamic.entry(tag) {
                self.set(entry.offset + 8, 0)?;
            }
        }
        Ok(())
    }

    /// Functions. Those that are looked up at their first call are found by their place in the table, which the code says:
    /// where that can be changed the table has only what is left, else it stays whole. (What it names and is bound
    /// already is then looked at once more, and stays as it is.)
    fn relocate_jumps(&mut self, bound: &[Option<u64>]) -> Result<()> {
        let elf = self.elf;
        let jumps = &elf.relocations.jumps;
        let left = self.apply(jumps, bound)?;
        if elf.dynamic.flags().bind_now {
            return self.write_left(tag::JMPREL, tag::PLTRELSZ, &left);
        }
        let places: Vec<usize> =
            (0..jumps.len()).filter(|place| is_left(&jumps[*place], bound[*place])).collect();
        match lazy::stubs(elf, &places) {
            Some(stubs) => {
                for (new, stub) in stubs.into_iter().enumerate() {
                    self.bytes[stub..stub + 4].copy_from_slice(&(new as u32).to_le_bytes());
                }
                self.write_left(tag::JMPREL, tag::PLTRELSZ, &left)
            }
            None => {
                let all: Vec<Relocation> = jumps.iter().map(|one| self.moved(one)).collect();
                self.write_left(tag::JMPREL, tag::PLTRELSZ, &all)
            }
        }
    }

    /// Does what can be done; gives the rest, at their new addresses.
    fn apply(&mut self, all: &[Relocation], bound: &[Option<u64>]) -> Result<Vec<Relocation>> {
        let mut left = Vec::new();
        for (relocation, bound) in all.iter().zip(bound) {
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
                _ => left.push(self.moved(relocation)),
            }
            if relocation.kind == Kind::Jump && bound.is_none() {
                let at = self.offset(relocation.address)?;
                self.shift(at)?; // the way to the loader, at the first call
            }
        }
        Ok(left)
    }

    fn moved(&self, relocation: &Relocation) -> Relocation {
        let mut moved = *relocation;
        moved.address = moved.address.wrapping_add(self.base);
        if relocation.kind == Kind::Indirect {
            moved.addend = moved.addend.wrapping_add(self.base as i64);
        }
        moved
    }

    fn offset(&self, address: u64) -> Result<usize> {
        let outside = || Error::damaged(&self.elf.path, "a word to relocate is not in the file");
        self.elf.offset_of(address).ok_or_else(outside)
    }

    /// The table has room: it held at least as many.
    fn write_left(&mut self, table: u64, size: u64, left: &[Relocation]) -> Result<()> {
        let (Some(address), Some(size)) = (self.elf.dynamic.value(table), self.elf.dynamic.entry(size))
        else {
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
}

fn is_left(relocation: &Relocation, bound: Option<u64>) -> bool {
    match relocation.kind {
        Kind::None | Kind::Relative => false,
        Kind::Address | Kind::Global | Kind::Jump => bound.is_none(),
        _ => true,
    }
}
