//! Debian's PostgreSQL, untouched, run by `commonhold run --share-page-tables`: whatever dies, it is as without us.

use commonhold_tests::host::{has_ended, kill, signal};
use commonhold_tests::huge::HugePages;
use commonhold_tests::wait::until;
use commonhold_tests::{Scratch, TestHost, left_out};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// The server refuses to be root.
const NOBODY: u32 = 65_534;
/// Buffers of 96 MB and what goes with them, twice: a server that begins anew makes the next segment before all have left the
/// one before.
const HUGE_PAGES: u64 = 2 * 66;

/// A data directory, and the server on it.
struct Server<'a> {
    host: &'a TestHost,
    data: PathBuf,
    sockets: PathBuf,
    kind: &'static str,
    process: Option<Child>,
    _scratch: Scratch,
}

fn as_nobody(program: &str) -> Command {
    let mut command = Command::new(format!("{PROGRAMS}/{program}"));
    command.uid(NOBODY).gid(NOBODY).current_dir("/tmp").stdin(Stdio::null());
    command
}

impl<'a> Server<'a> {
    fn new(host: &'a TestHost, kind: &'static str) -> Server<'a> {
        let scratch = Scratch::new();
        let (data, sockets) = (scratch.join("data"), scratch.join("s"));
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
        for place in [&data, &sockets] {
            std::fs::create_dir(place).expect("a directory");
            chown(place, Some(NOBODY), Some(NOBODY)).expect("its owner");
            std::fs::set_permissions(place, PermissionsExt::from_mode(0o700)).expect("its mode");
        }
        let made = as_nobody("initdb")
            .arg("-D")
            .arg(&data)
            .args(["-A", "trust", "-U", "nobody", "--no-sync"])
            .output();
        assert!(made.expect("initdb runs").status.success());
        let mut this = Server { host, data, sockets, kind, process: None, _scratch: scratch };
        this.start();
        this
    }

    fn start(&mut self) {
        let mut command = Command::new(self.host.program());
        command.args(["run", "--share-page-tables", "--"]).arg(format!("{PROGRAMS}/postgres"));
        command.arg("-D").arg(&self.data).arg("-k").arg(&self.sockets).args(["-c", "listen_addresses="]);
        let kind = format!("shared_memory_type={}", self.kind);
        for setting in ["shared_buffers=96MB", "huge_pages=off", "autovacuum=off", &kind] {
            command.args(["-c", setting]);
        }
        command.env("COMMONHOLD_HOST", self.host.state()).uid(NOBODY).gid(NOBODY).current_dir("/tmp");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("the server starts"));
        until("the server lets clients in", || self.ask("select 1").ok());
    }

    fn ask(&self, query: &str) -> Result<String, String> {
        let mut command = as_nobody("psql");
        command.args(["-X", "-q", "-t", "-A", "-U", "nobody", "-h"]).arg(&self.sockets);
        let output = command.args(["-c", query, "postgres"]).output().expect("psql runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn leader(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// Its processes map memory of huge pages.
    fn is_in_huge_pages(&self) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.leader())).expect("its mappings");
        maps.contains("/memfd:commonhold-")
    }

    /// Ends the leader so, and waits for it and all that it started.
    fn end(&mut self, how: i32) {
        let leader = self.leader();
        let children = children_of(leader);
        signal(leader, how);
        self.process.take().expect("it runs").wait().expect("it ends");
        until("its processes have ended", || children.iter().all(|child| has_ended(*child)).then_some(()));
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            signal(process.id(), libc::SIGQUIT);
            let _ = process.wait();
        }
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

/// What it cannot be tried without, and is not there.
fn lacks(host: &TestHost) -> Option<&'static str> {
    let all = [
        (Path::new(PROGRAMS).join("postgres"), "PostgreSQL 15 (apt-get install postgresql-15)"),
        (
            host.program().with_file_name("libcommonhold_sysv.so"),
            "the library beside the program (./run test puts it there)",
        ),
    ];
    all.into_iter().find(|(path, _)| !path.exists()).map(|(_, what)| what)
}

/// All ways in which such a server ends. Afterwards nothing is left of it.
fn dies_and_comes_back(kind: &'static str) {
    let Some(pool) = HugePages::more(HUGE_PAGES) else { return };
    let free = pool.free();
    let host = TestHost::start();
    if let Some(what) = lacks(&host) {
        return left_out(what);
    }
    let mut server = Server::new(&host, kind);
    assert!(server.is_in_huge_pages());
    assert!(pool.free() < free);
    let rows = |server: &Server<'_>| server.ask("select count(*), sum(n) from t");
    server.ask("create table t as select n from generate_series(1, 100000) n").expect("a table");
    let all = Ok("100000|5000050000".to_owned());
    assert_eq!(rows(&server), all);

    // A process of a client is killed: the server begins anew, with other memory.
    let mut sleeper = as_nobody("psql");
    sleeper.args(["-X", "-U", "nobody", "-h"]).arg(&server.sockets).args([
        "-c",
        "select pg_sleep(600)",
        "postgres",
    ]);
    let mut sleeper = sleeper.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("psql runs");
    let sleeping = "select pid from pg_stat_activity where query like 'select pg_sleep%'";
    let victim = until("the client is served", || server.ask(sleeping).ok()?.parse().ok());
    kill(victim);
    sleeper.wait().expect("it loses its server");
    until("the server has begun anew", || (rows(&server) == all).then_some(()));
    assert!(server.is_in_huge_pages());

    // The host is killed: nobody notices.
    let before = host.status().host_pid;
    host.kill_host();
    assert_eq!(rows(&server), all);
    host.wait_for_other_host(before);

    // The server is told to end at once; what it had not written is mended at its next start.
    server.ask("insert into t select 1 from generate_series(1, 10)").expect("more rows");
    server.end(libc::SIGQUIT);
    server.start();
    let all = Ok("100010|5000050010".to_owned());
    assert_eq!(rows(&server), all);

    // And killed.
    server.end(libc::SIGKILL);
    server.start();
    assert_eq!(rows(&server), all);
    assert!(server.is_in_huge_pages());
    server.end(libc::SIGINT);
    assert_eq!(host.connect().list("/").expect("root may list").len(), 0, "an object stays");
    until("the pages are back in the pool", || (pool.free() == free).then_some(()));
    let segments = std::fs::read_to_string("/proc/sysvipc/shm").expect("the kernel's list");
    let ours = |line: &&str| line.split_whitespace().nth(7) == Some("65534");
    assert_eq!(segments.lines().find(ours), None, "a segment stays");
}

#[test]
fn with_its_defaults() {
    dies_and_comes_back("mmap");
}

#[test]
fn with_system_v_segments() {
    dies_and_comes_back("sysv");
}
