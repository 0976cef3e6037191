//! The libraries that a program needs: where they are, how large, and which archives hold the same code.

use super::archive::Archive;
use super::elf::{self, Image, Target};
use super::find::{Places, open_plain};
use super::names::{Name, Names};
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Libraries that every static program could have been linked with.
const USUAL: &[&str] = &["c", "m", "pthread", "dl", "rt", "util", "stdc++", "gcc", "gcc_eh"];
/// What the compiler adds to every link, and what libgcc_s is made of.
const COMPILERS: &[&str] = &["gcc", "gcc_eh"];

/// A shared library.
#[derive(Debug)]
pub struct Library {
    /// Bytes of its code; none: it was not found.
    pub code_bytes: Option<u64>,
    /// The archives that have its code; none: there is no archive.
    pub archives: Option<Vec<Rc<Archive>>>,
    /// What it defines for others.
    pub exports: HashSet<Name>,
    folder: Option<PathBuf>,
    needed: Vec<String>,
    run_path: Vec<String>,
}

/// Everything that was looked up, kept for the whole run.
#[derive(Debug)]
pub struct Shelf {
    /// Where to look.
    pub places: Places,
    /// Names of symbols.
    pub names: Names,
    /// Archives that could not be used, and why.
    pub refused: Vec<(PathBuf, String)>,
    given: Vec<PathBuf>,
    libraries: HashMap<(Target, String, Vec<String>), Rc<Library>>,
    archives: HashMap<PathBuf, Option<Rc<Archive>>>,
    by_stem: HashMap<(Target, String), Option<Vec<Rc<Archive>>>>,
}

impl Shelf {
    /// Nothing looked up yet. `given`: archives that come before those that are found.
    pub fn new(root: &Path, given: &[PathBuf]) -> Self {
        Self {
            places: Places::new(root),
            names: Names::default(),
            refused: Vec::new(),
            given: given.to_vec(),
            libraries: HashMap::new(),
            archives: HashMap::new(),
            by_stem: HashMap::new(),
        }
    }

    /// All libraries that a program needs, and they in turn, in the loader's order.
    pub fn needed(&mut self, program: &Image, folder: Option<&Path>) -> Vec<Rc<Library>> {
        let mut found = Vec::new();
        let mut met = HashSet::new();
        let own = run_path(&program.run_path, folder);
        let mut open: VecDeque<(String, Vec<String>)> =
            program.needed.iter().map(|name| (name.clone(), own.clone())).collect();
        while let Some((name, run_path_of_user)) = open.pop_front() {
            if !met.insert(name.clone()) {
                continue;
            }
            let library = self.library(program.target, name, run_path_of_user);
            let next = run_path(&library.run_path, library.folder.as_deref());
            open.extend(library.needed.iter().map(|name| (name.clone(), next.clone())));
            found.push(library);
        }
        found
    }

    fn library(&mut self, target: Target, name: String, run_path: Vec<String>) -> Rc<Library> {
        let key = (target, name, run_path);
        if let Some(library) = self.libraries.get(&key) {
            return library.clone();
        }
        let library = Rc::new(self.look_up(target, &key.1, &key.2));
        self.libraries.insert(key, library.clone());
        library
    }

    fn look_up(&mut self, target: Target, name: &str, run_path: &[String]) -> Library {
        let mut folders: Vec<PathBuf> = run_path.iter().map(PathBuf::from).collect();
        folders.extend(self.places.folders(target));
        if name.contains('/') {
            folders = vec![PathBuf::from("/")];
        }
        let found = folders.into_iter().find_map(|folder| {
            let mut file = self.places.open(&folder.join(name)).ok()?;
            let image = elf::image(&mut file, &mut self.names).ok().flatten()?;
            (image.target == target).then_some((folder, image))
        });
        let folder = found.as_ref().map(|(folder, _)| folder.clone());
        let archives = self.archives_of(target, name, folder.as_deref());
        let image = found.map(|(_, image)| image);
        let code_bytes = image.as_ref().map(|image| image.code_bytes);
        let (exports, needed, run_path) = match image {
            Some(image) => (image.exports, image.needed, image.run_path),
            None => Default::default(),
        };
        Library { code_bytes, archives, exports, folder, needed, run_path }
    }

