//! Object files for the linker, as small as they can be: sections, symbols, relocations of x86-64.

/// A section with bytes.
#[derive(Debug)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// `SHT_PROGBITS` and others.
    pub kind: u32,
    /// `SHF_ALLOC` and others.
    pub flags: u64,
    /// What its address is a multiple of.
    pub alignment: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What the linker changes in them.
    pub relocations: Vec<Relocation>,
}

/// `sh_type`: bytes of the program.
pub const PROGBITS: u32 = 1;
/// `sh_type`: addresses of functions that are called before `main`.
pub const INIT_ARRAY: u32 = 14;
/// `sh_type`: notes.
pub const NOTE: u32 = 7;
/// `sh_flags`: may be written.
pub const WRITE: u64 = 1;
/// `sh_flags`: is in memory.
pub const ALLOC: u64 = 2;
/// `sh_flags`: may be run.
pub const EXECUTE: u64 = 4;

/// Whether it is seen elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// In this object alone.
    Local,
    /// Everywhere.
    Global,
    /// Everywhere, and one of several may be taken.
    Weak,
}

/// A symbol.
#[derive(Debug)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// By the place among the sections; none: somebody else's.
    pub section: Option<usize>,
    /// Its place there.
    pub at: u64,
    /// Its size.
    pub bytes: u64,
    /// Who sees it.
    pub binding: Binding,
    /// Whether it is a function.
    pub is_function: bool,
    /// Not for other shared libraries.
    pub hidden: bool,
}

/// One relocation.
#[derive(Debug)]
pub struct Relocation {
    /// Where.
    pub at: u64,
    /// `R_X86_64_…`.
    pub kind: u32,
    /// To what.
    pub to: To,
    /// What is added.
    pub addend: i64,
}

/// `R_X86_64_64`: the address.
pub const ADDRESS: u32 = 1;
/// `R_X86_64_PC32`: its distance from here.
pub const DISTANCE: u32 = 2;

/// What a relocation leads to.
#[derive(Clone, Copy, Debug)]
pub enum To {
    /// The beginning of a section.
    Section(usize),
    /// A symbol, by its place.
    Symbol(usize),
}

/// An object in the making.
#[derive(Debug, Default)]
pub struct Object {
    /// Sections.
    pub sections: Vec<Section>,
    /// Symbols.
    pub symbols: Vec<Symbol>,
}

const HEADER_BYTES: usize = 64;

/// Strings one behind the other, each with a zero.
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, text: &str) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend(text.as_bytes());
        self.0.push(0);
        at
    }
}

/// One entry of the table of sections.
#[derive(Default)]
struct Entry {
    name: u32,
    kind: u32,
    flags: u64,
    at: u64,
    bytes: u64,
    link: u32,
    info: u32,
    alignment: u64,
    each: u64,
}

impl Object {
    /// The file.
    pub fn write(&self) -> Vec<u8> {
        let mut file = vec![0; HEADER_BYTES];
        let mut names = Strings(vec![0]);
        let mut entries = vec![Entry::default()];
        for section in &self.sections {
            let at = append(&mut file, &section.bytes, section.alignment);
            entries.push(Entry {
                name: names.add(&section.name),
                kind: section.kind,
                flags: section.flags,
                at,
                bytes: section.bytes.len() as u64,
                alignment: section.alignment,
                ..Entry::default()
            });
        }
        let (symbols, strings, order, first_global) = self.symbol_table();
        let symbol_table =
            (entries.len() + self.sections.iter().filter(|one| !one.relocations.is_empty()).count()) as u32;
        for (index, section) in
            self.sections.iter().enumerate().filter(|(_, one)| !one.relocations.is_empty())
        {
            const RELA: u32 = 4;
            const INFO_LINK: u64 = 0x40;
            let bytes: Vec<u8> =
                section.relocations.iter().flat_map(|one| self.relocation(one, &order)).collect();
            let at = append(&mut file, &bytes, 8);
            entries.push(Entry {
                name: names.add(&format!(".rela{}", section.name)),
                kind: RELA,
                flags: INFO_LINK,
                at,
                bytes: bytes.len() as u64,
                link: symbol_table,
                info: index as u32 + 1,
                alignment: 8,
                each: 24,
            });
        }
        const SYMTAB: u32 = 2;
        const STRTAB: u32 = 3;
        let table = Entry {
            kind: SYMTAB,
            link: symbol_table + 1,
            info: first_global,
            alignment: 8,
            each: 24,
            ..Entry::default()
        };
        let tables = [
            (".symtab", symbols, table),
            (".strtab", strings, Entry { kind: STRTAB, alignment: 1, ..Entry::default() }),
        ];
        for (name, bytes, entry) in tables {
            let at = append(&mut file, &bytes, entry.alignment);
            entries.push(Entry { name: names.add(name), at, bytes: bytes.len() as u64, ..entry });
        }
        let name = names.add(".shstrtab");
        let at = append(&mut file, &names.0, 1);
        entries.push(Entry {
            name,
            kind: STRTAB,
            at,
            bytes: names.0.len() as u64,
            alignment: 1,
            ..Entry::default()
        });
        finish(file, &entries)
    }

