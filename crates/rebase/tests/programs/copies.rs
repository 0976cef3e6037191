//! Copies that are not what was written, or that others could have written: no program gets them.

use crate::rig::{BY_ADDRESS, MACHINE, Rig, is_root};
use commonhold_rebase::state::{self, State};
use commonhold_rebase::store::Store;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that is set, and the copy of its library.
fn ready() -> (Rig, PathBuf, PathBuf) {
    let mut rig = Rig::new();
    rig.library("one", "int call(void) { return 1; }", &[]);
    let main =
        format!("{BY_ADDRESS}\nint call(void); int main(void) {{ by_address(call); return call() - 1; }}");
    let program = rig.program("program", &main, &["-lone"]);
    assert!(rig.set(&[&program]).unset.is_empty());
    assert_eq!(rig.run(&program), "copy\n");
    let copy = copy_of(&rig, "libone.so");
    (rig, program, copy)
}

fn copy_of(rig: &Rig, name: &str) -> PathBuf {
    let copies = rig.store.copies().unwrap();
    copies.into_iter().find(|(_, path)| path.ends_with(name)).unwrap().1
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Whatever was done to a copy: the program starts as it is, `list` says so, `verify` names it where more than its times
/// is off, and `update` puts it right.
fn is_left_alone_until_update((rig, program, copy): &(Rig, PathBuf, PathBuf), is_damaged: bool, what: &str) {
    assert_eq!(rig.run(program), "original\n", "{what}");
    let stale = State::Stale { file: copy.clone() };
    assert_eq!(state::of(&rig.store, program).unwrap(), stale, "{what}");
    let damaged = rig.store.damaged().unwrap();
    assert_eq!(damaged, if is_damaged { vec![copy.clone()] } else { Vec::new() }, "{what}");
    let report = rig.update();
    assert_eq!((report.made, report.unset.len()), (usize::from(is_damaged), 0), "{what}: {report:?}");
    assert_eq!(rig.run(program), "copy\n", "{what}");
    assert!(rig.store.damaged().unwrap().is_empty(), "{what}");
}

#[test]
fn a_copy_that_was_cut_off_is_not_mapped() {
    let all = ready();
    for length in [0, 100, fs::metadata(&all.2).unwrap().len() / 2] {
        mode(&all.2, 0o644);
        fs::File::options().write(true).open(&all.2).unwrap().set_len(length).unwrap();
        mode(&all.2, 0o444);
        is_left_alone_until_update(&all, true, &format!("{length} bytes"));
    }
}

#[test]
fn a_copy_whose_bytes_were_changed_in_place_is_not_mapped() {
    let all = ready();
    let mut bytes = fs::read(&all.2).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(0);
    mode(&all.2, 0o644);
    fs::write(&all.2, &bytes).unwrap();
    mode(&all.2, 0o444);
    is_left_alone_until_update(&all, true, "zeros");
}

#[test]
fn a_copy_that_was_replaced_is_not_mapped() {
    let all = ready();
    let copy = &all.2;
    let bytes = fs::read(copy).unwrap();
    // By the same bytes with the same times: another file.
    let times = fs::metadata(copy).unwrap();
    fs::remove_file(copy).unwrap();
    fs::write(copy, &bytes).unwrap();
    mode(copy, 0o444);
    fs::File::open(copy).unwrap().set_modified(times.modified().unwrap()).unwrap();
    is_left_alone_until_update(&all, false, "the same bytes");
    let elsewhere = all.0.path("elsewhere");
    fs::write(&elsewhere, &bytes).unwrap();
    fs::remove_file(copy).unwrap();
    symlink(&elsewhere, copy).unwrap();
    is_left_alone_until_update(&all, true, "a link");
}

#[test]
fn a_copy_that_others_may_write_is_not_mapped() {
    let all = ready();
    mode(&all.2, 0o666);
    is_left_alone_until_update(&all, true, "0666");
    // Whoever could write it may have done so: that the right was taken back does not make it what was written, but its
    // bytes do.
    mode(&all.2, 0o666);
    mode(&all.2, 0o444);
    is_left_alone_until_update(&all, false, "0666 for a while");
    mode(&all.2, 0o600);
    is_left_alone_until_update(&all, true, "not for everybody to read");
}

#[test]
fn a_copy_of_another_user_is_not_mapped() {
    if !is_root("a copy of another user") {
        return;
    }
    let all = ready();
    chown(&all.2, Some(12_345), None).unwrap();
    is_left_alone_until_update(&all, true, "another owner");
}

/// A program is started by an owner's record of a copy that was another's already: what `set` refuses, a start does too.
#[test]
fn a_record_does_not_make_a_foreign_copy_good() {
    if !is_root("a copy of another user") {
        return;
    }
    use commonhold_record::{FILE_BYTES, HEADER_BYTES, Record, sum};
    let (rig, program, copy) = ready();
    let at_copy = |bytes: &[u8]| {
        let record = Record::new(bytes).unwrap();
        let place =
            record.files().position(|file| file.copy.starts_with(copy.as_os_str().as_encoded_bytes()));
        HEADER_BYTES + place.unwrap() * FILE_BYTES + 56
    };
    for (owner, bits, says) in [(0, 0o444, "copy\n"), (12_345, 0o444, "original\n"), (0, 0o464, "original\n")]
    {
        chown(&copy, Some(owner), None).unwrap();
        mode(&copy, bits);
        // As if the record had been written now.
        let path = rig.store.record(&program);
        let mut bytes = fs::read(&path).unwrap();
        let changed = at_copy(&bytes) + 32;
        let status = fs::metadata(&copy).unwrap();
        let ns = status.ctime() * 1_000_000_000 + status.ctime_nsec();
        bytes[changed..changed + 8].copy_from_slice(&ns.to_le_bytes());
        let whole = sum(&bytes[HEADER_BYTES..]);
        bytes[16..24].copy_from_slice(&whole.to_le_bytes());
        fs::write(&path, bytes).unwrap();
        assert_eq!(rig.run(&program), says, "{owner} {bits:o}");
    }
}

#[test]
fn what_stands_beside_a_copy_is_the_owners_too() {
    let (rig, program, copy) = ready();
    let directory = copy.parent().unwrap();
    for name in [".sum", ".of", ""] {
        let path = directory.join(name);
        mode(&path, if name.is_empty() { 0o777 } else { 0o666 });
        assert_eq!(rig.store.damaged().unwrap(), std::slice::from_ref(&copy), "{name:?}");
        assert_eq!(rig.update().made, 1, "{name:?}");
        assert!(rig.store.damaged().unwrap().is_empty(), "{name:?}");
        assert_eq!(rig.run(&program), "copy\n");
    }
    // With a hash that fits, as whoever may write the copy would leave it.
    let mut bytes = fs::read(&copy).unwrap();
    bytes.extend(b"more");
    for (name, bytes) in [("libone.so", bytes.clone()), (".sum", blake3_of(&bytes))] {
        let path = directory.join(name);
        mode(&path, 0o666);
        fs::write(&path, bytes).unwrap();
    }
    assert_eq!(rig.store.damaged().unwrap(), std::slice::from_ref(&copy));
    assert_eq!(rig.run(&program), "original\n");
    assert_eq!(rig.update().made, 1);
    assert!(!fs::read(&copy).unwrap().ends_with(b"more"));
}

fn blake3_of(bytes: &[u8]) -> Vec<u8> {
    blake3::hash(bytes).to_hex().as_bytes().to_vec()
}

#[test]
fn a_programs_own_copy_that_is_off_is_not_started() {
    let mut rig = Rig::new();
    rig.library("one", "int call(void) { return 1; }", &[]);
    let main =
        format!("{BY_ADDRESS}\nint call(void); int main(void) {{ by_address(call); by_address(main); }}");
    let program = rig.program("program", &main, &["-lone", "-pie", "-fPIE"]);
    rig.set.insert(program.clone(), true);
    assert!(rig.update().unset.is_empty());
    assert_eq!(rig.run(&program), "copy\ncopy\n");
    let copy = copy_of(&rig, "program");
    mode(&copy, 0o777);
    assert_eq!(rig.run(&program), "original\noriginal\n");
    assert_eq!(rig.update().made, 1);
    assert_eq!(rig.run(&program), "copy\ncopy\n");
    // The copy is whole, and a library's is not: the original of both.
    mode(&copy_of(&rig, "libone.so"), 0o666);
    assert_eq!(rig.run(&program), "original\noriginal\n");
}

#[test]
fn directories_of_the_audit_library_that_others_may_write_are_no_store() {
    let (rig, _, _) = ready();
    let opened = || {
        let opened = Store::open(rig.store.root(), MACHINE);
        opened.map(drop).map_err(|why| why.to_string())
    };
    for name in ["lib", "lib/x86_64-linux-gnu", "lib64", "lib/i386-linux-gnu", "lib32"] {
        let directory = rig.store.root().join(name);
        mode(&directory, 0o777);
        let why = opened().unwrap_err();
        assert!(why.contains(&format!("/{name} cannot be used: others may write there")), "{why}");
        mode(&directory, 0o755);
        opened().unwrap();
    }
}

#[test]
fn an_audit_library_that_others_may_write_is_put_there_anew() {
    let (rig, program, _) = ready();
    let library = rig.store.root().join("lib/x86_64-linux-gnu/libcommonhold_start.so");
    let bytes = fs::read(&library).unwrap();
    mode(&library, 0o666);
    assert_eq!(rig.store.damaged().unwrap(), std::slice::from_ref(&library));
    assert!(!rig.store.is_installed());
    rig.store.install().unwrap();
    assert!(rig.store.is_installed() && rig.store.damaged().unwrap().is_empty());
    assert_eq!(
        (fs::read(&library).unwrap() == bytes, fs::metadata(&library).unwrap().mode() & 0o777),
        (true, 0o644)
    );
    assert_eq!(rig.run(&program), "copy\n");
}

#[test]
fn a_list_of_programs_that_others_may_write_is_none() {
    let (rig, _, _) = ready();
    rig.store.set_programs(&rig.set).unwrap();
    assert_eq!(rig.store.programs().unwrap(), rig.set);
    mode(&rig.store.root().join("set"), 0o666);
    assert!(rig.store.programs().unwrap_err().to_string().contains("others may write there"));
}

/// What a store is made with does not depend on what its maker lets others do as a rule.
#[test]
fn whoever_lets_a_group_write_as_a_rule_does_not_in_a_store() {
    let place = tempfile::TempDir::new().unwrap();
    let binary = std::env::current_exe().unwrap();
    let script = format!("umask 000; exec '{}' --exact --ignored copies::makes_a_store", binary.display());
    let output = Command::new("sh").arg("-c").arg(script).env("A_STORE", place.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let store = Store::open(&place.path().join("store"), MACHINE);
    let store = store.unwrap();
    assert!(store.is_installed() && store.damaged().unwrap().is_empty());
}

#[test]
#[ignore = "started by the test above, with another umask"]
fn makes_a_store() {
    let place = PathBuf::from(std::env::var_os("A_STORE").unwrap()).join("store");
    Store::open(&place, MACHINE).unwrap().install().unwrap();
}

/// The key of the record is the state of files: a change of rights, or another number of the device after a reboot, ends
/// it, and `update` writes the record anew without a new copy.
#[test]
fn where_bytes_are_the_same_update_makes_no_copies() {
    let (rig, program, copy) = ready();
    let library = rig.path("libone.so");
    mode(&library, 0o755 ^ 0o111);
    fs::hard_link(&library, rig.path("another-name")).unwrap();
    assert_eq!(rig.run(&program), "original\n");
    assert_eq!(state::of(&rig.store, &program).unwrap(), State::Stale { file: library });
    let before = fs::metadata(&copy).unwrap();
    let report = rig.update();
    assert!(report.made == 0 && report.kept > 0, "{report:?}");
    assert_eq!(rig.run(&program), "copy\n");
    let after = fs::metadata(&copy).unwrap();
    assert_eq!((before.ino(), before.ctime_nsec()), (after.ino(), after.ctime_nsec()));
}
