//! Against real hosts: fork, the death of the host, the death of host and keeper. Needs the `commonhold` program,
//! which this crate cannot build: `COMMONHOLD_PROGRAM` names it, and without it these tests say so and pass.

mod common;

use common::real::{PAGE, PAGES, RealHost, stop};
use common::{is_mapped, word};
use commonhold::{CreateOptions, ErrorKind, Host, MapFlags, MapOptions, PagerKind, SyncMode};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

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

#[test]
fn after_an_orderly_stop_nobody_waits_and_the_next_start_brings_everything_back() {
    let Some(real) = RealHost::start() else { return };
    let file = real.file("f");
    let host = Host::connect_to(&real.directory).unwrap();
    let object = host.create("/f", &atomic_file(), Some(file.as_fd())).unwrap();
    let anonymous = CreateOptions { size_bytes: (PAGES * PAGE) as u64, ..CreateOptions::default() };
    let memory = host.create("/m", &anonymous, None).unwrap();
    memory.write_at(b"kept", 5).unwrap();
    let mapping = object.map(&MapOptions::default()).unwrap();
    let other = object.map(&MapOptions { length: Some(PAGE as u64), ..MapOptions::default() }).unwrap();
    word(mapping.as_ptr(), 0).store(3, Ordering::SeqCst);
    stop(real.program.as_ref(), &real.directory);
    let begun = Instant::now();
    for _ in 0..3 {
        let error = host.status().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Disconnected);
        assert!(error.message.contains("was stopped: start it again"), "{error}");
        assert!(mapping.sync().is_err());
    }
    drop(other);
    // Half of the time that the first of them would have waited.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let address = mapping.as_ptr() as usize;
    let faulting =
        std::thread::spawn(move || word(address as *mut u8, 9 * PAGE).fetch_add(1, Ordering::SeqCst));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!faulting.is_finished(), "nobody serves it");
    real.run();
    assert_eq!(faulting.join().unwrap(), 0x2e2e_2e2e_2e2e_2e2e);
    mapping.sync().unwrap();
    assert_eq!((stored(&file, 0), stored(&file, 9)), (3, 0x2e2e_2e2e_2e2e_2e2f));
    let mut bytes = [0; 4];
    memory.read_at(&mut bytes, 5).unwrap();
    assert_eq!(&bytes, b"kept");
}

/// The descriptors of this process.
fn descriptors() -> Vec<i32> {
    let names: Vec<_> =
        std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let numbers = names.iter().map(|name| name.to_str().unwrap().parse().unwrap());
    // That of the directory just read is gone by now.
    let mut all: Vec<i32> =
        numbers.filter(|fd| Path::new(&format!("/proc/self/fd/{fd}")).read_link().is_ok()).collect();
    all.sort_unstable();
    all
}

