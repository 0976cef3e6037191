//! The dynamic symbols of a file and their versions, with the order and the rules by which the loader looks at them.

use super::dynamic::{self, Dynamic};
use super::{Segment, read};

/// What a symbol is (`st_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolKind {
    /// Data.
    Data,
    /// A function.
    Function,
    /// A function that says which function is meant.
    Indirect,
    /// An offset in thread-local storage.
    ThreadLocal,
    /// Not said.
    Untyped,
    /// A section, a file: nothing that anybody finds.
    Other,
}

/// A symbol.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// Offset of its name.
    pub name: u32,
    /// How long that is.
    pub name_bytes: u32,
    /// What.
    pub kind: SymbolKind,
    /// Seen in its own file alone.
    pub local: bool,
    /// May be missing.
    pub weak: bool,
    /// One for the whole process (STB_GNU_UNIQUE).
    pub unique: bool,
    /// `STV_…`: 0 default, 1 internal, 2 hidden, 3 protected.
    pub visibility: u8,
    /// `st_shndx`: 0 undefined, 0xfff1 absolute.
    pub section: u16,
    /// Its address, or value.
    pub value: u64,
    /// Bytes.
    pub size: u64,
    /// Index of its version; 0 local, 1 global, from 2 on a named one.
    pub version: u16,
    /// Not found by those who name no version.
    pub hidden_version: bool,
}

/// `st_shndx` of a symbol that somebody else defines.
pub const UNDEFINED: u16 = 0;
/// `st_shndx` of a value that is no address.
pub const ABSOLUTE: u16 = 0xfff1;

/// A version that is defined or needed here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Its name.
    pub name: Vec<u8>,
    /// Needed: the file that defines it.
    pub file: Option<Vec<u8>>,
    /// Needed: `VER_FLG_WEAK` has no meaning here; this is the bit that asks for exactly this version.
    pub exact: bool,
}

/// The symbols of a file.
pub struct Symbols {
    /// All, in their order; the first is none.
    pub all: Vec<Symbol>,
    /// By index. 0 and 1 have none.
    pub versions: Vec<Option<Version>>,
    /// Whether the file has versions at all.
    pub versioned: bool,
    /// Offset of the strings in the file.
    pub(super) strings: usize,
    /// Hashes of the names of what can be found here, sorted, and the symbols.
    found: Vec<(u32, u32)>,
}

const SYMBOL_BYTES: usize = 24;
/// All names together are not longer than so many files.
const MOST_SHARED: usize = 16;
/// So many symbols do not have one name, or one hash.
const MOST_ALIKE: usize = 64;
/// No version has a longer name, nor a file that has one.
const MOST_NAME_BYTES: usize = 4096;
/// An entry of the tables of versions, at least.
const VERSION_BYTES: usize = 16;

fn half(raw: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(raw.get(at..at + 2)?.try_into().ok()?))
}

fn word(raw: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(raw.get(at..at + 4)?.try_into().ok()?))
}

/// The hash of DT_GNU_HASH.
pub fn hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()))
}

impl Symbols {
    pub(super) fn read(bytes: &[u8], segments: &[Segment], dynamic: &Dynamic) -> Result<Symbols, String> {
        let address = |tag| dynamic.value(tag);
        let table = address(dynamic::SYMTAB).and_then(|at| read::from(bytes, segments, at));
        let table = table.ok_or("it has no dynamic symbols")?;
        let strings = address(dynamic::STRTAB).and_then(|at| read::offset_of(segments, at));
        let strings = strings.ok_or("it has no strings")?;
        let count = count(bytes, segments, dynamic).ok_or("the number of its symbols cannot be found")?;
        let raw = table.get(..count * SYMBOL_BYTES).ok_or("its symbols lie outside the file")?;
        let mut all: Vec<Symbol> = raw.chunks_exact(SYMBOL_BYTES).map(one).collect();
        let versym = address(dynamic::VERSYM).and_then(|at| read::from(bytes, segments, at));
        if let Some(versym) = versym {
            for (index, symbol) in all.iter_mut().enumerate() {
                let raw = half(versym, index * 2).ok_or("its versions lie outside the file")?;
                (symbol.version, symbol.hidden_version) = (raw & 0x7fff, raw & 0x8000 != 0);
            }
        }
        let versions = versions(bytes, segments, dynamic, strings).ok_or("its versions are damaged")?;
        let name = |symbol: &Symbol| read::string(bytes, strings + symbol.name as usize);
        let mut bytes_of_names = 0;
        for symbol in &mut all {
            let length = name(symbol).ok_or("the name of a symbol lies outside the file")?.len();
            symbol.name_bytes = u32::try_from(length).map_err(|_| "a symbol has too long a name")?;
            bytes_of_names += length;
            // Names of a real file may share their ends, and no more.
            if bytes_of_names / MOST_SHARED > bytes.len() {
                return Err("its symbols share their names, so that reading them would take for ever".into());
            }
        }
        let can_be_found =
            |symbol: &Symbol| !symbol.local && (symbol.section != UNDEFINED || symbol.value != 0);
        let hashes = all.iter().zip(0..).filter(|(symbol, _)| can_be_found(symbol));
        let mut found: Vec<(u32, u32)> =
            hashes.map(|(symbol, index)| (hash(name(symbol).unwrap_or_default()), index)).collect();
        found.sort_unstable();
        if found.windows(MOST_ALIKE).any(|alike| alike[0].0 == alike[MOST_ALIKE - 1].0) {
            return Err("so many of its symbols have one name that finding one would take for ever".into());
        }
        Ok(Symbols { all, versions, versioned: versym.is_some(), strings, found })
    }

