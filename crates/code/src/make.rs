//! From a shared library to a code image.

use crate::bind::{self, Bound, Scope};
use crate::existing::Existing;
use crate::exports::{self, Exports};
use crate::format::{
    ENTRIES_AT, ENTRY_BYTES, Fill, Header, IMPORTS_AT, Import, MAGIC, MOST_IMPORTS, MOST_SEGMENTS,
    NAME_BYTES, PAGE_BYTES, PATH_BYTES, Segment, X86_64, sum,
};
use crate::layout::{self, Layout};
use crate::{Error, Result, refuse, store_page};
use commonhold_images::format::{Kind, Version};
use commonhold_images::place::ordinary_file;
use commonhold_images::store::Store;
use commonhold_rebase::copy::{self, Role};
use commonhold_rebase::elf::{Elf, dynamic as tag};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
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
    /// With other images of this group it is declared never to be in one process.
    pub group: Option<String>,
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

/// Where the slots begin: behind the entries that a major version has room for, four times as many as the first has, and
/// 2048 at least. (Room that nobody uses is never in memory.)
fn slots_at(count: usize, others: &[Existing]) -> u64 {
    const LEAST: u64 = 2048;
    others.last().map_or_else(
        || (ENTRIES_AT + (count as u64 * 4).max(LEAST) * ENTRY_BYTES).next_multiple_of(PAGE_BYTES),
        |other| other.header.slots_at,
    )
}

/// Makes the image, with addresses of the store's registry.
pub fn make(wanted: &Wanted, store: &Store) -> Result<Made> {
    let library = Elf::open(&wanted.library)?;
    refuse::check(&library)?;
    let others = Existing::all(store, &wanted.name, wanted.version.major)?;
    let given = store.slots_given(&wanted.name, wanted.version.major)?;
    make_of(wanted, library, &others, &given, |bytes| reserve(wanted, store, bytes, others.is_empty()))
}

/// The same of a library that was not refused; `reserve` gives it addresses.
pub(crate) fn make_of(
    wanted: &Wanted,
    library: Elf,
    others: &[Existing],
    given: &BTreeMap<u32, String>,
    reserve: impl FnOnce(u64) -> Result<u64>,
) -> Result<Made> {
    let exports = exports::choose(&library, wanted.exports.as_ref(), others, given)?;
    keeps(wanted, &exports, others)?;
    let slots_at = slots_at(exports.functions.len(), others);
    let slots = exports.functions.iter().map(|export| export.slot + 1).max().unwrap_or(0);
    if ENTRIES_AT + u64::from(slots) * ENTRY_BYTES > slots_at {
        return Err(Error::unfit(
            &library.path,
            format!(
                "it has {slots} functions for others, more than its major version has room for: make it the next major version"
            ),
        ));
    }
    // How many words programs fill in is known only when the library is bound, which needs its address: no more than
    // that.
    let most_fills = if wanted.table.is_empty() { 0 } else { library.relocations.named().count() };
    let fills_end = layout::slots_end(slots_at) + (most_fills * size_of::<Fill>()) as u64;
    let library_at = layout::library_at(&library, fills_end, copy::alignment(&library));
    let base = reserve(library_at + library.extent().1)?;
    let library = Arc::new(library);
    let fixed_table = others.last().map(|other| &other.table[..]);
    let scope = Scope { imports: &wanted.imports, table: &wanted.table, fixed_table };
    let bound = bind::bind(&library, base + library_at, &scope)?;
    let moved = copy::make(&library, Role::Library, base + library_at, &bound.words)?;
    let layout = layout::lay_out(&library, slots_at, library_at, !bound.fills.is_empty())?;
    let mut bytes = layout::bytes(&library, &moved, &layout, base, &exports.functions);
    let imports = imports(wanted, &bound)?;
    let mut header = header(wanted, &library, &layout, &bound, &imports, base, slots)?;
    header.fills_at = put_fills(&mut bytes, &layout, &bound);
    header.lineage = others.last().map_or_else(new_lineage, |other| other.header.lineage);
    header.reserved = reserved(others, layout.extent);
    if layout.extent > header.reserved {
        return Err(Error::unfit(
            &library.path,
            format!(
                "it takes {} bytes, and its major version has room for {}: make it the next major version",
                layout.extent, header.reserved
            ),
        ));
    }
    put_imports(&mut bytes, &imports);
    store_page::finish(wanted, &exports, &bound, &layout, header, bytes)
}

