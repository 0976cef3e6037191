//! Files changed in a few bytes, as no compiler makes them.

use crate::rig::Rig;
use commonhold_rebase::elf::{Elf, Relocation, dynamic};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Puts a word into a file's bytes.
pub fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Where in a file the entry of a relocation lies, by symbol; and what it says.
pub fn named(elf: &Elf, symbol: &str) -> (usize, Relocation) {
    const ENTRY_BYTES: usize = 24;
    let relocations = &elf.relocations;
    for (all, table) in [(&relocations.table, dynamic::RELA), (&relocations.jumps, dynamic::JMPREL)] {
        if let Some(place) = all.iter().position(|one| elf.name(one.symbol) == symbol.as_bytes()) {
            let first = elf.offset_of(elf.dynamic.value(table).unwrap()).unwrap();
            return (first + place * ENTRY_BYTES, all[place]);
        }
    }
    panic!("no relocation of {} is by {symbol}", elf.path.display());
}

/// The number of a symbol that can be found.
pub fn symbol(elf: &Elf, name: &str) -> u32 {
    let is_it = |index: &u32| elf.name(*index) == name.as_bytes();
    (0..elf.symbols.all.len() as u32).find(is_it).unwrap()
}

/// Makes a library another, as packages do it: a new file in its place.
pub fn library(path: &Path, change: impl FnOnce(&Elf, &mut Vec<u8>)) {
    let elf = Elf::open(path).unwrap();
    let mut bytes = elf.bytes.clone();
    change(&elf, &mut bytes);
    assert_ne!(bytes, elf.bytes);
    let beside = path.with_extension("changed");
    fs::write(&beside, bytes).unwrap();
    fs::set_permissions(&beside, Permissions::from_mode(0o755)).unwrap();
    fs::rename(&beside, path).unwrap();
}

/// The one copy of a library.
pub fn copy_of(rig: &Rig, file: &str) -> PathBuf {
    let mut copies = rig.store.copies().unwrap().into_iter().filter(|(_, path)| path.ends_with(file));
    let (_, path) = copies.next().unwrap();
    assert!(copies.next().is_none());
    path
}

/// Changes the copy of a library, and the hash beside it: what a fault in the making of copies would leave. The programs
/// that are set are then built again, with it.
pub fn copy(
    rig: &Rig,
    file: &str,
    change: impl FnOnce(&Elf, &mut Vec<u8>),
) -> commonhold_rebase::build::Report {
    let path = copy_of(rig, file);
    let elf = Elf::open(&path).unwrap();
    let mut bytes = elf.bytes.clone();
    change(&elf, &mut bytes);
    assert_ne!(bytes, elf.bytes);
    for (path, bytes) in [
        (path.with_file_name(".sum"), blake3::hash(&bytes).to_hex().as_bytes().to_vec()),
        (path.clone(), bytes),
    ] {
        let rights = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, rights).unwrap();
    }
    let report = rig.update();
    assert_eq!(report.made, 0, "{report:?}");
    report
}
