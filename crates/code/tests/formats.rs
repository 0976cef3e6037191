//! The header of code, of which programs believe only what is sound: with a right sum, whatever stands in it, nothing
//! leads out of the image's own addresses and of its file.

#[path = "../../../tests/golden.rs"]
mod golden;

use commonhold_code::format::{
    CODE, DATA, ENTRIES_AT, Fill, HEADER_AT, Header, IMPORTS_AT, Import, MAGIC, MOST_IMPORTS, MOST_SEGMENTS,
    PAGE_BYTES, READ, Segment, VERSION, X86_64, ZERO,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use std::ops::Range;

const BASE: u64 = 0x3000_0000_0000;
const FILE: u64 = 40 * PAGE_BYTES;

fn sound() -> Header {
    let segment = |first: u64, pages: u64, kind| Segment {
        at: first * PAGE_BYTES,
        bytes: pages * PAGE_BYTES,
        kind,
        unused: 0,
    };
    let mut segments = [Segment::default(); MOST_SEGMENTS];
    segments[..4].copy_from_slice(&[
        segment(10, 2, READ),
        segment(12, 4, CODE),
        segment(16, 2, DATA),
        segment(18, 8, ZERO),
    ]);
    Header {
        magic: MAGIC,
        sum: 0,
        arch: X86_64,
        slots: 30,
        name: [b'x'; 80],
        version: [1, 2, 3, 0],
        lineage: 5,
        table_sum: 6,
        base: BASE,
        extent: 48 * PAGE_BYTES,
        reserved: 192 * PAGE_BYTES,
        file_bytes: FILE,
        library_at: 10 * PAGE_BYTES,
        slots_at: 8 * PAGE_BYTES,
        fills_at: 9 * PAGE_BYTES,
        fills: 12,
        table: 3,
        protect_at: 16 * PAGE_BYTES,
        protect_bytes: PAGE_BYTES,
        control_at: 17 * PAGE_BYTES,
        init: 12 * PAGE_BYTES + 5,
        init_array_at: 16 * PAGE_BYTES,
        init_count: 4,
        segment_count: 4,
        import_count: 2,
        names_bytes: 0,
        names_at: 0,
        imports_sum: 0,
        segments,
    }
}

/// What inclusion does with each number of an accepted header stays within its range; said once more, in other words.
fn holds(header: &Header) {
    let own = 0..u128::from(header.extent);
    let within = |what: &str, part: Range<u128>| {
        assert!(part.start <= part.end && part.end <= own.end, "{what}: {part:?} of {own:?}");
    };
    let run = |at: u64, count: u64, bytes: u64| {
        u128::from(at)..u128::from(at) + u128::from(count) * u128::from(bytes)
    };
    assert!(
        header.base > 0 && header.base.is_multiple_of(PAGE_BYTES) && header.extent.is_multiple_of(PAGE_BYTES)
    );
    assert!(
        u128::from(header.base) + u128::from(header.reserved) < 1 << 47 && header.extent <= header.reserved
    );
    assert!(header.segment_count as usize <= MOST_SEGMENTS && header.import_count as usize <= MOST_IMPORTS);
    within("entries", run(ENTRIES_AT, header.slots.into(), 16));
    within("slots", run(header.slots_at, header.slots.into(), 8));
    assert!(
        run(ENTRIES_AT, header.slots.into(), 16).end <= header.slots_at.into(),
        "entries and slots overlap"
    );
    within("fills", run(header.fills_at, header.fills.into(), size_of::<Fill>() as u64));
    within("protected", run(header.protect_at, header.protect_bytes, 1));
    within("the word of inclusion", run(header.control_at, 1, 8));
    within("DT_INIT", run(header.init, 1, 1));
    within("constructors", run(header.init_array_at, header.init_count.into(), 8));
    for segment in header.segments.iter().take(header.segment_count as usize) {
        within("a segment", run(segment.at, segment.bytes, 1));
        assert!(segment.at.is_multiple_of(PAGE_BYTES) && segment.bytes.is_multiple_of(PAGE_BYTES));
        let end = run(segment.at, segment.bytes, 1).end;
        assert!(segment.kind == ZERO || end <= header.file_bytes.into(), "a segment reaches out of the file");
    }
}

/// Numbers that are at the edge of something.
fn odd() -> impl Strategy<Value = u64> {
    let edges = [0, 1, 8, 47, 48, 40, 192, 193].map(|pages| pages * PAGE_BYTES);
    let edges = [&edges[..], &[BASE, 1 << 46, 1 << 47, u64::MAX - PAGE_BYTES + 1, u64::MAX]].concat();
    let small = 0..64_u64;
    let near = prop_oneof![
        prop::sample::select(edges),
        small,
        any::<u64>(),
        (0..200_u64).prop_map(|n| n * PAGE_BYTES)
    ];
    (near, -8..9_i64, any::<bool>())
        .prop_map(|(number, more, exact)| if exact { number } else { number.wrapping_add_signed(more) })
}

fn with(header: &Header, changes: &[(usize, u64, usize)]) -> Vec<u64> {
    let mut bytes = header.bytes().to_vec();
    for (at, value, size) in changes {
        let at = (*at).min(bytes.len() - size);
        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..*size]);
    }
    // At a multiple of 8, as it is in memory.
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The header of these words, with the sum that it has to have: who wants to deceive computes it.
fn summed(words: &mut [u64]) -> Header {
    let whole: Box<[u64]> = words.into();
    // SAFETY: memory of 8 bytes each, aligned, that lives as long as the reference.
    let raw = unsafe { std::slice::from_raw_parts(whole.as_ptr().cast::<u8>(), size_of_val(&*whole)) };
    let mut header = *Header::at(raw).unwrap();
    header.sum = header.right_sum();
    header
}