/// Later minors must fit where this one is, too.
const GROWTH: u64 = 4;
const LEAST_RESERVED: u64 = 16 << 20;

fn reserved(others: &[Existing], extent: u64) -> u64 {
    others.last().map_or((extent * GROWTH).max(LEAST_RESERVED), |other| other.header.reserved)
}

/// A number that no other has.
fn new_lineage() -> u64 {
    // A key that the standard library draws at random for each table.
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// The base of the major version.
fn reserve(wanted: &Wanted, store: &Store, bytes: u64, is_first: bool) -> Result<u64> {
    // One page may be added for a word of inclusion, some for filling in.
    let bytes = bytes.next_multiple_of(PAGE_BYTES) + 64 * PAGE_BYTES;
    let room = if is_first { (bytes * GROWTH).max(LEAST_RESERVED) } else { bytes };
    Ok(store.reserve_in(Kind::Code, &wanted.name, wanted.version, room, wanted.group.as_deref())?.first)
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
                why: format!("{name}, which programs call by slot {slot}, is not there any more"),
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
        let path = other.newest.to_string_lossy();
        Ok(Import {
            name: padded(&other.major_name(), "the name")?,
            path: padded::<PATH_BYTES>(&path, "the path")?,
            base: other.header.base,
            lineage: other.header.lineage,
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
    imports: &[Import],
    base: u64,
    slots: u32,
) -> Result<Header> {
    let Version { major, minor, patch } = wanted.version;
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
        lineage: 0,
        table_sum: 0,
        base,
        extent: layout.extent,
        reserved: 0,
        file_bytes: 0,
        library_at: layout.library_at,
        slots_at: layout.slots_at,
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
        import_count: imports.len() as u32,
        imports_sum: imports.iter().fold(0, |total, one| total.wrapping_add(sum(one.bytes()))),
        names_bytes: 0,
        names_at: 0,
        segments,
    })
}

/// Writes the list of words that programs fill in, behind the room for slots; where it is.
fn put_fills(bytes: &mut [u8], layout: &Layout, bound: &Bound) -> u64 {
    for (index, fill) in bound.fills.iter().enumerate() {
        let at = layout.slots_end as usize + index * size_of::<Fill>();
        bytes[at..at + 8].copy_from_slice(&(layout.library_at + fill.address).to_le_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&fill.addend.to_le_bytes());
        bytes[at + 16..at + 20].copy_from_slice(&fill.index.to_le_bytes());
    }
    if bound.fills.is_empty() { 0 } else { layout.slots_end }
}

fn put_imports(bytes: &mut [u8], imports: &[Import]) {
    for (index, import) in imports.iter().enumerate() {
        let at = IMPORTS_AT as usize + index * size_of::<Import>();
        bytes[at..at + size_of::<Import>()].copy_from_slice(import.bytes());
    }
}

/// A list of names, one a line; `#` begins a remark.
pub fn names(path: &Path) -> Result<BTreeSet<String>> {
    const MOST_BYTES: u64 = 64 << 20;
    let mut text = String::new();
    let read = ordinary_file(path).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text));
    read.map_err(Error::file(path))?;
    let plain = |line: &str| line.split('#').next().unwrap_or("").trim().to_owned();
    Ok(text.lines().map(plain).filter(|name| !name.is_empty()).collect())
}
