//! smaps of one process: parsed mapping by mapping, and reduced to what the figures need.

use super::Mapping;
use procfs_core::FromBufRead;
use procfs_core::process::{MMPermissions, MemoryMaps};
use std::ffi::OsStr;
use std::io::{self, BufRead};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The file behind a mapping, as smaps names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backing {
    /// Device of the file system (not always the one that stat gives).
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Path at the time, without the kernel's mark.
    pub path: PathBuf,
    /// The kernel marked it ` (deleted)`.
    pub deleted: bool,
}

impl Backing {
    /// Memory that has an inode but never had a name in a file system: shared anonymous memory, System V, memfd.
    pub fn is_nameless(&self) -> bool {
        let path = self.path.as_os_str().as_bytes();
        let starts = |prefix: &[u8]| path.starts_with(prefix);
        starts(b"/memfd:") || starts(b"/SYSV") || starts(b"[anon_shmem") || starts(b"/anon_hugepage") || {
            path == b"/dev/zero" && self.deleted
        }
    }
}

/// A mapping as it was seen, before its file is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Everything but [`Mapping::file`].
    pub mapping: Mapping,
    /// The file behind it.
    pub backing: Option<Backing>,
}

/// Parses smaps one mapping at a time: a process with a hundred thousand of them takes no more memory than its result.
pub fn parse(mut reader: impl BufRead, mut each: impl FnMut(Seen)) -> io::Result<()> {
    let mut block = Vec::with_capacity(1024);
    let mut header = Vec::with_capacity(256);
    let mut line = Vec::with_capacity(256);
    loop {
        line.clear();
        let ended = reader.read_until(b'\n', &mut line)? == 0;
        // Attributes begin with a capital letter, mappings with a hexadecimal digit in lower case.
        if ended || !line.first().is_some_and(u8::is_ascii_uppercase) {
            if !header.is_empty() {
                each(one(&header, &mut block)?);
            }
            if ended {
                return Ok(());
            }
            std::mem::swap(&mut header, &mut line);
            block.clear();
        } else if tells(&line) {
            block.extend_from_slice(&line);
        }
    }
}

/// Whether an attribute changes anything: most are zero, which is what those that are missing count as. The one that
/// is not missed where it is zero is Pss_Dirty, which tells a newer kernel from an older one.
fn tells(line: &[u8]) -> bool {
    let is_zero = line.ends_with(b" 0 kB\n");
    (!is_zero || line.starts_with(b"Pss_Dirty:")) && !line.starts_with(b"VmFlags:")
}

/// One mapping: its first line, and the attributes below.
fn one(header: &[u8], block: &mut Vec<u8>) -> io::Result<Seen> {
    let (numbers, path) = split_path(header);
    if numbers.contains(&b'/') {
        return Err(io::ErrorKind::InvalidData.into()); // a number is missing, and the path in its place
    }
    // The path is kept from the parser: any byte may stand in it.
    let mut text = Vec::with_capacity(numbers.len() + block.len() + 2);
    text.extend_from_slice(numbers);
    text.extend_from_slice(b" \n");
    text.append(block);
    let parsed = MemoryMaps::from_buf_read(&*text).map_err(|error| io::Error::other(error.to_string()))?;
    let Some(map) = parsed.0.first() else { return Err(io::ErrorKind::InvalidData.into()) };
    // No process has more: what is summed up stays a number.
    const MOST_BYTES: u64 = 1 << 47;
    let size = |name: &str| map.extension.map.get(name).map_or(0, |bytes| (*bytes).min(MOST_BYTES));
    let mut mapping = Mapping {
        start: map.address.0,
        end: map.address.1,
        read: map.perms.contains(MMPermissions::READ),
        write: map.perms.contains(MMPermissions::WRITE),
        execute: map.perms.contains(MMPermissions::EXECUTE),
        shared: map.perms.contains(MMPermissions::SHARED),
        offset: map.offset,
        resident: size("Rss"),
        proportional: size("Pss"),
        // Kernels before 6.0 do not tell it: private dirty pages are the best that is known then.
        proportional_dirty: if map.extension.map.contains_key("Pss_Dirty") {
            size("Pss_Dirty")
        } else {
            size("Private_Dirty")
        },
        shared_clean: size("Shared_Clean"),
        shared_dirty: size("Shared_Dirty"),
        private_clean: size("Private_Clean"),
        private_dirty: size("Private_Dirty"),
        anonymous: size("Anonymous"),
        merged: size("KSM"),
        huge: size("AnonHugePages") + size("ShmemPmdMapped") + size("FilePmdMapped"),
        swap: size("Swap"),
        swap_proportional: size("SwapPss"),
        hugetlb: size("Shared_Hugetlb") + size("Private_Hugetlb"),
        ..Mapping::default()
    };
    // A segment of System V may have inode 0: the path tells whether there is a file.
    let has_file = path.starts_with(b"/") || path.starts_with(b"[anon_shmem");
    if !has_file {
        mapping.label = String::from_utf8_lossy(path).into_owned();
        return Ok(Seen { mapping, backing: None });
    }
    let number = |value: i32| u32::try_from(value).unwrap_or(0);
    let device = rustix::fs::makedev(number(map.dev.0), number(map.dev.1));
    let (path, deleted) = path.strip_suffix(b" (deleted)").map_or((path, false), |path| (path, true));
    let path = PathBuf::from(OsStr::from_bytes(&unescaped(path)));
    Ok(Seen { mapping, backing: Some(Backing { device, inode: map.inode, path, deleted }) })
}

