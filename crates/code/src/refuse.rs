//! What a library may not have if it is to be a code image, each with what to do about it.

use crate::{Error, Result};
use commonhold_rebase::copy::{self, Role};
use commonhold_rebase::elf::{self, Elf, Kind, SymbolKind, UNDEFINED, dynamic as tag};

/// Says whether the library can be an image; the error says why not.
pub fn check(library: &Elf) -> Result<()> {
    let unfit = |why: String| Err(Error::unfit(&library.path, why));
    if library.fixed {
        return unfit("it is a program of fixed addresses: link it with -shared".into());
    }
    if library.interpreter().is_some() || library.dynamic.flags().position_independent_program {
        return unfit("it is a program: link it with -shared".into());
    }
    const MOST_BYTES: u64 = 1 << 30;
    if library.extent().1 > MOST_BYTES {
        return unfit("it takes more than 1 GiB of addresses, and jumps in an image reach no further".into());
    }
    copy::check(library, Role::Library)?;
    const MOST_ALIGNMENT: u64 = 2 << 20;
    if copy::alignment(library) > MOST_ALIGNMENT {
        return unfit("it asks to be at a multiple of more than 2 MiB, which ranges are not".into());
    }
    if library.segments.iter().any(|segment| segment.kind == elf::TLS && segment.memory_bytes > 0)
        || library.relocations.named().any(|one| one.kind == Kind::ThreadLocal)
    {
        return unfit(
            "it has thread-local storage, which only the loader can set up: keep such data in a table by thread, or \
             hand in a pointer"
                .into(),
        );
    }
    symbols(library)?;
    code(library)?;
    destructors(library)
}

fn symbols(library: &Elf) -> Result<()> {
    for (index, symbol) in (0..).zip(&library.symbols.all) {
        let name = String::from_utf8_lossy(library.name(index)).into_owned();
        let unfit = |why: &str| Err(Error::unfit(&library.path, format!("{name} {why}")));
        if symbol.kind == SymbolKind::Indirect {
            return unfit(
                "is chosen by the processor (IFUNC), which the loader does: export a function that chooses",
            );
        }
        if symbol.unique && symbol.section != UNDEFINED {
            return unfit(
                "must be one for the whole process (STB_GNU_UNIQUE), and nobody sees to that: compile with \
                 -fno-gnu-unique",
            );
        }
        if symbol.section == UNDEFINED && unwinds(&name) {
            return unfit(
                "is for exceptions, which are not passed through an image: nobody tells the unwinder of its tables. \
                 Compile with -fno-exceptions",
            );
        }
    }
    Ok(())
}

/// What code refers to that throws, catches or cleans up.
fn unwinds(name: &str) -> bool {
    name.starts_with("_Unwind_") || name.starts_with("__cxa_throw") || name.ends_with("_personality_v0")
}

fn code(library: &Elf) -> Result<()> {
    let kinds = library.relocations.named().map(|one| one.kind);
    for kind in kinds {
        if kind == Kind::Indirect {
            return Err(Error::unfit(
                &library.path,
                "a function of it is chosen by the processor (IFUNC), which the loader does",
            ));
        }
    }
    const WRITE: u32 = 2;
    const EXECUTE: u32 = 1;
    let both = |segment: &&elf::Segment| segment.flags & (WRITE | EXECUTE) == WRITE | EXECUTE;
    if let Some(segment) = library.loads().find(both) {
        return Err(Error::unfit(
            &library.path,
            format!(
                "what is at {:#x} may be written and run: such code can be nobody's in common",
                segment.address
            ),
        ));
    }
    Ok(())
}

/// Destructors would have to run at the end of the program. Those that compilers put into each library do nothing that
/// matters there: one alone, which looks at a flag first, and an old one that returns at once.
fn destructors(library: &Elf) -> Result<()> {
    const COMPARE_BYTE: &[u8] = &[0x80, 0x3d];
    // To and from a multiple of 16, as glibc and musl write it, or nothing.
    const RETURNS: [&[u8]; 3] =
        [&[0x48, 0x83, 0xec, 8, 0x48, 0x83, 0xc4, 8, 0xc3], &[0x50, 0x58, 0xc3], &[0xc3]];
    let begins = |code: Option<u64>, with: &[&[u8]]| {
        let at = code.and_then(|code| library.offset_of(code));
        let code = at.and_then(|at| library.bytes.get(at..)).unwrap_or_default();
        const LANDING: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
        let code = code.strip_prefix(LANDING).unwrap_or(code);
        with.iter().any(|with| code.starts_with(with))
    };
    let count = library.dynamic.value(tag::FINI_ARRAYSZ).unwrap_or(0) / 8;
    let array = library.dynamic.value(tag::FINI_ARRAY).unwrap_or(0);
    let only = count == 0 || count == 1 && begins(function(library, array), &[COMPARE_BYTE]);
    let old = library.dynamic.value(tag::FINI);
    if only && (old.is_none() || begins(old, &RETURNS)) {
        return Ok(());
    }
    Err(Error::unfit(
        &library.path,
        "it has a destructor, which nobody would call: export a function that ends its work",
    ))
}

/// The address that the loader would write at this place.
fn function(library: &Elf, address: u64) -> Option<u64> {
    let table = library.relocations.table.iter().find(|one| one.address == address);
    match table {
        Some(one) if one.kind == Kind::Relative => Some(one.addend as u64),
        Some(one) => library.symbols.all.get(one.symbol as usize).map(|symbol| symbol.value),
        None => library.word(address),
    }
}
