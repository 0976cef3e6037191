//! The image in memory: its segments by whole pages, and its bytes.

use crate::exports::Export;
use crate::format::{
    CODE, DATA, ENTRIES_AT, ENTRY_BYTES, MOST_SEGMENTS, PAGE_BYTES, READ, SLOT_BYTES, Segment, ZERO,
};
use crate::{Error, Result};
use commonhold_rebase::elf::{self, Elf, dynamic as tag};

/// Where everything is.
#[derive(Debug)]
pub struct Layout {
    /// Distance of the library's address 0 from the base.
    pub library_at: u64,
    /// Where the slots begin.
    pub slots_at: u64,
    /// Where the room for them ends.
    pub slots_end: u64,
    /// By address, whole pages. The first has headers and entries.
    pub segments: Vec<Segment>,
    /// Addresses in all.
    pub extent: u64,
    /// What the file has of them.
    pub file_extent: u64,
    /// What is read-only once the program's functions are filled in.
    pub protect: (u64, u64),
    /// A word of private data that nothing else uses; 0: there is no private data.
    pub control_at: u64,
}

const WRITE: u32 = 2;
const EXECUTE: u32 = 1;

fn down(at: u64) -> u64 {
    at / PAGE_BYTES * PAGE_BYTES
}

fn up(at: u64) -> u64 {
    at.next_multiple_of(PAGE_BYTES)
}

/// Where the room for slots ends: there are as many as there is room for entries.
pub fn slots_end(slots_at: u64) -> u64 {
    slots_at + (slots_at - ENTRIES_AT) / ENTRY_BYTES * SLOT_BYTES
}

/// Lays the library out behind the slots. `writes`: its words are filled in by each program.
pub fn lay_out(library: &Elf, slots_at: u64, library_at: u64, writes: bool) -> Result<Layout> {
    let slots_end = slots_end(slots_at);
    let mut segments = vec![Segment { at: 0, bytes: slots_end, kind: CODE, unused: 0 }];
    let at = |address: u64| library_at + address;
    let relro = library.segments.iter().find(|segment| segment.kind == elf::RELRO);
    // Linkers make what is read-only after relocation whole pages.
    let end = up(library.extent().1);
    if library.segments.iter().any(|segment| segment.address + segment.memory_bytes > end) {
        return Err(Error::unfit(&library.path, "a part of it lies outside its segments"));
    }
    // Whole pages of what is read-only after relocation. Where nothing is filled in it is so from the beginning.
    let relro =
        relro.map(|segment| (down(at(segment.address)), down(at(segment.address + segment.memory_bytes))));
    let mut control_at = 0;
    let mut file_extent = slots_end;
    let tables = tables(library);
    for load in library.loads().filter(|load| load.memory_bytes > 0) {
        let (first, end) = (down(at(load.address)), up(at(load.address + load.memory_bytes)));
        let file_end = up(at(load.address + load.file_bytes));
        file_extent = file_end;
        if tables == Some(load.address) {
            continue;
        }
        if segments.last().is_some_and(|last| last.at + last.bytes > first) {
            return Err(Error::unfit(&library.path, "two segments of it share a page of memory"));
        }
        if tables.is_some() && load.flags & EXECUTE != 0 && segments.len() == 1 {
            segments[0].bytes = end;
            continue;
        }
        let mut push = |first: u64, end: u64, kind| {
            if end > first {
                segments.push(Segment { at: first, bytes: end - first, kind, unused: 0 });
            }
        };
        if load.flags & WRITE == 0 {
            push(first, end, if load.flags & EXECUTE != 0 { CODE } else { READ });
            continue;
        }
        let protected = relro.filter(|relro| !writes && relro.0 >= first && relro.1 <= end);
        let data = protected.map_or(first, |relro| relro.1).max(first);
        if is_only_for_loaders(library, load, first.saturating_sub(library_at)) {
            continue;
        }
        push(first, data, READ);
        if !is_only_for_loaders(library, load, data.saturating_sub(library_at)) {
            let in_page = at(load.address) - first;
            // Not where pages are read-only once words are filled in.
            let stays = relro.is_none_or(|relro| relro.0 != first || relro.1 <= first);
            if data == first && stays && in_page >= 16 && control_at == 0 {
                control_at = first;
            }
            push(data, file_end.max(data), DATA);
            push(file_end.max(data), end, ZERO);
            let behind = at(load.address + load.memory_bytes).next_multiple_of(8);
            if control_at == 0 && behind + 8 <= file_end && file_end > data {
                control_at = behind;
            }
        }
    }
    let has_data = segments.iter().any(|segment| matches!(segment.kind, DATA | ZERO));
    let extent = segments.last().map_or(0, |last| last.at + last.bytes);
    let file_end =
        segments.iter().rfind(|segment| segment.kind != ZERO).map_or(0, |last| last.at + last.bytes);
    let file_extent = file_extent.min(file_end);
    let mut layout = Layout {
        library_at,
        slots_at,
        slots_end,
        segments,
        extent,
        file_extent,
        protect: relro
            .filter(|(first, end)| writes && end > first)
            .map_or((0, 0), |(first, end)| (first, end - first)),
        control_at,
    };
    if has_data && layout.control_at == 0 {
        layout.add_control();
    }
    if layout.segments.len() > MOST_SEGMENTS {
        return Err(Error::unfit(
            &library.path,
            format!(
                "it has {} parts of different rights, and an image at most {MOST_SEGMENTS}",
                layout.segments.len()
            ),
        ));
    }
    Ok(layout)
}

