//! Page tables, and what one set of them for each shared segment would save (Ko & Yoo).

use super::view::SPAN_BYTES;
use crate::report::{PageTables, SharedSegment};
use crate::snapshot::{Mapping, Snapshot};
use std::collections::BTreeMap;

/// What is spent, and the segments where sharing would save most.
pub fn figure(snapshot: &Snapshot) -> PageTables {
    let total = snapshot.processes.iter().filter_map(|process| process.page_table_bytes).sum();
    let segments: Vec<SharedSegment> =
        segments(snapshot).into_iter().map(|segment| segment.reported(snapshot)).collect();
    let saving: u64 = segments.iter().map(|segment| segment.saving_bytes).sum();
    PageTables {
        total_bytes: total,
        machine_bytes: snapshot.machine.page_table_bytes,
        // Tables are estimated from resident pages, and cannot be more than there are.
        saving_bytes: saving.min(total),
        segments,
    }
}

/// A part of a file that several processes map, each with tables of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segment {
    /// Its file.
    pub file: usize,
    /// Somebody maps it MAP_SHARED.
    pub shared: bool,
    /// Somebody runs it.
    pub execute: bool,
    pub users: u64,
    /// Largest mapping.
    pub size: u64,
    /// Most that one mapping has in memory.
    pub resident: u64,
    /// Tables for it in all processes.
    pub tables: u64,
    last: Option<usize>,
    of_last: u64,
    largest: u64,
}

impl Segment {
    /// All but the tables of the user that has most of them.
    pub fn saving(&self) -> u64 {
        self.tables - self.largest
    }

    fn add(&mut self, place: usize, mapping: &Mapping, page_bytes: u64) {
        if self.last != Some(place) {
            self.last = Some(place);
            self.users += 1;
            self.of_last = 0;
        }
        self.shared |= mapping.shared;
        self.execute |= mapping.execute;
        self.resident = self.resident.max(mapping.resident);
        self.size = self.size.max(mapping.end.saturating_sub(mapping.start));
        let tables = touched_spans(mapping) * page_bytes;
        self.tables += tables;
        self.of_last += tables;
        self.largest = self.largest.max(self.of_last);
    }

    fn reported(self, snapshot: &Snapshot) -> SharedSegment {
        SharedSegment {
            path: snapshot.files[self.file].path.display().to_string(),
            users: self.users,
            size_bytes: self.size,
            table_bytes: self.tables,
            saving_bytes: self.saving(),
        }
    }
}

/// Segments that more than one process has tables for, those that would save most first.
pub(crate) fn segments(snapshot: &Snapshot) -> Vec<Segment> {
    let mut segments: BTreeMap<(usize, u64), Segment> = BTreeMap::new();
    for (place, process) in snapshot.processes.iter().enumerate() {
        for mapping in process.mappings.iter().filter(|mapping| could_share_tables(mapping)) {
            let Some(file) = mapping.file.filter(|file| *file < snapshot.files.len()) else { continue };
            let segment = segments
                .entry((file, mapping.offset))
                .or_insert_with(|| Segment { file, ..Segment::default() });
            segment.add(place, mapping, snapshot.page_bytes);
        }
    }
    let mut several: Vec<Segment> =
        segments.into_values().filter(|segment| segment.users > 1 && segment.saving() > 0).collect();
    several.sort_by_key(|segment| std::cmp::Reverse(segment.saving()));
    several
}

/// A table spans 2 MiB: what is smaller shares its table with its neighbours, and that table stays. Of private mappings
/// only those qualify of which nothing can differ.
fn could_share_tables(mapping: &Mapping) -> bool {
    let same_for_all = mapping.shared || (!mapping.write && mapping.anonymous == 0);
    same_for_all && mapping.end.saturating_sub(mapping.start) >= SPAN_BYTES
}

/// How many spans of 2 MiB the process has touched, at least: as if its resident pages lay side by side. What is in huge
/// pages needs no table of its own.
fn touched_spans(mapping: &Mapping) -> u64 {
    mapping.resident.saturating_sub(mapping.huge).div_ceil(SPAN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{Map, PAGE, World};

    /// Three backends and a writer that attach 8 MiB; the writer has touched 4 MiB of it.
    fn database() -> Snapshot {
        let mut world = World::default();
        let segment = world.file("/SYSV00000001", 2048);
        let small = world.file("/lib/small.so", 64);
        for touched in [2048, 2048, 2048, 1024] {
            let process = world.process("backend");
            world.map(process, Map::shared(segment, 0, 2048).resident(0..touched));
            world.map(process, Map::text(small, 0, 64));
            world.map(process, Map::heap(1024));
        }
        world.snapshot()
    }

    #[test]
    fn all_but_the_largest_users_tables() {
        let mut snapshot = database();
        snapshot.machine.page_table_bytes = 9 << 20;
        let tables = figure(&snapshot);
        assert_eq!(tables.machine_bytes, 9 << 20);
        assert_eq!(tables.total_bytes, 4 * 64 * PAGE);
        assert_eq!(tables.segments.len(), 1, "small ones and heaps have no tables to share");
        let segment = &tables.segments[0];
        assert_eq!((segment.users, segment.size_bytes), (4, 8 << 20));
        assert_eq!(segment.table_bytes, (4 + 4 + 4 + 2) * PAGE);
        assert_eq!(segment.saving_bytes, (4 + 4 + 2) * PAGE);
        assert_eq!(tables.saving_bytes, segment.saving_bytes);
    }

    #[test]
    fn huge_pages_need_no_tables() {
        let mut snapshot = database();
        for process in &mut snapshot.processes {
            process.mappings[0].huge = process.mappings[0].resident;
        }
        assert_eq!(figure(&snapshot).saving_bytes, 0);
        assert!(figure(&snapshot).segments.is_empty());
    }

    #[test]
    fn never_more_than_there_are() {
        let mut snapshot = database();
        for process in &mut snapshot.processes {
            process.page_table_bytes = Some(PAGE);
        }
        assert_eq!(figure(&snapshot).saving_bytes, 4 * PAGE);
    }

    #[test]
    fn large_text_counts_until_a_page_of_it_was_copied() {
        let mut world = World::default();
        let compiler = world.file("/lib/LLVM.so", 2048);
        for _ in 0..2 {
            let process = world.process("clang");
            world.map(process, Map::text(compiler, 0, 2048).resident(0..600));
        }
        let tables = figure(&world.snapshot());
        assert_eq!(tables.segments[0].table_bytes, 2 * 2 * PAGE);
        let patched = world.process("gdb");
        world.map(patched, Map::text(compiler, 0, 2048).copied(0..1));
        assert_eq!(figure(&world.snapshot()).segments[0].users, 2);
    }
}
