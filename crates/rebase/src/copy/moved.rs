//! Headers, dynamic section and symbols: every address in them is moved.

use super::Copy;
use crate::elf::dynamic as tag;
use crate::{Error, Result};
use object::LittleEndian as Le;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};

/// `p_type` of the entry that only says whether the stack may be executed.
const STACK: u32 = 0x6474_e551;
const SEGMENT_BYTES: usize = 56;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// `sh_flags`: it is in memory.
const ALLOCATED: u64 = 2;
/// Section numbers from here on are no sections.
const RESERVED: u16 = 0xff00;

impl Copy<'_> {
    pub(super) fn move_headers(&mut self) -> Result<()> {
        let header = *FileHeader64::<Le>::parse(&*self.elf.bytes)
            .map_err(|error| Error::damaged(&self.elf.path, error.to_string()))?;
        if header.e_entry.get(Le) != 0 {
            self.shift(24)?;
        }
        let first = header.e_phoff.get(Le) as usize;
        for (index, segment) in self.elf.segments.iter().enumerate().filter(|(_, one)| one.kind != STACK) {
            let _ = segment;
            self.shift(first + index * SEGMENT_BYTES + 16)?; // p_vaddr
            self.shift(first + index * SEGMENT_BYTES + 24)?; // p_paddr
        }
        for entry in &self.elf.dynamic.entries {
            if tag::ADDRESSES.contains(&entry.tag) {
                self.shift(entry.offset + 8)?;
            }
        }
        // The first word of the table of offsets is the address of the dynamic section.
        if let Some(at) = self.elf.dynamic.value(tag::PLTGOT).and_then(|at| self.elf.offset_of(at))
            && self.word(at).is_some_and(|word| word != 0)
        {
            self.shift(at)?;
        }
        let sections = header
            .section_headers(Le, &*self.elf.bytes)
            .map_err(|error| Error::damaged(&self.elf.path, error.to_string()))?;
        let first = header.e_shoff.get(Le) as usize;
        for (index, section) in sections.iter().enumerate() {
            if section.sh_flags(Le).0 & ALLOCATED != 0 {
                self.shift(first + index * SECTION_BYTES + 16)?;
            }
        }
        Ok(())
    }

    /// A program that can be anywhere is put anywhere by the kernel, whatever addresses it has: this one is not of that kind
    /// any more.
    pub(super) fn fix(&mut self) -> Result<()> {
        const TYPE: usize = 16;
        const FIXED: [u8; 2] = [2, 0];
        const ANYWHERE: u64 = 0x0800_0000;
        self.bytes[TYPE..TYPE + 2].copy_from_slice(&FIXED);
        if let Some(flags) = self.elf.dynamic.entry(tag::FLAGS_1) {
            self.set(flags.offset + 8, flags.value & !ANYWHERE)?;
        }
        Ok(())
    }

    /// Dynamic symbols, and those for debuggers.
    pub(super) fn move_symbols(&mut self) -> Result<()> {
        let elf = self.elf;
        let table = elf.dynamic.value(tag::SYMTAB).and_then(|at| elf.offset_of(at));
        if let Some(table) = table {
            self.move_table(table, elf.symbols.all.len())?;
        }
        let damaged = |error: object::Error| Error::damaged(&elf.path, error.to_string());
        let header = FileHeader64::<Le>::parse(&*elf.bytes).map_err(damaged)?;
        // There is one at most.
        const SYMBOLS: u32 = 2;
        let mut sections = header.section_headers(Le, &*elf.bytes).map_err(damaged)?.iter();
        match sections.find(|section| section.sh_type(Le).0 == SYMBOLS) {
            Some(one) => self.move_table(one.sh_offset(Le) as usize, one.sh_size(Le) as usize / SYMBOL_BYTES),
            None => Ok(()),
        }
    }

    fn move_table(&mut self, table: usize, count: usize) -> Result<()> {
        const THREAD_LOCAL: u8 = 6;
        let outside = || Error::damaged(&self.elf.path, "a symbol lies outside the file");
        let end = count.checked_mul(SYMBOL_BYTES).and_then(|bytes| table.checked_add(bytes));
        if end.is_none_or(|end| end > self.bytes.len()) {
            return Err(outside());
        }
        for at in (0..count).map(|index| table + index * SYMBOL_BYTES) {
            let raw = self.bytes.get(at..at + SYMBOL_BYTES).ok_or_else(outside)?;
            let (kind, section) = (raw[4] & 15, u16::from_le_bytes([raw[6], raw[7]]));
            if kind != THREAD_LOCAL && section != 0 && section < RESERVED {
                self.shift(at + 8)?;
            }
        }
        Ok(())
    }
}
