//! What is read of files that anybody may have written: whatever the first page and the table of roots say, who accepts
//! them can rely on it.

#[path = "../../../tests/golden.rs"]
mod golden;

use commonhold_image::{
    ARCHITECTURE_HERE, EXECUTE, FORMAT, Fault, Fields, Header, Id, Import, Kind, PAGE_BYTES, READ,
    ROOT_BYTES, Roots, Segment, Version, WRITE, encode,
};
use proptest::prelude::*;
use std::cell::Cell;

const PAGE: u64 = PAGE_BYTES as u64;
const BASE: u64 = 0x3000_0000_0000;
const SUM_AT: usize = PAGE_BYTES - 8;

/// A page that is accepted: of data, or of code with three segments, and two imports.
fn sound(kind: Kind) -> [u8; PAGE_BYTES] {
    let segment = |page: u64, protection| Segment {
        offset: page * PAGE,
        address: BASE + page * PAGE,
        file_bytes: PAGE,
        bytes: PAGE,
        protection,
    };
    let whole = Segment { file_bytes: 3 * PAGE, bytes: 3 * PAGE, ..segment(0, READ) };
    let parts = [segment(0, READ | EXECUTE), segment(1, READ), segment(2, READ | WRITE)];
    let import = |name, at: u64| Import {
        name,
        version: Version { major: 1, minor: 2, patch: 3 },
        id: Id([7; 32]),
        base: BASE + (at << 32),
        bytes: PAGE,
    };
    encode(&Fields {
        kind,
        architecture: ARCHITECTURE_HERE,
        name: "words",
        version: Version { major: 4, minor: 5, patch: 6 },
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
        imports: &[import("one", 1), import("two", 2)],
    })
    .unwrap()
}

/// Numbers that are at the edge of something.
fn odd() -> impl Strategy<Value = u64> {
    let edges =
        vec![0, 1, 8, PAGE - 1, PAGE, 3 * PAGE, 4 * PAGE, BASE, BASE + PAGE, BASE + 2 * PAGE, 1 << 47];
    let near = prop_oneof![
        prop::sample::select(edges),
        Just(u64::MAX),
        Just(u64::MAX - PAGE + 1),
        any::<u64>(),
        (0..64_u64).prop_map(|page| page * PAGE),
    ];
    (near, -1..2_i64)
        .prop_map(|(number, more)| if more == 1 { number } else { number.wrapping_add_signed(more) })
}

/// All that those who use an image rely on; said once more, in other words than the check has.
fn holds(header: Header<'_>) {
    let end = header.base() + header.bytes();
    assert!(header.base().is_multiple_of(PAGE) && header.bytes().is_multiple_of(PAGE) && end <= 1 << 47);
    assert!(header.bytes() <= header.reserved() && header.base() + header.reserved() <= 1 << 47);
    assert!(header.base() >= 1 << 16 && header.bytes() > 0);
    for part in [header.roots_at(), header.detail_at()] {
        assert!(part.start <= part.end && part.end <= header.file_bytes());
    }
    let mut taken = vec![false; (header.bytes() / PAGE).min(1 << 20) as usize];
    for segment in header.segments() {
        assert!(segment.address >= header.base() && segment.address + segment.bytes <= end);
        assert!(segment.offset + segment.file_bytes <= header.file_bytes());
        assert!(segment.file_bytes <= segment.bytes);
        assert_ne!(segment.protection & (WRITE | EXECUTE), WRITE | EXECUTE);
        let first = ((segment.address - header.base()) / PAGE) as usize;
        for page in taken.iter_mut().skip(first).take(segment.bytes.div_ceil(PAGE) as usize) {
            assert!(!std::mem::replace(page, true), "two segments have one page");
        }
        assert!(header.kind() == Kind::Code || segment.protection == READ);
    }
    for import in header.imports() {
        assert!(
            !import.name.is_empty() && !import.name.contains(['/', '\0']) && !import.name.starts_with('.')
        );
        assert!(import.base + import.bytes <= 1 << 47);
    }
    for name in [Some(header.name()), header.group()].into_iter().flatten() {
        assert!(!name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.'));
    }
    let _ = (header.version(), header.layout(), header.rest(), header.root_count());
}

/// The page with other numbers in it, and the sum that it then has to have.
fn changed(kind: Kind, changes: &[(usize, u64, usize)]) -> Vec<u8> {
    let mut page = sound(kind).to_vec();
    for (at, value, bytes) in changes {
        let at = (*at).min(SUM_AT - bytes);
        page[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..*bytes]);
    }
    let sum = commonhold_record::sum(&page[..SUM_AT]);
    page[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    page
}

#[test]
fn what_is_accepted_of_a_first_page_can_be_relied_on() {
    let (accepted, refused) = (Cell::new(0), Cell::new(0));
    // Where the numbers of the head, of the segments and of the first import are, and anywhere.
    let place = prop_oneof![(0..16_usize).prop_map(|n| 8 * n), (24..64_usize).prop_map(|n| 8 * n), 0..SUM_AT];
    let change = (place, odd(), prop::sample::select(vec![1_usize, 4, 8]));
    let kind = prop::sample::select(vec![Kind::Data, Kind::Code]);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(20_000));
    let outcome = runner.run(&(kind, prop::collection::vec(change, 0..3)), |(kind, changes)| {
        let page = changed(kind, &changes);
        match Header::new(&page) {
            Ok(header) => {
                holds(header);
                accepted.set(accepted.get() + 1);
            }
            Err(_) => refused.set(refused.get() + 1),
        }
        // Whatever is cut off or damaged after that is noticed.
        let mut damaged = page.clone();
        damaged[changes.first().map_or(9, |change| change.0.min(SUM_AT))] ^= 1;
        prop_assert!(Header::new(&damaged).is_err());
        prop_assert!(Header::new(&page[..PAGE_BYTES - 1]).is_err());
        Ok(())
    });
    outcome.unwrap();
    assert!(
        accepted.get() > 1000 && refused.get() > 1000,
        "{accepted:?} {refused:?}: one side was not tried"
    );
}