    /// The symbols whose name has this hash and that could be what somebody looks for.
    pub fn with_hash(&self, hash: u32) -> impl Iterator<Item = u32> {
        let first = self.found.partition_point(|(other, _)| *other < hash);
        self.found[first..].iter().take_while(move |(other, _)| *other == hash).map(|(_, index)| *index)
    }

    /// The version of a symbol, if it has a named one.
    pub fn version_of(&self, symbol: &Symbol) -> Option<&Version> {
        self.versions.get(usize::from(symbol.version))?.as_ref()
    }
}

fn one(raw: &[u8]) -> Symbol {
    let long = |at: usize| u64::from_le_bytes(raw[at..at + 8].try_into().expect("eight bytes"));
    let binding = raw[4] >> 4;
    let kind = match raw[4] & 15 {
        0 => SymbolKind::Untyped,
        1 | 5 => SymbolKind::Data,
        2 => SymbolKind::Function,
        6 => SymbolKind::ThreadLocal,
        10 => SymbolKind::Indirect,
        _ => SymbolKind::Other,
    };
    Symbol {
        name: word(raw, 0).expect("24 bytes"),
        name_bytes: 0,
        kind,
        local: binding == 0,
        weak: binding == 2,
        unique: binding == 10,
        visibility: raw[5] & 3,
        section: half(raw, 6).expect("24 bytes"),
        value: long(8),
        size: long(16),
        version: 1,
        hidden_version: false,
    }
}

/// The dynamic section does not say how many symbols there are: the hash tables do.
fn count(bytes: &[u8], segments: &[Segment], dynamic: &Dynamic) -> Option<usize> {
    if let Some(old) = dynamic.value(dynamic::HASH).and_then(|at| read::from(bytes, segments, at)) {
        return Some(word(old, 4)? as usize);
    }
    let table = dynamic.value(dynamic::GNU_HASH).and_then(|at| read::from(bytes, segments, at))?;
    let (buckets, first, bloom) =
        (word(table, 0)? as usize, word(table, 4)? as usize, word(table, 8)? as usize);
    let at_buckets = 16 + bloom.checked_mul(8)?;
    let at_chains = at_buckets.checked_add(buckets.checked_mul(4)?)?;
    let mut last = 0;
    for bucket in 0..buckets {
        last = last.max(word(table, at_buckets + bucket * 4)? as usize);
    }
    if last < first {
        // Nothing can be found here; what is asked for stands in front of the strings, as every linker puts it.
        let (symbols, strings) = (dynamic.value(dynamic::SYMTAB)?, dynamic.value(dynamic::STRTAB)?);
        let between = strings.checked_sub(symbols).map(|bytes| bytes as usize / SYMBOL_BYTES);
        return Some(between.unwrap_or(first).max(first));
    }
    // A chain ends with an odd hash.
    while word(table, at_chains + (last - first) * 4)? & 1 == 0 {
        last += 1;
    }
    Some(last + 1)
}

fn versions(
    bytes: &[u8],
    segments: &[Segment],
    dynamic: &Dynamic,
    strings: usize,
) -> Option<Vec<Option<Version>>> {
    let mut all: Vec<Option<Version>> = vec![None, None];
    let mut put = |index: u16, version| {
        let index = usize::from(index & 0x7fff);
        if all.len() <= index {
            all.resize(index + 1, None);
        }
        all[index] = Some(version);
    };
    let name = |at: u32| {
        let name = read::string(bytes, strings + at as usize)?;
        (name.len() <= MOST_NAME_BYTES).then(|| name.to_vec())
    };
    if let Some(table) = dynamic.value(dynamic::VERDEF).and_then(|at| read::from(bytes, segments, at)) {
        const BASE: u16 = 1;
        let mut at = 0;
        // The entries do not lie over each other.
        let most = (table.len() / VERSION_BYTES) as u64;
        for _ in 0..dynamic.value(dynamic::VERDEFNUM).filter(|count| *count <= most)? {
            let (flags, index) = (half(table, at + 2)?, half(table, at + 4)?);
            let first = at + word(table, at + 12)? as usize;
            if flags & BASE == 0 {
                put(index, Version { name: name(word(table, first)?)?, file: None, exact: false });
            }
            at += word(table, at + 16)? as usize;
        }
    }
    if let Some(table) = dynamic.value(dynamic::VERNEED).and_then(|at| read::from(bytes, segments, at)) {
        let mut at = 0;
        let mut left = table.len() / VERSION_BYTES;
        for _ in 0..dynamic.value(dynamic::VERNEEDNUM)? {
            let file = name(word(table, at + 4)?)?;
            let mut one = at + word(table, at + 8)? as usize;
            let count = half(table, at + 2)?;
            left = left.checked_sub(1 + usize::from(count))?;
            for _ in 0..count {
                let other = half(table, one + 6)?;
                let version = name(word(table, one + 8)?)?;
                put(other, Version { name: version, file: Some(file.clone()), exact: other & 0x8000 != 0 });
                one += word(table, one + 12)? as usize;
            }
            at += word(table, at + 12)? as usize;
        }
    }
    Some(all)
}
