//! Extent of sharing and memory savings ratio (Govindan 5.1, Table 1).

use super::view::file_share;
use crate::report::{Sharing, SharingFigure};
use crate::snapshot::{Mapping, Process, Snapshot};
use roaring::RoaringTreemap;
use std::collections::BTreeMap;

/// The figures for the texts of programs (the paper's), for all text, and for everything that is mapped read-only.
pub fn figure(snapshot: &Snapshot) -> Sharing {
    Sharing {
        programs: of(snapshot, |process, mapping| {
            mapping.is_text() && process.program.is_some() && mapping.file == process.program
        }),
        all_text: of(snapshot, |_, mapping| mapping.is_text()),
        all_read_only: of(snapshot, |_, mapping| mapping.file.is_some() && !mapping.write),
    }
}

/// One file from one offset on, in all processes that map it so.
#[derive(Default)]
struct Segment {
    /// Length of the longest mapping.
    length: u64,
    users: u64,
    /// The process that was counted last: processes come one after the other.
    last: Option<usize>,
    /// Sum of what each has of it in memory.
    resident: u64,
    /// Sum of Pss.
    share: u64,
}

fn of(snapshot: &Snapshot, wanted: impl Fn(&Process, &Mapping) -> bool) -> SharingFigure {
    let mut segments: BTreeMap<(usize, u64), Segment> = BTreeMap::new();
    for (place, process) in snapshot.processes.iter().enumerate() {
        for mapping in process.mappings.iter().filter(|mapping| wanted(process, mapping)) {
            let Some(file) = mapping.file else { continue };
            let segment = segments.entry((file, mapping.offset)).or_default();
            if segment.last != Some(place) {
                segment.last = Some(place);
                segment.users += 1;
            }
            segment.length = segment.length.max(mapping.end.saturating_sub(mapping.start));
            segment.resident += mapping.from_file();
            segment.share += file_share(mapping);
        }
    }
    let mut figure = SharingFigure::default();
    let mut frames_seen = RoaringTreemap::new();
    for ((file, offset), segment) in segments.iter().filter(|(_, segment)| segment.resident > 0) {
        figure.active += 1;
        figure.shared += u64::from(segment.users > 1);
        figure.without_sharing_bytes += segment.resident;
        // By frames: two mounts of one layer are two files here and one memory. A reader of the whole file may hold
        // pages of this range that no user of the segment has: they are not the segment's.
        figure.with_sharing_bytes +=
            match new_frames(snapshot, *file, *offset, segment.length, &mut frames_seen) {
                Some(bytes) => bytes.min(segment.resident),
                // smaps rounds each share down to a KiB: a page that a hundred processes map would be nothing.
                None => segment.share.max(snapshot.page_bytes).min(segment.resident),
            };
    }
    let ratio = |above: u64, below: u64| (below > 0).then(|| above as f64 / below as f64);
    figure.extent = ratio(figure.shared, figure.active);
    figure.savings_ratio = ratio(figure.without_sharing_bytes, figure.with_sharing_bytes);
    figure
}