/// The five numbers of a first line, and the path after them.
fn split_path(header: &[u8]) -> (&[u8], &[u8]) {
    let header = header.strip_suffix(b"\n").unwrap_or(header);
    let mut rest = 0;
    for _ in 0..5 {
        let word = header[rest..].iter().take_while(|byte| **byte != b' ').count();
        let gap = header[rest + word..].iter().take_while(|byte| **byte == b' ').count();
        if word == 0 {
            break;
        }
        rest += word + gap;
    }
    (header[..rest].trim_ascii_end(), &header[rest..])
}

/// The kernel writes a line feed in a path as \012, and nothing else so.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, others)) = rest.split_first() {
        if let Some(others) = rest.strip_prefix(b"\\012") {
            plain.push(b'\n');
            rest = others;
        } else {
            plain.push(*first);
            rest = others;
        }
    }
    plain
}

/// Anonymous memory of one label and protection becomes one entry, in the place of the first: heaps and stacks of a
/// process may be thousands of mappings, and only their sums are asked for.
pub fn reduce(mappings: Vec<Mapping>) -> Vec<Mapping> {
    let mut reduced: Vec<Mapping> = Vec::with_capacity(mappings.len().min(256));
    let mut anonymous: Vec<usize> = Vec::new();
    for mapping in mappings {
        if mapping.file.is_some() {
            reduced.push(mapping);
            continue;
        }
        let same = anonymous.iter().copied().find(|place| alike(&reduced[*place], &mapping));
        match same {
            Some(place) => add(&mut reduced[place], &mapping),
            None => {
                anonymous.push(reduced.len());
                reduced.push(mapping);
            }
        }
    }
    reduced.shrink_to_fit();
    reduced
}

fn alike(a: &Mapping, b: &Mapping) -> bool {
    (a.read, a.write, a.execute, a.shared) == (b.read, b.write, b.execute, b.shared) && a.label == b.label
}

fn add(sum: &mut Mapping, more: &Mapping) {
    sum.end = sum.end.max(more.end);
    sum.resident += more.resident;
    sum.proportional += more.proportional;
    sum.proportional_dirty += more.proportional_dirty;
    sum.shared_clean += more.shared_clean;
    sum.shared_dirty += more.shared_dirty;
    sum.private_clean += more.private_clean;
    sum.private_dirty += more.private_dirty;
    sum.anonymous += more.anonymous;
    sum.merged += more.merged;
    sum.huge += more.huge;
    sum.swap += more.swap;
    sum.swap_proportional += more.swap_proportional;
    sum.hugetlb += more.hugetlb;
}

#[cfg(test)]
#[path = "mappings_tests.rs"]
mod tests;
