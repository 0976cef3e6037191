//! Processes that this user may not look at. Run by root, these tests become nobody: they start this very program again.

use crate::left_out::left_out;
use crate::support::{Recorded, Sleeper, file_of, is_root, mapping_of, some_library, unseen};
use commonhold_audit::snapshot::{Scope, SnapshotOptions, take};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Who owns nothing.
const NOBODY: u32 = 65534;

/// Runs one test of this program as nobody; false: this is nobody already, go on.
fn became_nobody(test: &str) -> bool {
    became_nobody_with(test, None)
}

/// The same, with a variable in its environment.
fn became_nobody_with(test: &str, variable: Option<(&str, &std::path::Path)>) -> bool {
    if !is_root() {
        return false;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let open =
        |path: &std::path::Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
    let program = folder.path().join("tests");
    // By another process: a child of another test that has not come to its exec yet would have the file open for writing, and no
    // program is started then (ETXTBSY).
    let copied = Command::new("cp").arg(std::env::current_exe().expect("a path")).arg(&program).status();
    assert!(copied.expect("cp").success());
    open(folder.path());
    open(&program);
    let run = Command::new(&program)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .current_dir("/")
        .env("TMPDIR", "/tmp")
        .envs(variable)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("it runs");
    let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
    true
}

#[test]
fn entries_that_may_not_be_read_are_one_line() {
    if became_nobody("hidden::entries_that_may_not_be_read_are_one_line") {
        return;
    }
    let recorded = Recorded::new();
    let smaps = mapping_of(&some_library(), 0x1000);
    for pid in 1..=50 {
        recorded.process(pid, 0, 'S', "/", smaps.as_bytes());
    }
    let forbid = |path: std::path::PathBuf, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    };
    // As with hidepid=1: the directories are there, and closed.
    (10..=30).for_each(|pid| forbid(recorded.path(pid), 0));
    // As without hidepid: stat is everybody's, smaps is not.
    (31..=50).for_each(|pid| forbid(recorded.path(pid).join("smaps"), 0));
    let snapshot = take(&recorded.options()).expect("a snapshot");
    (10..=30).for_each(|pid| forbid(recorded.path(pid), 0o755));
    assert_eq!(snapshot.processes.len(), 9);
    let lines: Vec<_> =
        snapshot.unseen.iter().filter(|unseen| unseen.why.contains("permission denied")).collect();
    assert_eq!(lines.len(), 1, "{}", unseen(&snapshot));
    assert!(lines[0].what.starts_with("41 processes (") && lines[0].why.contains("run as root"), "{lines:?}");
}

#[test]
fn an_ordinary_user_sees_what_is_its_own_and_is_told_the_rest() {
    if became_nobody("hidden::an_ordinary_user_sees_what_is_its_own_and_is_told_the_rest") {
        return;
    }
    let library = some_library();
    let sleeper = Sleeper::with(&library);
    let scope = Scope::Tree(sleeper.pid());
    let snapshot = take(&SnapshotOptions { scope, ..SnapshotOptions::default() }).expect("a snapshot");
    assert!(!snapshot.has_frames && snapshot.group_unique.is_empty());
    let (_, file) = file_of(&snapshot, sleeper.pid(), &library);
    assert!(file.size.is_some() && file.elf.is_some() && file.frames.is_none(), "{file:?}");
    assert!(snapshot.processes[0].program.is_some());
    assert!(unseen(&snapshot).contains("page frame numbers: only root is told"), "{}", unseen(&snapshot));
    // Somebody else's library: whether it is in memory is not this user's to know.
    assert!(file.cached_pages.is_none(), "{file:?}");
}

/// A procfs mounted with hidepid, until it is dropped.
struct Proc(tempfile::TempDir);

impl Proc {
    fn hidden(how: &str) -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("set");
        let options = std::ffi::CString::new(format!("hidepid={how}")).expect("no zero");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("proc", folder.path(), "proc", flags, options.as_c_str())
            .map_err(|error| error.to_string())?;
        Ok(Self(folder))
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_proc_that_hides_processes_is_told_from_one_that_has_few() {
    const TOLD: &str = "COMMONHOLD_TEST_HIDDEN_PROC";
    if is_root() {
        for how in ["noaccess", "invisible"] {
            let proc = match Proc::hidden(how) {
                Ok(proc) => proc,
                Err(error) => {
                    return left_out(&format!(
                        "a procfs that hides processes (it cannot be mounted here: {error})"
                    ));
                }
            };
            became_nobody_with(
                "hidden::a_proc_that_hides_processes_is_told_from_one_that_has_few",
                Some((TOLD, proc.0.path())),
            );
        }
        return;
    }
    let Some(proc_root) = std::env::var_os(TOLD) else {
        return left_out("a procfs that hides processes (needs root)");
    };
    let options =
        SnapshotOptions { proc_root: proc_root.into(), skip_self: false, ..SnapshotOptions::default() };
    let snapshot = take(&options).expect("a snapshot");
    assert!(snapshot.processes.iter().any(|process| process.pid == std::process::id()));
    assert!(snapshot.processes.iter().all(|process| process.uid == NOBODY), "others' are hidden");
    assert!(unseen(&snapshot).contains("run as root"), "{}", unseen(&snapshot));
}
