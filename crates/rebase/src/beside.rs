//! Programs that were set before, where another is set beside them: what they have stays, if it
//! suits the other too.
//!
//! A copy that several programs have is bound where all of them have the same answer. Its bound
//! words are noted beside it ([`Store::note_words`]). A program that has the same answer to each of
//! them takes that copy. One that has another answer changes what all have in common: then
//! everything is built anew.

use crate::Result;
use crate::build::key;
use crate::copy::Role;
use crate::plan::{Plan, words};
use crate::state::{self, State as Standing};
use crate::store::{Set, Store};
use commonhold_record::{Record, State};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The words of a copy: for each relocation by symbol what it is bound to, if it is.
pub type Words = Vec<Option<u64>>;

/// What a program has copies of, and their keys.
type Copies = Vec<(State, String)>;

/// The programs that were set before.
#[derive(Default)]
pub(crate) struct Others {
    /// Each with the number of its copies.
    pub programs: Vec<(PathBuf, usize)>,
    /// The keys of all their copies.
    pub keys: BTreeSet<String>,
    /// Of each file the keys of its copies, and how many programs have each.
    of_files: HashMap<State, BTreeMap<String, usize>>,
}

impl Others {
    /// Reads the records of all but the changed programs, on all processors. None: some program
    /// must be built anew.
    pub fn read(store: &Store, all: &Set, changed: &BTreeSet<PathBuf>) -> Result<Option<Others>> {
        let programs: Vec<&PathBuf> = all.keys().filter(|program| !changed.contains(*program)).collect();
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let parts = programs.chunks(programs.len().div_ceil(workers).max(1));
        let read: Result<Option<Vec<Vec<Copies>>>> = std::thread::scope(|scope| {
            let reading =
                parts.map(|part| scope.spawn(|| part.iter().map(|one| copies(store, one)).collect()));
            let reading: Vec<_> = reading.collect();
            reading.into_iter().map(|part| part.join().expect("nobody panics")).collect()
        });
        let Some(read) = read? else { return Ok(None) };
        let mut others = Others::default();
        for (program, copies) in programs.into_iter().zip(read.into_iter().flatten()) {
            others.programs.push((program.clone(), copies.len()));
            for (state, key) in copies {
                others.keys.insert(key.clone());
                *others.of_files.entry(state).or_default().entry(key).or_default() += 1;
            }
        }
        Ok(Some(others))
    }

    /// The words of all copies of the plan for new programs, with those of the others' copies where
    /// there are any. None: a program has another answer than a copy of the others, or nothing is
    /// noted of that.
    pub fn suit(
        &self,
        store: &Store,
        plan: &Plan,
        base: &HashMap<crate::plan::Id, u64>,
    ) -> Option<Vec<Words>> {
        let of_binding = |binding| {
            let own = words(&plan.files, binding, |id| base.get(&id).copied());
            let there = self.of_files.get(&plan.files.state(binding.file));
            let Some(there) = there.filter(|_| binding.role == Role::Library) else { return Some(own) };
            let elf = plan.files.elf(binding.file);
            let file = elf.path.file_name().unwrap_or_default();
            let mut keys: Vec<_> = there.iter().collect();
            keys.sort_by_key(|(_, programs)| std::cmp::Reverse(**programs));
            keys.into_iter().find_map(|(name, _)| {
                let noted = store.words(name, file).filter(|noted| suits(noted, &own))?;
                // The key is the hash of the words, too: these are the copy's.
                (key(elf, binding.role, base[&binding.file], &noted) == *name).then_some(noted)
            })
        };
        plan.bindings.iter().map(of_binding).collect()
    }
}

/// The files of which a program has copies, and the copies' keys. None: it must be built anew.
fn copies(store: &Store, program: &Path) -> Result<Option<Copies>> {
    let Standing::Current { .. } = state::of(store, program)? else { return Ok(None) };
    let Ok(bytes) = std::fs::read(store.record(program)) else { return Ok(None) };
    let Some(record) = Record::new(&bytes) else { return Ok(None) };
    let copied = record.files().filter(|file| !file.copy.is_empty());
    Ok(copied.map(|file| Some((file.state, key_of(file.copy)?))).collect())
}

/// Whether each word that is bound there is the own one, too.
fn suits(there: &Words, own: &Words) -> bool {
    there.len() == own.len() && there.iter().zip(own).all(|(there, own)| there.is_none() || there == own)
}

/// The key of a copy, which is the name of its directory.
fn key_of(copy: &[u8]) -> Option<String> {
    let path = Path::new(OsStr::from_bytes(copy.strip_suffix(b"\0").unwrap_or(copy)));
    Some(path.parent()?.file_name()?.to_str()?.to_owned())
}

/// As they are noted: for each whether there is one, and which.
pub(crate) fn encode(words: &[Option<u64>]) -> Vec<u8> {
    let one =
        |word: &Option<u64>| [u8::from(word.is_some())].into_iter().chain(word.unwrap_or(0).to_le_bytes());
    words.iter().flat_map(one).collect()
}

pub(crate) fn decode(bytes: &[u8]) -> Words {
    let one = |raw: &[u8; 9]| {
        let [is_some, word @ ..] = *raw;
        (is_some != 0).then(|| u64::from_le_bytes(word))
    };
    bytes.as_chunks().0.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_noted() {
        let words = vec![Some(0), None, Some(0x3000_0000_1000)];
        assert_eq!(decode(&encode(&words)), words);
        assert_eq!(decode(&encode(&words)[..20]), words[..2]);
        assert!(suits(&vec![None, Some(7)], &vec![Some(3), Some(7)]));
        assert!(!suits(&vec![Some(3)], &vec![None]) && !suits(&vec![Some(3)], &vec![Some(4)]));
        assert!(!suits(&vec![None], &vec![None, None]));
    }
}
