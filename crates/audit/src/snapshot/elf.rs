//! What the headers of an ELF file say. Files may be cut short, damaged, foreign or made to mislead: everything that is
//! read may fail, and nothing of a size that the file chooses is read into memory beyond a limit.

use super::Elf;
use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadCacheOps, ReadRef};
use object::{Endianness, FileKind};
use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// More than all headers of an honest file need together: what is read stays in memory until all is
/// looked at.
const LARGEST_PART: u64 = 16 << 20;
/// Of a name, and of a build ID: the longest in use has 32 bytes.
const LONGEST_NAME: u64 = 4096;
const LONGEST_BUILD_ID: usize = 64;

/// Why a file has no ELF facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is something else.
    OtherKind,
    /// It begins like an ELF file, but what follows does not hold.
    Damaged,
    /// Its segments reach past its end.
    Truncated,
}

impl Unfit {
    /// What is said of it; nothing of files that are something else.
    pub fn why(self) -> Option<&'static str> {
        match self {
            Unfit::OtherKind => None,
            Unfit::Damaged => Some("damaged ELF file: its headers contradict themselves"),
            Unfit::Truncated => Some("truncated ELF file: its segments reach past its end"),
        }
    }
}

/// Reads the facts of a file of this length. By read calls, never through a mapping: a file that shrinks then is an
/// error and not a signal.
pub fn read(file: &File, length: u64, page: u64) -> Result<Elf, Unfit> {
    let mut magic = [0; 4];
    if length < 16 || file.read_exact_at(&mut magic, 0).is_err() || magic != elf::ELFMAG {
        return Err(Unfit::OtherKind);
    }
    let cache = ReadCache::new(Positioned { file, length, at: 0 });
    parse(Limited { cache: &cache, left: &Cell::new(LARGEST_PART) }, length, page)
}

pub(super) fn parse<'a, R: ReadRef<'a>>(data: R, length: u64, page: u64) -> Result<Elf, Unfit> {
    match FileKind::parse(data) {
        Ok(FileKind::Elf32) => facts::<elf::FileHeader32<Endianness>, _>(data, length, page),
        Ok(FileKind::Elf64) => facts::<elf::FileHeader64<Endianness>, _>(data, length, page),
        _ => Err(Unfit::Damaged),
    }
}

fn facts<'a, H: FileHeader<Endian = Endianness>, R: ReadRef<'a>>(
    data: R,
    length: u64,
    page: u64,
) -> Result<Elf, Unfit> {
    let header = H::parse(data).map_err(|_| Unfit::Damaged)?;
    let endian = header.endian().map_err(|_| Unfit::Damaged)?;
    let segments = header.program_headers(endian, data).map_err(|_| Unfit::Damaged)?;
    let mut found = Elf { architecture: architecture(header, endian), ..Elf::default() };
    let mut has_interpreter = false;
    let mut loaded = Vec::new();
    for segment in segments {
        let (offset, size) = segment.file_range(endian);
        match segment.p_type(endian) {
            elf::PT_LOAD => {
                if offset.checked_add(size).is_none_or(|end| end > length) {
                    return Err(Unfit::Truncated);
                }
                loaded.push((segment.p_vaddr(endian).into(), offset, size));
                if segment.p_flags(endian).contains(elf::PF_X) {
                    found.text_bytes = found.text_bytes.saturating_add(size);
                }
            }
            elf::PT_INTERP => has_interpreter = true,
            elf::PT_NOTE if found.build_id.is_none() => {
                found.build_id = build_id::<H, R>(segment, endian, data)
            }
            elf::PT_GNU_RELRO => found.relro.extend(relro::<H>(segment, endian, page)),
            _ => {}
        }
    }
    let dynamic =
        segments.iter().find_map(|segment| segment.dynamic(endian, data).ok().flatten()).unwrap_or(&[]);
    let value = |tag| dynamic.iter().find(|entry| entry.tag(endian) == tag).map(|entry| entry.val(endian));
    found.soname = soname(data, &loaded, value(elf::DT_STRTAB), value(elf::DT_SONAME));
    let is_pie = value(elf::DT_FLAGS_1).is_some_and(|flags| flags & PIE != 0);
    // libc has an interpreter too, so that it can be run to tell its version; it is a library by its name.
    let is_dynamic_program =
        header.e_type(endian) == elf::ET_DYN && (is_pie || has_interpreter && found.soname.is_none());
    found.is_program = header.e_type(endian) == elf::ET_EXEC || is_dynamic_program;
    Ok(found)
}

