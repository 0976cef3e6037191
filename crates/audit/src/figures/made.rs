//! Made machines for tests: processes map pages of files, and the snapshot says of them what the kernel would say.
//!
//! Everything is counted from the pages themselves (who maps which frame), in KiB rounded down as smaps does, so that a
//! test's expectation and the snapshot have different sources.

use crate::snapshot::{Elf, File, FileKey, Mapping, Process, Rights, Snapshot};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::PathBuf;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Frames of one file lie together, far from those of others; copies and heaps lie above all files.
const FRAMES_OF_A_FILE: u64 = 1 << 20;
const ANONYMOUS_FRAMES: u64 = 1 << 40;

/// A mapping to be made: in pages.
#[derive(Clone, Debug)]
pub struct Map {
    file: Option<usize>,
    offset: u64,
    length: u64,
    permissions: &'static str,
    resident: BTreeSet<u64>,
    copied: BTreeSet<u64>,
}

impl Map {
    fn new(file: Option<usize>, offset: u64, length: u64, permissions: &'static str) -> Self {
        Self { file, offset, length, permissions, resident: (0..length).collect(), copied: BTreeSet::new() }
    }

    /// Text of a file.
    pub fn text(file: usize, offset: u64, length: u64) -> Self {
        Self::new(Some(file), offset, length, "r-xp")
    }

    /// What is only read.
    pub fn constants(file: usize, offset: u64, length: u64) -> Self {
        Self::new(Some(file), offset, length, "r--p")
    }

    /// Writable data of a file.
    pub fn data(file: usize, offset: u64, length: u64) -> Self {
        Self::new(Some(file), offset, length, "rw-p")
    }

    /// Written in place.
    pub fn shared(file: usize, offset: u64, length: u64) -> Self {
        Self::new(Some(file), offset, length, "rw-s")
    }

    /// Anonymous memory, all of it in use.
    pub fn heap(length: u64) -> Self {
        Self::new(None, 0, length, "rw-p").copied(0..length)
    }

    /// Only these pages of the mapping are in memory.
    pub fn resident(mut self, pages: Range<u64>) -> Self {
        self.resident = pages.collect();
        self.copied.retain(|page| self.resident.contains(page));
        self
    }

    /// These pages were copied on write.
    pub fn copied(mut self, pages: Range<u64>) -> Self {
        self.copied = pages.collect();
        self.resident.extend(&self.copied);
        self
    }
}

/// A mapping with the frame of each resident page.
#[derive(Clone, Debug)]
struct Made {
    map: Map,
    frames: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug, Default)]
struct MadeProcess {
    process: Process,
    maps: Vec<Made>,
    outside: bool,
}

/// A machine under construction.
#[derive(Clone, Debug, Default)]
pub struct World {
    files: Vec<File>,
    /// The file whose frames a file has.
    origins: Vec<u64>,
    processes: Vec<MadeProcess>,
    anonymous: u64,
    frames: bool,
}

impl World {
    /// A library of so many pages, on a file system of its own kind; its content is its own.
    pub fn file(&mut self, path: &str, pages: u64) -> usize {
        let place = self.files.len();
        self.files.push(File {
            key: FileKey { device: 1, inode: 100 + place as u64 },
            path: PathBuf::from(path),
            size: Some(pages * PAGE),
            elf: Some(Elf { architecture: "x86_64".to_owned(), ..Elf::default() }),
            content: Some(hash(place)),
            file_system: "ext4".to_owned(),
            rights: Some(Rights { uid: 0, gid: 0, mode: 0o644, apart_from_others: true }),
            ..File::default()
        });
        self.origins.push(place as u64);
        place
    }

    /// A file with the content of another, and frames of its own.
    pub fn copy(&mut self, path: &str, of: usize) -> usize {
        let place = self.file(path, 0);
        self.files[place] = File {
            key: self.files[place].key,
            path: self.files[place].path.clone(),
            ..self.files[of].clone()
        };
        place
    }

    /// The same file seen through another overlay mount: another device, the same inode and frames.
    pub fn same_frames(&mut self, path: &str, of: usize) -> usize {
        let place = self.copy(path, of);
        self.files[of].file_system = "overlay".to_owned();
        self.files[place].file_system = "overlay".to_owned();
        self.files[place].key = FileKey { device: 50 + place as u64, inode: self.files[of].key.inode };
        self.origins[place] = self.origins[of];
        place
    }

    /// A file, to be changed.
    pub fn file_mut(&mut self, file: usize) -> &mut File {
        &mut self.files[file]
    }

    /// A process without mappings.
    pub fn process(&mut self, name: &str) -> usize {
        let place = self.processes.len();
        let process = Process {
            pid: 1000 + place as u32,
            parent: 1,
            name: name.to_owned(),
            page_table_bytes: Some(64 * PAGE),
            ..Process::default()
        };
        self.processes.push(MadeProcess { process, ..MadeProcess::default() });
        place
    }

