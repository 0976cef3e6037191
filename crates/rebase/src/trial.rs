//! A trial of what was made: the loader starts the program as its users will, and is told to relocate and to list, not to
//! run. What it says is compared with what it said without copies. Nothing of the program runs but IFUNC resolvers.

use crate::bind::{Answer, Loader};
use crate::plan::{Files, Program, state_of};
use crate::store::Store;
use crate::{Error, Result};
use std::path::Path;

/// Tries a program that has its record. `bases`: for each of its objects the address of its copy, if it has one.
pub(crate) fn start(
    store: &Store,
    program: &Program,
    files: &Files,
    bases: &[Option<u64>],
    scratch: &Path,
) -> Result<()> {
    let wrong = |why: String| Error::program(&program.path, format!("started with its copies, {why}"));
    let with = Loader::of_machine().try_start(&program.path, &store.variables(), scratch)?;
    if with.objects.len() != program.files.len() {
        return Err(wrong(format!(
            "its loader loads {} files, and {} without",
            with.objects.len(),
            program.files.len()
        )));
    }
    let all = with.objects.iter().zip(&with.addresses).zip(program.files.iter().zip(bases));
    for ((path, &address), (file, &base)) in all.skip(1) {
        if state_of(path)? != files.state(*file) {
            return Err(wrong(format!("it is given {} in another place", path.display())));
        }
        if base.is_some_and(|base| base != address) {
            let why = format!("the one of {} does not come to its address ({address:#x})", path.display());
            return Err(wrong(why));
        }
    }
    // What is bound already is not asked for again; what is left must find what it found.
    let is_unique = |answer: &&Answer| files.elf(program.files[answer.to]).has_unique(&answer.name);
    let mut others = with.answers.iter().filter(|answer| !program.said.answers.contains(answer));
    match others.find(|answer| !is_unique(answer)) {
        None => Ok(()),
        Some(answer) => Err(wrong(format!(
            "{} finds {} in {}, and not without",
            with.objects[answer.from].display(),
            String::from_utf8_lossy(&answer.name),
            with.objects[answer.to].display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_images::ranges::Owner;

    /// Tries a program without copies, of which something is said that is not so.
    fn tried(change: impl FnOnce(&mut Program, &mut Vec<Option<u64>>)) -> std::result::Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("store"), Owner::Machine).unwrap();
        store.install().unwrap();
        let mut files = Files::default();
        let shell = Path::new("/bin/sh");
        let mut program = Program::open(shell, &mut files, &store.variables(), folder.path()).unwrap();
        let mut bases = vec![None; program.files.len()];
        change(&mut program, &mut bases);
        start(&store, &program, &files, &bases, folder.path()).map_err(|why| why.to_string())
    }

    #[test]
    fn what_is_not_as_it_was_said_is_found() {
        assert_eq!(tried(|_, _| ()), Ok(()));
        let why = |change: fn(&mut Program, &mut Vec<Option<u64>>)| tried(change).unwrap_err();
        let fewer = why(|program, _| program.files.truncate(program.files.len() - 1));
        assert!(fewer.contains("its loader loads ") && fewer.contains(" and ") && fewer.ends_with("without"));
        let elsewhere = why(|program, _| {
            let last = program.files.len() - 1;
            program.files[last] = program.files[0];
        });
        assert!(
            elsewhere.contains("it is given /") && elsewhere.ends_with(" in another place"),
            "{elsewhere}"
        );
        let moved = why(|_, bases| bases[1] = Some(0x3000_0000_0000));
        assert!(moved.contains(" does not come to its address (0x"), "{moved}");
        let otherwise = why(|program, _| program.said.answers.clear());
        assert!(otherwise.contains(" finds ") && otherwise.ends_with(", and not without"), "{otherwise}");
    }
}
