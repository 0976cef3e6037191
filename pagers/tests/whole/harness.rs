//! Hosts, pager processes, and programs that touch a page.

use commonhold::{Access, CreateOptions, Host, MapOptions, Mapping, Object, PagerKind, Protection};
use std::io::{BufRead, BufReader};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const PAGE: usize = 4096;
/// Of what must happen, however busy the machine is.
pub const LONG: Duration = Duration::from_secs(60);

/// Waits until something is so.
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A host in a state directory of its own; it and its keeper end with the test.
pub struct TestHost {
    directory: TempDir,
    options: Vec<String>,
}

impl TestHost {
    pub fn start() -> TestHost {
        TestHost::start_with(&[])
    }

    /// With these options of `host start`.
    pub fn start_with(options: &[&str]) -> TestHost {
        crate::limit::begin();
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let host = TestHost { directory: tempfile::tempdir().unwrap(), options };
        host.start_again();
        host
    }

    /// As after both processes died.
    pub fn start_again(&self) {
        let output = self.command(&["host", "start", "--quiet"]).args(&self.options).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// A path for the test's own files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The `commonhold` command on this host.
    pub fn command(&self, words: &[&str]) -> Command {
        let own = std::env::current_exe().unwrap();
        let program = own.ancestors().nth(2).unwrap().join("examples/host");
        let mut command = Command::new(program);
        command.args(words).env("COMMONHOLD_HOST", self.state()).stdin(Stdio::null());
        command
    }

    pub fn connect(&self) -> Host {
        until("the host answers", || Host::connect_to(&self.state()).ok())
    }

    /// Process numbers of host and keeper.
    pub fn pids(&self) -> (u32, u32) {
        let status = until("the host tells its state", || self.connect().status().ok());
        (status.host_pid, status.keeper_pid)
    }

    /// Kills the host process; the keeper starts another.
    pub fn kill_host(&self) {
        let (before, _) = self.pids();
        signal(before, libc::SIGKILL);
        until("another host serves", || (self.pids().0 != before).then_some(()));
    }

    /// Waits until the host knows that this process has let go of everything: its list of the clients that would come
    /// back to the next host is empty.
    pub fn settle(&self) {
        let list = self.state().join("live/clients");
        // Nothing but what tells which version wrote it.
        until("this process is forgotten", || (std::fs::metadata(&list).ok()?.len() <= 8).then_some(()));
    }

    /// Kills both at once: neither can start the other anew.
    pub fn kill_both(&self) {
        let (host, keeper) = self.pids();
        [host, keeper].iter().for_each(|pid| signal(*pid, libc::SIGSTOP));
        [host, keeper].iter().for_each(|pid| signal(*pid, libc::SIGKILL));
        until("both are gone", || [host, keeper].iter().all(|pid| is_gone(*pid)).then_some(()));
    }

    /// Creates an object whose pages `pager` supplies.
    pub fn create(&self, name: &str, pager: &str, size_bytes: u64, more: CreateOptions) -> Held {
        let pager = PagerKind::External { pager: pager.into() };
        Held::new(self.connect().create(name, &CreateOptions { size_bytes, pager, ..more }, None).unwrap())
    }

    pub fn open(&self, name: &str) -> Held {
        Held::new(self.connect().open(name, Access::ReadWrite).unwrap())
    }
}

/// An object that stays mapped: when nobody maps it any more, what was written is synced.
pub struct Held {
    object: Object,
    _mapping: Mapping,
}

impl Held {
    pub fn new(object: Object) -> Held {
        Held { _mapping: object.map(&MapOptions::default()).unwrap(), object }
    }
}

impl Deref for Held {
    type Target = Object;
    fn deref(&self) -> &Object {
        &self.object
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.state().join("log")).unwrap_or_default());
        }
        let _ = self.command(&["host", "stop", "--force"]).output();
    }
}

/// A process that is killed at the end.
pub struct Process {
    child: Child,
}

impl Process {
    pub fn start(command: &mut Command) -> Process {
        Process { child: command.stdin(Stdio::null()).spawn().unwrap() }
    }

    /// Starts a pager, and waits until it serves.
    pub fn serving(command: &mut Command) -> Process {
        let mut process = Process::start(command.stderr(Stdio::piped()));
        let mut lines = BufReader::new(process.child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        assert!(first.starts_with("serving "), "{first}");
        std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
        process
    }

    pub fn signal(&self, signal_number: i32) {
        signal(self.child.id(), signal_number);
    }

    /// Kills it with -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `commonhold-pager-store PLACE --name NAME …` on that host.
pub fn store_pager(host: &TestHost, place: &Path, name: &str) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_commonhold-pager-store"));
    Process::serving(command.arg(place).args(["--name", name, "--host"]).arg(host.state()))
}

/// `commonhold-pager-zstd …`.
pub fn zstd_command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_commonhold-pager-zstd"))
}

/// All bytes of an object, read through a fresh mapping.
pub fn read_mapped(object: &Object) -> Vec<u8> {
    let mapping = object.map(&MapOptions { protection: Protection::Read, ..MapOptions::default() }).unwrap();
    let mut bytes = vec![0; object.size_bytes() as usize];
    // SAFETY: the mapping is at least as long as the object, and lives until the copy is made.
    unsafe { std::ptr::copy_nonoverlapping(mapping.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
    bytes
}

/// Names the object a touching process touches, and where.
const TOUCH: &str = "COMMONHOLD_TEST_TOUCH";

/// A process of its own that reads one byte of an object through a mapping.
pub fn toucher(host: &TestHost, name: &str, offset: usize) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "harness::touch", "--nocapture", "--quiet"]);
    command.env(TOUCH, format!("{name} {offset}")).env("COMMONHOLD_HOST", host.state());
    Process::start(command.stdout(Stdio::null()))
}

/// Not a test: what that process does.
#[test]
fn touch() {
    let Ok(what) = std::env::var(TOUCH) else { return };
    let (name, offset) = what.split_once(' ').unwrap();
    let object = Host::connect().unwrap().open(name, Access::Read).unwrap();
    let mapping = object.map(&MapOptions { protection: Protection::Read, ..MapOptions::default() }).unwrap();
    // SAFETY: the byte lies in the mapping.
    unsafe { mapping.as_ptr().add(offset.parse().unwrap()).read_volatile() };
}

/// Sends a signal to a process that a test started.
pub fn signal(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).unwrap();
    assert!(pid > 1);
    // SAFETY: kill only sends a signal.
    unsafe { libc::kill(pid, signal) };
}

fn is_gone(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z') || rest.starts_with('X'))
}

/// Bytes that tell which round wrote them and where.
pub fn content(length: usize, round: u64) -> Vec<u8> {
    let words = (0..length.div_ceil(8) as u64).flat_map(|n| (round << 32 | n).to_le_bytes());
    words.take(length).collect()
}
