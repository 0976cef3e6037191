//! What was written by another version: refused at the start of a host and before an upgrade, in words, and nothing of it is
//! lost. (Whether a host of the first version that can be upgraded is: `upgrade_from.rs`.)

use commonhold::HostStatus;
use commonhold_tests::cluster::free_address;
use commonhold_tests::{TestHost, Worker, wait};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A host with a controlled object in use, and its number.
fn host_in_use() -> (TestHost, Worker, u64) {
    let host = TestHost::start();
    let worker = host.worker();
    worker.ok("create o /o size=65536 controlled");
    worker.all("map m o rw shared 0 0\nfill m 0 16 1");
    let id = host.connect().stat("/o").unwrap();
    let commonhold::EntryInfo::Object(info) = id else { panic!("an object") };
    (host, worker, info.id.0)
}

/// A file that is given another version, in its eighth byte.
struct OtherVersion<'p> {
    path: &'p Path,
    version: u8,
    became: Vec<u8>,
}

impl OtherVersion<'_> {
    fn new(path: &Path) -> OtherVersion<'_> {
        OtherVersion { path, version: beginning(path)[7], became: Vec::new() }
    }

    fn write(&self, version: u8) {
        let file = File::options().write(true).open(self.path).unwrap();
        file.write_all_at(&[version], 7).unwrap();
    }

    fn becomes(&mut self, by: i8) {
        self.write(self.version.wrapping_add_signed(by));
        self.became = beginning(self.path);
    }

    /// And has its own version again.
    fn is_unchanged(&self) {
        assert!(beginning(self.path) == self.became, "{} was changed", self.path.display());
        self.write(self.version);
    }
}

/// Of a file that may be large, and sparse.
fn beginning(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().take(1 << 20).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The same while something is done: with the next version, and with the one before.
fn of_another_version(path: &Path, meanwhile: impl Fn()) {
    let mut file = OtherVersion::new(path);
    for by in [1, -1] {
        file.becomes(by);
        meanwhile();
        file.is_unchanged();
    }
}

fn files(host: &TestHost, id: u64) -> [PathBuf; 2] {
    [host.state().join("live").join(id.to_string()), host.state().join("live/clients")]
}

fn says_what_to_do(refused: &str, path: &Path) {
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(refused.contains(name) && refused.contains("version of Commonhold"), "{refused}");
    assert!(refused.contains("go back to the version that wrote it"), "{refused}");
    assert!(refused.contains("nothing was changed"), "{refused}");
}

fn goes_on(before: &HostStatus, now: &HostStatus) {
    assert_eq!((now.host_pid, now.keeper_pid), (before.host_pid, before.keeper_pid));
}

#[test]
fn an_upgrade_to_a_program_that_would_refuse_is_not_begun() {
    let (host, worker, id) = host_in_use();
    let before = host.status();
    for path in files(&host, id) {
        of_another_version(&path, || {
            let refused = host.command(&["host", "upgrade"], |_| {}).unwrap_err();
            says_what_to_do(&refused, &path);
            assert!(refused.contains("stays as it is"), "{refused}");
            goes_on(&before, &host.status());
            worker.ok("check m 0 16 1");
        });
    }
    host.command(&["host", "upgrade"], |_| {}).unwrap();
    worker.ok("check m 0 16 1");
}

#[test]
fn an_upgrade_over_damaged_files_is_not_begun() {
    let host = TestHost::with(&["--plain", "--name", "one", "--listen", &free_address()]);
    let worker = host.worker();
    worker.all("create o /o size=65536 controlled\nmap m o rw shared 0 0\nfill m 0 16 1");
    let before = host.status();
    for name in ["members", "addresses", "meta.redb"] {
        let path = host.state().join(name);
        let was = std::fs::read(&path).ok(); // not there: no object has a fixed address
        let file = File::options().write(true).create(true).truncate(false).open(&path).unwrap();
        file.write_all_at(&[b'x'; 4096], 0).unwrap();
        let refused = host.command(&["host", "upgrade"], |_| {}).unwrap_err();
        assert!(refused.contains(name) && refused.contains("stays as it is"), "{refused}");
        match was {
            Some(was) => {
                file.write_all_at(&was, 0).and_then(|()| file.set_len(was.len() as u64)).unwrap();
            }
            None => std::fs::remove_file(&path).unwrap(),
        }
        goes_on(&before, &host.status());
    }
    host.command(&["host", "upgrade"], |_| {}).unwrap();
    worker.ok("check m 0 16 1");
}

/// The keeper holds everything for whichever program can go on.
#[test]
fn a_host_that_takes_over_refuses_before_it_changes_anything() {
    let (host, worker, id) = host_in_use();
    let serves = || wait::until("a host serves", || host.command(&["host", "status"], |_| {}).ok());
    for path in files(&host, id) {
        let mut file = OtherVersion::new(&path);
        for by in [1, -1] {
            serves();
            file.becomes(by);
            host.kill_host();
            wait::until("it is refused", || {
                let said = host.command(&["host", "status"], |_| {}).err()?;
                said.contains("go back to the version").then(|| says_what_to_do(&said, &path))
            });
            file.is_unchanged();
        }
        serves();
        worker.ok("check m 0 16 1");
        host.worker().all("open o /o r\nmap m o r shared 0 0\ncheck m 0 16 1");
    }
}

#[test]
fn a_host_that_begins_anew_refuses_who_was_there() {
    let (host, worker, id) = host_in_use();
    host.kill_both();
    for path in files(&host, id) {
        of_another_version(&path, || {
            says_what_to_do(&host.start_again().unwrap_err(), &path);
            wait::until("host and keeper are gone", || host.processes().is_empty().then_some(()));
        });
    }
    host.start_again().unwrap();
    worker.ok("check m 0 16 1");
    host.worker().all("open o /o r\nmap m o r shared 0 0\ncheck m 0 16 1");
}

#[test]
fn where_a_new_program_refuses_all_the_same_the_one_before_comes_back() {
    let (host, worker, _) = host_in_use();
    let before = host.status();
    let program = host.scratch().join("other");
    let text = format!(
        "#!/bin/sh\ncase $1 in serve) echo refused >&2; exit 1;; check-state) exit 0;; esac\nexec {} \"$@\"\n",
        host.program().display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = host.command(&["host", "upgrade", "--program"], |command| {
        command.arg(&program);
    });
    let refused = refused.unwrap_err();
    assert!(refused.contains("did not go on") && refused.contains("nothing is lost"), "{refused}");
    let now = host.wait_for_other_host(before.host_pid);
    assert_ne!(now.keeper_pid, before.keeper_pid);
    worker.ok("check m 0 16 1");
    worker.all("fill m 0 16 2\ncheck m 0 16 2");
    // And it can be replaced again.
    host.command(&["host", "upgrade"], |_| {}).unwrap();
    worker.ok("check m 0 16 2");
}
