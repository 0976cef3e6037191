//! Relocated pages that each process of a program has for itself: what there is against that today.

use super::ESTIMATED;
use crate::figures::relocation::copies;
use crate::report::Advice;
use crate::snapshot::Snapshot;
use std::collections::BTreeMap;

/// Below this a rebuilt program is not worth it, and the list would be all programs there are.
const LEAST_BYTES: u64 = 1 << 20;

/// RELRO copies of one library in the processes of one program.
#[derive(Default)]
struct Copies {
    share: u64,
    last: Option<usize>,
    of_last: u64,
    largest: u64,
}

/// One piece of advice for each program of which several processes run (in one container): what a fork from one parent
/// would save, all copies but the largest of each library.
pub fn advise(snapshot: &Snapshot) -> Vec<Advice> {
    let mut programs: BTreeMap<(usize, Option<&str>), BTreeMap<usize, Copies>> = BTreeMap::new();
    let mut processes: BTreeMap<(usize, Option<&str>), u64> = BTreeMap::new();
    for (place, process) in snapshot.processes.iter().enumerate() {
        let Some(program) = process.program.filter(|program| *program < snapshot.files.len()) else {
            continue;
        };
        let key = (program, process.container.as_deref());
        *processes.entry(key).or_default() += 1;
        let libraries = programs.entry(key).or_default();
        for (file, split) in copies(snapshot, &process.mappings) {
            let copies = libraries.entry(file).or_default();
            if copies.last != Some(place) {
                copies.last = Some(place);
                copies.of_last = 0;
            }
            copies.share += split.relro;
            copies.of_last += split.relro_whole;
            copies.largest = copies.largest.max(copies.of_last);
        }
    }
    let advice = programs.into_iter().filter_map(|(key, libraries)| {
        let saving: u64 = libraries.values().map(|copies| copies.share.saturating_sub(copies.largest)).sum();
        (saving >= LEAST_BYTES).then(|| one(snapshot, key, processes[&key], libraries.len(), saving))
    });
    advice.collect()
}

fn one(
    snapshot: &Snapshot,
    (program, container): (usize, Option<&str>),
    processes: u64,
    libraries: usize,
    saving: u64,
) -> Advice {
    let path = &snapshot.files[program].path;
    let name = path.display();
    let place = container.map(|id| format!(" in container {id}")).unwrap_or_default();
    Advice {
        what: format!("{processes} processes of {name}{place} that each relocate {libraries} files for themselves"),
        saving_bytes: saving,
        mapped_bytes: None,
        certainty: ESTIMATED.to_owned(),
        how: vec![
            "start them by fork, without exec, from one process that has loaded the libraries (servers call it prefork \
             or preload): relocated pages are then one copy"
                .to_owned(),
            "or, where it is your own program: link it with -static -no-pie: nothing is left to relocate when it starts"
                .to_owned(),
        ],
        care: "The saving is what one parent for all of them would give. Nothing in plain Linux relocates libraries once \
               for all programs any more: prelink did and is gone."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{Map, PAGE, World};

    fn workers(count: usize, fork: bool) -> Snapshot {
        let mut world = World::default();
        let program = world.file("/usr/bin/clang", 10);
        let library = world.file("/lib/LLVM.so", 1000);
        world.file_mut(library).elf.as_mut().expect("an ELF file").relro = vec![(0, 1000 * PAGE)];
        for place in 0..count {
            if fork && place > 0 {
                world.fork(0);
                continue;
            }
            let process = world.process("clang");
            world.program(process, program);
            world.map(process, Map::constants(library, 0, 500).copied(0..500));
        }
        world.snapshot()
    }

    #[test]
    fn all_copies_but_one_of_a_program() {
        let advice = advise(&workers(4, false));
        assert_eq!(advice.len(), 1);
        assert_eq!(advice[0].saving_bytes, 3 * 500 * PAGE);
        assert!(advice[0].what.contains("4 processes of /usr/bin/clang"), "{}", advice[0].what);
    }

    #[test]
    fn nothing_for_one_process_and_for_forked_ones() {
        assert!(advise(&workers(1, false)).is_empty());
        assert!(advise(&workers(4, true)).is_empty());
    }
}
