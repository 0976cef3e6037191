//! A file system that never answers: a FUSE mount whose server sleeps. Needs root; says so where it is not.

use crate::left_out::left_out;
use crate::support::{Recorded, copy, mapping, mapping_of, some_library, unseen};
use commonhold_audit::library::{Request, files_of, measure_all};
use commonhold_audit::snapshot::{Scope, SnapshotOptions, take};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A mount that holds whoever touches it, until this is dropped.
struct Silent {
    folder: tempfile::TempDir,
    device: Option<fs::File>,
}

impl Silent {
    fn new() -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let server = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .map_err(|error| error.to_string())?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let options = CString::new(options).expect("no zero");
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("silent", folder.path(), "fuse.silent", flags, options.as_c_str())
            .map_err(|error| error.to_string())?;
        Ok(Self { folder, device: Some(server) })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Its device, which must not be asked for by stat.
    fn number(&self) -> u64 {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable");
        let own = format!(" {} ", self.folder.path().display());
        let line = mounts.lines().find(|line| line.contains(&own)).expect("it is mounted");
        let (major, minor) =
            line.split(' ').nth(2).and_then(|device| device.split_once(':')).expect("a device");
        rustix::fs::makedev(major.parse().expect("a number"), minor.parse().expect("a number"))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Without a server every touch fails at once: threads that were left behind end.
        drop(self.device.take());
        let _ = unmount(self.folder.path(), UnmountFlags::DETACH);
    }
}

fn silent() -> Option<Silent> {
    Silent::new()
        .map_err(|error| {
            left_out(&format!("a file system that falls silent (FUSE needs root and /dev/fuse: {error})"))
        })
        .ok()
}

fn impatient(options: SnapshotOptions) -> SnapshotOptions {
    SnapshotOptions { file_deadline: Duration::from_millis(300), ..options }
}

#[test]
fn files_that_do_not_answer_are_named_and_the_rest_is_seen() {
    let Some(silent) = silent() else { return };
    let recorded = Recorded::new();
    let library = copy(&some_library(), recorded.folder.path());
    let far = |name: &str, address, inode| mapping(&silent.path(name), address, silent.number(), inode);
    let smaps =
        format!("{}{}{}", far("one.so", 0x1000, 7), far("two.so", 0x9000, 8), mapping_of(&library, 0x2_0000));
    recorded.process(1, 0, 'S', "/", smaps.as_bytes());
    recorded.process(2, 0, 'S', "/", smaps.as_bytes());
    let snapshot = take(&impatient(recorded.options())).expect("a snapshot");
    assert_eq!(snapshot.processes.len(), 2);
    let of = |path: &Path| snapshot.files.iter().find(|file| file.path == path).expect("it is mapped");
    assert!(of(&library).elf.is_some());
    assert_eq!((of(&silent.path("one.so")).size, of(&silent.path("two.so")).size), (None, None));
    assert!(of(&silent.path("one.so")).file_system.starts_with("fuse"));
    let line = snapshot.unseen.iter().find(|unseen| unseen.why.contains("did not answer")).expect("told");
    assert!(line.what.contains("one.so") && line.what.contains("two.so"), "{}", unseen(&snapshot));
}

#[test]
fn a_root_directory_that_does_not_answer_ends_with_a_word() {
    let Some(silent) = silent() else { return };
    let options =
        SnapshotOptions { scope: Scope::Root(silent.folder.path().to_owned()), ..SnapshotOptions::default() };
    match take(&impatient(options)) {
        Ok(snapshot) => assert!(unseen(&snapshot).contains("did not answer"), "{}", unseen(&snapshot)),
        Err(error) => assert!(error.to_string().contains("timed out"), "{error}"),
    }
}

#[test]
fn programs_that_do_not_answer_are_named_and_the_rest_of_the_set_is_measured() {
    let Some(silent) = silent() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let cat = std::env::split_paths(&std::env::var_os("PATH").expect("a path"))
        .map(|folder| folder.join("cat"))
        .find(|path| path.is_file());
    let program = copy(&cat.expect("cat"), folder.path());
    // One on the silent file system by its own name, one behind a link on this one's.
    let link = folder.path().join("far");
    std::os::unix::fs::symlink(silent.path("tool"), &link).expect("linked");
    let request = Request {
        sets: vec![
            ("mixed".into(), vec![silent.path("one"), silent.path("two"), folder.path().to_owned()]),
            ("near".into(), vec![program]),
        ],
        archives: Vec::new(),
        root: "/".into(),
        goes_on: Arc::new(|| true),
        // Twice, for the mount and for the link. A program of this size takes milliseconds.
        patience: Duration::from_secs(5),
    };
    let (sets, unseen) = measure_all(&request);
    let programs: Vec<(&str, u64, u64)> =
        sets.iter().map(|set| (set.name.as_str(), set.programs, set.skipped)).collect();
    assert_eq!(programs, [("mixed", 1, 3), ("near", 1, 0)], "{unseen:?}");
    let silent_ones: Vec<&Path> = unseen
        .iter()
        .filter(|one| one.why.contains("did not answer"))
        .map(|one| Path::new(&one.what))
        .collect();
    assert_eq!(silent_ones, [silent.folder.path(), &link], "{unseen:?}");
}

#[test]
fn a_search_on_a_file_system_that_does_not_answer_ends() {
    let Some(silent) = silent() else { return };
    let path = silent.path("*");
    let found = files_of(Duration::from_millis(300), move |put| {
        if fs::metadata(&path).is_ok() {
            put(path);
        }
    });
    assert_eq!(found, None);
}
