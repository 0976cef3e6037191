//! One program: its objects in the order of the search, and what each of their references finds.

use super::{Definition, Files, Id, definition, objects, refused, state_of};
use crate::bind::{self, Answers, Loaded, Loader};
use crate::copy::{self, Role};
use crate::elf::{Elf, dynamic};
use crate::{Error, Result};
use commonhold_images::place::{another_above, why_not};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A program.
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// Its objects, itself first.
    pub files: Vec<Id>,
    /// What its loader said of it.
    pub said: Loaded,
    /// The place of the loader among them.
    pub loader: usize,
    /// Whether it is to have a copy itself.
    pub moved: bool,
    /// By which name each is needed.
    names: HashMap<Vec<u8>, usize>,
    answers: Vec<Answers>,
}

/// A program that is not set, and why.
#[derive(Debug)]
pub struct Unset {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub why: Error,
}

impl Program {
    /// Finds out all about a program, and compares it with what its loader says. `variables`: those it will be started with.
    pub fn open(
        path: &Path,
        files: &mut Files,
        variables: &[(&str, OsString)],
        scratch: &Path,
    ) -> Result<Program> {
        let path = path.canonicalize().map_err(Error::file(path))?;
        // Before it is read, and before the loader sees it: that runs what a program names as its
        // audit library.
        refuse_privileged(&path)?;
        refuse_untrusted(&path, &path)?;
        let id = files.open(&path)?;
        let loader = loader_of(files.elf(id))?;
        let listed = loader.list(&path)?;
        listed.iter().try_for_each(|object| refuse_untrusted(&path, object))?;
        let ids: Vec<Id> = listed.iter().map(|object| files.open(object)).collect::<Result<_>>()?;
        refused::check(&path, ids.iter().map(|id| files.elf(*id)))?;
        let loaded = loader.ask(&path, variables, scratch)?;
        let ids: Vec<Id> = loaded.objects.iter().map(|object| files.open(object)).collect::<Result<_>>()?;
        // What is needed by a path the loader would call by the copy's.
        let by_path = |id: &&Id| files.elf(**id).needed().any(|name| name.contains(&b'/'));
        if let Some(id) = ids.iter().find(by_path) {
            let why = format!("{} needs a library by its path", files.elf(*id).path.display());
            return Err(Error::program(&path, why));
        }
        let loader_id = files.open(&loader.path)?;
        let place = ids.iter().position(|id| *id == loader_id);
        let place = place.ok_or_else(|| Error::program(&path, "its loader does not name itself"))?;
        let objects = objects(files, &ids);
        let answers: Vec<Answers> = (0..objects.len()).map(|from| bind::answers(&objects, from)).collect();
        bind::compare(&objects, &answers, &loaded, place)?;
        let names = loaded.names.iter().cloned().zip(0..).skip(1).collect();
        Ok(Program { path, files: ids, said: loaded, loader: place, moved: false, names, answers })
    }

    /// The program is to have a copy itself, at an address of its own.
    pub fn with_its_own_copy(mut self, files: &Files) -> Result<Program> {
        copy::check(files.elf(self.files[0]), Role::Program)?;
        self.moved = true;
        Ok(self)
    }

    /// The paths of its objects when it is started as `copy`: where it is searched for beside the program, that is
    /// another place.
    pub fn paths_of(&self, copy: &Path, files: &Files) -> Result<Vec<PathBuf>> {
        let objects = Loader::of_machine().list(copy)?;
        let mut same = objects.iter().zip(&self.files).skip(1);
        let all = objects.len() == self.files.len();
        if !all || !same.all(|(path, id)| state_of(path).is_ok_and(|state| state == files.state(*id))) {
            return Err(Error::program(&self.path, "its copy would be given other libraries than itself"));
        }
        Ok(objects)
    }

    /// What the references of one object find in this program.
    pub(super) fn definitions(&self, place: usize) -> Vec<Option<Definition>> {
        self.answers[place].iter().map(|found| definition(&self.files, *found)).collect()
    }

    /// What the references of one object find in itself and what it needs, in breadth-first order: in a program that
    /// does not interfere.
    pub(super) fn in_itself(&self, files: &Files, place: usize) -> (Id, Vec<Option<Definition>>) {
        let mut ids = vec![self.files[place]];
        let mut next = 0;
        while next < ids.len() {
            for name in files.elf(ids[next]).needed() {
                let needed = self.names.get(name).map(|place| self.files[*place]);
                ids.extend(needed.filter(|id| !ids.contains(id)));
            }
            next += 1;
        }
        let answers = bind::answers(&objects(files, &ids), 0);
        (ids[0], answers.into_iter().map(|found| definition(&ids, found)).collect())
    }
}

fn refuse_privileged(path: &Path) -> Result<()> {
    let metadata = std::fs::metadata(path).map_err(Error::file(path))?;
    const SET_ID: u32 = 0o6000;
    if metadata.mode() & SET_ID != 0 {
        return Err(Error::program(path, "it runs with the rights of its owner (setuid or setgid)"));
    }
    if rustix::fs::getxattr(path, "security.capability", &mut [0; 64][..]).is_ok_and(|length| length > 0) {
        return Err(Error::program(path, "it has rights that its caller lacks (file capabilities)"));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(Error::program(path, "it may not be executed"));
    }
    Ok(())
}

/// What root sets root's loader relocates, which runs functions of it: nobody else may have written them. And a copy may be
/// read by everybody.
fn refuse_untrusted(program: &Path, object: &Path) -> Result<()> {
    let metadata = std::fs::metadata(object).map_err(Error::file(object))?;
    let others_write = metadata.mode() & 0o022 != 0 || metadata.uid() != 0;
    if rustix::process::geteuid().is_root() && others_write {
        let why =
            format!("{} is not root's alone to write, and root would run parts of it", object.display());
        return Err(Error::program(program, why));
    }
    if let Some(above) = another_above(object) {
        return Err(Error::program(program, why_not(&above)));
    }
    if metadata.mode() & 0o004 == 0 {
        return Err(Error::program(
            program,
            format!("{} may not be read by everybody, and a copy could be", object.display()),
        ));
    }
    Ok(())
}

fn loader_of(elf: &Elf) -> Result<Loader> {
    let Some(interpreter) = elf.interpreter() else {
        return Err(Error::program(
            &elf.path,
            "it is linked statically, or a library: there is nothing to gain",
        ));
    };
    if interpreter != Loader::PATH.as_bytes() {
        let other = Path::new(std::ffi::OsStr::from_bytes(interpreter)).display();
        return Err(Error::program(
            &elf.path,
            format!("its loader is {other}, and only glibc's ({}) is known", Loader::PATH),
        ));
    }
    if elf.dynamic.value(dynamic::AUDIT).or(elf.dynamic.value(dynamic::DEPAUDIT)).is_some() {
        return Err(Error::program(&elf.path, "it has an audit library itself (DT_AUDIT)"));
    }
    Ok(Loader::of_machine())
}
