//! The words that a loader wrote into a process, said so that those of two processes can be compared: not as addresses, but
//! as places in files.

use crate::elf::{Elf, Kind};
use crate::plan::{Files, Program};
use crate::store::Store;
use crate::{Error, Result};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// A place in an object of the program.
    Place { object: usize, offset: u64 },
    /// Memory that no object has: the heap, the stack.
    Elsewhere,
    /// A number.
    Number(u64),
}

/// All that a loader wrote, object by object.
pub struct Words {
    all: Vec<Vec<Word>>,
    /// How many objects are copies.
    pub copies: usize,
}

impl Words {
    /// How many words.
    pub fn len(&self) -> usize {
        self.all.iter().map(Vec::len).sum()
    }
}

/// A word that is not the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// In which file.
    pub file: PathBuf,
    /// At which address of it.
    pub address: u64,
    /// The symbol that it is about, if it is about one.
    pub symbol: Option<String>,
    /// What it says without copies, and with.
    pub says: (String, String),
}

/// The addresses of the words of a file that a loader writes, but for those about thread-local storage, whose place
/// depends on what else the loader has loaded.
fn addresses(elf: &Elf) -> impl Iterator<Item = (u64, u32)> {
    let kinds = |kind| !matches!(kind, Kind::None | Kind::Copy | Kind::ThreadLocal | Kind::Other(_));
    let named =
        elf.relocations.named().filter(move |one| kinds(one.kind)).map(|one| (one.address, one.symbol));
    named.chain(elf.relocations.relative.iter().map(|address| (*address, 0)))
}

/// A mapping of a process.
struct Mapping {
    first: u64,
    end: u64,
    path: PathBuf,
}

fn mappings(process: i32) -> Result<Vec<Mapping>> {
    let path = PathBuf::from(format!("/proc/{process}/maps"));
    let text = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
    let one = |line: &str| {
        let (range, _) = line.split_once(' ')?;
        let (first, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let path = line.find('/').map_or("", |at| &line[at..]);
        Some(Mapping { first: number(first)?, end: number(end)?, path: path.into() })
    };
    Ok(text.lines().filter_map(one).collect())
}

/// Reads them all from a process that has stopped.
pub fn read(process: i32, store: &Store, files: &Files, program: &Program) -> Result<Words> {
    let mappings = mappings(process)?;
    let origin_of = store.origins()?;
    // The first mapping of each file is its beginning.
    let mut firsts: HashMap<PathBuf, (u64, bool)> = HashMap::new();
    for one in &mappings {
        let origin = origin_of(&one.path);
        let is_copy = origin.is_some();
        let path = origin.map_or_else(|| one.path.clone(), |origin| origin.path);
        let real = path.canonicalize().unwrap_or(path);
        firsts.entry(real).or_insert((one.first, is_copy));
    }
    let objects: Vec<(&Elf, u64, bool)> = program
        .files
        .iter()
        .map(|id| {
            let elf = files.elf(*id);
            let (first, is_copy) = firsts.get(&elf.path).copied().unwrap_or((0, false));
            (elf, first.wrapping_sub(elf.extent().0 & !0xfff), is_copy)
        })
        .collect();
    let meaning = |value: u64| {
        let within = |(elf, base, _): &(&Elf, u64, bool)| {
            let (first, end) = elf.extent();
            (first..=end).contains(&value.wrapping_sub(*base))
        };
        match objects.iter().position(within) {
            Some(object) => Word::Place { object, offset: value.wrapping_sub(objects[object].1) },
            None if mappings.iter().any(|one| (one.first..one.end).contains(&value)) => Word::Elsewhere,
            None => Word::Number(value),
        }
    };
    let path = PathBuf::from(format!("/proc/{process}/mem"));
    let memory = File::open(&path).map_err(Error::file(&path))?;
    let mut all = Vec::new();
    for (elf, base, _) in &objects {
        let values = values(&memory, &path, elf, *base)?;
        all.push(values.into_iter().map(meaning).collect());
    }
    Ok(Words { all, copies: objects.iter().filter(|(_, _, is_copy)| *is_copy).count() })
}

/// The words of one object, by reading each of its segments once.
fn values(memory: &File, path: &Path, elf: &Elf, base: u64) -> Result<Vec<u64>> {
    let mut segments = Vec::new();
    for load in elf.loads() {
        const WRITABLE: u32 = 2;
        let mut bytes = vec![0; if load.flags & WRITABLE == 0 { 0 } else { load.memory_bytes as usize }];
        memory.read_exact_at(&mut bytes, base.wrapping_add(load.address)).map_err(Error::file(path))?;
        segments.push((load.address, bytes));
    }
    let value = |address: u64| {
        segments.iter().find_map(|(first, bytes)| {
            let at = usize::try_from(address.checked_sub(*first)?).ok()?;
            Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        })
    };
    Ok(addresses(elf).map(|(address, _)| value(address).unwrap_or(0)).collect())
}

/// Where two processes of a program do not say the same.
pub fn differences(files: &Files, program: &Program, one: &Words, other: &Words) -> Vec<Difference> {
    let objects: Vec<&Elf> = program.files.iter().map(|id| files.elf(*id)).collect();
    let text = |word: &Word| match word {
        Word::Place { object, offset } => format!("{}+{offset:#x}", objects[*object].path.display()),
        Word::Elsewhere => "memory of no file".to_owned(),
        Word::Number(number) => format!("{number:#x}"),
    };
    let mut all = Vec::new();
    for ((elf, ours), theirs) in objects.iter().zip(&one.all).zip(&other.all) {
        for (((address, symbol), ours), theirs) in addresses(elf).zip(ours).zip(theirs) {
            if ours != theirs {
                let name = (symbol != 0).then(|| String::from_utf8_lossy(elf.name(symbol)).into_owned());
                all.push(Difference {
                    file: elf.path.clone(),
                    address,
                    symbol: name,
                    says: (text(ours), text(theirs)),
                });
            }
        }
    }
    all
}
