//! Page tables of shared segments: huge pages need none of the tables that small ones do.

use super::ESTIMATED;
use super::word::word;
use crate::figures::page_tables::{Segment, segments};
use crate::figures::view::SPAN_BYTES;
use crate::report::Advice;
use crate::snapshot::{File, Snapshot};

/// Below this huge pages are not worth their care.
const LEAST_BYTES: u64 = 1 << 20;

/// One piece of advice for each segment that huge pages can hold.
pub fn advise(snapshot: &Snapshot) -> Vec<Advice> {
    segments(snapshot).iter().filter_map(|segment| of(snapshot, segment)).collect()
}

fn of(snapshot: &Snapshot, segment: &Segment) -> Option<Advice> {
    let file = &snapshot.files[segment.file];
    // A huge page is in memory as a whole: a segment that is mostly empty would grow by more than its tables.
    if segment.resident < segment.size / 2 || segment.tables < LEAST_BYTES {
        return None;
    }
    let how = how(file, segment)?;
    let first = if segment.shared { "Restart its users: a mapping keeps the pages it has. " } else { "" };
    Some(Advice {
        what: format!(
            "page tables of {} processes for the {} MiB of {}",
            segment.users,
            segment.size >> 20,
            file.path.display()
        ),
        saving_bytes: segment.tables,
        mapped_bytes: None,
        certainty: ESTIMATED.to_owned(),
        how,
        care: format!(
            "{first}Memory for huge pages has to be free in whole 2 MiB, best right after boot, and the segment grows to \
             whole huge pages."
        ),
    })
}

/// What there is for this kind of segment; nothing for plain files that are written.
fn how(file: &File, segment: &Segment) -> Option<Vec<String>> {
    let path = file.path.to_string_lossy();
    let pages = segment.size.div_ceil(SPAN_BYTES);
    let transparent = "echo always > /sys/kernel/mm/transparent_hugepage/shmem_enabled".to_owned();
    if path.starts_with("/SYSV") {
        return Some(vec![
            format!(
                "sysctl vm.nr_hugepages={pages} (added to those already reserved), and let the program ask for \
                     SHM_HUGETLB (PostgreSQL: huge_pages = on; Oracle: use_large_pages = only)"
            ),
            format!("or, where it cannot: {transparent}"),
        ]);
    }
    if path.starts_with("/dev/zero") || path.starts_with("/memfd:") {
        return Some(vec![
            format!(
                "sysctl vm.nr_hugepages={pages} (added to those already reserved), and let the program ask for \
                     MAP_HUGETLB or MFD_HUGETLB (PostgreSQL: huge_pages = on)"
            ),
            format!("or, where it cannot: {transparent}"),
        ]);
    }
    if file.file_system == "tmpfs" {
        return Some(vec![format!(
            "mount -o remount,huge=within_size \"$(findmnt -no TARGET --target {})\"",
            word(file.path.parent()?)
        )]);
    }
    // Text of programs on a disk: the kernel makes huge pages of it on request alone.
    (!segment.shared && segment.execute).then(|| {
        vec![
            "let the program call madvise(MADV_COLLAPSE) on its text once it runs (Linux 6.1 and later, \
             CONFIG_READ_ONLY_THP_FOR_FS)"
                .to_owned(),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{Map, PAGE, World};

    fn segment(path: &str, kind: &str, map: fn(usize) -> Map) -> Snapshot {
        let mut world = World::default();
        let file = world.file(path, 2048);
        world.file_mut(file).file_system = kind.to_owned();
        for _ in 0..100 {
            let process = world.process("backend");
            world.map(process, map(file));
        }
        world.snapshot()
    }

    fn whole(file: usize) -> Map {
        Map::shared(file, 0, 2048)
    }

    #[test]
    fn each_kind_of_segment_has_its_own_way() {
        for (path, way) in [
            ("/SYSV00000001", "vm.nr_hugepages=4"),
            ("/memfd:pool", "MFD_HUGETLB"),
            ("/dev/zero", "shmem_enabled"),
            ("/dev/shm/pool", "--target /dev/shm"),
            ("/run/my pool/x", "--target '/run/my pool'"),
        ] {
            let advice = advise(&segment(path, "tmpfs", whole));
            assert_eq!(advice.len(), 1, "{path}");
            assert_eq!(advice[0].saving_bytes, 100 * 4 * PAGE);
            assert!(advice[0].how.iter().any(|line| line.contains(way)), "{:?}", advice[0].how);
        }
    }

    #[test]
    fn nothing_for_written_files_on_disk_and_for_segments_mostly_empty() {
        assert!(advise(&segment("/srv/data.mdb", "ext4", whole)).is_empty());
        assert!(advise(&segment("/SYSV1", "tmpfs", |file| whole(file).resident(0..100))).is_empty());
    }

    #[test]
    fn a_few_processes_are_not_worth_it() {
        let mut snapshot = segment("/SYSV1", "tmpfs", whole);
        snapshot.processes.truncate(5);
        assert!(advise(&snapshot).is_empty());
    }

    #[test]
    fn large_text_can_be_collapsed() {
        let advice = advise(&segment("/lib/LLVM.so", "ext4", |file| Map::text(file, 0, 2048)));
        assert!(advice[0].how[0].contains("MADV_COLLAPSE"));
        assert!(advise(&segment("/lib/data.bin", "ext4", |file| Map::constants(file, 0, 2048))).is_empty());
    }
}