/// A table of these names.
fn table(names: &[String]) -> Vec<u8> {
    let (mut table, mut text): (Vec<u8>, Vec<u8>) = Default::default();
    for (number, name) in (0_u64..).zip(names) {
        table.extend(((names.len() * ROOT_BYTES + text.len()) as u32).to_le_bytes());
        table.extend((name.len() as u32).to_le_bytes());
        for long in [number, 8, 9] {
            table.extend(long.to_le_bytes());
        }
        table.extend(1_u32.to_le_bytes());
        table.extend((number as u32).to_le_bytes());
        text.extend(name.as_bytes());
    }
    table.extend(text);
    table
}

/// What is accepted has so many roots, each found by its name, and nothing else.
fn is_whole(roots: Roots<'_>, count: usize, other: &str) {
    let names: Vec<&str> = roots.iter().map(|root| root.name).collect();
    assert_eq!((names.len(), roots.len()), (count, count));
    assert!(names.is_sorted_by(|one, next| one < next) && !names.contains(&""));
    for (place, name) in names.iter().enumerate() {
        assert_eq!(roots.find(name), roots.get(place));
    }
    assert_eq!(roots.find(other).is_some(), names.contains(&other));
    assert_eq!(roots.get(count), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn roots_are_found_by_name_or_the_table_is_refused(
        names in prop::collection::btree_set("[a-zä]{1,6}", 0..12),
        other in "[a-zä]{1,6}",
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        more in -2..3_isize,
    ) {
        let names: Vec<String> = names.into_iter().collect();
        let mut bytes = table(&names);
        is_whole(Roots::new(&bytes, names.len()).expect("it is sound"), names.len(), &other);
        for (at, value) in &changes {
            if !bytes.is_empty() {
                *at.get_mut(&mut bytes) = *value;
            }
        }
        let count = names.len().saturating_add_signed(more);
        if let Some(roots) = Roots::new(&bytes, count) {
            is_whole(roots, count, &other);
        }
        prop_assert!(Roots::new(&bytes, usize::MAX).is_none());
    }
}

#[test]
#[cfg(target_arch = "x86_64")] // which is said in the page
fn first_pages_are_those_of_their_format_and_another_is_refused() {
    for (kind, name) in [(Kind::Data, "data"), (Kind::Code, "code")] {
        let kept = golden::check(env!("CARGO_MANIFEST_DIR"), name, FORMAT.into(), &sound(kind));
        let header = Header::new(&kept).unwrap();
        assert_eq!((header.kind(), header.name(), header.group()), (kind, "words", Some("group")));
        assert_eq!((header.base(), header.layout(), header.rest()), (BASE, 8, 9));
        assert_eq!(header.imports().map(|import| import.name).collect::<Vec<_>>(), ["one", "two"]);
        for format in [FORMAT - 1, FORMAT + 1] {
            let mut other = kept.clone();
            other[8..12].copy_from_slice(&format.to_le_bytes());
            let why = Header::new(&other).unwrap_err();
            assert_eq!(why, Fault::Format(format));
            let way_out = if format > FORMAT { "upgrade Commonhold" } else { "publish the image again" };
            assert!(why.to_string().contains(way_out), "{why}");
        }
    }
}
