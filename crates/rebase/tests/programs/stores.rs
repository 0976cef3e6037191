//! What others may have put into a store, and what changes while it is made.

use crate::rig::{BY_ADDRESS, Rig, is_root};
use commonhold_images::ranges::Owner;
use commonhold_rebase::build::build;
use commonhold_rebase::state::{self, State};
use commonhold_rebase::store::Store;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::sync::Once;

fn asking(rig: &Rig) -> PathBuf {
    rig.library("one", "int call(void) { return 1; }", &[]);
    let main =
        format!("{BY_ADDRESS}\nint call(void); int main(void) {{ by_address(call); return call() - 1; }}");
    rig.program("program", &main, &["-lone"])
}

#[test]
fn a_directory_that_is_anothers_or_that_others_may_write_is_no_store() {
    let rig = Rig::new();
    let opened =
        |name: &str| Store::open(&rig.path(name), Owner::Machine).map(drop).map_err(|why| why.to_string());
    let shared = rig.path("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
    assert!(opened("shared").unwrap_err().contains("others may write there"));
    std::fs::set_permissions(&shared, Permissions::from_mode(0o755)).unwrap();
    opened("shared").unwrap();
    std::fs::set_permissions(shared.join("copies"), Permissions::from_mode(0o775)).unwrap();
    assert!(opened("shared").unwrap_err().contains("copies cannot be used: others may write there"));
    if is_root("a directory of another user") {
        std::fs::set_permissions(shared.join("copies"), Permissions::from_mode(0o755)).unwrap();
        chown(shared.join("copies"), Some(12_345), None).unwrap();
        assert!(opened("shared").unwrap_err().contains("belongs to user 12345"));
    }
}

#[test]
fn a_record_of_another_user_is_none() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    if is_root("a file of another user") {
        assert_eq!(rig.run(&program), "copy\n");
        chown(rig.store.record(&program), Some(12_345), None).unwrap();
        assert_eq!(rig.run(&program), "original\n");
    }
}

#[test]
fn a_copy_that_is_not_what_was_written_is_made_anew() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    let copies = rig.store.copies().unwrap();
    let (_, copy) = copies.iter().find(|(_, path)| path.ends_with("libone.so")).unwrap();
    // Another file in its place, as nobody but the owner could put it there.
    std::fs::remove_file(copy).unwrap();
    std::fs::write(copy, b"no library").unwrap();
    assert_eq!(rig.store.damaged().unwrap(), std::slice::from_ref(copy));
    let report = rig.update();
    assert_eq!((report.made, rig.store.damaged().unwrap().len()), (1, 0), "{report:?}");
    assert_eq!(rig.run(&program), "copy\n");
    let left = std::fs::read_dir(rig.store.root().join("copies")).unwrap().flatten();
    assert!(left.map(|entry| entry.file_name()).all(|name| !name.to_string_lossy().starts_with('.')));
}

#[test]
fn a_library_that_is_replaced_while_copies_are_made_is_not_taken_for_them() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set.insert(program.clone(), false);
    let once = Once::new();
    // The first step that is told is behind the reading of the program and all that it needs.
    let replace =
        |_, _| once.call_once(|| drop(rig.library("one", "int call(void) { return 1; } int more;", &[])));
    let report = build(&rig.store, &rig.set, &replace).unwrap();
    assert!(once.is_completed());
    // Whatever it says of it: the program has the new library, or all copies are of the new one.
    let state = state::of(&rig.store, &program).unwrap();
    assert!(!matches!(state, State::Current { .. }), "{state:?} {report:?}");
    assert_eq!(rig.run(&program), "original\n");
    rig.update();
    assert_eq!(rig.run(&program), "copy\n");
}

#[test]
fn the_record_of_a_programs_copy_goes_with_it() {
    let mut rig = Rig::new();
    rig.library("one", "int call(void) { return 1; }", &[]);
    let main = "int call(void); int main(void) { return call() - 1; }";
    let program = rig.program("program", main, &["-lone", "-pie", "-fPIE"]);
    rig.set.insert(program.clone(), true);
    rig.update();
    assert_eq!(rig.store.records().unwrap().len(), 2);
    assert_eq!(state::clean(&rig.store).unwrap(), 0);
    rig.store.remove_record(&program).unwrap();
    assert!(state::clean(&rig.store).unwrap() > 0);
    assert!(rig.store.records().unwrap().is_empty() && rig.store.copies().unwrap().is_empty());
}
