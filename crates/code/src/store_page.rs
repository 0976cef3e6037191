//! The end of the making: the tables behind what is in memory, and the first page, which is the store's.

use crate::bind::Bound;
use crate::exports::Exports;
use crate::format::{
    CODE, DATA, ENTRIES_AT, ENTRY_BYTES, HEADER_AT, Header, PAGE_BYTES, READ, ZERO, table_sum,
};
use crate::layout::Layout;
use crate::make::{Made, Wanted};
use crate::{Error, Result};
use commonhold_images::format::{
    ARCHITECTURE_HERE, EXECUTE, Fields, Import, Kind, READ as MAY_READ, ROOT_BYTES, RootKind, Segment, WRITE,
    encode,
};
use commonhold_images::store::Rest;

/// The table of exports as all images have it, sorted by name.
fn roots(exports: &Exports, entries: u64) -> Vec<u8> {
    let mut all: Vec<_> = exports.functions.iter().collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    let (mut table, mut names): (Vec<u8>, Vec<u8>) = Default::default();
    for export in &all {
        let name_at = (all.len() * ROOT_BYTES + names.len()) as u32;
        let entry = entries + u64::from(export.slot) * ENTRY_BYTES;
        table.extend(name_at.to_le_bytes());
        table.extend((export.name.len() as u32).to_le_bytes());
        for long in [entry, export.bytes, 0] {
            table.extend(long.to_le_bytes());
        }
        table.extend(RootKind::Function.number().to_le_bytes());
        table.extend(export.slot.to_le_bytes());
        names.extend(export.name.as_bytes());
    }
    table.extend(names);
    table
}

const _: () = assert!(crate::format::GROUP_AT == commonhold_images::format::GROUP_AT as u64);

/// The parts in memory, as the store's tools see them.
fn segments(layout: &Layout, base: u64) -> Vec<Segment> {
    let one = |segment: &crate::format::Segment| {
        let protection = match segment.kind {
            CODE => MAY_READ | EXECUTE,
            DATA | ZERO => MAY_READ | WRITE,
            READ => MAY_READ,
            _ => 0,
        };
        let file_bytes = if segment.kind == ZERO { 0 } else { segment.bytes };
        let offset = if segment.kind == ZERO { 0 } else { segment.at };
        Segment { offset, address: base + segment.at, file_bytes, bytes: segment.bytes, protection }
    };
    layout.segments.iter().map(one).collect()
}

/// Puts headers and tables where they belong.
pub fn finish(
    wanted: &Wanted,
    exports: &Exports,
    bound: &Bound,
    layout: &Layout,
    mut header: Header,
    mut bytes: Vec<u8>,
) -> Result<Made> {
    let roots = roots(exports, header.base + ENTRIES_AT);
    let roots_at = bytes.len() as u64..(bytes.len() + roots.len()) as u64;
    bytes.extend(roots);
    let names: String = bound.table.iter().map(|name| format!("{name}\n")).collect();
    header.names_at = bytes.len() as u64;
    header.names_bytes = names.len() as u32;
    bytes.extend(names.as_bytes());
    header.table_sum = table_sum(names.as_bytes());
    header.file_bytes = bytes.len() as u64;
    header.sum = header.right_sum();
    if !header.is_sound(header.file_bytes) {
        return Err(Error::unfit(&wanted.library, "what its segments say makes no sense"));
    }
    let imports: Vec<Import<'_>> = bound
        .imports
        .iter()
        .map(|&(place, _)| {
            let other = &wanted.imports[place];
            let (base, bytes) = (other.header.base, other.header.extent);
            Import { name: &other.name, version: other.version, id: other.id, base, bytes }
        })
        .collect();
    let header_end = HEADER_AT + size_of::<Header>() as u64;
    bytes[HEADER_AT as usize..header_end as usize].copy_from_slice(header.bytes());
    let mut rest = Rest::default();
    rest.add(&bytes[PAGE_BYTES as usize..]);
    let page = encode(&Fields {
        kind: Kind::Code,
        architecture: ARCHITECTURE_HERE,
        name: &wanted.name,
        version: wanted.version,
        base: header.base,
        bytes: layout.extent,
        file_bytes: header.file_bytes,
        layout: header.lineage ^ header.table_sum,
        roots_at,
        root_count: exports.functions.len() as u32,
        detail_at: HEADER_AT..header_end,
        reserved: header.reserved,
        rest: rest.sum(),
        group: wanted.group.as_deref(),
        segments: &segments(layout, header.base),
        imports: &imports,
    })
    .map_err(|fault| Error::unfit(&wanted.library, fault.to_string()))?;
    bytes[..page.len()].copy_from_slice(&page);
    Ok(Made {
        bytes,
        base: header.base,
        library_at: header.library_at,
        exports: exports.clone(),
        table: bound.table.clone(),
    })
}
