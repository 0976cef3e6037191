//! Stores of copies: the lock that every command needs, and the records that every start reads.

use super::alone;
use crate::scene::ATTACKER;
use crate::{Attack, leave_out};
use commonhold_images::ranges::Owner;
use commonhold_rebase::build::build;
use commonhold_rebase::store::{Set, Store};
use commonhold_record::{FILE_BYTES, HEADER_BYTES, Record, sum};
use commonhold_tests::stranger::Numbers;
use commonhold_tests::user::as_user;
use commonhold_tests::{Scratch, wait};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) const ATTACKS: &[Attack] = &[
    alone("store.the_lock", "hold the lock of a store for ever, or have it opened elsewhere", the_lock),
    alone("store.damaged_records", "records that are damaged, and have right sums", damaged_records),
];

fn the_lock() {
    let scratch = Scratch::new();
    let store = Store::open(&scratch.join("rebase"), Owner::Machine).expect("a store");
    let lock = store.root().join("lock");
    let mode = || std::fs::metadata(&lock).expect("the lock").permissions().mode() & 0o777;
    let theirs = || as_user(ATTACKER.0, || File::open(&lock));
    drop(store.lock().expect("the lock"));
    assert_eq!(mode(), 0o600);
    theirs().expect_err("only its owner opens it");
    // Of a store that an earlier Commonhold made, and that somebody holds.
    std::fs::set_permissions(&lock, Permissions::from_mode(0o644)).expect("a mode");
    let others = theirs().expect("everybody may");
    others.lock().expect("nobody has it");
    let refused = store.lock_within(Duration::from_millis(200)).expect_err("another has it").to_string();
    assert!(refused.contains("fuser -v") && refused.contains("lock"), "{refused}");
    assert_eq!(mode(), 0o600);
    drop(others);
    theirs().expect_err("only its owner opens it by now");
    drop(store.lock().expect("the lock"));
    // Nothing is opened through what another put there.
    std::fs::remove_file(&lock).expect("it goes");
    let elsewhere = scratch.join("elsewhere");
    std::os::unix::fs::symlink(&elsewhere, &lock).expect("a link");
    store.lock().expect_err("a link is not followed");
    assert!(!elsewhere.exists());
}

