//! Which functions an image has for others, and their slots: a slot never changes within a major version.

use crate::existing::Existing;
use crate::{Error, Result};
use commonhold_rebase::elf::{Elf, SymbolKind, UNDEFINED};
use std::collections::{BTreeMap, BTreeSet};

/// A function for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// Its slot.
    pub slot: u32,
    /// Its address in the library.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// What is exported, and what is not although a library would.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exports {
    /// By slot.
    pub functions: Vec<Export>,
    /// Data that the library shows to others: an image has no slots for data.
    pub data: Vec<String>,
}

/// What linkers and compilers put into each library.
const NOBODYS: [&str; 2] = ["_init", "_fini"];

/// The library's functions, with the slots that they have in other versions of this major, and new ones behind those.
/// `wanted`: these alone. `given`: slots that were given, in versions that are not there any more too.
pub fn choose(
    library: &Elf,
    wanted: Option<&BTreeSet<String>>,
    others: &[Existing],
    given: &BTreeMap<u32, String>,
) -> Result<Exports> {
    let mut found = BTreeMap::new();
    let mut data = Vec::new();
    let end = library.extent().1;
    for (index, symbol) in (0..).zip(&library.symbols.all) {
        let hidden = symbol.local || symbol.hidden_version || matches!(symbol.visibility, 1 | 2);
        if hidden || symbol.section == UNDEFINED || symbol.value == 0 || symbol.value >= end {
            continue;
        }
        let name = String::from_utf8_lossy(library.name(index)).into_owned();
        match symbol.kind {
            SymbolKind::Function if !NOBODYS.contains(&name.as_str()) => {
                found.insert(name, (symbol.value, symbol.size));
            }
            SymbolKind::Data if wanted.is_none_or(|wanted| wanted.contains(&name)) => data.push(name),
            _ => {}
        }
    }
    if let Some(wanted) = wanted {
        if let Some(name) = wanted.iter().find(|name| !found.contains_key(*name)) {
            let why = if data.contains(name) {
                format!(
                    "{name} is data, and programs are linked to functions alone: export one that gives its address"
                )
            } else {
                format!("{name} is to be exported, and the library has no such function")
            };
            return Err(Error::unfit(&library.path, why));
        }
        found.retain(|name, _| wanted.contains(name));
    }
    let functions = with_slots(found, others, given);
    if functions.is_empty() {
        return Err(Error::unfit(&library.path, "it has no function for others"));
    }
    Ok(Exports { functions, data })
}

fn with_slots(
    found: BTreeMap<String, (u64, u64)>,
    others: &[Existing],
    given: &BTreeMap<u32, String>,
) -> Vec<Export> {
    let removed = given.iter().map(|(slot, name)| (name.as_str(), *slot));
    let mut next = others.iter().map(|other| other.header.slots).max().unwrap_or(0);
    next = next.max(given.last_key_value().map_or(0, |(slot, _)| slot + 1));
    let given: BTreeMap<&str, u32> = removed.chain(others.iter().flat_map(|other| other.slots())).collect();
    let mut all: Vec<Export> = Vec::new();
    for (name, (address, bytes)) in found {
        let slot = given.get(name.as_str()).copied().unwrap_or_else(|| {
            next += 1;
            next - 1
        });
        all.push(Export { name, slot, address, bytes });
    }
    all.sort_by_key(|export| export.slot);
    all
}
