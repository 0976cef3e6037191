//! From the programs that are set to the copies that they need: which references have the same answer everywhere.

mod files;
mod program;
mod refused;

pub use files::{Files, Id, state_of};
pub use program::{Program, Unset};

use crate::bind::Found;
use crate::copy::{self, Role};
use crate::elf::{ABSOLUTE, Elf, Kind, SymbolKind};
use std::collections::HashMap;
use std::sync::Arc;

/// A program of which so many references of one library find something else than elsewhere gets a copy of its own.
const OWN_COPY: usize = 64;

/// A definition, by the file: the same in all programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Definition {
    /// The file.
    pub file: Id,
    /// The symbol there.
    pub symbol: u32,
}

/// What is to be made of one file: for each of its relocations by symbol what it is bound to, or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// Of which library.
    pub file: Id,
    /// What it is to its process.
    pub role: Role,
    /// In the order of [`crate::elf::Relocations::named`].
    pub bound: Vec<Option<Definition>>,
}

/// All that is to be made.
pub struct Plan {
    /// The files of all programs.
    pub files: Files,
    /// Copies, each once.
    pub bindings: Vec<Binding>,
    /// The programs, and for each of their objects the copy, if it has one.
    pub programs: Vec<(Program, Vec<Option<usize>>)>,
    /// Libraries that are used as they are, and why.
    pub unfit: Vec<(Id, String)>,
}

impl Plan {
    /// Plans for all programs together.
    pub fn new(files: Files, programs: Vec<Program>) -> Plan {
        let mut unfit = Vec::new();
        let mut fits: HashMap<Id, bool> = HashMap::new();
        let libraries = programs.iter().flat_map(|program| program.files.iter().skip(1).zip(1..));
        let loaders: Vec<Id> = programs.iter().map(|program| program.files[program.loader]).collect();
        for (file, _) in libraries {
            fits.entry(*file).or_insert_with(|| {
                let checked = copy::check(files.elf(*file), Role::Library).map_err(|error| error.to_string());
                let checked =
                    if loaders.contains(file) { Err("it is the loader".to_owned()) } else { checked };
                checked.map_err(|why| unfit.push((*file, why))).is_ok()
            });
        }
        let fits = |file: &Id| fits.get(file).copied().unwrap_or(false);
        let mut shared: HashMap<Id, Binding> = HashMap::new();
        for program in &programs {
            for place in 1..program.files.len() {
                let file = program.files[place];
                if fits(&file) && !shared.contains_key(&file) {
                    let bound = eligible(&files, &program.in_itself(&files, place), &fits);
                    shared.insert(file, Binding { file, role: Role::Library, bound });
                }
            }
        }
        let mut own = share(&files, &programs, &mut shared, &fits);
        for (index, program) in programs.iter().enumerate().filter(|(_, program)| program.moved) {
            let file = program.files[0];
            // Itself alone: it may be started where its libraries have no copies.
            let fits = |other: &Id| *other == file;
            let bound = eligible(&files, &(file, program.definitions(0)), &fits);
            own.insert((index, file), Binding { file, role: Role::Program, bound });
        }
        Plan::of_parts(files, programs, shared, own, unfit)
    }

    fn of_parts(
        files: Files,
        programs: Vec<Program>,
        shared: HashMap<Id, Binding>,
        own: HashMap<(usize, Id), Binding>,
        unfit: Vec<(Id, String)>,
    ) -> Plan {
        let mut bindings: Vec<Binding> = Vec::new();
        let mut places: HashMap<Binding, usize> = HashMap::new();
        let mut place_of = |binding: &Binding| {
            *places.entry(binding.clone()).or_insert_with(|| {
                bindings.push(binding.clone());
                bindings.len() - 1
            })
        };
        let programs = programs.into_iter().enumerate().map(|(index, program)| {
            let of = |file: &Id| own.get(&(index, *file)).or_else(|| shared.get(file));
            let copies = program.files.iter().map(|file| of(file).map(&mut place_of)).collect();
            (program, copies)
        });
        let programs = programs.collect();
        Plan { files, bindings, programs, unfit }
    }
}

/// Takes from the shared bindings whatever some program answers otherwise, and gives the bindings of programs in which
/// that would be too much.
fn share(
    files: &Files,
    programs: &[Program],
    shared: &mut HashMap<Id, Binding>,
    fits: &impl Fn(&Id) -> bool,
) -> HashMap<(usize, Id), Binding> {
    let mut own = HashMap::new();
    for (index, program) in programs.iter().enumerate() {
        for place in 1..program.files.len() {
            let file = program.files[place];
            let Some(binding) = shared.get_mut(&file) else { continue };
            let here = program.definitions(place);
            let differs = |(ours, theirs): &(&Option<Definition>, &Option<Definition>)| {
                ours.is_some() && ours != theirs
            };
            let count = binding.bound.iter().zip(&here).filter(differs).count();
            if count > OWN_COPY.max(binding.bound.len() / 50) {
                own.insert(
                    (index, file),
                    Binding { file, role: Role::Library, bound: eligible(files, &(file, here), fits) },
                );
                continue;
            }
            for (ours, theirs) in binding.bound.iter_mut().zip(&here) {
                if ours.is_some() && ours != theirs {
                    *ours = None;
                }
            }
        }
    }
    own
}

/// Of what references of a library find, that which may be written into a copy.
fn eligible(
    files: &Files,
    (file, found): &(Id, Vec<Option<Definition>>),
    fits: &impl Fn(&Id) -> bool,
) -> Vec<Option<Definition>> {
    let relocations = files.elf(*file).relocations.named();
    let may_be = |(relocation, found): (&crate::elf::Relocation, &Option<Definition>)| {
        let found = (*found)?;
        let symbol = &files.elf(found.file).symbols.all[found.symbol as usize];
        let of_kind = matches!(relocation.kind, Kind::Address | Kind::Global | Kind::Jump);
        let simple = matches!(symbol.kind, SymbolKind::Data | SymbolKind::Function | SymbolKind::Untyped);
        let known = fits(&found.file) || symbol.section == ABSOLUTE;
        (of_kind && simple && known && !symbol.unique && symbol.section != 0).then_some(found)
    };
    relocations.zip(found).map(may_be).collect()
}

/// The words that a copy gets: what its relocations by symbol are bound to, where every library has its base.
pub fn words(files: &Files, binding: &Binding, base: impl Fn(Id) -> Option<u64>) -> Vec<Option<u64>> {
    let word = |(relocation, found): (&crate::elf::Relocation, &Option<Definition>)| {
        let found = (*found)?;
        let symbol = &files.elf(found.file).symbols.all[found.symbol as usize];
        let at = if symbol.section == ABSOLUTE { 0 } else { base(found.file)? };
        let addend = if relocation.kind == Kind::Address { relocation.addend as u64 } else { 0 };
        Some(at.wrapping_add(symbol.value).wrapping_add(addend))
    };
    files.elf(binding.file).relocations.named().zip(&binding.bound).map(word).collect()
}

/// An object of a program as a definition that is the same in all.
fn definition(files: &[Id], found: Option<Found>) -> Option<Definition> {
    found.map(|found| Definition { file: files[found.object], symbol: found.symbol })
}

/// Objects of a program, read.
fn objects(files: &Files, ids: &[Id]) -> Vec<Arc<Elf>> {
    ids.iter().map(|id| files.shared(*id)).collect()
}
