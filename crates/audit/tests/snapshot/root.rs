//! A root directory: its ELF files of any architecture, and the processes that live in it.

use crate::left_out::left_out;
use crate::support::{Sleeper, copy, is_root, some_library, unseen};
use commonhold_audit::snapshot::{Scope, SnapshotOptions, take};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn of(directory: &Path) -> SnapshotOptions {
    SnapshotOptions { scope: Scope::Root(directory.to_owned()), ..SnapshotOptions::default() }
}

#[test]
fn files_of_another_architecture_and_equal_ones_that_nobody_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    fs::create_dir(&one).and_then(|()| fs::create_dir(&two)).expect("made");
    let copies = [copy(&some_library(), &one), copy(&some_library(), &two)];
    let mut foreign = fs::read(&copies[0]).expect("read");
    // e_machine: s390x, which is read like any other.
    foreign[18..20].copy_from_slice(&22_u16.to_le_bytes());
    let foreign_path = folder.path().join("foreign.so");
    fs::write(&foreign_path, &foreign).expect("written");
    let snapshot = take(&of(folder.path())).expect("a snapshot");
    assert!(snapshot.processes.is_empty());
    let paths: BTreeSet<&PathBuf> = snapshot.files.iter().map(|file| &file.path).collect();
    assert_eq!(paths, BTreeSet::from([&copies[0], &copies[1], &foreign_path]), "{}", unseen(&snapshot));
    let file = |path: &Path| snapshot.files.iter().find(|file| file.path == path).expect("found");
    assert_eq!(file(&foreign_path).elf.as_ref().expect("an ELF file").architecture, "s390x");
    assert!(file(&copies[0]).content.is_some() && file(&copies[0]).content == file(&copies[1]).content);
    assert_ne!(file(&foreign_path).content, file(&copies[0]).content);
    assert!(file(&copies[0]).cached_pages.is_some());
}

/// Makes a root directory with the program and the libraries that it needs.
fn small_root(folder: &Path) -> PathBuf {
    let sleeper = Sleeper::with(&some_library());
    let maps = fs::read_to_string(format!("/proc/{}/maps", sleeper.pid())).expect("readable");
    let files: BTreeSet<&str> =
        maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5)).collect();
    for file in files.iter().filter(|path| path.starts_with('/')) {
        let inside = folder.join(&file[1..]);
        fs::create_dir_all(inside.parent().expect("a folder")).expect("made");
        fs::copy(file, inside).expect("copied");
    }
    // Where the usual merged layout has links, programs name their loader by them.
    for name in ["lib", "lib64", "bin"] {
        if fs::symlink_metadata(Path::new("/").join(name)).is_ok_and(|about| about.is_symlink()) {
            fs::create_dir_all(folder.join("usr").join(name)).expect("made");
            let _ = std::os::unix::fs::symlink(format!("usr/{name}"), folder.join(name));
        }
    }
    // The loader's own name may be one more link.
    if let Ok(loader) = fs::canonicalize("/lib64/ld-linux-x86-64.so.2") {
        let inside = folder.join("usr/lib64");
        fs::create_dir_all(&inside).expect("made");
        fs::copy(loader, inside.join("ld-linux-x86-64.so.2")).expect("copied");
    }
    PathBuf::from(
        files.iter().find(|path| path.ends_with("cat") || path.ends_with("coreutils")).expect("cat"),
    )
}

#[test]
fn processes_in_a_root_directory_and_the_files_they_map_there() {
    if !is_root() {
        left_out("a root directory of its own (needs root)");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = small_root(folder.path());
    let mut chroot = Command::new("chroot");
    chroot.arg(folder.path()).arg(&program).stdin(Stdio::piped()).stdout(Stdio::null());
    let sleeper = Sleeper(chroot.spawn().expect("chroot runs"));
    sleeper.wait_for(&format!("{}{}", folder.path().display(), program.display()));
    let snapshot = take(&of(folder.path())).expect("a snapshot");
    let pids: Vec<u32> = snapshot.processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [sleeper.pid()], "{}", unseen(&snapshot));
    let program = &snapshot.files[snapshot.processes[0].program.expect("known")];
    assert!(program.path.starts_with(folder.path()) && program.elf.is_some(), "{program:?}");
    let mapped: BTreeSet<usize> =
        snapshot.processes[0].mappings.iter().filter_map(|mapping| mapping.file).collect();
    let keys: BTreeSet<_> = snapshot.files.iter().map(|file| file.key).collect();
    assert_eq!(keys.len(), snapshot.files.len(), "a file that is mapped and lies there is one");
    assert!(mapped.len() > 1 && snapshot.files.len() >= mapped.len());
    assert!(snapshot.processes[0].container.is_none(), "a changed root alone is no container");
}

#[test]
fn a_root_and_mounts_of_its_own_are_a_container() {
    if !is_root() {
        left_out("a mount namespace (needs root)");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = small_root(folder.path());
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--mount", "chroot"])
        .arg(folder.path())
        .arg(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let sleeper = Sleeper(unshare.spawn().expect("unshare runs"));
    sleeper.wait_for(&format!("{}{}", folder.path().display(), program.display()));
    let link = fs::read_link(format!("/proc/{}/ns/mnt", sleeper.pid())).expect("readable");
    let number: String = link.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let id = format!("mnt-{number}");
    let scope = Scope::Container(id.clone());
    let snapshot = take(&SnapshotOptions { scope, ..SnapshotOptions::default() }).expect("a snapshot");
    assert_eq!(snapshot.processes.len(), 1);
    let process = &snapshot.processes[0];
    assert_eq!((process.pid, process.container.as_ref()), (sleeper.pid(), Some(&id)));
    let program = &snapshot.files[process.program.expect("known")];
    assert!(program.elf.is_some() && program.mount_namespace.to_string() == number, "{program:?}");
}
