//! What the store says of itself, and what is taken away.

use crate::rig::Rig;
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
