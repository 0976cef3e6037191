//! What `commonhold audit` advises: root may follow it, so no file of another takes the place of root's.

use super::alone;
use crate::scene::ATTACKER;
use crate::{Attack, leave_out};
use commonhold_audit::report::Report;
use commonhold_tests::host::program;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use tempfile::TempDir;

pub(crate) const ATTACKS: &[Attack] = &[alone(
    "audit.advice_to_root",
    "have root be advised to put a file of one's own in the place of the system's",
    advice_to_root,
)];

/// A process that runs that program until this is dropped.
struct Running(Child);

impl Running {
    fn of(program: &Path) -> Running {
        Running(Command::new(program).arg("3600").spawn().expect("it starts"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has not ended by itself.
        self.0.kill().and_then(|()| self.0.wait()).expect("it ends");
    }
}

/// A copy of a program, in a directory of its own.
fn copy_in(scratch: &TempDir, directory: &str) -> PathBuf {
    let directory = scratch.path().join(directory);
    std::fs::create_dir(&directory).expect("a directory");
    let path = directory.join("sleep");
    let copied = Command::new("cp").arg("/bin/sleep").arg(&path).status();
    assert!(copied.expect("cp").success());
    path
}

/// What is to be done about equal files of which one lies there.
fn advice(directory: &Path) -> Vec<String> {
    let mut command = Command::new(program("commonhold-tests-host"));
    let output = command.args(["audit", "--json", "--all"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = Report::from_json(&output.stdout).expect("a report");
    let named = directory.display().to_string();
    let lines = report.advice.into_iter().flat_map(|advice| advice.how);
    lines.filter(|line| line.contains(&named)).collect()
}

/// Whether a file is to take another's place, or to be replaced. The same program may run elsewhere on this machine.
fn is_linked(file: &Path) -> bool {
    let lines = advice(file.parent().expect("its directory"));
    lines.iter().any(|line| ["ln -f ", "hardlink ", "mount "].iter().any(|tool| line.contains(tool)))
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

/// What is otherwise of one of the files.
type Change<'a> = (&'a str, &'a dyn Fn(&Path));

fn advice_to_root() {
    // Nobody else may write above it, as is so of programs of the system.
    let scratch = tempfile::tempdir_in("/var/lib").expect("a directory of root's");
    let files = [copy_in(&scratch, "system"), copy_in(&scratch, "theirs")];
    let _running = files.each_ref().map(|file| Running::of(file));
    // What is the same in all is linked: else nothing is tried here.
    if !files.iter().all(|file| is_linked(file)) {
        leave_out(format!("nothing is advised where all is root's: {:?}", advice(scratch.path())));
    }
    let changes: [Change<'_>; 5] = [
        ("another owner", &|file| chown(file, Some(ATTACKER.0), None).expect("an owner")),
        ("another group", &|file| chown(file, None, Some(ATTACKER.1)).expect("a group")),
        ("another mode", &|file| mode(file, 0o4755)),
        ("a directory that others may write", &|file| mode(file.parent().expect("its directory"), 0o777)),
        ("another's directory", &|file| {
            chown(file.parent().expect("its directory"), Some(ATTACKER.0), None).expect("an owner");
        }),
    ];
    for (what, change) in changes {
        // The file that is kept, and the one that goes.
        for file in &files {
            change(file);
            assert!(!is_linked(file), "{what}: {:?}", advice(scratch.path()));
            chown(file, Some(0), Some(0)).expect("an owner");
            mode(file, 0o755);
            let directory = file.parent().expect("its directory");
            chown(directory, Some(0), Some(0)).expect("an owner");
            mode(directory, 0o755);
        }
    }
    assert!(files.iter().all(|file| is_linked(file)), "what is the same again is linked again");
}
