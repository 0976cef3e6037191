//! Programs that are not set although nothing is wrong with their files: they have been found to depend on addresses.

use crate::elf::Elf;
use crate::{Error, Result};
use std::path::Path;

/// How they are known: by a library that they need, or by a symbol, where what that has is part of the program.
enum Sign {
    Library(&'static str),
    Symbol(&'static str),
}

/// Two addresses of what copies may have lie in what ThreadSanitizer and MemorySanitizer have on x86-64.
const THREADS: &str = "it is built with ThreadSanitizer, which has the addresses from 0x3000_0000_0000 to 0x4000_0000_0000 \
    for what it knows of locks and memory, and copies are there: run it as it is, without LD_AUDIT";
const MEMORY: &str = "it is built with MemorySanitizer, which has the addresses from 0x3000_0000_0000 to 0x4000_0000_0000 \
    for the origins of values, and copies are there: run it as it is, without LD_AUDIT";
const FLOW: &str = "it is built with DataFlowSanitizer, which has the addresses from 0x3000_0000_0000 to 0x4000_0000_0000 \
    for the origins of labels, and copies are there: run it as it is, without LD_AUDIT";

/// All of them, and why.
const REFUSED: [(Sign, &str); 6] = [
    (Sign::Library("libtsan.so"), THREADS),
    (Sign::Symbol("__tsan_init"), THREADS),
    (Sign::Library("libmsan.so"), MEMORY),
    (Sign::Symbol("__msan_init"), MEMORY),
    (Sign::Library("libclang_rt.tsan"), THREADS),
    (Sign::Symbol("dfsan_set_label"), FLOW),
];

/// Refuses a program of which the list speaks. `objects`: all that it is made of, itself first.
pub(super) fn check<'a>(program: &Path, objects: impl Iterator<Item = &'a Elf> + Clone) -> Result<()> {
    let has = |sign: &Sign, object: &Elf| match sign {
        Sign::Library(name) => object.needed().any(|needed| needed.starts_with(name.as_bytes())),
        Sign::Symbol(name) => object.defines(name.as_bytes()),
    };
    match REFUSED.iter().find(|(sign, _)| objects.clone().any(|object| has(sign, object))) {
        Some((_, why)) => Err(Error::program(program, *why)),
        None => Ok(()),
    }
}
