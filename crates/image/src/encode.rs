//! Writing the first page.

use crate::header::{
    FORMAT, Fault, GROUP_AT, GROUP_BYTES, Header, IMPORT_BYTES, IMPORTS_AT, Import, Kind, MAGIC,
    MOST_IMPORTS, MOST_SEGMENTS, NAME_AT, PAGE_BYTES, REST_AT, SEGMENT_BYTES, SEGMENTS_AT, SUM_AT, Segment,
};
use crate::{Version, is_name};
use core::ops::Range;

/// All that the first page says.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    /// Data or code.
    pub kind: Kind,
    /// For which processor, by the number of ELF.
    pub architecture: u16,
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: Version,
    /// Its first address.
    pub base: u64,
    /// How many bytes of addresses it takes: whole pages.
    pub bytes: u64,
    /// How long the file is.
    pub file_bytes: u64,
    /// The hash of the types of all its roots.
    pub layout: u64,
    /// Where in the file the table of roots is.
    pub roots_at: Range<u64>,
    /// How many there are.
    pub root_count: u32,
    /// Where in the file is what else those need who make images of this kind.
    pub detail_at: Range<u64>,
    /// How many bytes of addresses its major version has, of code; of data as many as it takes.
    pub reserved: u64,
    /// The sum of all that follows this page.
    pub rest: u64,
    /// By address.
    pub segments: &'a [Segment],
    /// With images of this group it is never in one process; at most 16 bytes.
    pub group: Option<&'a str>,
    /// The images that it leads into.
    pub imports: &'a [Import<'a>],
}

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put_version(page: &mut [u8], at: usize, version: Version) {
    for (place, number) in [version.major, version.minor, version.patch].into_iter().enumerate() {
        put(page, at + 4 * place, &number.to_le_bytes());
    }
}

/// Where in the first page a table of roots of so many bytes can be, of an image with so many imports; if there is room.
pub fn room_for_roots(bytes: usize, imports: usize) -> Option<Range<u64>> {
    let start = IMPORTS_AT + imports * IMPORT_BYTES;
    (start + bytes <= REST_AT).then_some(start as u64..(start + bytes) as u64)
}

/// The page; refused is what [`Header::new`] would refuse.
pub fn encode(fields: &Fields<'_>) -> Result<[u8; PAGE_BYTES], Fault> {
    encode_with_roots(fields, &[])
}

/// As [`encode`], with a table of roots in the page, at [`room_for_roots`].
pub fn encode_with_roots(fields: &Fields<'_>, roots: &[u8]) -> Result<[u8; PAGE_BYTES], Fault> {
    if fields.segments.len() > MOST_SEGMENTS || fields.imports.len() > MOST_IMPORTS {
        return Err(Fault::Unsound("an image has at most 8 segments, and imports at most 24 others"));
    }
    if !is_name(fields.name) || !fields.imports.iter().all(|import| is_name(import.name)) {
        return Err(Fault::Unsound("names have 1 to 63 letters, digits and . _ + -, the first no sign"));
    }
    let group = fields.group.unwrap_or_default();
    if group.len() > GROUP_BYTES || fields.group.is_some_and(|group| !is_name(group)) {
        return Err(Fault::Unsound(
            "the name of a group has 1 to 16 letters, digits and . _ + -, the first no sign",
        ));
    }
    let mut page = [0; PAGE_BYTES];
    put(&mut page, 0, &MAGIC);
    put(&mut page, 8, &FORMAT.to_le_bytes());
    put(&mut page, 12, &fields.architecture.to_le_bytes());
    put(&mut page, 14, &fields.kind.number().to_le_bytes());
    put_version(&mut page, 16, fields.version);
    put(&mut page, 28, &(fields.segments.len() as u32).to_le_bytes());
    let length = |range: &Range<u64>| range.end.saturating_sub(range.start);
    let longs = [
        (32, fields.base),
        (40, fields.bytes),
        (48, fields.file_bytes),
        (56, fields.layout),
        (64, fields.roots_at.start),
        (72, length(&fields.roots_at)),
        (88, fields.detail_at.start),
        (96, length(&fields.detail_at)),
        (104, fields.reserved),
        (REST_AT, fields.rest),
    ];
    for (at, value) in longs {
        put(&mut page, at, &value.to_le_bytes());
    }
    put(&mut page, 80, &fields.root_count.to_le_bytes());
    put(&mut page, 84, &(fields.imports.len() as u32).to_le_bytes());
    put(&mut page, GROUP_AT, group.as_bytes());
    put(&mut page, NAME_AT, fields.name.as_bytes());
    for (index, segment) in fields.segments.iter().enumerate() {
        let at = SEGMENTS_AT + index * SEGMENT_BYTES;
        let longs = [
            segment.offset,
            segment.address,
            segment.file_bytes,
            segment.bytes,
            u64::from(segment.protection),
        ];
        for (place, value) in longs.into_iter().enumerate() {
            put(&mut page, at + 8 * place, &value.to_le_bytes());
        }
    }
    for (index, import) in fields.imports.iter().enumerate() {
        let at = IMPORTS_AT + index * IMPORT_BYTES;
        put(&mut page, at, import.name.as_bytes());
        put_version(&mut page, at + 64, import.version);
        put(&mut page, at + 80, &import.id.0);
        put(&mut page, at + 112, &import.base.to_le_bytes());
        put(&mut page, at + 120, &import.bytes.to_le_bytes());
    }
    if let Some(at) = room_for_roots(roots.len(), fields.imports.len()) {
        put(&mut page, at.start as usize, roots);
    }
    let sum = commonhold_record::sum(&page[..SUM_AT]);
    put(&mut page, SUM_AT, &sum.to_le_bytes());
    Header::new(&page)?;
    Ok(page)
}
