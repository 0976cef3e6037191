//! Library code in named sets of programs (Govindan 5.2, Table 2).
//!
//! The paper read name lists of static programs. Today's are dynamic and stripped: what a program would hold if it were
//! static is found as a linker would, from the symbols it leaves undefined and the archives that define them.

mod archive;
mod closure;
mod elf;
mod find;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod names;
mod shared;
mod symbols;
mod watched;

pub use watched::{Request, files_of, measure_all};

use crate::report::LibrarySet;
use crate::snapshot::Unseen;
use elf::{Image, Role};
use shared::{Library, Shelf};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How to measure.
pub struct Options {
    /// Below which directory libraries and archives are looked for.
    pub root: PathBuf,
    /// Asked before each program: whether there is still time. What is left then is named in `unseen`.
    pub goes_on: Box<dyn Fn() -> bool>,
    /// Told each path before it is touched; false: it is passed over, and counts as skipped.
    pub at: Box<dyn Fn(&Path) -> bool>,
}

impl Default for Options {
    fn default() -> Self {
        Self { root: PathBuf::from("/"), goes_on: Box::new(|| true), at: Box::new(|_| true) }
    }
}

/// Measures one set. Several sets share what they have in common with a [`Measurer`].
pub fn measure(name: &str, programs: &[PathBuf], archives: &[PathBuf], options: Options) -> LibrarySet {
    Measurer::new(archives, options).set(name, programs)
}

/// Measures sets, and reads each library and archive once for all of them.
pub struct Measurer {
    shelf: Shelf,
    options: Options,
    unseen: Vec<Unseen>,
}

/// What one program comes to, in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    how: How,
    /// Library code that it holds, or would hold if it were static.
    library: u64,
    /// Its other code.
    own: u64,
    /// Its file, with that library code in it.
    disk: u64,
    /// The same with each library counted whole.
    whole_library: u64,
    whole_disk: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum How {
    Symbols,
    Archive,
    #[default]
    Not,
}

/// Sums over a set, for the figures that have no sum of their own in the report.
#[derive(Default)]
struct Whole {
    library: u64,
    own: u64,
    disk: u64,
}

impl Measurer {
    /// `archives` are asked before those that are found, and for static programs too.
    pub fn new(archives: &[PathBuf], options: Options) -> Self {
        Self { shelf: Shelf::new(&options.root, archives), options, unseen: Vec::new() }
    }

    /// Measures one set: files, and the files in folders among them. One inode counts once, whatever its names.
    pub fn set(&mut self, name: &str, programs: &[PathBuf]) -> LibrarySet {
        let mut set = LibrarySet { name: name.to_owned(), ..LibrarySet::default() };
        let mut whole = Whole::default();
        let mut inodes = HashSet::new();
        let mut left = 0;
        for path in self.files(programs) {
            if !(self.options.goes_on)() {
                left += 1;
                continue;
            }
            if !(self.options.at)(&path) {
                set.skipped += 1;
                continue;
            }
            match self.program(&path, &mut inodes) {
                Ok(Some(counted)) => add(&mut set, &mut whole, &path, &counted),
                Ok(None) => {}
                Err(why) => {
                    set.skipped += 1;
                    if let Some(why) = why {
                        self.see_not(path.display().to_string(), why);
                    }
                }
            }
        }
        if left > 0 {
            self.see_not(
                format!("{left} files of the set {name}"),
                "the budget was spent: give a larger --budget",
            );
        }
        set.code_fraction = fraction(set.library_code_bytes, set.library_code_bytes + set.own_code_bytes);
        set.disk_fraction = fraction(set.library_code_bytes, set.disk_bytes);
        set.whole_code_fraction = fraction(whole.library, whole.library + whole.own);
        set.whole_disk_fraction = fraction(whole.library, whole.disk);
        set
    }

    /// What could not be used, and why: damaged programs and archives.
    pub fn unseen(mut self) -> Vec<Unseen> {
        for (path, why) in std::mem::take(&mut self.shelf.refused) {
            self.see_not(path.display().to_string(), &why);
        }
        self.unseen
    }

    fn see_not(&mut self, what: String, why: &str) {
        self.unseen.push(Unseen { what, why: why.to_owned() });
    }

    fn files(&mut self, programs: &[PathBuf]) -> Vec<PathBuf> {
        let (mut files, mut refused) = (Vec::new(), Vec::new());
        let at = &self.options.at;
        for path in programs {
            // What is passed over is passed over again when it is to be measured.
            if !at(path) || !path.is_dir() {
                files.push(path.clone());
                continue;
            }
            match std::fs::read_dir(path) {
                Ok(entries) => {
                    let mut inside: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
                    inside.retain(|path| !at(path) || !path.is_dir());
                    inside.sort();
                    files.extend(inside);
                }
                Err(error) => refused.push((path.display().to_string(), error.to_string())),
            }
        }
        refused.into_iter().for_each(|(what, why)| self.see_not(what, &why));
        files
    }

