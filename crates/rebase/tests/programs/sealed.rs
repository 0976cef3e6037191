//! What the machine's kernel does for copies: seals them, where the file system has fs-verity, and labels them.

use crate::left_out::left_out;
use crate::rig::{BY_ADDRESS, Rig};
use commonhold_images::verity;
use commonhold_rebase::bind::Loader;
use commonhold_rebase::state::{self, State};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const LABEL: &str = "security.selinux";

fn asking(rig: &Rig) -> PathBuf {
    rig.library("one", "int call(void) { return 1; }", &[]);
    let main =
        format!("{BY_ADDRESS}\nint call(void); int main(void) {{ by_address(call); return call() - 1; }}");
    rig.program("program", &main, &["-lone", "-pie", "-fPIE"])
}

fn copy_of(rig: &Rig, name: &str) -> PathBuf {
    let found = rig.store.copies().unwrap().into_iter().find(|(_, path)| path.ends_with(name));
    found.unwrap_or_else(|| panic!("{name} has no copy")).1
}

fn is_sealed(path: &Path) -> bool {
    verity::is_sealed(File::open(path).unwrap())
}

#[test]
fn where_the_file_system_has_fs_verity_copies_are_sealed() {
    let mut rig = Rig::new();
    if let Err(why) = verity::probe(rig.store.root()) {
        let place = rig.store.root().display();
        return left_out(&format!(
            "sealed copies (no fs-verity in {place}: {why}): `./run test-linux` has some"
        ));
    }
    let program = asking(&rig);
    rig.set.insert(program.clone(), true);
    rig.update();
    let copies = rig.store.copies().unwrap();
    assert!(copies.len() >= 3, "the program, its library and the C library: {copies:?}");
    for (_, copy) in &copies {
        assert!(is_sealed(copy), "{}", copy.display());
        // Not even its owner changes it, who gives himself the right.
        std::fs::set_permissions(copy, Permissions::from_mode(0o755)).unwrap();
        let error = File::options().write(true).open(copy).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(1), "EPERM: {}", copy.display());
    }
    assert_eq!((rig.update().made, rig.store.damaged().unwrap().len()), (0, 0));
    assert_eq!(rig.run(&program), "copy\n");
    // The next version of the library, and what nobody needs any more.
    rig.library("one", "int call(void) { return 1; } int more;", &[]);
    assert_eq!(rig.run(&program), "original\n");
    assert!(rig.update().made >= 1);
    assert_eq!(rig.run(&program), "copy\n");
    assert!(is_sealed(&copy_of(&rig, "libone.so")));
    assert!(state::clean(&rig.store).unwrap() >= 1);
    assert_eq!(rig.run(&program), "copy\n");
}

fn label_of(path: &Path) -> Option<Vec<u8>> {
    let mut label = vec![0; 4096];
    let length = getxattr(path, LABEL, &mut label).ok()?;
    label.truncate(length);
    Some(label)
}

/// Gives a file a label; says so where that cannot be.
fn label(path: &Path, kind: &str) -> Option<Vec<u8>> {
    let label = format!("system_u:object_r:{kind}:s0\0").into_bytes();
    match setxattr(path, LABEL, &label, XattrFlags::empty()) {
        Ok(()) => Some(label),
        Err(why) => {
            left_out(&format!("labels of copies (files cannot be given any here: {why})"));
            None
        }
    }
}

#[test]
fn copies_bear_the_labels_of_their_originals() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    let library = rig.path("libone.so");
    let Some(first) = label(&library, "lib_t") else { return };
    let own = label(&program, "bin_t");
    rig.set.insert(program.clone(), true);
    rig.update();
    assert_eq!(label_of(&copy_of(&rig, "libone.so")).unwrap(), first);
    assert_eq!(label_of(&copy_of(&rig, "program")), own);
    assert_eq!(rig.run(&program), "copy\n");
    // Another label is another state of the file, of which there is the same copy.
    let second = label(&library, "textrel_shlib_t").unwrap();
    assert_eq!(state::of(&rig.store, &program).unwrap(), State::Stale { file: library });
    assert_eq!(rig.run(&program), "original\n");
    assert_eq!(rig.update().made, 0);
    assert_eq!(label_of(&copy_of(&rig, "libone.so")).unwrap(), second);
    assert_eq!(rig.run(&program), "copy\n");
}

#[test]
fn the_audit_library_bears_the_label_of_the_loader() {
    let folder = tempfile::TempDir::new().unwrap();
    let labelled = folder.path().join("loader");
    std::fs::copy(Loader::of_machine().path, &labelled).unwrap();
    let Some(_) = label(&labelled, "ld_so_t") else { return };
    // The machine's own is not to be touched.
    let script = "mount --bind \"$LABELLED\" \"$LOADER\" || exit 77\n\
        exec \"$0\" --exact sealed::bears_the_label_of_the_loader --nocapture --ignored";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
    let output =
        command.env("LABELLED", &labelled).env("LOADER", Loader::of_machine().path).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || why.contains("unshare") {
        return left_out(&format!("the label of the audit library (nothing may be mounted: {})", why.trim()));
    }
    assert!(output.status.success(), "{}{why}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "is run by another"]
fn bears_the_label_of_the_loader() {
    let mut rig = Rig::new();
    let library = PathBuf::from(rig.store.library().to_str().unwrap().replace("$LIB", "lib64"));
    let wanted = label_of(&Loader::of_machine().path);
    assert!(wanted.is_some());
    assert_eq!(label_of(&library), wanted);
    // What was given another may not be had before all copies have theirs again.
    let other = label(&library, "var_lib_t");
    rig.store.install().unwrap();
    assert_eq!(label_of(&library), other);
    std::fs::write(&library, b"of another version").unwrap();
    rig.store.install().unwrap();
    assert_eq!(label_of(&library), other);
    rig.store.keep_labels();
    assert_eq!(label_of(&library), wanted);
    let program = asking(&rig);
    rig.set(&[&program]);
    assert_eq!(rig.run(&program), "copy\n");
}
