//! Copies of Python's own tree, and the libraries of this machine that may stand in for those of two roots.

use crate::failure::{Doing, Result, skipped};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a Python tree does not need to run.
const LEFT_OUT: &[&str] = &[
    "__pycache__",
    "dist-packages",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtledemo",
];
/// Sizes of libraries that are worth the trouble and quickly copied.
const SIZES: std::ops::Range<u64> = 100 << 10..6 << 20;
/// Where distributions keep libraries.
const FOLDERS: &[&str] =
    &["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// The Python that trees are copied from.
#[derive(Debug)]
pub struct Python {
    program: PathBuf,
    library: PathBuf,
    shared: Option<PathBuf>,
}

impl Python {
    /// Asks an interpreter what belongs to it.
    pub fn of(program: &Path) -> Result<Python> {
        let ask = "import sysconfig, re; maps = open('/proc/self/maps').read(); \
                   shared = re.findall(r'/\\S*/libpython3\\S*', maps); \
                   print(sysconfig.get_path('stdlib')); print(shared[0] if shared else '')";
        let output = Command::new(program).args(["-I", "-c", ask]).output().doing("asking Python")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = text.lines();
        let library = PathBuf::from(lines.next().unwrap_or_default());
        if !library.is_dir() {
            return skipped(format!("{} does not say where its library is", program.display()));
        }
        let shared = lines.next().filter(|path| !path.is_empty()).map(PathBuf::from);
        Ok(Python { program: program.to_owned(), library, shared })
    }

    /// Makes a tree that runs by itself: `bin/python3`, `lib/python3.N`, and `lib/libpython3` if there is one.
    pub fn copy(&self, tree: &Path) -> Result<()> {
        fs::create_dir_all(tree.join("bin"))?;
        fs::copy(&self.program, tree.join("bin/python3"))?;
        let name = self.library.file_name().map_or_else(OsString::new, OsString::from);
        copy_directory(&self.library, &tree.join("lib").join(name))?;
        if let Some(shared) = &self.shared {
            fs::copy(shared, tree.join("lib").join(shared.file_name().unwrap_or_default()))?;
        }
        Ok(())
    }
}

/// A command that runs a tree's Python on a program text.
pub fn run(tree: &Path, text: &str) -> Command {
    let mut command = Command::new(tree.join("bin/python3"));
    command.env_clear().env("PYTHONHOME", tree).env("LD_LIBRARY_PATH", tree.join("lib"));
    // Bytecode would be written once, between one measurement and the next.
    command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir("/").args(["-S", "-c", text]);
    command
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).doing(format!("listing {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if LEFT_OUT.contains(&&*text) || text.starts_with("config-") {
            continue;
        }
        // Through links: a distribution's tree has some that lead out of it, and some that lead nowhere.
        let Ok(about) = fs::metadata(entry.path()) else { continue };
        if about.is_dir() {
            copy_directory(&entry.path(), &to.join(&name))?;
        } else if about.is_file() {
            fs::copy(entry.path(), to.join(&name))?;
        }
    }
    Ok(())
}

/// That many libraries of this machine that a tree's Python can load, none of which is loaded by itself: so that
/// nobody has them in memory but who loads a copy.
pub fn libraries(tree: &Path, imports: &str, count: usize) -> Result<Vec<PathBuf>> {
    let base = loaded(tree, &format!("import ctypes, {imports}")).unwrap_or_default();
    let mut taken: HashSet<OsString> = base.into_iter().collect();
    let mut chosen: Vec<PathBuf> = Vec::new();
    for candidate in candidates() {
        if chosen.len() == count {
            break;
        }
        let name = candidate.file_name().unwrap_or_default().to_owned();
        if taken.contains(&name) {
            continue;
        }
        let Some(with) =
            loaded(tree, &format!("import ctypes; ctypes.CDLL({:?})", candidate.display().to_string()))
        else {
            continue;
        };
        let needs_a_chosen_one =
            chosen.iter().filter_map(|path| path.file_name()).any(|path| with.iter().any(|n| n == path));
        if !needs_a_chosen_one {
            taken.extend(with);
            chosen.push(candidate);
        }
    }
    if chosen.len() < count {
        return skipped(format!("{} of the {count} libraries needed could be loaded here", chosen.len()));
    }
    Ok(chosen)
}

/// Libraries on this machine under their own names (not links), in the order of their names.
fn candidates() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    for folder in FOLDERS {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let files = entries.filter(|entry| {
            entry.file_name().to_string_lossy().contains(".so")
                && entry.metadata().is_ok_and(|about| about.is_file() && SIZES.contains(&about.len()))
        });
        all.extend(files.map(|entry| entry.path()));
    }
    all.sort();
    all
}

/// Names of all files that a tree's Python has mapped after it ran this; none: it failed.
fn loaded(tree: &Path, text: &str) -> Option<Vec<OsString>> {
    let text = format!("{text}\nprint(open('/proc/self/maps').read())");
    let output = run(tree, &text).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let maps = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    Some(paths.filter_map(|path| path.file_name().map(OsString::from)).collect())
}