    /// The bytes of the symbols and of their names; the new places of all; the first that is seen elsewhere.
    fn symbol_table(&self) -> (Vec<u8>, Vec<u8>, Vec<u32>, u32) {
        let mut strings = Strings(vec![0]);
        let mut bytes = vec![0; 24];
        // One for each section, for relocations.
        const SECTION: u8 = 3;
        for section in 1..=self.sections.len() as u16 {
            bytes.extend(symbol(0, SECTION, 0, section, 0, 0));
        }
        let mut order = vec![0; self.symbols.len()];
        let mut next = self.sections.len() as u32 + 1;
        let mut first_global = next;
        for local in [true, false] {
            for (index, one) in
                self.symbols.iter().enumerate().filter(|(_, one)| (one.binding == Binding::Local) == local)
            {
                let binding = match one.binding {
                    Binding::Local => 0,
                    Binding::Global => 1,
                    Binding::Weak => 2,
                };
                let kind = match (one.section, one.is_function) {
                    (None, _) => 0,
                    (_, true) => 2,
                    (_, false) => 1,
                };
                let section = one.section.map_or(0, |section| section as u16 + 1);
                let name = strings.add(&one.name);
                bytes.extend(symbol(
                    name,
                    binding << 4 | kind,
                    if one.hidden { 2 } else { 0 },
                    section,
                    one.at,
                    one.bytes,
                ));
                order[index] = next;
                next += 1;
            }
            if local {
                first_global = next;
            }
        }
        (bytes, strings.0, order, first_global)
    }

    fn relocation(&self, one: &Relocation, order: &[u32]) -> [u8; 24] {
        let symbol = match one.to {
            To::Section(section) => section as u32 + 1,
            To::Symbol(symbol) => order[symbol],
        };
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&one.at.to_le_bytes());
        bytes[8..16].copy_from_slice(&(u64::from(symbol) << 32 | u64::from(one.kind)).to_le_bytes());
        bytes[16..].copy_from_slice(&one.addend.to_le_bytes());
        bytes
    }
}

fn symbol(name: u32, info: u8, other: u8, section: u16, value: u64, size: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..4].copy_from_slice(&name.to_le_bytes());
    bytes[4] = info;
    bytes[5] = other;
    bytes[6..8].copy_from_slice(&section.to_le_bytes());
    bytes[8..16].copy_from_slice(&value.to_le_bytes());
    bytes[16..].copy_from_slice(&size.to_le_bytes());
    bytes
}

fn append(file: &mut Vec<u8>, bytes: &[u8], alignment: u64) -> u64 {
    file.resize(file.len().next_multiple_of(alignment as usize), 0);
    let at = file.len() as u64;
    file.extend(bytes);
    at
}

/// Appends the table of sections and writes the header.
fn finish(mut file: Vec<u8>, entries: &[Entry]) -> Vec<u8> {
    file.resize(file.len().next_multiple_of(8), 0);
    let table = file.len() as u64;
    for entry in entries {
        file.extend(entry.name.to_le_bytes());
        file.extend(entry.kind.to_le_bytes());
        for long in [entry.flags, 0, entry.at, entry.bytes] {
            file.extend(long.to_le_bytes());
        }
        file.extend(entry.link.to_le_bytes());
        file.extend(entry.info.to_le_bytes());
        file.extend(entry.alignment.to_le_bytes());
        file.extend(entry.each.to_le_bytes());
    }
    // 64 bits, little endian, version 1.
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    const RELOCATABLE: u16 = 1;
    const X86_64: u16 = 62;
    let halves = [
        (16, RELOCATABLE),
        (18, X86_64),
        (52, HEADER_BYTES as u16),
        (58, 64),
        (60, entries.len() as u16),
        (62, entries.len() as u16 - 1),
    ];
    file[20..24].copy_from_slice(&1_u32.to_le_bytes());
    file[40..48].copy_from_slice(&table.to_le_bytes());
    for (at, half) in halves {
        file[at..at + 2].copy_from_slice(&half.to_le_bytes());
    }
    file
}