#[test]
fn nothing_of_a_header_that_is_believed_leads_out_of_its_range() {
    let mut first = sound();
    first.sum = first.right_sum();
    assert!(first.is_sound(FILE) && !first.is_sound(FILE - 1), "else nothing is tried");
    holds(&first);
    let (accepted, refused) = (Cell::new(0), Cell::new(0));
    let words = size_of::<Header>() / 8;
    // The numbers in front and behind of the name; and anything.
    let place =
        prop_oneof![(13..words).prop_map(|n| 8 * n), (26..2 * words).prop_map(|n| 4 * n), 0..8 * words];
    let change = (place, odd(), prop::sample::select(vec![1_usize, 4, 8]));
    let mut runner = TestRunner::new(ProptestConfig::with_cases(20_000));
    let outcome = runner.run(&prop::collection::vec(change, 1..4), |changes| {
        let header = summed(&mut with(&sound(), &changes));
        if header.is_sound(FILE) {
            holds(&header);
            accepted.set(accepted.get() + 1);
        } else {
            refused.set(refused.get() + 1);
        }
        // Without that sum it is not believed.
        let damaged = Header { sum: header.sum ^ 1, ..header };
        prop_assert!(!damaged.is_sound(FILE));
        Ok(())
    });
    outcome.unwrap();
    assert!(
        accepted.get() > 1000 && refused.get() > 1000,
        "{accepted:?} {refused:?}: one side was not tried"
    );
}

#[test]
fn a_header_is_read_only_where_there_is_one() {
    let words = with(&sound(), &[]);
    let bytes = bytes_of(&words);
    assert!(Header::at(&bytes[..size_of::<Header>() - 1]).is_none());
    assert!(IMPORTS_AT + (MOST_IMPORTS * size_of::<Import>()) as u64 <= ENTRIES_AT && HEADER_AT < IMPORTS_AT);
}

#[test]
fn the_header_is_that_of_its_version_and_another_is_told() {
    let mut header = sound();
    header.sum = header.right_sum();
    let kept = golden::check(env!("CARGO_MANIFEST_DIR"), "code", VERSION.into(), header.bytes());
    let words: Vec<u64> = kept.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    assert!(bytes_of(&words) == kept && summed(&mut words.clone()).is_sound(FILE));
    assert_eq!(header.other_version(), None);
    for version in [VERSION - 1, VERSION + 1] {
        header.magic[6] = version;
        assert_eq!(header.other_version(), Some(version));
        assert!(!header.is_sound(FILE));
    }
    header.magic = *b"CHIMAGE\0";
    assert_eq!(header.other_version(), None);
}
