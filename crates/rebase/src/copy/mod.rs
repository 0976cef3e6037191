//! The file at another address: all its addresses are moved by one constant, and what can be relocated is.

mod lazy;
mod moved;
mod relocated;

use crate::elf::{Elf, Kind};
use crate::{Error, Result};

/// What the base of a file's copy must be a multiple of.
pub fn alignment(elf: &Elf) -> u64 {
    let least = if elf.extent().1 < HUGE_PAGE_BYTES { PAGE_BYTES } else { HUGE_PAGE_BYTES };
    elf.loads().map(|load| load.alignment).max().unwrap_or(0).max(least)
}

/// How many bytes of addresses a copy needs. The loader asks the kernel for an address, and does not insist; of a file mapping
/// of the size of a huge page or more the kernel grants it only if a huge page more is free behind it (since Linux 6.7). The
/// loader itself asks for an alignment more where that is larger than a page. Behind a program its heap begins, up to 1 GiB
/// later; where the next range ends it `malloc` goes on elsewhere. With 4 GiB there is room for some 1,600 programs.
pub fn address_bytes(elf: &Elf, role: Role) -> u64 {
    const HEAP_BYTES: u64 = 4 << 30;
    let bytes = elf.extent().1;
    let alignment = elf.loads().map(|load| load.alignment).max().unwrap_or(0);
    let aligned = if alignment > PAGE_BYTES { alignment } else { 0 };
    let huge = if bytes < HUGE_PAGE_BYTES { 0 } else { HUGE_PAGE_BYTES };
    bytes + aligned + huge + if role == Role::Program { HEAP_BYTES } else { 0 }
}

const PAGE_BYTES: u64 = 4096;
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// No process has more addresses.
const MOST_ADDRESS: u64 = 1 << 47;
/// No file asks for more.
const MOST_ALIGNMENT: u64 = 1 << 30;

/// What a file is to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The program itself.
    Program,
    /// What it needs.
    Library,
}

/// Says whether a file can be moved; the error says why not.
pub fn check(elf: &Elf, role: Role) -> Result<()> {
    use crate::elf::dynamic as tag;
    let unfit = |why: String| Err(Error::unfit(&elf.path, why));
    if elf.fixed || elf.extent().0 != 0 {
        return unfit("its addresses are fixed already".into());
    }
    if !elf.loads().all(|load| {
        load.alignment <= MOST_ALIGNMENT && (load.alignment == 0 || load.alignment.is_power_of_two())
    }) {
        return unfit("it asks for an alignment that nothing has".into());
    }
    if elf.extent().1 > MOST_ADDRESS {
        return unfit("it wants more addresses than a process has".into());
    }
    if elf.dynamic.flags().text_relocations {
        return unfit("its text is relocated (DT_TEXTREL), so it can be nobody's in common".into());
    }
    for (name, tag) in [("filter", tag::FILTER), ("auxiliary filter", tag::AUXILIARY), ("audit", tag::AUDIT)]
    {
        if elf.dynamic.value(tag).is_some() {
            return unfit(format!("it has a DT entry of the kind {name}"));
        }
    }
    if let Some(tag) = elf.dynamic.unknown() {
        return unfit(format!("what its dynamic entry {tag:#x} means is not known"));
    }
    for relocation in elf.relocations.named() {
        match relocation.kind {
            Kind::Other(kind) => return unfit(format!("relocations of type {kind} are not understood")),
            Kind::Copy if role == Role::Program => continue, // in memory that no file has
            Kind::Copy => return unfit("it has a copy relocation, which only programs may have".into()),
            _ => {}
        }
        if relocation.kind != Kind::None && elf.offset_of(relocation.address).is_none() {
            return unfit(format!("the word to relocate at {:#x} is not in the file", relocation.address));
        }
    }
    if elf.relocations.relative.iter().any(|address| elf.word(*address).is_none()) {
        return unfit("a word to relocate is not in the file".into());
    }
    Ok(())
}

/// The file at `base`. `bound` gives, for a relocation by symbol (the table's in their order, then the jumps), the word
/// that is written; those without one are left to the loader.
pub fn make(elf: &Elf, role: Role, base: u64, bound: &[Option<u64>]) -> Result<Vec<u8>> {
    check(elf, role)?;
    assert_eq!(base % alignment(elf), 0, "a base that suits no loader");
    let mut bytes = elf.bytes.clone();
    let mut copy = Copy { elf, base, bytes: &mut bytes };
    copy.relocate(bound)?;
    copy.move_headers()?;
    copy.move_symbols()?;
    if role == Role::Program {
        copy.fix()?;
    }
    Ok(bytes)
}

/// A copy in the making.
struct Copy<'a> {
    elf: &'a Elf,
    base: u64,
    bytes: &'a mut [u8],
}

impl Copy<'_> {
    fn word(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes.get(at..at + 8)?.try_into().ok()?))
    }

    fn set(&mut self, at: usize, word: u64) -> Result<()> {
        let path = &self.elf.path;
        let slot = self.bytes.get_mut(at..at + 8);
        slot.ok_or_else(|| Error::damaged(path, "a table lies outside the file"))?
            .copy_from_slice(&word.to_le_bytes());
        Ok(())
    }

    /// Moves the address that stands at an offset of the file.
    fn shift(&mut self, at: usize) -> Result<()> {
        let path = &self.elf.path;
        let word = self.word(at).ok_or_else(|| Error::damaged(path, "a table lies outside the file"))?;
        self.set(at, word.wrapping_add(self.base))
    }
}
