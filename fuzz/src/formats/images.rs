//! Files of a store of images.

use super::Format;
use super::libraries;
use commonhold_code::fuzzing as code;
use commonhold_image::{
    ARCHITECTURE_HERE, EXECUTE, Fields, Header, Id, Import, Kind, PAGE_BYTES, READ, ROOT_BYTES, Roots,
    Segment, Version, WRITE, Wanted, encode,
};
use commonhold_images::ranges::fuzzing::{ranges, sample_ranges};
use std::fs::File;
use std::sync::OnceLock;

/// The first page of an image, its roots, and what names it.
pub const IMAGES: Format = Format::new("images", 6000, images, sample_images);

/// The registry of addresses.
pub const RANGES: Format = Format::new("ranges", 2048, ranges, sample_ranges);

/// The whole file of a code image.
pub const CODE: Format = Format::new("code", 70_000, whole_code, sample_code);

const PAGE: u64 = PAGE_BYTES as u64;
const BASE: u64 = 0x3000_0000_0000;

/// The first byte: odd, the page's sum is made right. The second: how many roots the rest has
/// behind the page.
fn images(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Some(wanted) = Wanted::parse(text) {
            assert_eq!(wanted.to_string(), text);
        }
        let _ = (Id::parse(text), Version::parse(text)); // none, or what it says
    }
    let [kind, count, rest @ ..] = bytes else { return };
    let mut file = rest.to_vec();
    if kind & 1 != 0
        && let Some(page) = file.first_chunk_mut::<PAGE_BYTES>()
    {
        let sum = commonhold_record::sum(&page[..PAGE_BYTES - 8]);
        page[PAGE_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    }
    if let Ok(header) = Header::new(&file) {
        holds(header);
        let _ = header.check_here(file.len() as u64); // whether it is for here
    }
    let roots = file.get(PAGE_BYTES..).unwrap_or(&file);
    let Some(found) = Roots::new(roots, usize::from(*count)) else { return };
    let names: Vec<&str> = found.iter().map(|root| root.name).collect();
    assert_eq!((names.len(), found.len()), (usize::from(*count), usize::from(*count)));
    assert!(names.is_sorted_by(|one, next| one < next));
    for (place, name) in names.iter().enumerate() {
        assert_eq!(found.find(name), found.get(place));
    }
}

/// What those who use an image rely on.
fn holds(header: Header<'_>) {
    let end = header.base() + header.bytes();
    assert!(header.base().is_multiple_of(PAGE) && header.bytes().is_multiple_of(PAGE) && end <= 1 << 47);
    assert!(header.bytes() <= header.reserved() && header.base() + header.reserved() <= 1 << 47);
    for part in [header.roots_at(), header.detail_at()] {
        assert!(part.start <= part.end && part.end <= header.file_bytes());
    }
    for segment in header.segments() {
        assert!(segment.address >= header.base() && segment.address + segment.bytes <= end);
        assert!(segment.offset + segment.file_bytes <= header.file_bytes());
        assert!(segment.file_bytes <= segment.bytes);
        assert_ne!(segment.protection & (WRITE | EXECUTE), WRITE | EXECUTE);
    }
    for import in header.imports() {
        assert!(commonhold_image::is_name(import.name) && import.base + import.bytes <= 1 << 47);
    }
    assert!(commonhold_image::is_name(header.name()));
    assert!(header.group().is_none_or(commonhold_image::is_name));
}

fn sample_images() -> Vec<Vec<u8>> {
    let segment = |page: u64, protection| Segment {
        offset: page * PAGE,
        address: BASE + page * PAGE,
        file_bytes: PAGE,
        bytes: PAGE,
        protection,
    };
    let whole = Segment { file_bytes: 3 * PAGE, bytes: 3 * PAGE, ..segment(0, READ) };
    let parts = [segment(0, READ | EXECUTE), segment(1, READ), segment(2, READ | WRITE)];
    let version = Version { major: 1, minor: 2, patch: 3 };
    let import = Import { name: "one", version, id: Id([7; 32]), base: BASE + (1 << 32), bytes: PAGE };
    let pages = [Kind::Data, Kind::Code].map(|kind| {
        encode(&Fields {
            kind,
            architecture: ARCHITECTURE_HERE,
            name: "words",
            version,
            base: BASE,
            bytes: 3 * PAGE,
            file_bytes: 3 * PAGE,
            layout: 8,
            roots_at: 2 * PAGE..2 * PAGE + 80,
            root_count: 2,
            detail_at: 100..200,
            reserved: if kind == Kind::Code { 12 * PAGE } else { 3 * PAGE },
            rest: 9,
            group: Some("group"),
            segments: if kind == Kind::Code { &parts } else { std::slice::from_ref(&whole) },
            imports: &[import],
        })
        .expect("it is sound")
    });
    let mut samples: Vec<Vec<u8>> =
        pages.iter().map(|page| [&[1, 2], &page[..], &table()].concat()).collect();
    samples.extend(["words@1.20.3", "words", &Id([7; 32]).to_string()].map(|text| text.as_bytes().to_vec()));
    samples
}

/// Two roots.
fn table() -> Vec<u8> {
    let (mut table, mut text): (Vec<u8>, Vec<u8>) = Default::default();
    for (number, name) in (0_u64..).zip(["first", "second"]) {
        table.extend(((2 * ROOT_BYTES + text.len()) as u32).to_le_bytes());
        table.extend((name.len() as u32).to_le_bytes());
        table.extend([number, 8, 9].map(u64::to_le_bytes).concat());
        table.extend(1_u32.to_le_bytes());
        table.extend((number as u32).to_le_bytes());
        text.extend(name.as_bytes());
    }
    table.extend(text);
    table
}

fn whole_code(bytes: &[u8]) {
    static FILE: OnceLock<File> = OnceLock::new();
    let file = FILE.get_or_init(|| File::from(commonhold_sys::frames::create("code", 0).expect("memory")));
    code::images(bytes, file);
}

fn sample_code() -> Vec<Vec<u8>> {
    let image = libraries::samples().first().and_then(|library| code::libraries(library));
    image.into_iter().map(|image| [&[1], &image[..]].concat()).collect()
}
