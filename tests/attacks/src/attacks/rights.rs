//! Rights that the caller lacks: of a handle that was opened for reading, and of programs that are setuid.

use super::user;
use crate::scene::{ATTACKER, BYSTANDER, Local, open};
use crate::{Attack, leave_out};
use commonhold::{ErrorKind, Host};
use commonhold_object::Access;
use commonhold_object::wire::{Reply, Request};
use commonhold_tests::Scratch;
use commonhold_tests::host::program;
use commonhold_tests::raw::Raw;
use commonhold_tests::user::as_user;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const ATTACKS: &[Attack] = &[
    user("rights.revert_by_a_reader", "drop what others wrote, by a handle for reading", revert),
    user("rights.of_setuid_programs", "have a setuid program start a host of one's own", setuid_programs),
];

fn revert(scene: &Local) {
    let writer = scene.other();
    let file = scene.new_file_of("file", 16384, BYSTANDER);
    writer.ok(&format!("create o /x file={} sync=atomic mode=666", file.display()));
    writer.all("map m o rw shared 0 0\nfill m 0 4 1");
    // By hand: the host refuses it, whatever the library looks at.
    let revert = |raw: &mut Raw, access| match raw.ask(&open("/x", access), &[]) {
        Some(Ok(Reply::Opened(opened))) => {
            raw.ask(&Request::RevertOpened { object: opened.info.id }, &[]).expect("an answer")
        }
        other => panic!("{other:?}"),
    };
    let mut raw = scene.raw();
    let why = revert(&mut raw, Access::Read).expect_err("it was opened for reading");
    assert!(why.kind == ErrorKind::Permission && why.message.contains("for writing"), "{why}");
    writer.ok("check m 0 4 1");
    // By the library, and of what nobody opened.
    let client = as_user(ATTACKER.0, || Host::connect_to(scene.host.state()).expect("a connection"));
    let reader = client.open("/x", Access::Read).expect("everybody may");
    let why = reader.revert().expect_err("it was opened for reading");
    assert!(why.kind == ErrorKind::Permission && why.message.contains("for writing"), "{why}");
    let object = reader.id();
    let other = scene.raw().ask(&Request::RevertOpened { object }, &[]).expect("an answer");
    assert_eq!(other.expect_err("it is not open here").kind, ErrorKind::NotFound);
    writer.ok("check m 0 4 1");
    // Who opened it for writing may, and who gets that wider right later.
    assert!(matches!(revert(&mut raw, Access::ReadWrite), Ok(Reply::Pages(4))));
    writer.ok("fill m 0 4 2");
    let wider = client.open("/x", Access::ReadWrite).expect("everybody may");
    assert_eq!(wider.revert().expect("it was opened for writing"), 4);
}

/// Whose the program is, where it is not root's.
const OTHER: u32 = 64_003;

/// A copy of the program with the rights of that user.
fn setuid_of(scratch: &Scratch, owner: u32) -> PathBuf {
    let path = scratch.join(&format!("setuid-{owner}"));
    // By a process of its own: a child of another thread must not hold the copy open for writing,
    // which is then busy.
    let copied = Command::new("cp").arg(program("commonhold-tests-rights")).arg(&path).status();
    assert!(copied.expect("cp").success());
    chown(&path, Some(owner), Some(owner)).expect("an owner");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("setuid");
    path
}

fn writable_by_all(path: &Path) {
    std::fs::create_dir_all(path).expect("a directory");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("a mode");
}

fn says(command: &mut Command) -> String {
    String::from_utf8_lossy(&command.output().expect("it runs").stdout).into_owned()
}

fn setuid_programs(scene: &Local) {
    let (state, scratch) = (scene.host.state(), scene.host.scratch());
    let theirs = scratch.join("theirs");
    writable_by_all(&theirs);
    writable_by_all(&theirs.join("state"));
    // What the caller would have run with these rights.
    let (trap, sprung) = (theirs.join("commonhold"), theirs.join("sprung"));
    std::fs::write(&trap, format!("#!/bin/sh\nid -u > {}\n", sprung.display())).expect("a program");
    std::fs::set_permissions(&trap, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    for owner in [0, OTHER] {
        let program = setuid_of(scratch, owner);
        for named in [Some(state), None] {
            let mut command = Command::new(&program);
            command.uid(ATTACKER.0).gid(ATTACKER.1).env_clear();
            command.env("COMMONHOLD_PROGRAM", &trap).env("PATH", &theirs);
            command.env("HOME", &theirs).env("XDG_STATE_HOME", theirs.join("state"));
            named.map(|state| command.env("COMMONHOLD_HOST", state));
            let says = says(&mut command);
            if says.starts_with("rights false") {
                leave_out(format!("{} is on a file system without setuid programs", program.display()));
            }
            assert!(says.contains("directory /var/lib/commonhold\n"), "{says}");
            let refused = says.contains("refused no host answers in /var/lib/commonhold:");
            assert!(refused || says.contains("connected /var/lib/commonhold\n"), "{says}");
            assert!(!sprung.exists(), "a program of the caller was run as {owner}");
        }
    }
    // Without such rights the variables count.
    let says = says(Command::new(program("commonhold-tests-rights")).env("COMMONHOLD_HOST", state));
    assert!(says.contains(&format!("connected {}", state.display())), "{says}");
}