impl Layout {
    /// A page of private data for the word.
    fn add_control(&mut self) {
        self.control_at = self.extent;
        self.segments.push(Segment { at: self.extent, bytes: PAGE_BYTES, kind: DATA, unused: 0 });
        self.extent += PAGE_BYTES;
        self.file_extent = self.extent;
        self.merge();
    }

    fn merge(&mut self) {
        let mut merged: Vec<Segment> = Vec::new();
        for segment in self.segments.drain(..) {
            match merged.last_mut() {
                Some(last) if last.kind == segment.kind && last.at + last.bytes == segment.at => {
                    last.bytes += segment.bytes;
                }
                _ => merged.push(segment),
            }
        }
        self.segments = merged;
    }
}

/// Where the library's address 0 lies, if its first byte may not lie before `end`. What only loaders read is left out
/// and needs no room. Small code lies where the kernel maps it with the slots at one fault, or else begins where it
/// begins to map pages around one that is touched.
pub fn library_at(library: &Elf, end: u64, alignment: u64) -> u64 {
    const MAPPED_AROUND: u64 = 64 << 10;
    const HUGE_PAGE_BYTES: u64 = 2 << 20;
    let left_out = tables(library);
    let first =
        library.loads().find(|load| left_out != Some(load.address)).map_or(0, |load| down(load.address));
    if alignment > PAGE_BYTES || first > end {
        return end.next_multiple_of(alignment.max(if first > end { HUGE_PAGE_BYTES } else { 1 }));
    }
    let at = up(end);
    let code = library.loads().find(|load| load.flags & EXECUTE != 0);
    let code_end = at + code.map_or(0, |load| up(load.address + load.memory_bytes) - first);
    if first == code.map_or(0, |load| down(load.address)) && code_end <= at.next_multiple_of(MAPPED_AROUND) {
        return at - first;
    }
    end.next_multiple_of(MAPPED_AROUND) - first
}

/// The address of the first segment, if it has nothing but tables that only loaders and linkers read: the image does
/// not have them, and its code begins without a seam.
fn tables(library: &Elf) -> Option<u64> {
    let first = library.loads().next().filter(|load| load.flags & (WRITE | EXECUTE) == 0)?;
    let within = |section: &&elf::Section| {
        section.is_in_memory
            && section.address >= first.address
            && section.address < first.address + first.memory_bytes
    };
    let is_table = |section: &elf::Section| {
        const TABLES: [&str; 12] = [
            ".note",
            ".gnu.hash",
            ".hash",
            ".dynsym",
            ".dynstr",
            ".gnu.version",
            ".rela.",
            ".relr.",
            ".gnu.attributes",
            ".gnu.liblist",
            ".gnu.conflict",
            ".interp",
        ];
        TABLES.iter().any(|table| section.name.starts_with(table))
    };
    let sections = library.sections();
    let mut inside = sections.iter().filter(within).peekable();
    inside.peek().is_some().then_some(())?;
    inside.all(is_table).then_some(first.address)
}

/// Whether from an address on a segment has only what loaders read or write: the dynamic section, which an image has no
/// use for. (A table of offsets would have relocations.)
fn is_only_for_loaders(library: &Elf, load: &elf::Segment, from: u64) -> bool {
    let end = load.address + load.memory_bytes;
    let first = from.max(load.address);
    if first >= end {
        return true;
    }
    let dynamic = library.dynamic_address().unwrap_or(0);
    let dynamic_end = dynamic + (library.dynamic.entries.len() as u64 + 1) * 16;
    let dynamic_bytes = library.segments.iter().find(|one| one.address == dynamic && one.kind == 2);
    let dynamic_end = dynamic_bytes.map_or(dynamic_end, |one| one.address + one.memory_bytes);
    let plt = library.dynamic.value(tag::PLTGOT);
    // The first words of the table of offsets are the loader's.
    let got_end = plt.map_or(dynamic_end, |plt| if plt == dynamic_end { plt + 24 } else { dynamic_end });
    first >= dynamic && end <= got_end && library.relocations.jumps.is_empty()
}

/// The bytes of the file up to the end of what is in memory: `moved` is the library at its address.
pub fn bytes(library: &Elf, moved: &[u8], layout: &Layout, base: u64, exports: &[Export]) -> Vec<u8> {
    let mut bytes = vec![0; layout.file_extent as usize];
    let tables = tables(library);
    for load in library.loads().filter(|load| tables != Some(load.address)) {
        let to = (layout.library_at + load.address) as usize;
        // What only loaders read may lie behind all else.
        let Some(room) = bytes.len().checked_sub(to) else { continue };
        let file_bytes = load.file_bytes.min(room as u64);
        let from = load.offset as usize..(load.offset + file_bytes) as usize;
        bytes[to..to + from.len()].copy_from_slice(&moved[from]);
    }
    for export in exports {
        let function_at = layout.library_at + export.address;
        let slot_at = (layout.slots_at + u64::from(export.slot) * SLOT_BYTES) as usize;
        bytes[slot_at..slot_at + 8].copy_from_slice(&(base + function_at).to_le_bytes());
        put_entry(&mut bytes, ENTRIES_AT + u64::from(export.slot) * ENTRY_BYTES, function_at);
    }
    bytes
}

/// `endbr64` (an indirect jump may end here), then a jump.
fn put_entry(bytes: &mut [u8], at: u64, function_at: u64) {
    let entry = &mut bytes[at as usize..(at + ENTRY_BYTES) as usize];
    entry.fill(0xcc);
    entry[..5].copy_from_slice(&[0xf3, 0x0f, 0x1e, 0xfa, 0xe9]);
    let distance = function_at.wrapping_sub(at + 9) as u32;
    entry[5..9].copy_from_slice(&distance.to_le_bytes());
}
