//! One data file of which several processes hold copies of their own, because each maps it privately and writes.

use super::AT_MOST;
use super::word::word;
use crate::figures::view::copied_share;
use crate::report::Advice;
use crate::snapshot::{File, Snapshot};
use std::collections::BTreeMap;

/// Below this it is not worth a look.
const LEAST_BYTES: u64 = 1 << 20;

/// Copies of one file's pages.
#[derive(Default)]
struct Copies {
    users: u64,
    share: u64,
    last: Option<usize>,
    of_last: u64,
    largest: u64,
}

/// One piece of advice for each such file. Whether the copies differ on purpose cannot be seen, so the saving is a bound.
pub fn advise(snapshot: &Snapshot) -> Vec<Advice> {
    let mut files: BTreeMap<usize, Copies> = BTreeMap::new();
    for (place, process) in snapshot.processes.iter().enumerate() {
        for mapping in process.mappings.iter().filter(|mapping| !mapping.shared && mapping.anonymous > 0) {
            let data = mapping.file.and_then(|file| Some((file, snapshot.files.get(file)?)));
            let Some((file, _)) = data.filter(|(_, file)| is_data(file)) else { continue };
            let copies = files.entry(file).or_default();
            if copies.last != Some(place) {
                copies.last = Some(place);
                copies.users += 1;
                copies.of_last = 0;
            }
            copies.share += copied_share(mapping);
            copies.of_last += mapping.anonymous;
            copies.largest = copies.largest.max(copies.of_last);
        }
    }
    let advice = files.into_iter().filter_map(|(file, copies)| {
        let saving = copies.share.saturating_sub(copies.largest);
        (copies.users > 1 && saving >= LEAST_BYTES).then(|| one(&snapshot.files[file], copies.users, saving))
    });
    advice.collect()
}

fn is_data(file: &File) -> bool {
    file.elf.is_none() && !file.deleted && file.size.is_some_and(|size| size > 0)
}

fn one(file: &File, users: u64, saving: u64) -> Advice {
    let path = word(&file.path);
    Advice {
        what: format!("{users} processes that each hold a private, written copy of {}", file.path.display()),
        saving_bytes: saving,
        mapped_bytes: None,
        certainty: AT_MOST.to_owned(),
        how: vec![
            format!(
                "if they need not write to it: map it read-only (PROT_READ, MAP_SHARED; in NumPy \
                 mmap_mode=\"r\" instead of \"c\")"
            ),
            format!(
                "if they all write the same: make it one object, and map that in each: commonhold create {} --file {path}",
                object_name(file)
            ),
        ],
        care: "Only if the copies are equal, or need not be: what each process wrote for itself is shared by none of \
               these."
            .to_owned(),
    }
}

/// A name for the object, made of the file's.
fn object_name(file: &File) -> String {
    let stem = file.path.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let name: String = stem.chars().take(64).map(plain).collect();
    format!("/{}", if name.is_empty() { "data" } else { &name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{Map, PAGE, World};

    fn readers(copied: u64) -> (World, usize) {
        let mut world = World::default();
        let table = world.file("/srv/my table.npy", 1000);
        world.file_mut(table).elf = None;
        for _ in 0..3 {
            let process = world.process("python");
            world.map(process, Map::data(table, 0, 1000).copied(0..copied));
        }
        (world, table)
    }

    #[test]
    fn a_bound_and_both_ways_out() {
        let advice = advise(&readers(500).0.snapshot());
        assert_eq!(advice.len(), 1);
        assert_eq!(advice[0].saving_bytes, 2 * 500 * PAGE);
        assert_eq!(advice[0].certainty, "at most");
        assert!(advice[0].how[1].ends_with("commonhold create /my_table --file '/srv/my table.npy'"));
    }

    #[test]
    fn few_pages_and_libraries_are_passed_over() {
        assert!(advise(&readers(10).0.snapshot()).is_empty());
        let (mut world, table) = readers(500);
        world.file_mut(table).elf = Some(crate::snapshot::Elf::default());
        assert!(advise(&world.snapshot()).is_empty());
    }
}
