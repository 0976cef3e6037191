//! From bytes to an [`Elf`]: headers by the library `object`, all else by what the dynamic section says.

use super::dynamic::{self, Dynamic, Entry};
use super::{Elf, Relocations, Section, Segment, Symbols};
use crate::{Error, Result};
use commonhold_images::place::ordinary_file;
use object::LittleEndian as Le;
use object::elf::{EM_X86_64, ET_DYN, ET_EXEC, FileHeader64};
use object::read::SectionIndex;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// More headers of segments no linker makes, and no kernel takes many more.
const MOST_SEGMENTS: usize = 256;
/// Sections of a linked file, and letters of their names.
const MOST_SECTIONS: usize = 1024;
const MOST_LETTERS: usize = 64;
/// The names of all that is relocated are not longer than so many files.
const MOST_NAMED: usize = 16;

/// All bytes of a file. Not of one that is hardly on the disk: zeros take no less memory.
pub(super) fn whole(path: &Path) -> Result<Vec<u8>> {
    const MANY: u64 = 64 << 20;
    const MOST_HOLES: u64 = 16;
    let file = ordinary_file(path).map_err(Error::file(path))?;
    let found = file.metadata().map_err(Error::file(path))?;
    let on_disk = found.blocks() * 512;
    // Some file systems do not say.
    if found.len() > MANY && on_disk > 0 && on_disk < found.len() / MOST_HOLES {
        return Err(Error::damaged(path, "nearly all of it is holes"));
    }
    let mut bytes = Vec::new();
    let room = usize::try_from(found.len()).ok().and_then(|length| bytes.try_reserve_exact(length).ok());
    room.ok_or_else(|| Error::damaged(path, "it is longer than there is memory"))?;
    file.take(found.len()).read_to_end(&mut bytes).map_err(Error::file(path))?;
    Ok(bytes)
}

pub(super) fn elf(path: &Path, bytes: Vec<u8>) -> Result<Elf> {
    let damaged = |error: object::Error| Error::damaged(path, error.to_string());
    let header = FileHeader64::<Le>::parse(&*bytes).map_err(damaged)?;
    let kind = header.e_type(Le);
    if header.e_machine(Le) != EM_X86_64 || !header.is_little_endian() {
        return Err(Error::damaged(path, "it is for another processor than x86-64"));
    }
    if kind != ET_DYN && kind != ET_EXEC {
        return Err(Error::damaged(path, "it is neither a program nor a shared library"));
    }
    let raw = header.program_headers(Le, &*bytes).map_err(damaged)?;
    if raw.len() > MOST_SEGMENTS {
        return Err(Error::damaged(path, "it has more segments than any linker makes"));
    }
    let segments: Vec<Segment> = raw
        .iter()
        .map(|raw| Segment {
            kind: raw.p_type(Le).0,
            offset: raw.p_offset(Le),
            address: raw.p_vaddr(Le),
            file_bytes: raw.p_filesz(Le),
            memory_bytes: raw.p_memsz(Le),
            flags: raw.p_flags(Le).0,
            alignment: raw.p_align(Le),
        })
        .collect();
    let whole = |segment: &Segment| part(&bytes, segment.offset, segment.file_bytes).is_some();
    let sane = |segment: &Segment| segment.address.checked_add(segment.memory_bytes).is_some();
    if !segments.iter().all(|one| sane(one) && (one.kind != super::LOAD || whole(one))) {
        return Err(Error::damaged(path, "a segment lies outside the file: it is truncated"));
    }
    let fixed = kind == ET_EXEC;
    let entries = dynamic_entries(&segments, &bytes)
        .ok_or_else(|| Error::unfit(path, "it has no dynamic section: it is linked statically"))?;
    let dynamic = Dynamic::new(entries);
    let symbols = Symbols::read(&bytes, &segments, &dynamic).map_err(|what| Error::damaged(path, what))?;
    let relocations =
        Relocations::read(&bytes, &segments, &dynamic).map_err(|what| Error::damaged(path, what))?;
    let too_high = |relocation: &super::Relocation| relocation.symbol as usize >= symbols.all.len();
    if relocations.named().any(too_high) {
        return Err(Error::damaged(path, "a relocation names a symbol that is not there"));
    }
    let letters = |one: &super::Relocation| symbols.all[one.symbol as usize].name_bytes as usize;
    if relocations.named().map(letters).sum::<usize>() / MOST_NAMED > bytes.len() {
        let why = "its relocations name so long symbols so often that it would take for ever";
        return Err(Error::damaged(path, why));
    }
    Ok(Elf { path: path.to_owned(), bytes, fixed, segments, dynamic, symbols, relocations })
}

