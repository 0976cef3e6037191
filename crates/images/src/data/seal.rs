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
    // In the first page, if there is room: who includes it reads that anyway.
    let behind = (end - base).next_multiple_of(8);
    let inside = room_for_roots(table.len(), used.len());
    let roots_at = inside.clone().unwrap_or(behind..behind + table.len() as u64);
    let file_bytes = roots_at.end.max(end - base);
    let bytes = file_bytes.next_multiple_of(PAGE_BYTES as u64);
    if base + bytes > limit {
        return Err(Error::Full { wanted: content.name.into(), bytes, region: "arena's own" });
    }
    let import = |image: &Image| Import {
        name: image.name(),
        version: image.version(),
        id: image.id(),
        base: image.base(),
        bytes: image.bytes(),
    };
    let imports: Vec<Import<'_>> = content
        .imports
        .iter()
        .enumerate()
        .filter(|(place, _)| used.contains(place))
        .map(|(_, image)| import(image))
        .collect();
    let first = if inside.is_some() { &table[..] } else { &[] };
    // SAFETY: the caller's promise.
    let data =
        unsafe { std::slice::from_raw_parts(written.start as *const u8, (end - written.start) as usize) };
    let gap = [0; 8];
    let (gap, follows) = if inside.is_some() {
        (&gap[..0], &[][..])
    } else {
        (&gap[..(behind - (end - base)) as usize], &table[..])
    };
    let mut rest = Rest::default();
    [data, gap, follows].iter().for_each(|part| rest.add(part));
    let rest = rest.sum();
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
            roots_at,
            root_count: content.roots.len() as u32,
            detail_at: 0..0,
            reserved: bytes,
            rest,
            group: content.group,
            segments: &[Segment { offset: 0, address: base, file_bytes, bytes, protection: READ }],
            imports: &imports,
        },
        first,
    );
    let page = page.map_err(|fault| match fault {
        Fault::Unsound(what) => Error::Invalid(format!("{}: {what}", content.name)),
        other => Error::Invalid(other.to_string()),
    })?;
    let parts = [&page[..], data, gap, follows];
    let mut draft = store.draft()?;
    let path = store.root().to_owned();
    parts.iter().try_for_each(|part| draft.write_all(part)).map_err(Error::file(&path))?;
    store.publish(draft)
}
