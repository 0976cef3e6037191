//! ELF files: this very program, a library made by hand in every class and byte order, and thousands of damaged ones.

use super::*;
use proptest::prelude::*;
use std::hint::black_box;
use std::io::Write;

fn of_bytes(bytes: &[u8]) -> Result<Elf, Unfit> {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(bytes).expect("written");
    read(&file, bytes.len() as u64, 4096)
}

/// Numbers of one width and byte order.
struct Writer {
    is_64: bool,
    big: bool,
}

impl Writer {
    fn put(&self, bytes: &mut Vec<u8>, value: u64, width: usize) {
        let little = value.to_le_bytes();
        let part = little[..width].iter().copied();
        if self.big { bytes.extend(part.rev()) } else { bytes.extend(part) }
    }

    fn word(&self, bytes: &mut Vec<u8>, value: u64) {
        self.put(bytes, value, if self.is_64 { 8 } else { 4 });
    }

    fn segment(&self, bytes: &mut Vec<u8>, kind: u64, flags: u64, offset: u64, address: u64, size: u64) {
        self.put(bytes, kind, 4);
        if self.is_64 {
            self.put(bytes, flags, 4);
        }
        for value in [offset, address, address, size, size] {
            self.word(bytes, value);
        }
        if !self.is_64 {
            self.put(bytes, flags, 4);
        }
        self.word(bytes, 4);
    }

    /// A shared library: text, notes with a build ID, a dynamic segment with a name, and a range to protect.
    fn library(&self, machine: u64) -> Vec<u8> {
        let word = if self.is_64 { 8 } else { 4 };
        let (header, entry) = if self.is_64 { (64, 56) } else { (52, 32) };
        let mut notes = Vec::new();
        [4, 3, 3].iter().for_each(|value| self.put(&mut notes, *value, 4));
        notes.extend(b"GNU\0\xab\xcd\xef\0");
        let notes_at = header + 5 * entry;
        let strings_at = notes_at + notes.len() as u64;
        let strings = b"\0libmade.so.1\0";
        let dynamic_at = (strings_at + strings.len() as u64).next_multiple_of(8);
        let mut dynamic = Vec::new();
        for (tag, value) in [(5, 0x10000 + strings_at), (14, 1), (0, 0)] {
            self.word(&mut dynamic, tag);
            self.word(&mut dynamic, value);
        }
        let end = 0x3000;
        let mut bytes = vec![0x7f, b'E', b'L', b'F', 1 + u8::from(self.is_64), 1 + u8::from(self.big), 1];
        bytes.resize(16, 0);
        [3, machine].iter().for_each(|value| self.put(&mut bytes, *value, 2));
        self.put(&mut bytes, 1, 4);
        [0, header, 0].iter().for_each(|value| self.word(&mut bytes, *value));
        self.put(&mut bytes, 0, 4);
        [header, entry, 5, 0, 0, 0].iter().for_each(|value| self.put(&mut bytes, *value, 2));
        self.segment(&mut bytes, 1, 5, 0, 0x10000, 0x1800);
        self.segment(&mut bytes, 1, 6, 0x2800, 0x22800, 0x800);
        self.segment(&mut bytes, 2, 6, dynamic_at, 0x10000 + dynamic_at, 3 * 2 * word);
        self.segment(&mut bytes, 4, 4, notes_at, 0x10000 + notes_at, notes.len() as u64);
        self.segment(&mut bytes, 0x6474_e552, 4, 0x2800, 0x22800, 0x900);
        bytes.extend(notes);
        bytes.extend(strings);
        bytes.resize(usize::try_from(dynamic_at).expect("small"), 0);
        bytes.extend(dynamic);
        bytes.resize(end, 0);
        bytes
    }
}