/// One damage of one kind, with the sum and the length put right.
fn damaged(whole: &[u8], chance: &mut Numbers) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let files = Record::new(whole).expect("a record").len();
    let mut below = |end: usize| chance.below(end as u64) as usize;
    let entry = |index: usize| HEADER_BYTES + index * FILE_BYTES;
    match below(8) {
        0 => {
            let at = 8 + below(bytes.len() - 8);
            bytes[at] ^= 1 << below(8);
        }
        1 => {
            let at = entry(below(files)) + 4 * below(FILE_BYTES / 4);
            let value = [0, u32::MAX, 1, 24, 1 << 31][below(5)];
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        2 => {
            let mut field = || entry(below(files)) + 4 * below(FILE_BYTES / 4);
            let (at, from) = (field(), field());
            bytes.copy_within(from..from + 4, at);
        }
        3 => {
            let (to, from) = (entry(below(files)), entry(below(files)));
            bytes.copy_within(from..from + FILE_BYTES, to);
        }
        4 => bytes.truncate(below(bytes.len())),
        5 => {
            let count = [0, 1, 2, files - 1, files + 1, 1 << 20][below(6)] as u32;
            bytes[12..16].copy_from_slice(&count.to_le_bytes());
        }
        6 => {
            // The place of a string: another in the record.
            let at = entry(below(files)) + 4 * below(2);
            let place = below(bytes.len()) as u32;
            bytes[at..at + 4].copy_from_slice(&place.to_le_bytes());
        }
        _ => {
            let at = entry(below(files)) + 48;
            let value = [0, u64::MAX, 4096, 1 << 62][below(4)];
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    put_right(&mut bytes);
    bytes
}

fn put_right(bytes: &mut [u8]) {
    if bytes.len() >= HEADER_BYTES {
        let length = bytes.len() as u32;
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        let right = sum(&bytes[HEADER_BYTES..]);
        bytes[16..24].copy_from_slice(&right.to_le_bytes());
    }
}

/// Compiles what depends on what was compiled before; where it is.
pub(super) fn compile(into: &Path, file: &str, source: &str, options: &[&str]) -> PathBuf {
    let (from, to) = (into.join("source.c"), into.join(file));
    std::fs::write(&from, source).expect("a source");
    let here = format!("-L{}", into.display());
    let mut command = Command::new("cc");
    command.args(["-O1", "-Wl,-rpath,$ORIGIN", &here, "-o"]).arg(&to).arg(&from).args(options);
    let output = command.output().unwrap_or_else(|_| leave_out("there is no C compiler"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    to
}

/// A program with a library that needs another; it prints 8.
pub(super) fn program_in(directory: &Path) -> PathBuf {
    let shared = ["-shared", "-fPIC"];
    let inner = "static int value = 7; int *place = &value; int inner(void) { return *place; }";
    compile(directory, "libinner.so", inner, &[&shared[..], &["-Wl,-soname,libinner.so"]].concat());
    let outer = "int inner(void); int outer(void) { return inner() + 1; }";
    compile(
        directory,
        "libouter.so",
        outer,
        &[&shared[..], &["-Wl,-soname,libouter.so", "-linner"]].concat(),
    );
    let program =
        "#include <stdio.h>\nint outer(void); int main(void) { printf(\"%d\\n\", outer()); return 0; }";
    compile(directory, "program", program, &["-louter", "-linner"])
}

fn record_of(store: &Store, program: &Path) -> PathBuf {
    let name = commonhold_record::name(program.as_os_str().as_bytes());
    store.root().join("programs").join(std::str::from_utf8(&name).expect("a name"))
}

/// What it prints, if it ends in order and in time.
fn output_of(store: &Store, program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    let mut child = command.envs(store.variables()).stdout(Stdio::piped()).spawn().expect("it starts");
    if wait::within(wait::LONG, || child.try_wait().expect("its end")).is_none() {
        child.kill().expect("it ends");
    }
    let output = child.wait_with_output().expect("its output");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whatever a record says, the program starts, with its own libraries if need be.
fn damaged_records() {
    let scratch = Scratch::new();
    let directory = scratch.path().canonicalize().expect("a path");
    let store = Store::open(&directory.join("store"), Owner::Machine).expect("a store");
    store.install().expect("what loaders are given");
    let program = program_in(&directory);
    for with_copy in [false, true] {
        let set = Set::from([(program.clone(), with_copy)]);
        build(&store, &set, &|_, _| ()).expect("copies");
        let plain = output_of(&store, &program);
        assert_eq!(plain.as_deref(), Some("8\n"));
        let own = record_of(&store, &program);
        let whole = std::fs::read(&own).expect("a record");
        let copy = Record::new(&whole).expect("a record").files().next().expect("a file").copy.to_vec();
        assert_eq!(!copy.is_empty(), with_copy);
        let mut records = vec![own];
        if let Some(path) = copy.strip_suffix(b"\0") {
            records.push(record_of(&store, Path::new(OsStr::from_bytes(path))));
        }
        let mut chance = Numbers(11);
        for record in records {
            let whole = std::fs::read(&record).expect("a record");
            for _ in 0..20_000 {
                let bytes = damaged(&whole, &mut chance);
                if let Some(found) = Record::new(&bytes) {
                    assert_eq!(found.files().count(), found.len());
                }
            }
            for round in 0..150 {
                std::fs::write(&record, damaged(&whole, &mut chance)).expect("a record");
                assert_eq!(output_of(&store, &program), plain, "{round}: {}", record.display());
            }
            std::fs::write(&record, &whole).expect("a record");
        }
    }
}
