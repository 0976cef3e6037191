//! What the count of library code needs of one ELF file: a program, a shared library or a member of an archive.
//!
//! Files may be damaged or made to mislead: every read may fail, and nothing is taken that its bounds do not cover.

use super::names::{Name, Names};
use object::elf;
use object::read::elf::{ElfFile, FileHeader};
use object::read::{
    Object, ObjectComdat, ObjectSection, ObjectSymbol, ReadCache, ReadRef, RelocationTarget, SectionIndex,
    SymbolIndex,
};
use object::{Endianness, FileKind, RelocationFlags, SectionFlags, SymbolFlags, SymbolKind};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;

/// Files up to this are read at once; of larger ones only the parts that are asked for.
const READ_WHOLE_BYTES: u64 = 64 << 20;

/// What kind of machine code a file holds: only files of one kind are linked together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// e_machine.
    pub machine: u16,
    /// 64 bits, not 32.
    pub is_64: bool,
    /// Byte order.
    pub little_endian: bool,
}

/// What role a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A program that a loader completes.
    Dynamic,
    /// A program that is complete.
    Static,
    /// A shared library.
    Library,
    /// A relocatable file, a core, or something else.
    Other,
}

/// A program or shared library.
#[derive(Debug)]
pub struct Image {
    /// For what machine.
    pub target: Target,
    /// What it is.
    pub role: Role,
    /// Bytes of executable sections (of segments where there are no section headers).
    pub code_bytes: u64,
    /// It has section headers: else needed libraries and symbols are not found.
    pub has_sections: bool,
    /// DT_NEEDED.
    pub needed: Vec<String>,
    /// DT_RUNPATH, else DT_RPATH, split.
    pub run_path: Vec<String>,
    /// Symbols that others must define: undefined and not weak, and those whose data it has a copy of.
    pub undefined: Vec<Name>,
    /// Symbols that it defines for others.
    pub exports: HashSet<Name>,
    /// Functions by its own symbol table, empty where it was stripped.
    pub functions: Vec<Function>,
}

/// A function of a symbol table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: Name,
    /// Where it begins.
    pub address: u64,
    /// How long it is; 0: its maker did not say.
    pub size: u64,
    /// Whether other files could name it.
    pub global: bool,
}

/// A member of an archive.
#[derive(Debug, Default)]
pub struct Member {
    /// Symbols that others must define.
    pub undefined: Vec<Name>,
    /// Symbols that it defines for others.
    pub defined: Vec<Name>,
    /// Executable sections: bytes, and the group of which a linker keeps one only.
    pub code: Vec<(u64, Option<Name>)>,
    /// All its functions.
    pub functions: Vec<Function>,
}

/// Why a file is not understood.
pub type Reason = &'static str;

/// Reads a file. None: it is no ELF file.
pub fn image(file: &mut File, names: &mut Names) -> Result<Option<Image>, Reason> {
    let size = file.metadata().map_err(|_| "cannot be read")?.len();
    if size <= READ_WHOLE_BYTES {
        let mut bytes = Vec::new();
        // A file that grows meanwhile must not be read for ever.
        file.take(READ_WHOLE_BYTES).read_to_end(&mut bytes).map_err(|_| "cannot be read")?;
        dispatch(bytes.as_slice(), names)
    } else {
        dispatch(&ReadCache::new(file), names)
    }
}

pub(super) fn dispatch<'data, R: ReadRef<'data>>(
    data: R,
    names: &mut Names,
) -> Result<Option<Image>, Reason> {
    match FileKind::parse(data) {
        Ok(FileKind::Elf32) => parse::<elf::FileHeader32<Endianness>, R>(data, names).map(Some),
        Ok(FileKind::Elf64) => parse::<elf::FileHeader64<Endianness>, R>(data, names).map(Some),
        _ if data.read_bytes_at(0, 4) == Ok(b"\x7fELF") => Err("the ELF headers are damaged"),
        _ => Ok(None),
    }
}