/// All sections; none if their table is damaged.
pub(super) fn sections(bytes: &[u8]) -> Option<Vec<Section>> {
    const IN_MEMORY: u64 = 2;
    let header = FileHeader64::<Le>::parse(bytes).ok()?;
    let table = header.sections(Le, bytes).ok().filter(|table| table.len() <= MOST_SECTIONS)?;
    let names = SectionIndex(header.shstrndx(Le, bytes).ok()? as usize);
    let names = table.section(names).ok()?.data(Le, bytes).ok()?;
    let one = |section: &object::elf::SectionHeader64<Le>| {
        let name = names.get(section.sh_name.get(Le) as usize..)?;
        let name = &name[..name.iter().take(MOST_LETTERS).position(|byte| *byte == 0)?];
        Some(Section {
            name: String::from_utf8_lossy(name).into_owned(),
            address: section.sh_addr(Le),
            bytes: section.sh_size(Le),
            is_in_memory: section.sh_flags(Le).0 & IN_MEMORY != 0,
        })
    };
    table.iter().map(one).collect()
}

fn dynamic_entries(segments: &[Segment], bytes: &[u8]) -> Option<Vec<Entry>> {
    let segment = segments.iter().find(|segment| segment.kind == dynamic::SEGMENT)?;
    let table = part(bytes, segment.offset, segment.file_bytes)?;
    let entry = |(index, raw): (usize, &[u8])| Entry {
        tag: u64_at(raw, 0),
        value: u64_at(raw, 8),
        offset: segment.offset as usize + index * 16,
    };
    Some(table.chunks_exact(16).enumerate().map(entry).take_while(|entry| entry.tag != 0).collect())
}

fn u64_at(raw: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(raw[at..at + 8].try_into().expect("eight bytes"))
}

/// A part of the file, if it lies in it.
pub(super) fn part(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let first = usize::try_from(offset).ok()?;
    bytes.get(first..first.checked_add(usize::try_from(length).ok()?)?)
}

/// The part of the file from an address on, to the end of its segment's.
pub(super) fn from<'a>(bytes: &'a [u8], segments: &[Segment], address: u64) -> Option<&'a [u8]> {
    let covers = |segment: &&Segment| {
        segment.kind == super::LOAD
            && segment.address <= address
            && address - segment.address < segment.file_bytes
    };
    let segment = segments.iter().find(covers)?;
    let into = address - segment.address;
    part(bytes, segment.offset + into, segment.file_bytes - into)
}

pub(super) fn offset_of(segments: &[Segment], address: u64) -> Option<usize> {
    let covers = |segment: &&Segment| {
        segment.kind == super::LOAD
            && segment.address <= address
            && address - segment.address < segment.file_bytes
    };
    segments.iter().find(covers).map(|segment| (address - segment.address + segment.offset) as usize)
}

/// The string at an offset, without its end.
pub(super) fn string(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    Some(&rest[..rest.iter().position(|byte| *byte == 0)?])
}

/// The build ID among notes.
pub(super) fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    const BUILD_ID: u32 = 3;
    let word = |raw: &[u8], at: usize| {
        raw.get(at..at + 4).map(|raw| u32::from_le_bytes(raw.try_into().expect("four bytes")))
    };
    loop {
        let (name, length, kind) = (word(notes, 0)? as usize, word(notes, 4)? as usize, word(notes, 8)?);
        let at = 12 + name.checked_next_multiple_of(4)?;
        let id = notes.get(at..at.checked_add(length)?)?;
        if kind == BUILD_ID && notes.get(12..12 + name)? == b"GNU\0" {
            return Some(id);
        }
        notes = notes.get(at + length.checked_next_multiple_of(4)?..)?;
    }
}
