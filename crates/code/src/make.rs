//! From a shared library to a code image.

use crate::bind::{self, Bound, Scope};
use crate::existing::Existing;
use crate::exports::{self, Exports};
use crate::format::{
    ENTRIES_AT, Fill, HEADER_AT, Header, Import, MAGIC, MOST_IMPORTS, MOST_SEGMENTS, NAME_BYTES, PAGE_BYTES,
    PATH_BYTES, SLOT_BYTES, Segment, X86_64,
};
use crate::layout::{self, Layout};
use crate::{Error, Result, refuse, store_page};
use commonhold_images::format::{Kind, Version};
use commonhold_images::store::Store;
use commonhold_rebase::copy::{self, Role};
use commonhold_rebase::elf::{Elf, dynamic as tag};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The shared library.
    pub library: PathBuf,
    /// How the image is to be called.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// The functions that it is to have for others; none: all that the library has.
    pub exports: Option<BTreeSet<String>>,
    /// Images that it calls, the newest of those majors.
    pub imports: Vec<Existing>,
    /// Functions and variables that programs hand over.
    pub table: BTreeSet<String>,
}

/// An image that was made.
#[derive(Debug)]
pub struct Made {
    /// The bytes of its file.
    pub bytes: Vec<u8>,
    /// Its base.
    pub base: u64,
    /// The distance of the library's addresses: what debuggers are told.
    pub library_at: u64,
    /// Its functions, and the data that it does not export.
    pub exports: Exports,
    /// What programs hand over.
    pub table: Vec<String>,
}

/// Entries that a major version has room for: four times as many as the first has, and 4096 at least.
fn entries_end(count: usize, others: &[Existing]) -> u64 {
    const LEAST: u64 = 4096;
    others.last().map_or_else(
        || (ENTRIES_AT + (count as u64 * 4).max(LEAST) * SLOT_BYTES).next_multiple_of(PAGE_BYTES),
        |other| other.header.entries_end,
    )
}

/// Makes the image, with addresses of the store's registry.
pub fn make(wanted: &Wanted, store: &Store) -> Result<Made> {
    let library = Elf::open(&wanted.library)?;
    refuse::check(&library)?;
    let others = Existing::all(store, &wanted.name, wanted.version.major)?;
    let exports = exports::choose(&library, wanted.exports.as_ref(), &others)?;
    keeps(wanted, &exports, &others)?;
    let end = entries_end(exports.functions.len(), &others);
    let slots = exports.functions.iter().map(|export| export.slot + 1).max().unwrap_or(0);
    if ENTRIES_AT + u64::from(slots) * SLOT_BYTES > end {
        return Err(Error::unfit(
            &library.path,
            format!("it has {slots} entries, more than its major version has room for: make it the next major version"),
        ));
    }
    // How many words programs fill in is known only when the library is bound, which needs its address: no more than that.
    let most_fills = if wanted.table.is_empty() { 0 } else { library.relocations.named().count() };
    let fills_end = end + (most_fills * size_of::<Fill>()) as u64;
    let library_at = fills_end.next_multiple_of(copy::alignment(&library));
    let base = reserve(wanted, store, library_at + library.extent().1, others.is_empty())?;
    let library = Arc::new(library);
    let fixed_table = others.last().map(|other| &other.table[..]);
    let scope = Scope { imports: &wanted.imports, table: &wanted.table, fixed_table };
    let bound = bind::bind(&library, base + library_at, &scope)?;
    let moved = copy::make(&library, Role::Library, base + library_at, &bound.words)?;
    let layout = layout::lay_out(&library, end, library_at, !bound.fills.is_empty())?;
    let mut bytes = layout::bytes(&library, &moved, &layout, &exports.functions);
    let mut header = header(wanted, &library, &layout, &bound, base, slots)?;
    header.fills_at = put_fills(&mut bytes, &layout, &bound);
    header.reserved = reserved(&others, layout.extent);
    store_page::finish(wanted, &exports, &bound, &layout, header, bytes)
}

/// Later minors must fit where this one is, too.
const GROWTH: u64 = 4;
const LEAST_RESERVED: u64 = 16 << 20;

fn reserved(others: &[Existing], extent: u64) -> u64 {
    others.last().map_or((extent * GROWTH).max(LEAST_RESERVED), |other| other.header.reserved)
}

/// The base of the major version.
fn reserve(wanted: &Wanted, store: &Store, bytes: u64, is_first: bool) -> Result<u64> {
    // One page may be added for a word of inclusion, some for filling in.
    let bytes = bytes.next_multiple_of(PAGE_BYTES) + 64 * PAGE_BYTES;
    let room = if is_first { (bytes * GROWTH).max(LEAST_RESERVED) } else { bytes };
    Ok(store.reserve(Kind::Code, &wanted.name, wanted.version, room)?.first)
}