/// DF_1_PIE.
const PIE: u64 = 0x0800_0000;

fn build_id<'a, H: FileHeader<Endian = Endianness>, R: ReadRef<'a>>(
    segment: &H::ProgramHeader,
    endian: Endianness,
    data: R,
) -> Option<Vec<u8>> {
    let mut notes = segment.notes(endian, data).ok()??;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
            let id = note.desc();
            return (!id.is_empty() && id.len() <= LONGEST_BUILD_ID).then(|| id.to_vec());
        }
    }
    None
}

/// The loader protects the whole pages of the range: it rounds both ends down.
fn relro<H: FileHeader<Endian = Endianness>>(
    segment: &H::ProgramHeader,
    endian: Endianness,
    page: u64,
) -> Option<(u64, u64)> {
    let address: u64 = segment.p_vaddr(endian).into();
    let size: u64 = segment.p_memsz(endian).into();
    let offset: u64 = segment.p_offset(endian).into();
    let first = address / page * page;
    let end = address.checked_add(size)? / page * page;
    let offset = offset.checked_sub(address - first)?;
    (end > first).then(|| (offset / page * page, end - first))
}

/// DT_SONAME: an offset in the table of strings, whose address the loaded segments turn into a place in the file.
fn soname<'a, R: ReadRef<'a>>(
    data: R,
    loaded: &[(u64, u64, u64)],
    table: Option<u64>,
    name: Option<u64>,
) -> Option<String> {
    let address = table?.checked_add(name?)?;
    let place = loaded.iter().find_map(|(first, offset, size)| {
        let within = address.checked_sub(*first)?;
        (within < *size).then(|| offset.checked_add(within))?
    })?;
    let end = place.checked_add(LONGEST_NAME)?.min(data.len().ok()?);
    let name = data.read_bytes_at_until(place..end, 0).ok()?;
    (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
}

fn architecture<H: FileHeader<Endian = Endianness>>(header: &H, endian: Endianness) -> String {
    let name = match (header.e_machine(endian), header.is_class_64()) {
        (elf::EM_X86_64, true) => "x86_64",
        (elf::EM_X86_64, false) => "x86_64_x32",
        (elf::EM_386, _) => "i386",
        (elf::EM_AARCH64, true) => "aarch64",
        (elf::EM_AARCH64, false) => "aarch64_ilp32",
        (elf::EM_ARM, _) => "arm",
        (elf::EM_RISCV, true) => "riscv64",
        (elf::EM_RISCV, false) => "riscv32",
        (elf::EM_PPC64, _) => "powerpc64",
        (elf::EM_PPC, _) => "powerpc",
        (elf::EM_S390, true) => "s390x",
        (elf::EM_LOONGARCH, true) => "loongarch64",
        (elf::EM_MIPS, true) => "mips64",
        (elf::EM_MIPS, false) => "mips",
        (elf::EM_BPF, _) => "bpf",
        (other, _) => return format!("machine-{}", other.0),
    };
    name.to_owned()
}

/// A file read at positions, so that nobody else's position matters.
struct Positioned<'f> {
    file: &'f File,
    length: u64,
    at: u64,
}

impl ReadCacheOps for Positioned<'_> {
    fn len(&mut self) -> Result<u64, ()> {
        Ok(self.length)
    }

    fn seek(&mut self, place: u64) -> Result<u64, ()> {
        self.at = place;
        Ok(place)
    }

    fn read(&mut self, into: &mut [u8]) -> Result<usize, ()> {
        let got = self.file.read_at(into, self.at).map_err(|_| ())?;
        self.at += got as u64;
        Ok(got)
    }

    fn read_exact(&mut self, into: &mut [u8]) -> Result<(), ()> {
        self.file.read_exact_at(into, self.at).map_err(|_| ())?;
        self.at += into.len() as u64;
        Ok(())
    }
}

/// Refuses more than headers need: a sparse file may claim a note of a terabyte, or any number of long ones.
struct Limited<'a, C: ReadCacheOps> {
    cache: &'a ReadCache<C>,
    left: &'a Cell<u64>,
}

impl<C: ReadCacheOps> Clone for Limited<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: ReadCacheOps> Copy for Limited<'_, C> {}

impl<'a, C: ReadCacheOps> ReadRef<'a> for Limited<'a, C> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.left.set(self.left.get().checked_sub(size).ok_or(())?);
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.cache.read_bytes_at_until(range, delimiter)
    }
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