#[test]
fn no_descriptor_is_leaked_and_none_outlives_exec() {
    if !common::in_own_process("no_descriptor_is_leaked_and_none_outlives_exec") {
        return;
    }
    let Some(real) = RealHost::start() else { return };
    let before = descriptors();
    let bytes = (PAGES * PAGE) as u64;
    let kinds = [
        CreateOptions { size_bytes: bytes, ..CreateOptions::default() },
        CreateOptions { size_bytes: bytes, sync: SyncMode::Ordered, ..CreateOptions::default() },
        CreateOptions {
            size_bytes: bytes,
            sync: SyncMode::Ordered,
            freezable: true,
            ..CreateOptions::default()
        },
    ];
    let host = Host::connect_to(&real.directory).unwrap();
    let mut counts = Vec::new();
    for round in 0..20 {
        for (kind, options) in kinds.iter().enumerate() {
            let name = format!("/d/{kind}");
            let object = host.create(&name, options, None).unwrap();
            let flags = MapFlags { in_thread: kind == 1, ..MapFlags::default() };
            let mapping = object.map(&MapOptions { flags, ..MapOptions::default() }).unwrap();
            word(mapping.as_ptr(), 3 * PAGE).store(1, Ordering::SeqCst);
            mapping.unmap(5 * PAGE, PAGE).unwrap();
            host.open(&name, commonhold::Access::Read).unwrap();
            host.open("/none", commonhold::Access::Read).unwrap_err();
            if round == 0 {
                for fd in descriptors().into_iter().filter(|fd| !before.contains(fd)) {
                    // SAFETY: asks for the flags of a descriptor.
                    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
                    let what = std::fs::read_link(format!("/proc/self/fd/{fd}"));
                    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC, "{fd}: {what:?}");
                }
            }
            drop((mapping, object));
            host.remove(&name).unwrap();
        }
        counts.push(descriptors().len());
    }
    assert_eq!(counts[1], counts[19], "{counts:?}");
    drop(host);
    // What a signal handler may use at any time stays: userfaultfd and pagemap of the mappings with in-thread service.
    let deadline = Instant::now() + Duration::from_secs(10);
    while descriptors().len() > before.len() + 2 {
        let kept = descriptors().into_iter().filter(|fd| !before.contains(fd));
        let kept: Vec<_> = kept.map(|fd| std::fs::read_link(format!("/proc/self/fd/{fd}"))).collect();
        assert!(Instant::now() < deadline, "{kept:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// No more descriptors for this process while it lives.
struct Exhausted(libc::rlimit);

impl Exhausted {
    fn begin() -> Exhausted {
        let first_free = (0..).find(|fd| !descriptors().contains(fd)).unwrap();
        // SAFETY: a zeroed rlimit is valid, and filled in.
        unsafe {
            let mut before: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut before);
            let less = libc::rlimit { rlim_cur: first_free as u64, ..before };
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &less), 0);
            Exhausted(before)
        }
    }
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        // SAFETY: the limit that was there before.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &self.0) };
    }
}

#[test]
fn without_a_descriptor_left_calls_fail_and_nothing_is_lost() {
    if !common::in_own_process("without_a_descriptor_left_calls_fail_and_nothing_is_lost") {
        return;
    }
    let Some(real) = RealHost::start() else { return };
    let host = Host::connect_to(&real.directory).unwrap();
    let options = CreateOptions { size_bytes: 1 << 20, sync: SyncMode::Ordered, ..CreateOptions::default() };
    let object = host.create("/a", &options, None).unwrap();
    let mapping = object.map(&MapOptions::default()).unwrap();
    word(mapping.as_ptr(), 0).store(1, Ordering::SeqCst);
    let exhausted = Exhausted::begin();
    for _ in 0..3 {
        let error = host.open("/a", commonhold::Access::Read).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooMany, "{error}");
        assert!(error.message.contains("ulimit -n"), "{error}");
    }
    let flags = MapFlags { in_thread: true, ..MapFlags::default() };
    let error = object.map(&MapOptions { flags, ..MapOptions::default() }).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooMany, "{error}");
    word(mapping.as_ptr(), 9 * PAGE).store(2, Ordering::SeqCst);
    object.map(&MapOptions::default()).unwrap();
    assert_eq!(object.info().unwrap().mappings, 1);
    drop(exhausted);
    host.open("/a", commonhold::Access::Read).unwrap();
    object.map(&MapOptions { flags, ..MapOptions::default() }).unwrap();
    assert_eq!(word(mapping.as_ptr(), 9 * PAGE).load(Ordering::SeqCst), 2);
}

