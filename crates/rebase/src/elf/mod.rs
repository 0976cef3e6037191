//! One program or shared library of this machine's kind (64 bits, little endian, x86-64), as the loader reads it: by
//! segments and the dynamic section. Files may be damaged or made to mislead: nothing is taken that their bounds do not cover.

pub mod dynamic;
mod read;
mod relocations;
mod symbols;

pub use dynamic::{Dynamic, Entry, Flags};
pub use relocations::{Kind, Relocation, Relocations};
pub use symbols::{ABSOLUTE, Symbol, SymbolKind, Symbols, UNDEFINED, Version, hash};

use crate::Result;
use std::path::{Path, PathBuf};

/// One program header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// `PT_LOAD` and others.
    pub kind: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Address, as the file says.
    pub address: u64,
    /// Bytes in the file.
    pub file_bytes: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// `PF_W` and others.
    pub flags: u32,
    /// What its address and offset are multiples of, but for what both are off.
    pub alignment: u64,
}

/// A section: what linkers divide a segment into. Loaders do not look at them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// How long it is.
    pub bytes: u64,
    /// Whether it is in memory at all.
    pub is_in_memory: bool,
}

/// `p_type` of a segment that is mapped.
pub const LOAD: u32 = 1;
/// `p_type` of the path of the loader.
pub const INTERPRETER: u32 = 3;
/// `p_type` of notes.
pub const NOTE: u32 = 4;
/// `p_type` of thread-local storage.
pub const TLS: u32 = 7;
/// `p_type` of what is read-only after relocation.
pub const RELRO: u32 = 0x6474_e552;

/// A program or library.
pub struct Elf {
    /// Where it is.
    pub path: PathBuf,
    /// The whole file.
    pub bytes: Vec<u8>,
    /// ET_EXEC: its addresses are fixed already.
    pub fixed: bool,
    /// Its program headers, in their order.
    pub segments: Vec<Segment>,
    /// The dynamic section.
    pub dynamic: Dynamic,
    /// The dynamic symbols.
    pub symbols: Symbols,
    /// What the loader has to do.
    pub relocations: Relocations,
}

impl Elf {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Elf> {
        Elf::parse(path, read::whole(path)?)
    }

    /// Reads these bytes of a file.
    pub fn parse(path: &Path, bytes: Vec<u8>) -> Result<Elf> {
        read::elf(path, bytes)
    }

    /// The segments that are mapped.
    pub fn loads(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == LOAD)
    }

    /// The addresses that it covers: the first, and the first behind it. (0, 0) of a file that maps nothing.
    pub fn extent(&self) -> (u64, u64) {
        let first = self.loads().map(|load| load.address).min().unwrap_or(0);
        let end = self.loads().map(|load| load.address + load.memory_bytes).max().unwrap_or(0);
        (first, end)
    }

    /// The address of the dynamic section.
    pub fn dynamic_address(&self) -> Option<u64> {
        self.segments.iter().find(|segment| segment.kind == dynamic::SEGMENT).map(|segment| segment.address)
    }

    /// Where in the file the byte of an address lies; none if it is in no segment's file part.
    pub fn offset_of(&self, address: u64) -> Option<usize> {
        read::offset_of(&self.segments, address)
    }

    /// The eight bytes at an address.
    pub fn word(&self, address: u64) -> Option<u64> {
        let at = self.offset_of(address)?;
        Some(u64::from_le_bytes(self.bytes.get(at..at + 8)?.try_into().ok()?))
    }

    /// The name of a symbol.
    pub fn name(&self, symbol: u32) -> &[u8] {
        let symbol = &self.symbols.all[symbol as usize];
        let first = self.symbols.strings + symbol.name as usize;
        self.bytes.get(first..first + symbol.name_bytes as usize).unwrap_or_default()
    }

    /// The symbols of a name that can be found here.
    fn named<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a Symbol> {
        let indexes =
            self.symbols.with_hash(symbols::hash(name)).filter(move |index| self.name(*index) == name);
        indexes.map(|index| &self.symbols.all[index as usize])
    }

    /// Whether it has a symbol of this name of which there is one for the whole process.
    pub fn has_unique(&self, name: &[u8]) -> bool {
        self.named(name).any(|symbol| symbol.unique)
    }

    /// Whether it defines a symbol of this name that others can find.
    pub fn defines(&self, name: &[u8]) -> bool {
        self.named(name).any(|symbol| symbol.section != UNDEFINED)
    }

    /// A string of the dynamic string table.
    pub fn string(&self, at: u64) -> &[u8] {
        let at = usize::try_from(at).ok().and_then(|at| self.symbols.strings.checked_add(at));
        at.and_then(|at| read::string(&self.bytes, at)).unwrap_or_default()
    }

    /// DT_NEEDED, in order.
    pub fn needed(&self) -> impl Iterator<Item = &[u8]> {
        self.dynamic.values(dynamic::NEEDED).map(|at| self.string(at))
    }

    /// DT_SONAME.
    pub fn soname(&self) -> Option<&[u8]> {
        self.dynamic.value(dynamic::SONAME).map(|at| self.string(at))
    }

    /// The path of the loader, of a program that has one.
    pub fn interpreter(&self) -> Option<&[u8]> {
        let segment = self.segments.iter().find(|segment| segment.kind == INTERPRETER)?;
        read::string(&self.bytes, segment.offset as usize)
    }

    /// Its sections, as far as it still has a table of them.
    pub fn sections(&self) -> Vec<Section> {
        read::sections(&self.bytes).unwrap_or_default()
    }

    /// The build ID, if it has one.
    pub fn build_id(&self) -> Option<&[u8]> {
        let notes = self.segments.iter().filter(|segment| segment.kind == NOTE);
        notes
            .filter_map(|note| read::part(&self.bytes, note.offset, note.file_bytes))
            .find_map(read::build_id)
    }
}