/// Bytes in frames of this part of a file that were not counted yet. None: its frames are not known.
fn new_frames(
    snapshot: &Snapshot,
    file: usize,
    offset: u64,
    length: u64,
    seen: &mut RoaringTreemap,
) -> Option<u64> {
    let page = snapshot.page_bytes.max(1);
    let first = u32::try_from(offset / page).ok()?;
    let after = u32::try_from((offset + length).div_ceil(page)).unwrap_or(u32::MAX);
    let mut range = snapshot.files.get(file)?.frames.as_ref()?.range(first..after.max(first)).peekable();
    // Resident pages and no frame at all: they were not read, or went away in between.
    range.peek()?;
    Some(range.filter(|(_, frame)| seen.insert(**frame)).count() as u64 * page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{Map, World};

    /// Three shells and one editor; the editor's text is half in memory; all use one library.
    fn office() -> World {
        let mut world = World::default();
        let shell = world.file("/bin/sh", 10);
        let editor = world.file("/bin/ed", 20);
        let library = world.file("/lib/c.so", 100);
        for program in [shell, shell, shell, editor] {
            let process = world.process("p");
            world.program(process, program);
            let pages = if program == editor { 10 } else { 8 };
            world.map(process, Map::text(program, 2, 8).resident(0..pages.min(8)));
            world.map(process, Map::text(library, 0, 100).resident(0..50));
            world.map(process, Map::constants(library, 0, 4));
        }
        world
    }

    #[test]
    fn the_papers_figure_counts_programs_alone() {
        for frames in [false, true] {
            let sharing = figure(&office().frames(frames).snapshot());
            assert_eq!((sharing.programs.active, sharing.programs.shared), (2, 1));
            assert_eq!(sharing.programs.extent, Some(0.5));
            assert_eq!(sharing.programs.without_sharing_bytes, 32 * 4096);
            // Three users: Pss of each is a third of 8 pages in whole KiB.
            let with = sharing.programs.with_sharing_bytes;
            assert!(with == 16 * 4096 || (!frames && with > 16 * 4096 - 3 * 1024), "{with}");
            assert_eq!((sharing.all_text.active, sharing.all_text.shared), (3, 2));
            assert_eq!(sharing.all_text.without_sharing_bytes, (32 + 200) * 4096);
        }
    }

    #[test]
    fn a_page_in_text_and_constants_is_one_frame() {
        let sharing = figure(&office().frames(true).snapshot());
        assert_eq!(sharing.all_read_only.without_sharing_bytes, (32 + 200 + 16) * 4096);
        assert_eq!(sharing.all_read_only.with_sharing_bytes, (16 + 50) * 4096);
    }

    #[test]
    fn two_mounts_of_one_layer_are_one_memory_by_frames() {
        let mut world = World::default();
        let one = world.file("/a/lib.so", 10);
        let other = world.same_frames("/b/lib.so", one);
        for file in [one, other] {
            let process = world.process("p");
            world.map(process, Map::text(file, 0, 10));
        }
        for frames in [false, true] {
            let text = figure(&world.clone().frames(frames).snapshot()).all_text;
            assert_eq!((text.active, text.shared), (2, 0));
            assert_eq!(text.with_sharing_bytes, 10 * 4096, "each has half by Pss");
        }
    }

    #[test]
    fn text_that_is_not_in_memory_is_not_active_and_nothing_is_no_ratio() {
        let mut world = World::default();
        let program = world.file("/bin/idle", 4);
        let process = world.process("idle");
        world.program(process, program);
        world.map(process, Map::text(program, 0, 4).resident(0..0));
        let sharing = figure(&world.snapshot());
        assert_eq!(sharing.programs, SharingFigure::default());
        assert_eq!(sharing.programs.extent, None);
    }

    #[test]
    fn pages_copied_in_text_do_not_count() {
        let mut world = World::default();
        let program = world.file("/bin/patched", 4);
        for _ in 0..2 {
            let process = world.process("p");
            world.program(process, program);
            world.map(process, Map::text(program, 0, 4).copied(0..2));
        }
        let programs = figure(&world.snapshot()).programs;
        assert_eq!(programs.without_sharing_bytes, 4 * 4096);
        assert_eq!(programs.with_sharing_bytes, 2 * 4096);
    }

    #[test]
    fn a_reader_of_the_whole_file_adds_nothing_to_its_text() {
        let mut world = World::default();
        let program = world.file("/bin/p", 16);
        let process = world.process("p");
        world.program(process, program);
        world.map(process, Map::text(program, 4, 8).resident(0..2));
        let reader = world.process("reader");
        world.map(reader, Map::constants(program, 0, 16));
        let programs = figure(&world.frames(true).snapshot()).programs;
        assert_eq!(programs.with_sharing_bytes, 2 * 4096);
        assert_eq!(programs.savings_ratio, Some(1.0));
    }
}
