//! Pages of numbers as a machine of some type has them in its memory, made without the product's translation but for floats of
//! the VAX.

use crate::{PAGE, Worker};
use commonhold::tags::{ByteOrder, Floats, Machine, Tag, Translation, Type};
use std::path::Path;

/// A record of which a page holds no whole number.
const RECORD: &str = "{24: 0 int32, 8 float64*2}";
/// What is in which pages: first, count, tag. Of records a page holds no whole number.
pub const LAYOUT: [(u64, u64, &str); 11] = [
    (0, 1, "int16"),
    (1, 1, "int32"),
    (2, 1, "int64"),
    (3, 1, "int128"),
    (4, 1, "offset"),
    (5, 1, "float16"),
    (6, 1, "bfloat16"),
    (7, 2, "float32"),
    (9, 2, "float64"),
    (11, 4, RECORD),
    (15, 1, "bytes"),
];
/// Of all of them.
pub const PAGES: u64 = 16;

/// The bytes of so many elements: which numbers they are is said by `seed`. All have counterparts on every machine.
pub fn elements(tag: &Tag, machine: Machine, count: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; count * tag.bytes()];
    for (index, element) in bytes.chunks_mut(tag.bytes()).enumerate() {
        match tag {
            Tag::Of(of) => write(*of, machine, number(index, 0, seed), element),
            Tag::Record { fields, .. } => {
                for (place, field) in fields.iter().enumerate() {
                    let size = field.of.bytes();
                    for at in 0..field.count as usize {
                        let begin = field.offset as usize + at * size;
                        let number = number(index, place * 100 + at, seed);
                        write(field.of, machine, number, &mut element[begin..begin + size]);
                    }
                }
            }
        }
    }
    bytes
}

/// The bytes of these pages, of a row of elements that begins with page 0.
pub fn pages(tag: &Tag, machine: Machine, first: usize, count: usize, seed: u64) -> Vec<u8> {
    let end = (first + count) * PAGE;
    let mut all = elements(tag, machine, end.div_ceil(tag.bytes()), seed);
    all.truncate(end);
    all.split_off(first * PAGE)
}

fn number(index: usize, place: usize, seed: u64) -> u64 {
    (index as u64 * 7919 + place as u64 * 104_729 + seed * 1_299_709) % 0x7f_ffff
}

fn write(of: Type, machine: Machine, number: u64, bytes: &mut [u8]) {
    let signed = number as i64 - 0x3f_ffff;
    let float = signed as f64 / 64.0;
    match of {
        Type::Bytes | Type::Integer(1) => bytes[0] = number as u8,
        // All 24 bits of the number, and all bits of a longer one.
        Type::Float32 => ordered(machine, bytes, &(float as f32).to_le_bytes()),
        Type::Float64 => ordered(machine, bytes, &float.to_le_bytes()),
        Type::Float16 | Type::Bfloat16 | Type::Integer(2) => {
            ordered(machine, bytes, &(number as u16).to_le_bytes())
        }
        Type::Integer(4) => ordered(machine, bytes, &(signed as i32).to_le_bytes()),
        Type::Integer(8) | Type::Offset => ordered(machine, bytes, &(signed * 0x1_0000_0001).to_le_bytes()),
        Type::Integer(_) => {
            ordered(machine, bytes, &(i128::from(signed) << 64 | i128::from(number)).to_le_bytes())
        }
    }
    if machine.floats == Floats::Vax && matches!(of, Type::Float32 | Type::Float64) {
        let little = bytes.to_vec();
        let tag = Tag::Of(of);
        let translation = Translation::between(&tag, Machine::LITTLE, Machine::VAX).expect("floats differ");
        let losses = translation.apply(&little, bytes).expect("one number");
        assert_eq!(losses.count(), 0, "{float} has a counterpart");
    }
}

fn ordered(machine: Machine, bytes: &mut [u8], little: &[u8]) {
    bytes.copy_from_slice(little);
    if machine.order == ByteOrder::Big {
        bytes.reverse();
    }
}

/// Says what is in all pages of the object `o`.
pub fn tag_all(worker: &Worker) {
    for (first, count, tag) in LAYOUT {
        worker.ok(&format!("tag o {} {} {tag}", first * 4096, count * 4096));
    }
}

/// Writes numbers to all pages, as that machine has them, or looks that they are there.
pub fn numbers(worker: &Worker, what: &str, seed: u64, machine: &str) {
    for (first, count, tag) in LAYOUT {
        worker.ok(&format!("numbers {what} m {first} {count} {seed} {machine} {tag}"));
    }
}

/// The file has the numbers in all pages, as that machine has them.
pub fn is_stored(file: &Path, seed: u64, machine: &str) {
    let bytes = std::fs::read(file).expect("the file");
    for (first, count, tag) in LAYOUT {
        let of = Tag::of_text(tag).expect("a tag");
        let machine = Machine::of_word(machine).expect("a machine");
        let pages = pages(&of, machine, 0, count as usize, seed);
        assert!(bytes[first as usize * PAGE..][..pages.len()] == pages[..], "{tag}");
    }
}