/// Whether it can stand for all earlier minors: every function is there still.
fn keeps(wanted: &Wanted, exports: &Exports, others: &[Existing]) -> Result<()> {
    let has: BTreeSet<&str> = exports.functions.iter().map(|export| export.name.as_str()).collect();
    let earlier = others.iter().filter(|other| other.version < wanted.version);
    for other in earlier {
        if let Some((name, slot)) = other.slots().find(|(name, _)| !has.contains(name)) {
            return Err(Error::Breaks {
                name: wanted.name.clone(),
                version: wanted.version.to_string(),
                older: format!("{}@{}", other.name, other.version),
                why: format!("{name}, which programs call by entry {slot}, is not there any more"),
            });
        }
    }
    Ok(())
}

fn padded<const N: usize>(text: &str, what: &str) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() >= N {
        return Err(Error::Invalid(format!("{what} {text} is longer than {} bytes", N - 1)));
    }
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    Ok(bytes)
}

/// `NAME@X`, as headers and records have it.
pub(crate) fn major_name(name: &str, version: Version) -> Result<[u8; NAME_BYTES]> {
    padded(&format!("{name}@{}", version.major), "the name")
}

fn imports(wanted: &Wanted, bound: &Bound) -> Result<Vec<Import>> {
    if bound.imports.len() > MOST_IMPORTS {
        return Err(Error::unfit(&wanted.library, format!("it calls more than {MOST_IMPORTS} other images")));
    }
    let one = |&(place, slots): &(usize, u32)| {
        let other = &wanted.imports[place];
        let path = other.directory.to_string_lossy();
        Ok(Import {
            name: padded(&other.major_name(), "the name")?,
            path: padded::<PATH_BYTES>(&path, "the path")?,
            base: other.header.base,
            slots,
            unused: 0,
        })
    };
    bound.imports.iter().map(one).collect()
}

fn header(
    wanted: &Wanted,
    library: &Elf,
    layout: &Layout,
    bound: &Bound,
    base: u64,
    slots: u32,
) -> Result<Header> {
    let Version { major, minor, patch } = wanted.version;
    let all = imports(wanted, bound)?;
    let nothing = Import { name: [0; NAME_BYTES], path: [0; PATH_BYTES], base: 0, slots: 0, unused: 0 };
    let at = |tag| library.dynamic.value(tag).map_or(0, |address: u64| layout.library_at + address);
    let init_count = library.dynamic.value(tag::INIT_ARRAYSZ).unwrap_or(0) / 8;
    let mut segments = [Segment::default(); MOST_SEGMENTS];
    segments[..layout.segments.len()].copy_from_slice(&layout.segments);
    Ok(Header {
        magic: MAGIC,
        sum: 0,
        arch: X86_64,
        slots,
        name: major_name(&wanted.name, wanted.version)?,
        version: [major, minor, patch, 0],
        base,
        extent: layout.extent,
        reserved: 0,
        file_bytes: 0,
        library_at: layout.library_at,
        entries_end: layout.entries_end,
        fills_at: 0,
        fills: bound.fills.len() as u32,
        table: bound.table.len() as u32,
        protect_at: layout.protect.0,
        protect_bytes: layout.protect.1,
        control_at: layout.control_at,
        init: at(tag::INIT),
        init_array_at: if init_count == 0 { 0 } else { at(tag::INIT_ARRAY) },
        init_count: init_count as u32,
        segment_count: layout.segments.len() as u32,
        import_count: all.len() as u32,
        names_bytes: 0,
        names_at: 0,
        segments,
        imports: std::array::from_fn(|index| all.get(index).copied().unwrap_or(nothing)),
    })
}

/// Writes the list of words that programs fill in, behind the room for entries; where it is.
fn put_fills(bytes: &mut [u8], layout: &Layout, bound: &Bound) -> u64 {
    for (index, fill) in bound.fills.iter().enumerate() {
        let at = layout.entries_end as usize + index * size_of::<Fill>();
        bytes[at..at + 8].copy_from_slice(&(layout.library_at + fill.address).to_le_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&fill.addend.to_le_bytes());
        bytes[at + 16..at + 20].copy_from_slice(&fill.index.to_le_bytes());
    }
    if bound.fills.is_empty() { 0 } else { layout.entries_end }
}

/// A list of names, one a line; `#` begins a remark.
pub fn names(path: &Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(path).map_err(Error::file(path))?;
    let plain = |line: &str| line.split('#').next().unwrap_or("").trim().to_owned();
    Ok(text.lines().map(plain).filter(|name| !name.is_empty()).collect())
}

const _: () = assert!(HEADER_AT + size_of::<Header>() as u64 <= ENTRIES_AT);
