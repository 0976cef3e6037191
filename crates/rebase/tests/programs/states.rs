//! What the store says of itself, and what is taken away.

use crate::rig::{Rig, WHERE};
use commonhold_rebase::state::{self, State};
use std::io::Read;
use std::process::Stdio;

fn ready() -> (Rig, std::path::PathBuf) {
    let mut rig = Rig::new();
    rig.library("one", "int call(void) { return 1; }", &[]);
    let source = "#include <stdio.h>\nint call(void); int main(void) { puts(\"here\"); fflush(stdout); getchar(); return call() - 1; }";
    let program = rig.program("program", source, &["-lone"]);
    rig.set(&[&program]);
    (rig, program)
}

#[test]
fn a_program_is_current_until_a_file_of_it_changes() {
    let (rig, program) = ready();
    assert!(matches!(state::of(&rig.store, &program).unwrap(), State::Current { copies } if copies >= 1));
    let library = rig.library("one", "int call(void) { return 1; } int x;", &[]);
    assert_eq!(state::of(&rig.store, &program).unwrap(), State::Stale { file: library });
    let report = rig.update();
    assert!(report.made >= 1, "{report:?}");
    assert!(matches!(state::of(&rig.store, &program).unwrap(), State::Current { .. }));
    // The new version has the old one's addresses.
    let copies = rig.store.copies().unwrap();
    let ones = copies.iter().filter(|(_, path)| path.ends_with("libone.so"));
    let bases: std::collections::BTreeSet<u64> =
        ones.map(|(_, path)| commonhold_rebase::elf::Elf::open(path).unwrap().extent().0).collect();
    assert_eq!(bases.len(), 1);
}

#[test]
fn a_package_that_was_upgraded_ends_what_it_touches_and_nothing_else() {
    let mut rig = Rig::new();
    let program = |rig: &Rig, name: &str| {
        rig.library(name, &format!("int {name}(void) {{ return 1; }}"), &[]);
        let source = format!("{WHERE}\nint {name}(void); int main(void) {{ where({name}); }}");
        rig.program(&format!("program-{name}"), &source, &[&format!("-l{name}")])
    };
    let (one, two) = (program(&rig, "one"), program(&rig, "two"));
    rig.set(&[&one, &two]);
    let before = rig.store.copies().unwrap();
    assert_eq!((rig.run(&one), rig.run(&two)), ("copy\n".into(), "copy\n".into()));
    let library = rig.library("one", "int one(void) { return 1; } int more;", &[]);
    assert_eq!((rig.run(&one), rig.run(&two)), ("original\n".into(), "copy\n".into()));
    assert_eq!(state::of(&rig.store, &one).unwrap(), State::Stale { file: library });
    assert!(matches!(state::of(&rig.store, &two).unwrap(), State::Current { .. }));
    // One copy is made anew; the others, which both have, are those that were there.
    let report = rig.update();
    assert_eq!(report.made, 1, "{report:?}");
    assert_eq!((rig.run(&one), rig.run(&two)), ("copy\n".into(), "copy\n".into()));
    let after = rig.store.copies().unwrap();
    let changed = |(_, path): &&(_, std::path::PathBuf)| !path.ends_with("libone.so");
    assert!(before.iter().filter(changed).all(|copy| after.contains(copy)), "{before:?} {after:?}");
}

#[test]
fn a_record_of_another_version_is_told_and_nothing_is_cleaned() {
    let (rig, program) = ready();
    let path = rig.store.record(&program);
    let copies = rig.store.copies().unwrap();
    let mut record = std::fs::read(&path).unwrap();
    for version in [record[7] - 1, record[7] + 1] {
        record[7] = version;
        std::fs::write(&path, &record).unwrap();
        assert_eq!(state::of(&rig.store, &program).unwrap(), State::OtherVersion);
        let why = state::clean(&rig.store).unwrap_err().to_string();
        assert!(why.contains("another version") && why.contains("rebase update"), "{why}");
        assert_eq!(
            (std::fs::read(&path).unwrap(), rig.store.copies().unwrap()),
            (record.clone(), copies.clone())
        );
        rig.update();
        assert!(matches!(state::of(&rig.store, &program).unwrap(), State::Current { .. }));
        state::clean(&rig.store).unwrap();
        record = std::fs::read(&path).unwrap();
    }
}

#[test]
fn copies_stay_while_a_process_maps_them() {
    let (mut rig, program) = ready();
    let mut child = rig.command(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    rig.set.clear();
    rig.store.remove_record(&program).unwrap();
    assert_eq!(state::clean(&rig.store).unwrap(), 0);
    assert!(!rig.store.copies().unwrap().is_empty());
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(state::clean(&rig.store).unwrap() > 0);
    assert!(rig.store.copies().unwrap().is_empty());
}

#[test]
fn new_addresses_are_drawn() {
    let (rig, program) = ready();
    let before = rig.store.ranges().unwrap().list().unwrap();
    state::renew(&rig.store).unwrap();
    rig.update();
    let after = rig.store.ranges().unwrap().list().unwrap();
    assert_eq!(before.len(), after.len());
    assert_ne!(before[0].first, after[0].first); // 1 in 60,000 runs draws the same
    let output = rig.command(&program).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success());
}

#[test]
fn a_copy_that_was_changed_is_found() {
    use std::os::unix::fs::PermissionsExt;
    let (rig, _) = ready();
    assert!(rig.store.damaged().unwrap().is_empty());
    let (_, path) = rig.store.copies().unwrap().remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(rig.store.damaged().unwrap(), [path]);
}

/// The libraries that have addresses.
fn with_addresses(rig: &Rig) -> Vec<String> {
    let ranges = rig.store.ranges().unwrap().list().unwrap().into_iter();
    ranges.map(|range| range.name.rsplit('/').next().unwrap().to_owned()).collect()
}

#[test]
fn libraries_that_have_no_copies_any_more_have_no_addresses() {
    use commonhold_images::ranges::{Arch, Region, Wanted};
    let (mut rig, program) = ready();
    rig.library("two", "int two(void) { return 2; }", &[]);
    let other = rig.program("other", "int two(void); int main(void) { return two() - 2; }", &["-ltwo"]);
    rig.set(&[&other]);
    // An image in the same registry is nobody's business here.
    let image = Wanted {
        name: "words@1".into(),
        arch: Arch::X86_64,
        region: Region::Homogeneous,
        bytes: 4096,
        alignment: 4096,
        group: None,
        slide: 0,
    };
    rig.store.ranges().unwrap().assign(&image).unwrap();
    let mut child = rig.command(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    let sorted = |rig: &Rig| {
        let mut all = with_addresses(rig);
        all.sort();
        all
    };
    let all = sorted(&rig);
    assert!(all.contains(&"libone.so".into()) && all.contains(&"libtwo.so".into()), "{all:?}");
    // Both are set no more; the one is mapped, and what it has in common with the other is too.
    for path in [&program, &other] {
        rig.set.remove(path);
        rig.store.remove_record(path).unwrap();
    }
    state::release(&rig.store).unwrap();
    let without: Vec<String> = all.iter().filter(|name| *name != "libtwo.so").cloned().collect();
    assert_eq!(sorted(&rig), without);
    assert_eq!(state::clean(&rig.store).unwrap(), 1);
    assert_eq!(sorted(&rig), without);
    drop(child.stdin.take());
    child.wait().unwrap();
    state::clean(&rig.store).unwrap();
    assert_eq!(sorted(&rig), ["words@1"]);
    // Set again, they have addresses and copies as before.
    rig.set(&[&program, &other]);
    assert_eq!(sorted(&rig), all);
}