    /// The archives of a shared library, by its name.
    fn archives_of(&mut self, target: Target, name: &str, folder: Option<&Path>) -> Option<Vec<Rc<Archive>>> {
        let file = name.rsplit('/').next().unwrap_or(name);
        if file.starts_with("ld-") || file.starts_with("ld64") || file.starts_with("ld.so") {
            // The loader: what programs use of it is in libc.a.
            return Some(Vec::new());
        }
        let stem = file.strip_prefix("lib")?.split(".so").next()?;
        match stem {
            "gcc_s" => {
                let found: Vec<_> = COMPILERS
                    .iter()
                    .filter_map(|stem| self.by_stem(target, stem, folder))
                    .flatten()
                    .collect();
                (!found.is_empty()).then_some(found)
            }
            _ if stem.starts_with("c.musl-") => self.by_stem(target, "c", folder),
            _ => self.by_stem(target, stem, folder),
        }
    }

    /// `libSTEM.a`: one that was given, else beside the library, where the linker looks, with the compiler.
    fn by_stem(&mut self, target: Target, stem: &str, folder: Option<&Path>) -> Option<Vec<Rc<Archive>>> {
        let key = (target, stem.to_owned());
        if let Some(found) = self.by_stem.get(&key) {
            return found.clone();
        }
        let name = format!("lib{stem}.a");
        let given =
            self.given.iter().find(|path| path.file_name().is_some_and(|file| *file == *name)).cloned();
        let found = match given {
            Some(path) => {
                self.given_archive(path).filter(|archive| archive.fits(target)).map(|one| vec![one])
            }
            None => {
                let mut folders: Vec<PathBuf> = folder.map(Path::to_owned).into_iter().collect();
                folders.extend(self.places.folders(target));
                folders.extend(self.places.compiler_folders(target));
                folders.iter().find_map(|folder| self.read(target, &folder.join(&name)))
            }
        };
        self.by_stem.insert(key, found.clone());
        found
    }

    fn read(&mut self, target: Target, path: &Path) -> Option<Vec<Rc<Archive>>> {
        let mut archives = Vec::new();
        for (path, file) in self.places.archives(path) {
            if !self.archives.contains_key(&path) {
                let opened = self.opened(path.clone(), file);
                self.archives.insert(path.clone(), opened);
            }
            archives.extend(self.archives[&path].clone().filter(|archive| archive.fits(target)));
        }
        (!archives.is_empty()).then_some(archives)
    }

    fn given_archive(&mut self, path: PathBuf) -> Option<Rc<Archive>> {
        if let Some(archive) = self.archives.get(&path) {
            return archive.clone();
        }
        let opened = match open_plain(&path) {
            Ok(file) => self.opened(path.clone(), file),
            Err(error) => {
                self.refused.push((path.clone(), error.to_string()));
                None
            }
        };
        self.archives.insert(path, opened.clone());
        opened
    }

    fn opened(&mut self, path: PathBuf, file: std::fs::File) -> Option<Rc<Archive>> {
        match Archive::open(path.clone(), file, &mut self.names) {
            Ok(archive) => Some(Rc::new(archive)),
            Err(why) => {
                self.refused.push((path, why.to_owned()));
                None
            }
        }
    }

    /// Archives that were given by name, for this target.
    pub fn given(&mut self, target: Target) -> Vec<Rc<Archive>> {
        let paths = self.given.clone();
        let archives = paths.into_iter().filter_map(|path| self.given_archive(path));
        archives.filter(|archive| archive.fits(target)).collect()
    }

    /// The archives of a link: those of the libraries, those that were given, and the compiler's own.
    pub fn for_link(&mut self, target: Target, libraries: &[Rc<Library>]) -> Vec<Rc<Archive>> {
        let mut archives: Vec<Rc<Archive>> =
            libraries.iter().filter_map(|library| library.archives.as_ref()).flatten().cloned().collect();
        archives.extend(self.given(target));
        archives.extend(COMPILERS.iter().filter_map(|stem| self.by_stem(target, stem, None)).flatten());
        without_repeats(archives)
    }

    /// The archives that a static program can have been linked with.
    pub fn for_static(&mut self, target: Target) -> Vec<Rc<Archive>> {
        let mut archives = self.given(target);
        archives.extend(USUAL.iter().filter_map(|stem| self.by_stem(target, stem, None)).flatten());
        without_repeats(archives)
    }
}

fn without_repeats(archives: Vec<Rc<Archive>>) -> Vec<Rc<Archive>> {
    let mut met = HashSet::new();
    archives.into_iter().filter(|archive| met.insert(archive.path.clone())).collect()
}

/// A run path with `$ORIGIN` put in.
fn run_path(run_path: &[String], folder: Option<&Path>) -> Vec<String> {
    let origin = folder.unwrap_or(Path::new("/")).display().to_string();
    let filled = run_path.iter().map(|path| path.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin));
    filled.filter(|path| path.starts_with('/')).collect()
}
