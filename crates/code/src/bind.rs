//! What each reference of the library finds: itself first, then the images that were named, then the table of functions
//! that programs hand over. Nothing is left to a loader: there is none.

use crate::existing::Existing;
use crate::{Error, Result};
use commonhold_rebase::bind::{Found, answers};
use commonhold_rebase::elf::{ABSOLUTE, Elf, Kind, Relocation, SymbolKind};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A word that the program's function goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToFill {
    /// Its address in the library.
    pub address: u64,
    /// Which function of the table.
    pub index: u32,
    /// What is added.
    pub addend: i64,
}

/// All references.
#[derive(Debug, Default)]
pub struct Bound {
    /// For each relocation by symbol (the table's in their order, then the jumps) the word that is written.
    pub words: Vec<Option<u64>>,
    /// What is left for the program.
    pub fills: Vec<ToFill>,
    /// The functions that programs hand over, by index.
    pub table: Vec<String>,
    /// Images that are called, by their place among those that were named, with how many slots they must have.
    pub imports: Vec<(usize, u32)>,
}

/// Where references may lead.
pub struct Scope<'a> {
    /// Images that were named, in order.
    pub imports: &'a [Existing],
    /// Functions that programs hand over; none: any.
    pub table: &'a BTreeSet<String>,
    /// The table of earlier minors: these have their places, and nothing comes behind them.
    pub fixed_table: Option<&'a [String]>,
}

/// Binds the library, whose address 0 will be `base`.
pub fn bind(library: &Arc<Elf>, base: u64, scope: &Scope<'_>) -> Result<Bound> {
    let objects = [Arc::clone(library)];
    let mut bound = Bound { table: scope.fixed_table.unwrap_or_default().to_vec(), ..Bound::default() };
    let found = answers(&objects, 0);
    for (relocation, found) in library.relocations.named().zip(found) {
        let word = match (relocation.kind, found) {
            (Kind::Address | Kind::Global | Kind::Jump, Some(found)) => {
                Some(own(library, base, relocation, found))
            }
            (Kind::Address | Kind::Global | Kind::Jump, None) => {
                outside(library, relocation, scope, &mut bound)?
            }
            _ => None,
        };
        bound.words.push(word);
    }
    Ok(bound)
}

fn added(kind: Kind, relocation: &Relocation) -> u64 {
    if kind == Kind::Address { relocation.addend as u64 } else { 0 }
}

fn own(library: &Elf, base: u64, relocation: &Relocation, found: Found) -> u64 {
    let symbol = &library.symbols.all[found.symbol as usize];
    let address = if symbol.section == ABSOLUTE { symbol.value } else { base.wrapping_add(symbol.value) };
    address.wrapping_add(added(relocation.kind, relocation))
}

fn outside(
    library: &Elf,
    relocation: &Relocation,
    scope: &Scope<'_>,
    bound: &mut Bound,
) -> Result<Option<u64>> {
    let symbol = &library.symbols.all[relocation.symbol as usize];
    let name = String::from_utf8_lossy(library.name(relocation.symbol)).into_owned();
    if relocation.symbol == 0 {
        return Err(Error::unfit(&library.path, "it has a relocation by symbol that names none"));
    }
    for (place, import) in scope.imports.iter().enumerate() {
        if let Some((_, slot)) = import.slots().find(|(other, _)| *other == name) {
            match bound.imports.iter_mut().find(|(other, _)| *other == place) {
                Some((_, slots)) => *slots = (*slots).max(slot + 1),
                None => bound.imports.push((place, slot + 1)),
            }
            return Ok(Some(import.entry(slot).wrapping_add(added(relocation.kind, relocation))));
        }
    }
    if scope.table.contains(&name) {
        return fill(library, relocation, name, scope, bound);
    }
    if symbol.weak {
        return Ok(Some(0)); // as the loader does when nobody has it
    }
    let what = if symbol.kind == SymbolKind::Data { "the variable" } else { "the function" };
    Err(Error::unfit(
        &library.path,
        format!(
            "it needs {what} {name}, which is in none of the images named by --import and not in the table of what \
             programs hand over (--table)"
        ),
    ))
}

fn fill(
    library: &Elf,
    relocation: &Relocation,
    name: String,
    scope: &Scope<'_>,
    bound: &mut Bound,
) -> Result<Option<u64>> {
    let index = match bound.table.iter().position(|other| *other == name) {
        Some(index) => index,
        None if scope.fixed_table.is_some() => {
            return Err(Error::unfit(
                &library.path,
                format!(
                    "it needs {name} from programs, which those that are linked to earlier versions do not hand over: \
                     make it the next major version"
                ),
            ));
        }
        None => {
            bound.table.push(name);
            bound.table.len() - 1
        }
    };
    let addend = if relocation.kind == Kind::Address { relocation.addend } else { 0 };
    bound.fills.push(ToFill { address: relocation.address, index: index as u32, addend });
    // The word is the program's to fill in; 0 until then.
    Ok(Some(0))
}
