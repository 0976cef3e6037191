//! Relocation dirt: pages of ELF files that each process has for itself, because its loader or the program wrote to them.

use super::view::copied_share;
use crate::report::{RelocatedLibrary, Relocation};
use crate::snapshot::{Elf, Mapping, Snapshot};
use std::collections::BTreeMap;

/// Private copies by library; those that are read-only since the loader is done, and the others.
pub fn figure(snapshot: &Snapshot) -> Relocation {
    let mut libraries: BTreeMap<usize, Dirt> = BTreeMap::new();
    for (place, process) in snapshot.processes.iter().enumerate() {
        for (file, split) in copies(snapshot, &process.mappings) {
            libraries.entry(file).or_default().add(place, split);
        }
    }
    let mut relocation = Relocation::default();
    for (file, dirt) in libraries {
        relocation.relro_bytes += dirt.relro;
        relocation.data_bytes += dirt.data;
        relocation.libraries.push(RelocatedLibrary {
            path: snapshot.files[file].path.display().to_string(),
            users: dirt.users,
            relro_bytes: dirt.relro,
            data_bytes: dirt.data,
            saving_bytes: dirt.saving(),
        });
    }
    relocation.libraries.sort_by(|one, other| {
        let key = |library: &RelocatedLibrary| library.relro_bytes + library.data_bytes;
        (key(other), &one.path).cmp(&(key(one), &other.path))
    });
    relocation
}

/// Copied pages of one mapping, as this process's share of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Split {
    /// Read-only since relocation.
    pub relro: u64,
    /// Of `relro`, without regard to sharing by fork.
    pub relro_whole: u64,
    /// The others.
    pub data: u64,
}

/// Private copies in the mappings of one process: the file, and what of them is what.
pub(crate) fn copies<'a>(
    snapshot: &'a Snapshot,
    mappings: &'a [Mapping],
) -> impl Iterator<Item = (usize, Split)> {
    mappings.iter().filter_map(|mapping| {
        let file = mapping.file?;
        let elf = snapshot.files.get(file)?.elf.as_ref()?;
        (!mapping.shared && mapping.anonymous > 0).then(|| (file, split(elf, mapping)))
    })
}

fn split(elf: &Elf, mapping: &Mapping) -> Split {
    let share = copied_share(mapping);
    // While it may still be written the loader is not done with it, or never makes it read-only.
    let protected = if mapping.write { 0 } else { overlap(&elf.relro, mapping) };
    let relro = share.min(protected);
    Split { relro, relro_whole: mapping.anonymous.min(protected), data: share - relro }
}

/// Bytes of the mapping that lie in ranges of the file.
fn overlap(ranges: &[(u64, u64)], mapping: &Mapping) -> u64 {
    let end = mapping.offset + mapping.end.saturating_sub(mapping.start);
    let common = |&(from, length): &(u64, u64)| {
        from.saturating_add(length).min(end).saturating_sub(from.max(mapping.offset))
    };
    ranges.iter().map(common).sum()
}

/// Dirt of one library, gathered process by process.
#[derive(Default)]
struct Dirt {
    users: u64,
    last: Option<usize>,
    relro: u64,
    data: u64,
    /// RELRO copies of the process at hand, and of the one that has most.
    of_last: u64,
    largest: u64,
}

impl Dirt {
    fn add(&mut self, place: usize, split: Split) {
        if self.last != Some(place) {
            self.last = Some(place);
            self.users += 1;
            self.of_last = 0;
        }
        self.relro += split.relro;
        self.data += split.data;
        self.of_last += split.relro_whole;
        self.largest = self.largest.max(self.of_last);
    }

    /// One copy stays: the largest. With n users that have as much each, this is RELRO × (n − 1) ÷ n; where a fork
    /// shares the copies already it is nothing.
    fn saving(&self) -> u64 {
        self.relro.saturating_sub(self.largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{Map, PAGE, World};

    /// A library whose pages 10 to 13 are RELRO and 14 to 17 data.
    fn library(world: &mut World) -> usize {
        let file = world.file("/lib/big.so", 18);
        world.file_mut(file).elf.as_mut().expect("an ELF file").relro = vec![(10 * PAGE, 4 * PAGE)];
        file
    }

    fn use_it(world: &mut World, file: usize) -> usize {
        let process = world.process("user");
        world.map(process, Map::text(file, 0, 10));
        world.map(process, Map::constants(file, 10, 4).copied(0..4));
        world.map(process, Map::data(file, 14, 4).copied(0..3));
        process
    }

    #[test]
    fn each_users_copy_but_one_would_be_saved() {
        let mut world = World::default();
        let file = library(&mut world);
        for _ in 0..5 {
            use_it(&mut world, file);
        }
        let relocation = figure(&world.snapshot());
        assert_eq!(relocation.relro_bytes, 5 * 4 * PAGE);
        assert_eq!(relocation.data_bytes, 5 * 3 * PAGE);
        let library = &relocation.libraries[0];
        assert_eq!((library.users, library.saving_bytes), (5, 4 * 4 * PAGE));
        assert_eq!(library.saving_bytes, library.relro_bytes * 4 / 5);
    }

    #[test]
    fn copies_that_a_fork_shares_are_one_copy() {
        let mut world = World::default();
        let file = library(&mut world);
        let parent = use_it(&mut world, file);
        for _ in 0..3 {
            world.fork(parent);
        }
        let relocation = figure(&world.snapshot());
        assert_eq!(relocation.relro_bytes, 4 * PAGE);
        assert_eq!(relocation.libraries[0].users, 4);
        assert_eq!(relocation.libraries[0].saving_bytes, 0);
    }

    #[test]
    fn what_can_still_be_written_is_data_and_shared_or_foreign_files_are_neither() {
        let mut world = World::default();
        let file = library(&mut world);
        let process = world.process("early");
        world.map(process, Map::data(file, 10, 8).copied(0..6));
        let data = world.file("/srv/table", 8);
        world.file_mut(data).elf = None;
        world.map(process, Map::data(data, 0, 8).copied(0..8));
        world.map(process, Map::heap(9));
        let relocation = figure(&world.snapshot());
        assert_eq!((relocation.relro_bytes, relocation.data_bytes), (0, 6 * PAGE));
        assert_eq!(relocation.libraries.len(), 1);
    }

    #[test]
    fn freshly_written_pages_of_the_file_itself_are_not_copies() {
        let mut world = World::default();
        let file = library(&mut world);
        let process = world.process("installer");
        world.map(process, Map::constants(file, 10, 4).copied(0..1));
        let mut snapshot = world.snapshot();
        snapshot.processes[0].mappings[0].proportional_dirty = 4 * PAGE;
        assert_eq!(figure(&snapshot).relro_bytes, PAGE);
    }
}
