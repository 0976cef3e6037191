//! Something really is where a copy should be, when the program starts: in the first library's range or in another's. Such a
//! program is not set (`starts.rs`); here it takes the place of one that was.

use crate::altered;
use crate::rig::{Rig, WHERE, text};
use commonhold_rebase::elf::Elf;
use commonhold_rebase::plan::state_of;
use commonhold_record::{HEADER_BYTES, Record, State, sum};
use std::path::{Path, PathBuf};

/// A program with two libraries and a segment of its own at an address.
fn program(rig: &Rig, address: u64) -> PathBuf {
    let there = format!("-Wl,--section-start=.taken={address:#x}");
    let source = format!(
        "{WHERE}\n#include <stdlib.h>
         __asm__(\".section .taken, \\\"aw\\\"\\n.quad 77\\n.previous\");
         int one(void); int two(void);
         int main(int n, char **a) {{
             where(one); where(two); where(puts); puts(a[1]); puts(getenv(\"A_VARIABLE\"));
             puts(getenv(\"COMMONHOLD_REBASE_WITHOUT\") ? \"again\" : \"once\");
             return *(volatile long *){address:#x} - 77 + one() + two() - 3; }}"
    );
    rig.program("program", &source, &["-lone", "-ltwo", "-no-pie", &there])
}

fn bytes_of(state: State) -> Vec<u8> {
    let State { device, inode, size, modified_ns, changed_ns } = state;
    [device, inode, size, modified_ns as u64, changed_ns as u64]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect()
}

/// Makes the record of a program that of the file which is in its place now.
fn hand_on(rig: &Rig, program: &Path, before: State) {
    let path = rig.store.record(program);
    let mut bytes = std::fs::read(&path).unwrap();
    let old = bytes_of(before);
    let at = bytes.windows(old.len()).position(|part| part == old).unwrap();
    bytes[at..at + old.len()].copy_from_slice(&bytes_of(state_of(program).unwrap()));
    let whole = sum(&bytes[HEADER_BYTES..]);
    bytes[16..24].copy_from_slice(&whole.to_le_bytes());
    assert!(Record::new(&bytes).is_some());
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn a_program_starts_without_its_copies_whichever_range_is_taken() {
    let mut rig = Rig::new();
    rig.library("one", "int one(void) { return 1; }", &[]);
    // Of several pages, so that its middle can be taken.
    rig.library("two", "char much[1 << 20]; int two(void) { return 2 + much[0]; }", &[]);
    let free = 0x5000_0000;
    let path = program(&rig, free);
    assert!(rig.set(&[&path]).unset.is_empty());
    let run = || text(rig.command(&path).arg("an argument").env("A_VARIABLE", "x").output().unwrap());
    let with = "copy\ncopy\ncopy\nan argument\nx\nonce\n";
    assert_eq!(run(), with);
    let file = |name: &str| Elf::open(&altered::copy_of(&rig, name)).unwrap();
    let page = |address: u64| address & !0xfff;
    let (one, two, libc) = (file("libone.so"), file("libtwo.so"), file("libc.so.6"));
    let (at_once, late) = ("once", "again");
    for (address, seen) in [
        // Where the first look goes: nothing was mapped yet.
        (page(one.dynamic_address().unwrap()), at_once),
        // Elsewhere in it, in another, at its end, in the last: seen when it has come to another place.
        (one.extent().0, late),
        (two.extent().0, late),
        (page(two.extent().1 - 1), late),
        (libc.extent().0, late),
        // In none.
        (two.extent().0 - 0x1000_0000, ""),
    ] {
        let before = state_of(&path).unwrap();
        program(&rig, address);
        hand_on(&rig, &path, before);
        let without = format!("original\noriginal\noriginal\nan argument\nx\n{seen}\n");
        assert_eq!(run(), if seen.is_empty() { with.to_owned() } else { without }, "{address:#x}");
    }
}
