//! The search for a definition, as glibc does it (elf/dl-lookup.c: `do_lookup_x`, `check_match`): the first object of the
//! scope that has a symbol of the name, and of the version that is asked for.

use crate::elf::{ABSOLUTE, Elf, Symbol, SymbolKind, UNDEFINED, Version, hash};
use std::sync::Arc;

/// A definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// The object, by its place among a program's.
    pub object: usize,
    /// The symbol there.
    pub symbol: u32,
}

/// What is looked for.
pub struct Reference<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Of which version; none: whatever there is.
    pub version: Option<&'a Version>,
    /// A function that is called: the entry that a program has for a function of others is none.
    pub jump: bool,
    /// An object that is not looked at: the program whose copy of somebody's data is to be made.
    pub skip: Option<usize>,
}

/// Searches the objects in the order of `scope`.
pub fn find(objects: &[Arc<Elf>], scope: &[usize], reference: &Reference<'_>) -> Option<Found> {
    let hash = hash(reference.name);
    let mut candidates = scope.iter().filter(|object| Some(**object) != reference.skip);
    candidates.find_map(|object| {
        in_object(&objects[*object], hash, reference).map(|symbol| Found { object: *object, symbol })
    })
}

fn in_object(elf: &Elf, hash: u32, reference: &Reference<'_>) -> Option<u32> {
    // Of a name without a version: the one that is the default, if there is but one.
    let mut of_no_version = None;
    let mut how_many = 0;
    for index in elf.symbols.with_hash(hash) {
        let symbol = &elf.symbols.all[index as usize];
        if !may_define(symbol, reference.jump) || elf.name(index) != reference.name {
            continue;
        }
        match reference.version {
            Some(version) if has_version(elf, symbol, version) => return Some(index),
            Some(_) => {}
            None if !elf.symbols.versioned || symbol.version < 3 => return Some(index),
            None if !symbol.hidden_version => {
                of_no_version = Some(index);
                how_many += 1;
            }
            None => {}
        }
    }
    of_no_version.filter(|_| how_many == 1)
}

fn may_define(symbol: &Symbol, jump: bool) -> bool {
    let has_value = symbol.value != 0 || symbol.section == ABSOLUTE || symbol.kind == SymbolKind::ThreadLocal;
    has_value && !(jump && symbol.section == UNDEFINED) && symbol.kind != SymbolKind::Other
}

fn has_version(elf: &Elf, symbol: &Symbol, wanted: &Version) -> bool {
    if !elf.symbols.versioned {
        return true;
    }
    match elf.symbols.version_of(symbol) {
        Some(version) => version.name == wanted.name,
        // The base version answers whoever does not insist.
        None => !wanted.exact && !symbol.hidden_version,
    }
}
