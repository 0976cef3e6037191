//! What KSM, swap and huge pages change: what the kernel already does for this memory by itself.

use crate::report::KernelMeans;
use crate::snapshot::{Mapping, Snapshot};

/// Sums over the mappings in scope; what KSM saves is known of the machine alone.
pub fn figure(snapshot: &Snapshot) -> KernelMeans {
    let sum = |of: fn(&Mapping) -> u64| -> u64 {
        snapshot.processes.iter().flat_map(|process| &process.mappings).map(of).sum()
    };
    KernelMeans {
        merged_bytes: sum(|mapping| mapping.merged),
        merged_saving_bytes: snapshot.machine.merged_saved_bytes,
        swapped_bytes: sum(|mapping| mapping.swap_proportional),
        huge_bytes: sum(|mapping| mapping.huge),
        hugetlb_bytes: sum(|mapping| mapping.hugetlb),
        huge_text_bytes: sum(|mapping| if mapping.is_text() { mapping.huge } else { 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{Map, World};

    #[test]
    fn each_means_is_summed_by_itself() {
        let mut world = World::default();
        let lib = world.file("/lib/a.so", 8);
        for _ in 0..2 {
            let process = world.process("worker");
            world.map(process, Map::text(lib, 0, 8));
            world.map(process, Map::heap(4));
        }
        let mut snapshot = world.snapshot();
        for process in &mut snapshot.processes {
            process.mappings[0].huge = 2 << 20;
            process.mappings[1].huge = 4 << 20;
            process.mappings[1].merged = 8192;
            process.mappings[1].swap = 4096;
            process.mappings[1].swap_proportional = 2048;
            process.mappings[1].hugetlb = 1 << 30;
        }
        snapshot.machine.merged_saved_bytes = Some(4096);
        let means = figure(&snapshot);
        assert_eq!(means.merged_bytes, 16384);
        assert_eq!(means.merged_saving_bytes, Some(4096));
        assert_eq!(means.swapped_bytes, 4096);
        assert_eq!(means.huge_bytes, 12 << 20);
        assert_eq!(means.huge_text_bytes, 4 << 20);
        assert_eq!(means.hugetlb_bytes, 2 << 30);
    }
}
