//! Programs with rights that their caller lacks (setuid): the caller's variables lead them nowhere.

use commonhold_tests::host::program;
use commonhold_tests::{Scratch, TestHost, root_or_skip};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who runs the program.
const CALLER: u32 = 4001;
/// Whose it is, where it is not root's.
const OTHER: u32 = 4002;

/// A copy of the program with the rights of that user.
fn setuid_of(scratch: &Scratch, owner: u32) -> PathBuf {
    let path = scratch.join(&format!("setuid-{owner}"));
    // By a process of its own: a child of another test must not hold the copy open for writing, which is then busy.
    let copied = Command::new("cp").arg(program("commonhold-tests-rights")).arg(&path).status();
    assert!(copied.expect("cp").success());
    chown(&path, Some(owner), Some(owner)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
    path
}

fn writable_by_all(path: &Path) {
    std::fs::create_dir_all(path).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn setuid_programs_obey_no_variable_of_their_caller() {
    if !root_or_skip("making a program setuid") {
        return;
    }
    let host = TestHost::start();
    let theirs = host.scratch().join("theirs");
    writable_by_all(&theirs);
    writable_by_all(&theirs.join("state"));
    // What the caller would have run with these rights.
    let trap = theirs.join("commonhold");
    let sprung = theirs.join("sprung");
    std::fs::write(&trap, format!("#!/bin/sh\nid -u > {}\n", sprung.display())).unwrap();
    std::fs::set_permissions(&trap, std::fs::Permissions::from_mode(0o755)).unwrap();
    for owner in [0, OTHER] {
        let program = setuid_of(host.scratch(), owner);
        for named in [Some(host.state()), None] {
            let mut command = Command::new(&program);
            command.uid(CALLER).gid(CALLER).env_clear();
            command.env("COMMONHOLD_PROGRAM", &trap).env("PATH", &theirs);
            command.env("HOME", &theirs).env("XDG_STATE_HOME", theirs.join("state"));
            named.map(|state| command.env("COMMONHOLD_HOST", state));
            let output = command.output().unwrap();
            let says = String::from_utf8_lossy(&output.stdout).into_owned();
            if says.starts_with("rights false") {
                eprintln!("skipped: {} is on a file system without setuid programs", program.display());
                return;
            }
            assert!(says.contains("directory /var/lib/commonhold\n"), "{says}");
            let refused = says.contains("refused no host answers in /var/lib/commonhold:");
            assert!(refused || says.contains("connected /var/lib/commonhold\n"), "{says}");
            assert!(!sprung.exists(), "a program of the caller was run as {owner}");
        }
    }
    // Without such rights the variables count.
    let plain = Command::new(program("commonhold-tests-rights"))
        .env("COMMONHOLD_HOST", host.state())
        .output()
        .unwrap();
    let says = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert!(says.contains(&format!("connected {}", host.state().display())), "{says}");
}
