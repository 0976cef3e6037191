//! Records that are damaged, and have right sums: whatever they say, the program starts, with its own libraries if need be.

use crate::rig::{Rig, WHERE};
use commonhold_record::{FILE_BYTES, HEADER_BYTES, Record, name, sum};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Numbers that are the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }
}

/// One damage of one kind, with the sum and the length put right.
fn damaged(whole: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let files = Record::new(whole).unwrap().len();
    let entry = |index: usize| HEADER_BYTES + index * FILE_BYTES;
    let field = |chance: &mut Chance| entry(chance.below(files)) + 4 * chance.below(FILE_BYTES / 4);
    match chance.below(8) {
        0 => {
            let at = 8 + chance.below(bytes.len() - 8);
            bytes[at] ^= 1 << chance.below(8);
        }
        1 => {
            let (at, value) = (field(chance), [0, u32::MAX, 1, 24, 1 << 31][chance.below(5)]);
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        2 => {
            let (at, from) = (field(chance), field(chance));
            bytes.copy_within(from..from + 4, at);
        }
        3 => {
            let (to, from) = (entry(chance.below(files)), entry(chance.below(files)));
            bytes.copy_within(from..from + FILE_BYTES, to);
        }
        4 => bytes.truncate(chance.below(bytes.len())),
        5 => {
            let count = [0, 1, 2, files - 1, files + 1, 1 << 20][chance.below(6)] as u32;
            bytes[12..16].copy_from_slice(&count.to_le_bytes());
        }
        6 => {
            // The place of a string: another in the record.
            let at = entry(chance.below(files)) + 4 * chance.below(2);
            let place = chance.below(bytes.len()) as u32;
            bytes[at..at + 4].copy_from_slice(&place.to_le_bytes());
        }
        _ => {
            let at = entry(chance.below(files)) + 48;
            let value = [0, u64::MAX, 4096, 1 << 62][chance.below(4)];
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    if bytes.len() >= HEADER_BYTES {
        let length = bytes.len() as u32;
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        let right = sum(&bytes[HEADER_BYTES..]);
        bytes[16..24].copy_from_slice(&right.to_le_bytes());
    }
    bytes
}

fn record_of(rig: &Rig, program: &Path) -> PathBuf {
    let name = name(program.as_os_str().as_bytes());
    rig.store.root().join("programs").join(std::str::from_utf8(&name).unwrap())
}

/// What it prints, if it ends in order and in time.
fn output_of(rig: &Rig, program: &Path) -> Option<String> {
    let mut child = rig.command(program).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if since.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn whatever_a_record_says_the_program_starts() {
    let mut rig = Rig::new();
    rig.library(
        "inner",
        "static int value = 7; int *place = &value; int inner(void) { return *place; }",
        &[],
    );
    let source = "int inner(void); int outer(void) { return inner() + 1; }";
    rig.library("outer", source, &["-linner"]);
    let source =
        [WHERE, "int outer(void); int main(void) { printf(\"%d\\n\", outer()); return 0; }"].concat();
    let program = rig.program("program", &source, &["-louter", "-linner"]);
    for with_copy in [false, true] {
        rig.set.insert(program.clone(), with_copy);
        rig.update();
        let plain = output_of(&rig, &program);
        assert_eq!(plain.as_deref(), Some("8\n"));
        let own = record_of(&rig, &program);
        let whole = std::fs::read(&own).unwrap();
        let copy = Record::new(&whole).unwrap().files().next().unwrap().copy.to_vec();
        assert_eq!(!copy.is_empty(), with_copy);
        let mut records = vec![own];
        if let Some(path) = copy.strip_suffix(b"\0") {
            records.push(record_of(&rig, Path::new(std::ffi::OsStr::from_bytes(path))));
        }
        let mut chance = Chance(11);
        for record in records {
            let whole = std::fs::read(&record).unwrap();
            for _ in 0..20_000 {
                let bytes = damaged(&whole, &mut chance);
                if let Some(found) = Record::new(&bytes) {
                    assert_eq!(found.files().count(), found.len());
                }
            }
            for round in 0..150 {
                let bytes = damaged(&whole, &mut chance);
                std::fs::write(&record, &bytes).unwrap();
                assert_eq!(output_of(&rig, &program), plain, "{round}: {}", record.display());
            }
            std::fs::write(&record, &whole).unwrap();
        }
    }
}