    /// Measures one file. None: it was measured under another name. An error: it is no program, with a reason if that
    /// is worth telling.
    fn program(
        &mut self,
        path: &Path,
        inodes: &mut HashSet<(u64, u64)>,
    ) -> Result<Option<Counted>, Option<&'static str>> {
        let mut file = self.open(path).map_err(|_| Some("cannot be opened"))?;
        let facts = file.metadata().map_err(|_| Some("cannot be read"))?;
        if !facts.is_file() {
            return Err(None);
        }
        if !inodes.insert((facts.dev(), facts.ino())) {
            return Ok(None);
        }
        let image = elf::image(&mut file, &mut self.shelf.names).map_err(Some)?.ok_or(None)?;
        match image.role {
            Role::Dynamic => Ok(Some(self.dynamic(&image, self.folder(path).as_deref(), facts.size()))),
            Role::Static => Ok(Some(self.complete(&image, facts.size()))),
            Role::Library | Role::Other => Err(None),
        }
    }

    /// Opens by the path that this machine has; below another root its links are followed inside.
    fn open(&self, path: &Path) -> std::io::Result<File> {
        match self.shelf.places.inner(path) {
            Some(inner) if self.options.root != Path::new("/") => self.shelf.places.open(inner),
            _ => find::open_plain(path),
        }
    }

    /// The folder of a program, as those see it whose root is the root.
    fn folder(&self, path: &Path) -> Option<PathBuf> {
        let real = std::fs::canonicalize(path).ok()?;
        let inner = self.shelf.places.inner(&real).map(|inner| Path::new("/").join(inner));
        inner.unwrap_or(real).parent().map(Path::to_owned)
    }

    fn complete(&mut self, image: &Image, size: u64) -> Counted {
        if image.functions.is_empty() {
            return Counted { own: image.code_bytes, disk: size, whole_disk: size, ..Counted::default() };
        }
        let archives = self.shelf.for_static(image.target);
        let library = symbols::library_code(image, &archives, &mut self.shelf.names);
        Counted {
            how: How::Symbols,
            library,
            own: image.code_bytes - library,
            disk: size,
            whole_library: library,
            whole_disk: size,
        }
    }

    fn dynamic(&mut self, image: &Image, folder: Option<&Path>, size: u64) -> Counted {
        let libraries = self.shelf.needed(image, folder);
        let archives = self.shelf.for_link(image.target, &libraries);
        let pulled = closure::closure(&image.undefined, &image.exports, &archives, &mut self.shelf.names);
        let whole: u64 = libraries.iter().filter_map(|library| library.code_bytes).sum();
        // Without section headers its symbols are not found, which is not to say that it needs none.
        let has_symbols = !image.undefined.is_empty() || (image.has_sections && image.needed.is_empty());
        let from_no_archive = |name: &names::Name| self.comes_from_no_archive(*name, &libraries);
        let counted = has_symbols && !pulled.unresolved.iter().any(from_no_archive);
        let library = if counted { pulled.code_bytes } else { 0 };
        Counted {
            how: if counted { How::Archive } else { How::Not },
            library,
            own: image.code_bytes,
            disk: size + library,
            whole_library: whole,
            whole_disk: size + whole,
        }
    }

    /// Whether a symbol that no archive defines is a library's that has none. What the libraries with archives lack is
    /// the linker's own (`_GLOBAL_OFFSET_TABLE_`), the program's (`main`), or the loader's.
    fn comes_from_no_archive(&self, name: names::Name, libraries: &[Rc<Library>]) -> bool {
        let mut without = libraries.iter().filter(|library| library.archives.is_none()).peekable();
        let missing = |library: &Rc<Library>| library.code_bytes.is_none();
        if without.clone().any(missing) && !of_the_linker(self.shelf.names.text(name)) {
            let known =
                libraries.iter().any(|library| library.archives.is_some() && library.exports.contains(&name));
            return !known;
        }
        without.any(|library| library.exports.contains(&name))
    }
}

/// Names that a linker or the start files define.
fn of_the_linker(name: &[u8]) -> bool {
    const EXACT: &[&[u8]] = &[
        b"main",
        b"_start",
        b"_init",
        b"_fini",
        b"_end",
        b"end",
        b"_edata",
        b"edata",
        b"_etext",
        b"etext",
        b"__bss_start",
        b"_DYNAMIC",
        b"_GLOBAL_OFFSET_TABLE_",
        b"__ehdr_start",
        b"__executable_start",
        b"__dso_handle",
        b"__TMC_END__",
        b"_TLS_MODULE_BASE_",
    ];
    const STARTS: &[&[u8]] = &[
        b"__start_",
        b"__stop_",
        b"__rela_iplt_",
        b"__rel_iplt_",
        b"__init_array_",
        b"__fini_array_",
        b"__preinit_array_",
    ];
    EXACT.contains(&name) || STARTS.iter().any(|start| name.starts_with(start))
}

fn add(set: &mut LibrarySet, whole: &mut Whole, path: &Path, counted: &Counted) {
    set.programs += 1;
    whole.library += counted.whole_library;
    whole.own += counted.own;
    whole.disk += counted.whole_disk;
    match counted.how {
        How::Symbols => set.by_symbols += 1,
        How::Archive => set.by_archive += 1,
        How::Not => {
            set.uncounted += 1;
            return;
        }
    }
    set.library_code_bytes += counted.library;
    set.own_code_bytes += counted.own;
    set.disk_bytes += counted.disk;
    if let Some(part) = fraction(counted.library, counted.library + counted.own)
        && set.most.as_ref().is_none_or(|(_, most)| part > *most)
    {
        set.most = Some((path.display().to_string(), part));
    }
}

fn fraction(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

#[cfg(test)]
mod tests;
