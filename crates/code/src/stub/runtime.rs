//! The code that includes images, as bytes: what was linked from `runtime` (see `build.rs`), without its own headers.

use crate::{Error, Result};
use commonhold_rebase::elf::Elf;
use std::path::Path;

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libcommonhold_include.so"));

/// Code and constants that run wherever they are, and where in them its functions begin.
#[derive(Debug)]
pub struct Runtime {
    /// The bytes; their first is to be at a multiple of [`Runtime::ALIGNMENT`].
    pub bytes: Vec<u8>,
    /// `commonhold_start`: includes the image of a record, or ends the program.
    pub start: u64,
    /// `commonhold_first`: the same, from an entry.
    pub first: u64,
    /// `commonhold_by_name`.
    pub by_name: u64,
    /// `commonhold_text`.
    pub text: u64,
}

impl Runtime {
    /// Its constants are read in pieces of 16 bytes.
    pub const ALIGNMENT: u64 = 64;

    /// What this program was built with.
    pub fn new() -> Result<Runtime> {
        let unfit = |why: &str| Error::unfit(Path::new("code images"), why);
        if LIBRARY.is_empty() {
            return Err(unfit("they are for x86-64 and Linux"));
        }
        let library = Elf::parse(Path::new("libcommonhold_include.so"), LIBRARY.to_vec())?;
        let relocations = &library.relocations;
        if relocations.named().next().is_some() || !relocations.relative.is_empty() {
            return Err(unfit(
                "this Commonhold was built by a compiler whose code for inclusion needs a loader",
            ));
        }
        // Code and constants, at their distances from each other.
        let sections = library.sections();
        let wanted = |name: &str| name.starts_with(".text") || name.starts_with(".rodata");
        let parts: Vec<_> =
            sections.iter().filter(|section| section.is_in_memory && wanted(&section.name)).collect();
        let first =
            parts.iter().map(|part| part.address).min().unwrap_or(0) / Self::ALIGNMENT * Self::ALIGNMENT;
        let end = parts.iter().map(|part| part.address + part.bytes).max().unwrap_or(0);
        let mut bytes = vec![0; (end - first) as usize];
        for part in parts {
            let at =
                library.offset_of(part.address).ok_or_else(|| unfit("the code for inclusion is damaged"))?;
            let to = (part.address - first) as usize;
            bytes[to..to + part.bytes as usize].copy_from_slice(&LIBRARY[at..at + part.bytes as usize]);
        }
        let address = |name: &str| {
            let found =
                (0..).zip(&library.symbols.all).find(|(index, _)| library.name(*index) == name.as_bytes());
            found
                .map(|(_, symbol)| symbol.value - first)
                .ok_or_else(|| unfit("the code for inclusion lacks a function"))
        };
        Ok(Runtime {
            start: address("commonhold_start")?,
            first: address("commonhold_first")?,
            by_name: address("commonhold_by_name")?,
            text: address("commonhold_text")?,
            bytes,
        })
    }
}
