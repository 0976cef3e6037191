//! Which definition each reference of a program finds: worked out here, and compared with what the loader itself says.

mod loader;
mod lookup;

pub use loader::{Answer, Loaded, Loader};
pub use lookup::{Found, Reference, find};

use crate::elf::{Elf, Kind, Relocation, UNDEFINED};
use crate::{Error, Result};
use std::collections::HashSet;
use std::sync::Arc;

/// What every relocation by symbol of one object of a program finds: those of the table, then the jumps.
pub type Answers = Vec<Option<Found>>;

/// The objects that references of object `from` are looked up in, in order: its own first, if it says so.
fn scope_of(objects: &[Arc<Elf>], from: usize) -> Vec<usize> {
    let own = objects[from].dynamic.flags().symbolic.then_some(from);
    own.into_iter().chain(0..objects.len()).collect()
}

/// What a relocation of object `from` finds among `objects`, which are in the order of the search.
pub fn answer(objects: &[Arc<Elf>], scope: &[usize], from: usize, relocation: &Relocation) -> Option<Found> {
    let elf = &objects[from];
    if relocation.symbol == 0 {
        return None;
    }
    let symbol = &elf.symbols.all[relocation.symbol as usize];
    const PROTECTED: u8 = 3;
    let own = symbol.local || (1..PROTECTED).contains(&symbol.visibility);
    if own {
        return Some(Found { object: from, symbol: relocation.symbol });
    }
    let reference = Reference {
        name: elf.name(relocation.symbol),
        version: elf.symbols.version_of(symbol),
        jump: relocation.kind == Kind::Jump,
        skip: (relocation.kind == Kind::Copy).then_some(from),
    };
    let found = find(objects, scope, &reference);
    // A protected symbol that is defined here is found here, whoever else defines it; but for the entry that a program has for
    // a function whose address it takes.
    let is_entry = |found: &Found| {
        let symbol = &objects[found.object].symbols.all[found.symbol as usize];
        symbol.section == UNDEFINED
    };
    match found {
        Some(found) if symbol.visibility == PROTECTED && symbol.section != UNDEFINED && !is_entry(&found) => {
            Some(Found { object: from, symbol: relocation.symbol })
        }
        found => found,
    }
}

/// What all relocations of one object find.
pub fn answers(objects: &[Arc<Elf>], from: usize) -> Answers {
    let scope = scope_of(objects, from);
    objects[from].relocations.named().map(|one| answer(objects, &scope, from, one)).collect()
}

/// Compares what was worked out for a program with what its loader said. An error names the first difference. Of its
/// own references (it is object `loader`) it says nothing, and they are nobody's business. Of symbols that are one for the
/// whole process it has a table of its own, in which the first comes first, in the order of relocation: what finds such is
/// left to it, so it need not be known which.
pub fn compare(objects: &[Arc<Elf>], all: &[Answers], loaded: &Loaded, loader: usize) -> Result<()> {
    let mut ours: HashSet<Answer> = HashSet::new();
    for (from, answers) in all.iter().enumerate().filter(|(from, _)| *from != loader) {
        for (relocation, found) in objects[from].relocations.named().zip(answers) {
            let Some(found) = found else { continue };
            if objects[found.object].symbols.all[found.symbol as usize].unique {
                continue;
            }
            let name = objects[from].name(relocation.symbol);
            let symbol = &objects[from].symbols.all[relocation.symbol as usize];
            if found.object == from && (symbol.local || (1..3).contains(&symbol.visibility)) {
                continue; // found without a search
            }
            let version = objects[from].symbols.version_of(symbol).map(|version| version.name.clone());
            ours.insert(Answer { from, to: found.object, name: name.to_vec(), version });
        }
    }
    let text = |answer: &Answer| {
        let name = String::from_utf8_lossy(&answer.name).into_owned();
        format!("{name} of {} in {}", objects[answer.from].path.display(), objects[answer.to].path.display())
    };
    let refuse = |why: String| Err(Error::program(&objects[0].path, why));
    let is_unique = |answer: &&Answer| objects[answer.to].has_unique(&answer.name);
    if let Some(theirs) = loaded.answers.difference(&ours).find(|answer| !is_unique(answer)) {
        return refuse(format!("its loader finds {}, and here something else is found", text(theirs)));
    }
    if let Some(other) = ours.difference(&loaded.answers).next() {
        return refuse(format!("here {} is found, and its loader does not say so", text(other)));
    }
    Ok(())
}
