//! Against real hosts: fork, the death of the host, the death of host and keeper. Needs the `commonhold` program,
//! which this crate cannot build: `COMMONHOLD_PROGRAM` names it, and without it these tests say so and pass.

mod common;

use common::{is_mapped, word};
use commonhold::{CreateOptions, Host, MapOptions, PagerKind, SyncMode};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const PAGES: usize = 64;

/// A host in a directory of its own.
struct RealHost {
    program: PathBuf,
    directory: PathBuf,
}

impl RealHost {
    fn start() -> Option<RealHost> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let Some(program) = std::env::var_os("COMMONHOLD_PROGRAM") else {
            eprintln!("skipped: COMMONHOLD_PROGRAM names no `commonhold` program to start hosts with");
            return None;
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("commonhold-real-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let host = RealHost { program: program.into(), directory };
        host.run();
        Some(host)
    }

    fn run(&self) {
        let output = Command::new(&self.program)
            .args(["host", "start", "--state"])
            .arg(&self.directory)
            .output()
            .unwrap();
        assert!(output.status.success(), "host start: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn file(&self, name: &str) -> File {
        let path = self.directory.join(name);
        std::fs::write(&path, vec![b'.'; PAGES * PAGE]).unwrap();
        File::options().read(true).write(true).open(path).unwrap()
    }
}

impl Drop for RealHost {
    fn drop(&mut self) {
        stop(self.program.as_ref(), &self.directory);
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn stop(program: &OsStr, directory: &Path) {
    let output =
        Command::new(program).args(["host", "stop", "--force", "--host"]).arg(directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || std::thread::panicking(), "host stop: {said}");
}

fn atomic_file() -> CreateOptions {
    CreateOptions { pager: PagerKind::File, sync: SyncMode::Atomic, ..CreateOptions::default() }
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn stored(file: &File, page: usize) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, (page * PAGE) as u64).unwrap();
    u64::from_le_bytes(bytes)
}

#[test]
fn a_fork_childs_writes_are_synced_with_the_parents() {
    let Some(real) = RealHost::start() else { return };
    let file = real.file("f");
    let host = Host::connect_to(&real.directory).unwrap();
    let object = host.create("/f", &atomic_file(), Some(file.as_fd())).unwrap();
    let mapping = object.map(&MapOptions::default()).unwrap();
    word(mapping.as_ptr(), PAGE).store(1, Ordering::SeqCst);
    // SAFETY: the child writes shared memory and ends at once.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        word(mapping.as_ptr(), 2 * PAGE).store(2, Ordering::SeqCst);
        let seen = word(mapping.as_ptr(), PAGE).load(Ordering::SeqCst);
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(seen != 1)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!((stored(&file, 1), stored(&file, 2)), (0x2e2e_2e2e_2e2e_2e2e, 0x2e2e_2e2e_2e2e_2e2e));
    assert_eq!(mapping.sync().unwrap(), 2);
    assert_eq!((stored(&file, 1), stored(&file, 2)), (1, 2));
}

#[test]
fn the_death_of_the_host_is_not_noticed() {
    let Some(real) = RealHost::start() else { return };
    let file = real.file("f");
    let host = Host::connect_to(&real.directory).unwrap();
    let object = host.create("/f", &atomic_file(), Some(file.as_fd())).unwrap();
    let mapping = object.map(&MapOptions::default()).unwrap();
    for round in 0..5u64 {
        let page = round as usize * 5;
        word(mapping.as_ptr(), page * PAGE).store(round, Ordering::SeqCst);
        kill(host.status().unwrap().host_pid);
        // A fault while there is no host.
        word(mapping.as_ptr(), (page + 1) * PAGE).store(round, Ordering::SeqCst);
        // The number of pages may be that of a repeated request: 0.
        let pages = mapping.sync().unwrap();
        assert_eq!(
            (stored(&file, page), stored(&file, page + 1)),
            (round, round),
            "round {round}: {pages} pages"
        );
    }
}

#[test]
fn host_and_keeper_may_die_at_once() {
    let Some(real) = RealHost::start() else { return };
    let file = real.file("f");
    let host = Host::connect_to(&real.directory).unwrap();
    let object = host.create("/f", &atomic_file(), Some(file.as_fd())).unwrap();
    let anonymous = CreateOptions { size_bytes: (PAGES * PAGE) as u64, ..CreateOptions::default() };
    let memory = host.create("/m", &anonymous, None).unwrap();
    memory.write_at(b"kept", 5).unwrap();
    let mapping = object.map(&MapOptions::default()).unwrap();
    for round in 1..4u64 {
        let status = host.status().unwrap();
        word(mapping.as_ptr(), 0).store(round, Ordering::SeqCst);
        let pid = rustix::process::Pid::from_raw(status.keeper_pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        kill(status.host_pid);
        kill(status.keeper_pid);
        wait_for_end(status.keeper_pid);
        let address = mapping.as_ptr() as usize;
        let faulting = std::thread::spawn(move || {
            let word = word(address as *mut u8, (10 + round as usize) * PAGE);
            word.fetch_add(round, Ordering::SeqCst)
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!faulting.is_finished(), "it waits for a host");
        real.run();
        assert_eq!(faulting.join().unwrap(), 0x2e2e_2e2e_2e2e_2e2e);
        mapping.sync().unwrap();
        assert_eq!(stored(&file, 0), round);
        assert_eq!(stored(&file, 10 + round as usize), 0x2e2e_2e2e_2e2e_2e2e + round);
    }
    let address = mapping.as_ptr();
    drop(mapping);
    assert!(!is_mapped(address));
}

const CHILD: &str = "COMMONHOLD_TEST_CHILD";

/// Run by the test below, in processes of their own.
#[test]
fn a_client_that_needs_a_host() {
    let Ok(name) = std::env::var(CHILD) else { return };
    let host = Host::connect().unwrap();
    let options = CreateOptions { size_bytes: 4096, sync: SyncMode::Ordered, ..CreateOptions::default() };
    let object = host.create(&name, &options, None).unwrap();
    let mapping = object.map(&MapOptions::default()).unwrap();
    word(mapping.as_ptr(), 0).store(4, Ordering::SeqCst);
    println!("served by {}", host.status().unwrap().host_pid);
}

#[test]
fn clients_that_start_a_host_at_once_share_one() {
    use std::os::unix::process::CommandExt;
    let Some(program) = std::env::var_os("COMMONHOLD_PROGRAM") else {
        eprintln!("skipped: COMMONHOLD_PROGRAM names no `commonhold` program to start hosts with");
        return;
    };
    let state = std::env::temp_dir().join(format!("commonhold-own-{}", std::process::id()));
    std::fs::create_dir_all(&state).unwrap();
    const NOBODY: u32 = 65534;
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let clients: Vec<_> = (0..4)
        .map(|i| {
            let mut client = Command::new(std::env::current_exe().unwrap());
            client.args(["--exact", "a_client_that_needs_a_host", "--nocapture"]);
            client.env("XDG_STATE_HOME", &state).env_remove("COMMONHOLD_HOST").env(CHILD, format!("/o/{i}"));
            if is_root {
                client.uid(NOBODY).gid(NOBODY);
            }
            client.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let outputs: Vec<_> = clients.into_iter().map(|client| client.wait_with_output().unwrap()).collect();
    stop(&program, &state.join("commonhold"));
    let mut served = Vec::new();
    for output in outputs {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{out}{err}");
        served.extend(out.lines().find_map(|line| Some(line.split_once("served by ")?.1.to_owned())));
    }
    served.dedup();
    assert_eq!(served.len(), 1, "{served:?}");
    std::fs::remove_dir_all(state).unwrap();
}

fn wait_for_end(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while Path::new(&format!("/proc/{pid}")).exists() && commonhold_sys::process::identity(pid).is_ok() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(2));
    }
}