/// Reads a member of an archive; what is no ELF file for the target has no part in a link.
pub fn member(data: &[u8], names: &mut Names) -> Option<(Target, Member)> {
    match FileKind::parse(data).ok()? {
        FileKind::Elf32 => parse_member::<elf::FileHeader32<Endianness>>(data, names),
        FileKind::Elf64 => parse_member::<elf::FileHeader64<Endianness>>(data, names),
        _ => None,
    }
}

fn parse<'data, Elf, R>(data: R, names: &mut Names) -> Result<Image, Reason>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let file = ElfFile::<Elf, R>::parse(data).map_err(|_| "the ELF headers are damaged")?;
    let dynamic = dynamic(&file)?;
    let copied = copied_symbols(&file);
    let mut undefined = Vec::new();
    let mut exports = HashSet::new();
    for symbol in file.dynamic_symbols() {
        let name = symbol.name_bytes().map_err(|_| "the dynamic symbols are damaged")?;
        if symbol.is_undefined() || copied.contains(&symbol.index()) {
            if !symbol.is_weak() && !name.is_empty() {
                undefined.push(names.of(name));
            }
        } else if symbol.is_global() {
            exports.insert(names.of(name));
        }
    }
    let functions = functions(&file, names);
    exports.extend(functions.iter().filter(|function| function.global).map(|function| function.name));
    let code = code_sections(&file).map(|(_, bytes)| bytes).fold(0, u64::saturating_add);
    let has_sections = file.sections().next().is_some();
    let code = if has_sections { code } else { code_segments(&file) };
    Ok(Image {
        target: target(&file),
        role: role(&file, &dynamic),
        code_bytes: code.min(data.len().unwrap_or(0)),
        has_sections,
        needed: dynamic.needed,
        run_path: dynamic.run_path,
        undefined,
        exports,
        functions,
    })
}

fn target<'data, Elf, R>(file: &ElfFile<'data, Elf, R>) -> Target
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    Target {
        machine: file.elf_header().e_machine(file.endian()).0,
        is_64: file.is_64(),
        little_endian: file.is_little_endian(),
    }
}

#[derive(Default)]
struct Dynamic {
    needed: Vec<String>,
    run_path: Vec<String>,
    is_pie: bool,
}

fn dynamic<'data, Elf, R>(file: &ElfFile<'data, Elf, R>) -> Result<Dynamic, Reason>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let damaged = "the dynamic section is damaged";
    let table = file.elf_dynamic_table().map_err(|_| damaged)?;
    let mut dynamic = Dynamic::default();
    let mut old_path = Vec::new();
    for entry in table.iter() {
        let text = || {
            table.string(entry).map(|text| String::from_utf8_lossy(text).into_owned()).map_err(|_| damaged)
        };
        let split = |text: String| text.split(':').map(str::to_owned).collect();
        match entry.tag {
            elf::DT_NEEDED => dynamic.needed.push(text()?),
            elf::DT_RUNPATH => dynamic.run_path = split(text()?),
            elf::DT_RPATH => old_path = split(text()?),
            elf::DT_FLAGS_1 => dynamic.is_pie = entry.val & elf::DF_1_PIE.0 != 0,
            _ => {}
        }
    }
    if dynamic.run_path.is_empty() {
        dynamic.run_path = old_path;
    }
    Ok(dynamic)
}

fn role<'data, Elf, R>(file: &ElfFile<'data, Elf, R>, dynamic: &Dynamic) -> Role
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    use object::read::elf::ProgramHeader;
    let interpreted =
        file.elf_program_headers().iter().any(|header| header.p_type(file.endian()) == elf::PT_INTERP);
    match file.elf_header().e_type(file.endian()) {
        elf::ET_EXEC | elf::ET_DYN if interpreted => Role::Dynamic,
        elf::ET_EXEC => Role::Static,
        elf::ET_DYN if dynamic.is_pie => Role::Static,
        elf::ET_DYN => Role::Library,
        _ => Role::Other,
    }
}

