//! Libraries and programs that are mapped though their names are gone or belong to other files now.

use super::view::{FileUse, in_memory, process_name, uses};
use crate::report::Deleted;
use crate::snapshot::{File, Snapshot};

/// Files that never had a name to lose: shared memory and what the kernel makes for itself.
const NAMELESS: &[&str] =
    &["/memfd:", "/SYSV", "/dev/zero", "/dev/shm/", "/[aio]", "/anon_hugepage", "/drm mm object", "/i915"];

/// The deleted files still mapped, the largest first.
pub fn figure(snapshot: &Snapshot) -> Vec<Deleted> {
    let uses = uses(snapshot);
    let mut deleted: Vec<Deleted> = files(snapshot, &uses)
        .map(|place| {
            let (file, of_file) = (&snapshot.files[place], &uses[place]);
            Deleted {
                path: file.path.display().to_string(),
                users: of_file.users.iter().map(|user| process_name(&snapshot.processes[*user])).collect(),
                resident_bytes: in_memory(file, of_file, snapshot.page_bytes).unwrap_or(0),
                replaced: file.replaced,
            }
        })
        .collect();
    deleted.sort_by(|one, other| (other.resident_bytes, &one.path).cmp(&(one.resident_bytes, &other.path)));
    deleted
}

/// Which files of the snapshot these are: deleted, in use, and ELF files, run as code, or replaced by a newer one. A
/// data file without a name is a program's scratch file and says nothing.
pub(crate) fn files<'a>(snapshot: &'a Snapshot, uses: &'a [FileUse]) -> impl Iterator<Item = usize> + 'a {
    snapshot.files.iter().zip(uses).enumerate().filter_map(|(place, (file, of_file))| {
        let tells = file.elf.is_some() || of_file.executed || file.replaced;
        (file.deleted && tells && !of_file.users.is_empty() && had_a_name(file)).then_some(place)
    })
}

fn had_a_name(file: &File) -> bool {
    let path = file.path.to_string_lossy();
    !NAMELESS.iter().any(|start| path.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{Map, PAGE, World};
    use roaring::RoaringBitmap;

    fn upgraded() -> (World, usize) {
        let mut world = World::default();
        let old = world.file("/lib/ssl.so.3", 20);
        world.file_mut(old).deleted = true;
        world.file_mut(old).replaced = true;
        for _ in 0..2 {
            let process = world.process("nginx");
            world.map(process, Map::text(old, 0, 20).resident(0..10));
        }
        (world, old)
    }

    #[test]
    fn an_old_version_with_its_users() {
        let (world, _) = upgraded();
        let deleted = figure(&world.snapshot());
        assert_eq!(deleted.len(), 1);
        assert_eq!(deleted[0].users, ["nginx (1000)", "nginx (1001)"]);
        assert!(deleted[0].replaced);
        assert_eq!(deleted[0].resident_bytes, 10 * PAGE);
    }

    #[test]
    fn pages_in_the_page_cache_end_with_it_too() {
        let (mut world, old) = upgraded();
        world.file_mut(old).cached_pages = Some(RoaringBitmap::from_sorted_iter(0..15).expect("sorted"));
        assert_eq!(figure(&world.snapshot())[0].resident_bytes, 15 * PAGE);
    }

    #[test]
    fn what_never_had_a_name_and_scratch_files_are_no_finding() {
        let mut world = World::default();
        let process = world.process("jit");
        for path in ["/memfd:jit", "/dev/shm/sem.x", "/SYSV00000001", "/dev/zero"] {
            let file = world.file(path, 4);
            world.file_mut(file).deleted = true;
            world.map(process, Map::text(file, 0, 4));
        }
        let scratch = world.file("/tmp/sort1", 4);
        world.file_mut(scratch).deleted = true;
        world.file_mut(scratch).elf = None;
        world.map(process, Map::shared(scratch, 0, 4));
        assert!(figure(&world.snapshot()).is_empty());
        world.map(process, Map::text(scratch, 0, 4));
        assert_eq!(figure(&world.snapshot()).len(), 1, "run as code it is one");
    }

    #[test]
    fn a_deleted_file_that_nobody_in_scope_maps_is_no_finding() {
        let mut world = World::default();
        let file = world.file("/lib/gone.so", 4);
        world.file_mut(file).deleted = true;
        assert!(figure(&world.snapshot()).is_empty());
    }
}