#[test]
fn a_connection_that_breaks_while_the_host_lives_is_made_again_and_nothing_is_there_twice() {
    let test = "a_connection_that_breaks_while_the_host_lives_is_made_again_and_nothing_is_there_twice";
    if !common::in_own_process(test) {
        return;
    }
    let Some(real) = RealHost::start() else { return };
    let file = real.file("f");
    let host = Host::connect_to(&real.directory).unwrap();
    let object = host.create("/f", &atomic_file(), Some(file.as_fd())).unwrap();
    let mapping = object.map(&MapOptions::default()).unwrap();
    let pages = 20_000;
    let large = CreateOptions { size_bytes: (pages * PAGE) as u64, sync: SyncMode::Ordered, ..atomic_file() };
    let large = CreateOptions { pager: PagerKind::Anonymous, ..large };
    let large = host.create("/large", &large, None).unwrap().map(&MapOptions::default()).unwrap();
    let address = large.as_ptr() as usize;
    // Faults all the time, each in a page of its own, so that none comes with another.
    let faulting = std::thread::spawn(move || {
        for page in 0..pages {
            let page = page * 7919 % pages;
            assert_eq!(word(address as *mut u8, page * PAGE).fetch_add(page as u64, Ordering::SeqCst), 0);
        }
    });
    for round in 1..4u64 {
        word(mapping.as_ptr(), 0).store(round, Ordering::SeqCst);
        for fd in descriptors() {
            // SAFETY: ends connections of this process, of which there is one.
            unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
        }
        word(mapping.as_ptr(), round as usize * PAGE).store(round, Ordering::SeqCst);
        mapping.sync().unwrap();
        assert_eq!((stored(&file, 0), stored(&file, round as usize)), (round, round));
        let shown = host.map_info("/f").unwrap();
        assert_eq!(shown.len(), 1, "round {round}: {shown:?}");
    }
    faulting.join().unwrap();
    drop(large);
    let address = mapping.as_ptr();
    drop(mapping);
    assert!(!is_mapped(address));
    assert!(host.map_info("/f").unwrap().is_empty());
    assert_eq!(host.status().unwrap().clients, 1);
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
    if std::env::var_os(STOPPED).is_none() {
        return;
    }
    // The test stops this host, and then says so.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    println!("then by {}", host.status().unwrap().host_pid);
    mapping.sync().unwrap();
    assert_eq!(word(mapping.as_ptr(), 0).load(Ordering::SeqCst), 4);
}

/// Tells the above that its host will be stopped.
const STOPPED: &str = "COMMONHOLD_TEST_STOPPED";

#[test]
fn who_may_start_a_host_starts_another_when_it_was_stopped() {
    use std::io::{BufRead, Write};
    let Some(program) = std::env::var_os("COMMONHOLD_PROGRAM") else {
        common::left_out::left_out("COMMONHOLD_PROGRAM names no `commonhold` program to start hosts with");
        return;
    };
    let own = Own::new("stopped");
    let mut client = own.client("/o/stopped");
    let mut client = client.env(STOPPED, "1").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(client.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said = |what: &str| lines.find_map(|line| Some(line.split_once(what)?.1.to_owned()));
    let first = said("served by ").unwrap();
    stop(&program, &own.host());
    client.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    let next = said("then by ").unwrap();
    let output = client.wait_with_output().unwrap();
    stop(&program, &own.host());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_ne!(first, next);
}

/// A place where a user who is not root would have a host, and clients of it.
struct Own {
    state: PathBuf,
}

impl Own {
    fn new(name: &str) -> Own {
        let state = std::env::temp_dir().join(format!("commonhold-own-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&state).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Own { state }
    }

    fn host(&self) -> PathBuf {
        self.state.join("commonhold")
    }

    fn client(&self, object: &str) -> Command {
        use std::os::unix::process::CommandExt;
        let mut client = Command::new(std::env::current_exe().unwrap());
        client.args(["--exact", "a_client_that_needs_a_host", "--nocapture"]);
        client.env("XDG_STATE_HOME", &self.state).env_remove("COMMONHOLD_HOST").env(CHILD, object);
        if rustix::process::geteuid().is_root() {
            client.uid(NOBODY).gid(NOBODY);
        }
        client.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        client
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

const NOBODY: u32 = 65534;

#[test]
fn clients_that_start_a_host_at_once_share_one() {
    let Some(program) = std::env::var_os("COMMONHOLD_PROGRAM") else {
        common::left_out::left_out("COMMONHOLD_PROGRAM names no `commonhold` program to start hosts with");
        return;
    };
    let own = Own::new("shared");
    let clients: Vec<_> = (0..4).map(|i| own.client(&format!("/o/{i}")).spawn().unwrap()).collect();
    let outputs: Vec<_> = clients.into_iter().map(|client| client.wait_with_output().unwrap()).collect();
    stop(&program, &own.host());
    let mut served = Vec::new();
    for output in outputs {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{out}{err}");
        served.extend(out.lines().find_map(|line| Some(line.split_once("served by ")?.1.to_owned())));
    }
    served.dedup();
    assert_eq!(served.len(), 1, "{served:?}");
}

fn wait_for_end(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while Path::new(&format!("/proc/{pid}")).exists() && commonhold_sys::process::identity(pid).is_ok() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(2));
    }
}