/// Symbols whose data the program has a copy of: it defines them, but only because they are in a library.
fn copied_symbols<'data, Elf, R>(file: &ElfFile<'data, Elf, R>) -> HashSet<SymbolIndex>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let copy = match file.elf_header().e_machine(file.endian()) {
        elf::EM_X86_64 | elf::EM_386 => 5,
        elf::EM_AARCH64 => 1024,
        elf::EM_ARM => 20,
        elf::EM_RISCV | elf::EM_LOONGARCH => 4,
        elf::EM_PPC | elf::EM_PPC64 => 19,
        elf::EM_S390 => 9,
        _ => return HashSet::new(),
    };
    let relocations = file.dynamic_relocations().into_iter().flatten();
    let copied = relocations.filter_map(|(_, relocation)| match (relocation.flags(), relocation.target()) {
        (RelocationFlags::Elf { r_type }, RelocationTarget::Symbol(symbol)) if r_type.0 == copy => {
            Some(symbol)
        }
        _ => None,
    });
    copied.collect()
}

/// Executable sections with their sizes.
fn code_sections<'data, 'file, Elf, R>(
    file: &'file ElfFile<'data, Elf, R>,
) -> impl Iterator<Item = (SectionIndex, u64)> + use<'data, 'file, Elf, R>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    file.sections().filter_map(|section| {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else { return None };
        let wanted = (elf::SHF_ALLOC | elf::SHF_EXECINSTR).0;
        // A size that the file does not hold is a lie.
        let (offset, held) = section.file_range()?;
        let there = file.data().len().ok()?.saturating_sub(offset).min(held);
        (sh_flags.0 & wanted == wanted).then(|| (section.index(), section.size().min(there)))
    })
}

fn code_segments<'data, Elf, R>(file: &ElfFile<'data, Elf, R>) -> u64
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    use object::read::elf::ProgramHeader;
    let end = file.endian();
    let segments = file
        .elf_program_headers()
        .iter()
        .filter(|header| header.p_type(end) == elf::PT_LOAD && header.p_flags(end).0 & elf::PF_X.0 != 0);
    segments.map(|header| header.p_filesz(end).into()).fold(0, u64::saturating_add)
}

/// Functions of the symbol table: symbols in executable sections that are functions, or that have no type, as some
/// written in assembly have.
fn functions<'data, Elf, R>(file: &ElfFile<'data, Elf, R>, names: &mut Names) -> Vec<Function>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let code: HashSet<SectionIndex> = code_sections(file).map(|(section, _)| section).collect();
    let mut functions = Vec::new();
    for symbol in file.symbols() {
        let typed = symbol.kind() == SymbolKind::Text;
        let bare = is_untyped(&symbol.flags()) && (symbol.is_global() || symbol.size() > 0);
        let in_code = symbol.section_index().is_some_and(|section| code.contains(&section));
        let (true, Ok(name)) = ((typed || bare) && in_code, symbol.name_bytes()) else { continue };
        if !name.is_empty() {
            functions.push(Function {
                name: names.of(name),
                address: symbol.address(),
                size: symbol.size(),
                global: symbol.is_global(),
            });
        }
    }
    functions
}

fn is_untyped(flags: &SymbolFlags<SectionIndex, SymbolIndex>) -> bool {
    matches!(flags, SymbolFlags::Elf { st_info, .. } if st_info.0 & 0xf == elf::STT_NOTYPE.0)
}

fn parse_member<Elf>(data: &[u8], names: &mut Names) -> Option<(Target, Member)>
where
    Elf: FileHeader<Endian = Endianness>,
{
    let file = ElfFile::<Elf>::parse(data).ok()?;
    let mut groups: HashMap<SectionIndex, Name> = HashMap::new();
    for group in file.comdats() {
        let Ok(name) = group.name_bytes() else { continue };
        let name = names.of(name);
        groups.extend(group.sections().map(|section| (section, name)));
    }
    let mut member = Member {
        code: code_sections(&file).map(|(section, bytes)| (bytes, groups.get(&section).copied())).collect(),
        functions: functions(&file, names),
        ..Member::default()
    };
    for symbol in file.symbols() {
        let Ok(name) = symbol.name_bytes() else { continue };
        if symbol.is_undefined() {
            if !symbol.is_weak() && !name.is_empty() {
                member.undefined.push(names.of(name));
            }
        } else if symbol.is_global() {
            member.defined.push(names.of(name));
        }
    }
    Some((target(&file), member))
}