#[test]
fn libraries_of_every_class_and_byte_order() {
    for (is_64, big, machine, name) in [
        (true, false, 62, "x86_64"),
        (false, false, 3, "i386"),
        (true, true, 22, "s390x"),
        (false, true, 20, "powerpc"),
        (true, false, 183, "aarch64"),
        (true, false, 0xfedc, "machine-65244"),
    ] {
        let elf = of_bytes(&Writer { is_64, big }.library(machine)).expect(name);
        assert_eq!(elf.architecture, name);
        assert_eq!(elf.soname.as_deref(), Some("libmade.so.1"), "{name}");
        assert_eq!(elf.build_id.as_deref(), Some(&[0xab, 0xcd, 0xef][..]), "{name}");
        assert_eq!(elf.text_bytes, 0x1800, "{name}");
        // 0x22800..0x23100 protects the page at 0x22000, which the file has at 0x2000.
        assert_eq!(elf.relro, [(0x2000, 0x1000)], "{name}");
        assert!(!elf.is_program, "{name}");
    }
}

#[test]
fn this_program_is_one() {
    let path = std::env::current_exe().expect("a path");
    let file = File::open(path).expect("opened");
    let length = file.metadata().expect("known").len();
    let elf = read(&file, length, 4096).expect("an ELF file");
    assert!(elf.is_program && elf.soname.is_none());
    assert_eq!(elf.architecture, std::env::consts::ARCH);
    assert!(elf.text_bytes > 0 && !elf.relro.is_empty());
}

#[test]
fn what_is_something_else_or_cut_short() {
    let library = Writer { is_64: true, big: false }.library(62);
    assert_eq!(of_bytes(b""), Err(Unfit::OtherKind));
    assert_eq!(of_bytes(b"#!/bin/sh\nexit 0\n"), Err(Unfit::OtherKind));
    assert_eq!(of_bytes(&library[..0x2900]), Err(Unfit::Truncated));
    assert_eq!(of_bytes(&library[..100]), Err(Unfit::Damaged));
    assert_eq!(of_bytes(&library[..16]), Err(Unfit::Damaged));
    // Longer when it was asked than when it was read.
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(&library[..80]).expect("written");
    assert_eq!(read(&file, library.len() as u64, 4096), Err(Unfit::Damaged));
}

#[test]
fn a_part_that_claims_a_terabyte_is_not_read() {
    let mut library = Writer { is_64: true, big: false }.library(62);
    // The size in the file of the note segment, in a file that is that long, and empty.
    let at = 64 + 3 * 56 + 32;
    library[at..at + 8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(&library).expect("written");
    file.set_len(2 << 40).expect("a sparse file");
    let elf = read(&file, 2 << 40, 4096).expect("the rest holds");
    assert_eq!(elf.build_id, None);
    assert_eq!(elf.soname.as_deref(), Some("libmade.so.1"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn damage_never_panics(
        places in prop::collection::vec((0_usize..0x300, any::<u8>()), 1..12),
        length in 0_usize..0x3000,
        is_64: bool,
        big: bool,
    ) {
        let mut bytes = Writer { is_64, big }.library(62);
        for (place, value) in places {
            bytes[place] = value;
        }
        let _ = of_bytes(&bytes);
        bytes.truncate(length);
        let _ = of_bytes(&bytes);
    }
}

#[test]
fn damage_to_a_real_file_never_panics() {
    let path = std::env::current_exe().expect("a path");
    let real = std::fs::read(path).expect("read");
    let mut bytes = real[..real.len().min(1 << 16)].to_vec();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("31 bits")
    };
    for round in 0..3000 {
        // Most of the damage goes where the headers are.
        let area = if round % 3 == 0 { bytes.len() } else { 1024 };
        let undo: Vec<(usize, u8)> = (0..1 + random() % 8)
            .map(|_| {
                let place = random() % area;
                let old = bytes[place];
                bytes[place] = u8::try_from(random() % 256).expect("a byte");
                (place, old)
            })
            .collect();
        let cache = ReadCache::new(std::io::Cursor::new(&bytes[..]));
        let parsed = parse(
            Limited { cache: &cache, left: &Cell::new(LARGEST_PART) },
            bytes.len() as u64 * (1 + random() as u64 % 1000),
            4096,
        );
        black_box(parsed.is_ok());
        undo.into_iter().rev().for_each(|(place, old)| bytes[place] = old);
    }
}
