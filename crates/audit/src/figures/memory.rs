//! Memory of what was audited, as sums over its processes.

use super::view::copied_share;
use crate::report::Memory;
use crate::snapshot::{Mapping, Snapshot};

/// Sums of Rss, Pss and private pages, and what the machine has.
pub fn figure(snapshot: &Snapshot) -> Memory {
    let sum = |of: fn(&Mapping) -> u64| -> u64 {
        snapshot.processes.iter().flat_map(|process| &process.mappings).map(of).sum()
    };
    Memory {
        resident_bytes: sum(|mapping| mapping.resident),
        proportional_bytes: sum(|mapping| mapping.proportional),
        private_bytes: sum(|mapping| mapping.private_clean + mapping.private_dirty),
        anonymous_bytes: sum(|mapping| {
            if mapping.file.is_none() { mapping.proportional } else { copied_share(mapping) }
        }),
        machine_bytes: snapshot.machine.memory_bytes,
        available_bytes: snapshot.machine.available_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{Map, World};

    #[test]
    fn two_processes_share_text_and_have_heaps_of_their_own() {
        let mut world = World::default();
        let lib = world.file("/lib/a.so", 8);
        for pages in [2, 3] {
            let process = world.process("worker");
            world.map(process, Map::text(lib, 0, 8));
            world.map(process, Map::data(lib, 4, 4).copied(0..1));
            world.map(process, Map::heap(pages));
        }
        let memory = figure(&world.snapshot());
        // Text 8 + 8, data 4 + 4 of which one copied each, heaps 2 + 3.
        assert_eq!(memory.resident_bytes, (16 + 8 + 5) * 4096);
        assert_eq!(memory.anonymous_bytes, (2 + 5) * 4096);
        assert_eq!(memory.private_bytes, (2 + 5) * 4096);
        // Every page of the file is mapped by somebody: 8 pages once, 2 copies, 5 of heap. Three shares fall into parts
        // of a KiB, which smaps rounds down.
        let exact = (8 + 2 + 5) * 4096;
        assert!(memory.proportional_bytes <= exact && memory.proportional_bytes > exact - 4 * 1024);
    }
}
