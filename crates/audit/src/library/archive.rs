//! An archive of relocatable files (`libNAME.a`): which member defines a symbol, and what that member holds.
//!
//! Members are read when they are first asked for: most programs need a part of a library.

use super::elf::{self, Function, Member, Target};
use super::names::{Name, Names};
use object::read::archive::ArchiveFile;
use object::read::{ReadCache, ReadRef};
use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A member larger than this is none that a library was built from.
const LARGEST_MEMBER_BYTES: u64 = 256 << 20;

/// An archive.
#[derive(Debug)]
pub struct Archive {
    /// Where it is.
    pub path: PathBuf,
    file: File,
    /// Offset and length of each member's content.
    ranges: Vec<(u64, u64)>,
    members: RefCell<Vec<Option<std::rc::Rc<Member>>>>,
    /// Which member defines a symbol.
    index: HashMap<Name, usize>,
    functions: OnceCell<Functions>,
    /// For what machine its first member is.
    target: Option<Target>,
}

/// The functions of a whole archive.
#[derive(Debug, Default)]
pub struct Functions {
    /// Those that other files can name.
    pub global: HashSet<Name>,
    /// The others, with their sizes: names such as `init` are in many files.
    pub local: HashSet<(Name, u64)>,
}

impl Archive {
    /// Reads the index. What is damaged, thin, or no archive at all is refused with the reason.
    pub fn open(path: PathBuf, file: File, names: &mut Names) -> Result<Self, &'static str> {
        let (ranges, index) = index(&file, names)?;
        let members = RefCell::new(vec![None; ranges.len()]);
        let mut archive =
            Self { path, file, ranges, members, index, functions: OnceCell::new(), target: None };
        if archive.index.is_empty() {
            archive.index_by_members(names);
        }
        archive.target =
            (0..archive.ranges.len()).find_map(|place| archive.read(place, names)).map(|(target, _)| target);
        Ok(archive)
    }

    /// Whether its members can be linked with files of this target; an empty one can.
    pub fn fits(&self, target: Target) -> bool {
        self.target.is_none_or(|own| own == target)
    }

    /// The member that defines a symbol.
    pub fn defines(&self, name: Name) -> Option<usize> {
        self.index.get(&name).copied()
    }

    /// A member; one that cannot be read is empty.
    pub fn member(&self, place: usize, names: &mut Names) -> std::rc::Rc<Member> {
        if let Some(Some(member)) = self.members.borrow().get(place) {
            return member.clone();
        }
        let member = std::rc::Rc::new(self.read(place, names).map(|(_, member)| member).unwrap_or_default());
        if let Some(slot) = self.members.borrow_mut().get_mut(place) {
            *slot = Some(member.clone());
        }
        member
    }

    /// All functions of all members.
    pub fn functions(&self, names: &mut Names) -> &Functions {
        if let Some(functions) = self.functions.get() {
            return functions;
        }
        let mut all = Functions::default();
        for place in 0..self.ranges.len() {
            for Function { name, size, global, .. } in &self.member(place, names).functions {
                if *global {
                    all.global.insert(*name);
                } else {
                    all.local.insert((*name, *size));
                }
            }
        }
        self.functions.get_or_init(|| all)
    }

    fn read(&self, place: usize, names: &mut Names) -> Option<(Target, Member)> {
        let (offset, length) = *self.ranges.get(place)?;
        let mut bytes = vec![0; usize::try_from(length.min(LARGEST_MEMBER_BYTES)).ok()?];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        elf::member(&bytes, names)
    }

    /// An archive without an index (made by `ar` with S) is read as a whole.
    fn index_by_members(&mut self, names: &mut Names) {
        for place in 0..self.ranges.len() {
            for name in &self.member(place, names).defined {
                self.index.entry(*name).or_insert(place);
            }
        }
    }
}

type Index = (Vec<(u64, u64)>, HashMap<Name, usize>);

fn index(file: &File, names: &mut Names) -> Result<Index, &'static str> {
    let length = file.metadata().map_err(|_| "cannot be read")?.len();
    index_of(&ReadCache::new(file), length, names)
}

/// The same of these bytes of it.
pub(super) fn index_of<'data>(
    data: impl ReadRef<'data>,
    length: u64,
    names: &mut Names,
) -> Result<Index, &'static str> {
    let damaged = "the archive is damaged";
    let archive = ArchiveFile::parse(data).map_err(|_| damaged)?;
    if archive.is_thin() {
        return Err("a thin archive has no members of its own: give the whole one");
    }
    let mut ranges = Vec::new();
    let mut places: HashMap<u64, usize> = HashMap::new();
    for member in archive.members() {
        let (offset, size) = member.map_err(|_| damaged)?.file_range();
        if offset.checked_add(size).is_none_or(|end| end > length) {
            return Err("the archive is truncated");
        }
        places.insert(offset, ranges.len());
        ranges.push((offset, size));
    }
    let mut index = HashMap::new();
    for symbol in archive.symbols().map_err(|_| damaged)?.into_iter().flatten() {
        let symbol = symbol.map_err(|_| damaged)?;
        let (offset, _) = archive.member(symbol.offset()).map_err(|_| damaged)?.file_range();
        if let Some(place) = places.get(&offset) {
            index.entry(names.of(symbol.name())).or_insert(*place);
        }
    }
    Ok((ranges, index))
}