    /// A child that shares every frame with its parent, copies too.
    pub fn fork(&mut self, process: usize) -> usize {
        let place = self.processes.len();
        let mut child = self.processes[process].clone();
        child.process.pid = 1000 + place as u32;
        self.processes.push(child);
        place
    }

    /// A process, to be changed.
    pub fn process_mut(&mut self, process: usize) -> &mut Process {
        &mut self.processes[process].process
    }

    /// Names the executable of a process.
    pub fn program(&mut self, process: usize, file: usize) {
        self.processes[process].process.program = Some(file);
    }

    /// The process is not in scope: the kernel counts its mappings, the snapshot does not have them.
    pub fn outside(&mut self, process: usize) {
        self.processes[process].outside = true;
    }

    /// Adds a mapping to a process.
    pub fn map(&mut self, process: usize, map: Map) {
        let mut frames = BTreeMap::new();
        for page in &map.resident {
            let frame = match map.file {
                Some(file) if !map.copied.contains(page) => {
                    (1 + self.origins[file]) * FRAMES_OF_A_FILE + map.offset + page
                }
                _ => {
                    self.anonymous += 1;
                    ANONYMOUS_FRAMES + self.anonymous
                }
            };
            frames.insert(*page, frame);
        }
        self.processes[process].maps.push(Made { map, frames });
    }

    /// Whether frame numbers may be known.
    pub fn frames(mut self, known: bool) -> Self {
        self.frames = known;
        self
    }

    /// Bytes of all frames of files that text mappings hold.
    pub fn text_union(&self) -> u64 {
        let text = self
            .processes
            .iter()
            .flat_map(|process| &process.maps)
            .filter(|made| made.map.permissions == "r-xp");
        let frames = text.flat_map(|made| made.frames.values().filter(|frame| **frame < ANONYMOUS_FRAMES));
        frames.collect::<BTreeSet<_>>().len() as u64 * PAGE
    }

    /// What the kernel would say of it.
    pub fn snapshot(&self) -> Snapshot {
        let mut mappers: HashMap<u64, u64> = HashMap::new();
        for frame in self.processes.iter().flat_map(|p| &p.maps).flat_map(|made| made.frames.values()) {
            *mappers.entry(*frame).or_default() += 1;
        }
        let mut files = self.files.clone();
        let mut processes = Vec::new();
        for made in self.processes.iter().filter(|made| !made.outside) {
            let mut process = made.process.clone();
            let mut address = 0x10_0000_0000;
            for one in &made.maps {
                process.mappings.push(mapping(one, address, &mappers));
                address += (one.map.length + 16) * PAGE;
                if let (true, Some(file)) = (self.frames, one.map.file) {
                    let known = files[file].frames.get_or_insert_default();
                    let own = one.frames.iter().filter(|(page, _)| !one.map.copied.contains(page));
                    known.extend(own.map(|(page, frame)| ((one.map.offset + page) as u32, *frame)));
                }
            }
            processes.push(process);
        }
        Snapshot { page_bytes: PAGE, has_frames: self.frames, processes, files, ..Snapshot::default() }
    }
}

fn mapping(made: &Made, start: u64, mappers: &HashMap<u64, u64>) -> Mapping {
    let map = &made.map;
    let has = |letter| map.permissions.contains(letter);
    let mut one = Mapping {
        start,
        end: start + map.length * PAGE,
        read: has('r'),
        write: has('w'),
        execute: has('x'),
        shared: has('s'),
        offset: map.offset * PAGE,
        file: map.file,
        resident: map.resident.len() as u64 * PAGE,
        anonymous: map.copied.len() as u64 * PAGE,
        ..Mapping::default()
    };
    // Shares are summed in 4096ths of a byte and rounded down to a KiB at the end, as the kernel does.
    let (mut share, mut dirty_share) = (0, 0);
    for (page, frame) in &made.frames {
        let count = mappers[frame];
        let part = (PAGE << 12) / count;
        share += part;
        let copied = map.copied.contains(page);
        dirty_share += if copied { part } else { 0 };
        *match (count > 1, copied) {
            (true, true) => &mut one.shared_dirty,
            (true, false) => &mut one.shared_clean,
            (false, true) => &mut one.private_dirty,
            (false, false) => &mut one.private_clean,
        } += PAGE;
    }
    one.proportional = (share >> 22) << 10;
    one.proportional_dirty = (dirty_share >> 22) << 10;
    one
}

fn hash(of: usize) -> [u8; 32] {
    *blake3::hash(&of.to_le_bytes()).as_bytes()
}
