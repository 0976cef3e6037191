//! From an arena to a file.

use super::types::Types;
use super::walk::{Start, Walk};
use crate::include::Image;
use crate::store::{Published, Rest, Store};
use crate::{Error, Result};
use commonhold_image::{
    ARCHITECTURE_HERE, Fault, Fields, Import, Kind, PAGE_BYTES, READ, ROOT_BYTES, RootKind, Segment, Version,
    encode_with_roots, room_for_roots,
};
use std::io::Write;
use std::ops::Range;

/// What is to be written.
pub struct Content<'a> {
    pub name: &'a str,
    pub version: Version,
    pub group: Option<&'a str>,
    /// From its first page, which is free for the header, to what was written last.
    pub arena: Range<u64>,
    pub types: &'a Types,
    /// By name.
    pub roots: &'a [Start],
    pub imports: &'a [Image],
}

/// The table of roots, and the hash of all their types.
fn table(content: &Content<'_>) -> (Vec<u8>, u64) {
    let (mut entries, mut names, mut layouts): (Vec<u8>, Vec<u8>, Vec<u8>) = Default::default();
    for root in content.roots {
        let layout = content.types.hash(root.of);
        let bytes = content.types.get(root.of).bytes as u64 * root.count;
        let name_at = content.roots.len() * ROOT_BYTES + names.len();
        entries.extend((name_at as u32).to_le_bytes());
        entries.extend((root.name.len() as u32).to_le_bytes());
        for long in [root.first, bytes, layout] {
            entries.extend(long.to_le_bytes());
        }
        entries.extend(RootKind::Data.number().to_le_bytes());
        // Data has no slots: here it says whether readers may ask for one value.
        entries.extend(u32::from(root.is_one).to_le_bytes());
        names.extend(root.name.as_bytes());
        layouts.extend(layout.to_le_bytes());
    }
    entries.extend(names);
    let mut hash = [0; 8];
    hash.copy_from_slice(&blake3::hash(&layouts).as_bytes()[..8]);
    (entries, u64::from_le_bytes(hash))
}

/// Where the table of roots is in the file, and what that makes of the file.
struct Shape {
    roots_at: Range<u64>,
    /// In the first page: who includes the image reads that anyway.
    is_inside: bool,
    /// Between the last value and a table that is behind it.
    gap: usize,
    file_bytes: u64,
    /// Of addresses.
    bytes: u64,
}

impl Shape {
    /// Of an arena with so many bytes in use, a table of so many, and so many imports.
    fn new(arena_bytes: u64, table_bytes: usize, imports: usize) -> Shape {
        let behind = arena_bytes.next_multiple_of(8);
        let inside = room_for_roots(table_bytes, imports);
        let is_inside = inside.is_some();
        let roots_at = inside.unwrap_or(behind..behind + table_bytes as u64);
        let file_bytes = roots_at.end.max(arena_bytes);
        Shape {
            is_inside,
            gap: if is_inside { 0 } else { (behind - arena_bytes) as usize },
            file_bytes,
            bytes: file_bytes.next_multiple_of(PAGE_BYTES as u64),
            roots_at,
        }
    }
}

/// The imports that pointers lead into, of which `used` says which they are.
fn imports<'a>(content: &Content<'a>, used: impl Fn(usize) -> bool) -> Vec<Import<'a>> {
    let import = |image: &'a Image| Import {
        name: image.name(),
        version: image.version(),
        id: image.id(),
        base: image.base(),
        bytes: image.bytes(),
    };
    let places = content.imports.iter().enumerate();
    places.filter(|(place, _)| used(*place)).map(|(_, image)| import(image)).collect()
}

/// Follows all pointers, writes and publishes.
///
/// # Safety
/// The arena is memory of this process, which nobody else uses now.
pub unsafe fn seal(store: &Store, content: &Content<'_>, limit: u64) -> Result<Published> {
    let Range { start: base, end } = content.arena;
    let written = base + PAGE_BYTES as u64..end;
    // SAFETY: the caller's promise.
    let used = unsafe { Walk::new(content.types, written.clone(), content.imports, content.roots) }.run()?;
    let (table, layout) = table(content);
    let shape = Shape::new(end - base, table.len(), used.len());
    let Shape { file_bytes, bytes, .. } = shape;
    if base + bytes > limit {
        return Err(Error::Full { wanted: content.name.into(), bytes, region: "arena's own" });
    }
    // SAFETY: the caller's promise.
    let data =
        unsafe { std::slice::from_raw_parts(written.start as *const u8, (end - written.start) as usize) };
    let (first, last) = if shape.is_inside { (&table[..], &[][..]) } else { (&[][..], &table[..]) };
    let behind = [data, &[0; 8][..shape.gap], last];
    let mut rest = Rest::default();
    behind.iter().for_each(|part| rest.add(part));
    let page = encode_with_roots(
        &Fields {
            kind: Kind::Data,
            architecture: ARCHITECTURE_HERE,
            name: content.name,
            version: content.version,
            base,
            bytes,
            file_bytes,
            layout,
            roots_at: shape.roots_at,
            root_count: content.roots.len() as u32,
            detail_at: 0..0,
            reserved: bytes,
            rest: rest.sum(),
            group: content.group,
            segments: &[Segment { offset: 0, address: base, file_bytes, bytes, protection: READ }],
            imports: &imports(content, |place| used.contains(&place)),
        },
        first,
    );
    let page = page.map_err(|fault| match fault {
        Fault::Unsound(what) => Error::Invalid(format!("{}: {what}", content.name)),
        other => Error::Invalid(other.to_string()),
    })?;
    write(store, &page, &behind)
}

/// The first page, and what is behind it.
fn write(store: &Store, page: &[u8], behind: &[&[u8]]) -> Result<Published> {
    let mut draft = store.draft()?;
    let path = store.root().to_owned();
    let mut parts = std::iter::once(&page).chain(behind);
    parts.try_for_each(|part| draft.write_all(part)).map_err(Error::file(&path))?;
    store.publish(draft)
}
