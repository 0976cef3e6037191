//! A host of an earlier version, with objects in use, becomes one of this version; and libraries and hosts of the two work
//! together. `COMMONHOLD_OLD_PROGRAM` is the program of the earlier version, with its `commonhold-tests-worker` beside it:
//! `./run soak` builds both.

use commonhold_tests::cluster::free_address;
use commonhold_tests::{TestHost, Worker, page, wait};
use std::path::{Path, PathBuf};

struct Old {
    program: PathBuf,
    worker: PathBuf,
}

impl Old {
    fn find() -> Old {
        let program =
            PathBuf::from(std::env::var_os("COMMONHOLD_OLD_PROGRAM").expect("COMMONHOLD_OLD_PROGRAM"));
        Old { worker: program.with_file_name("commonhold-tests-worker"), program }
    }

    fn worker(&self, host: &TestHost) -> Worker {
        Worker::of(&self.worker, host.state())
    }
}

/// This version's program.
fn new_program() -> PathBuf {
    std::env::var_os("COMMONHOLD_PROGRAM")
        .map_or_else(|| commonhold_tests::host::program("commonhold-tests-host"), PathBuf::from)
}

fn upgrade(host: &TestHost, by: &Path, to: &Path) -> Result<String, String> {
    let mut command = std::process::Command::new(by);
    command.args(["host", "upgrade", "--program"]).arg(to).env("COMMONHOLD_HOST", host.state());
    let output = command.output().expect("the program runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
}

/// Processes of both versions at work.
struct InUse {
    mapper: Worker,
    counter: Worker,
    others: Vec<Worker>,
    kinds: Vec<&'static str>,
    ledger: PathBuf,
    seed: u32,
}

impl InUse {
    fn begin(old: &Old, host: &TestHost) -> InUse {
        let mapper = old.worker(host);
        let kinds = host.kinds();
        for (kind, options) in &kinds {
            mapper.ok(&format!("create {kind} /used/{kind} {options} mode=640 tag=<u4"));
            mapper.ok(&format!("map m{kind} {kind} rw shared 0 0"));
            mapper.ok(&format!("fill m{kind} 0 16 1"));
        }
        mapper.all("snapshot s freezable /used/snapshot\nmap ms s r shared 0 0\ncheck ms 0 16 1");
        mapper.all("by-name create lock mutex /lock\nby-name lock lock 0");
        mapper.all("by-name create many semaphore /many 5\nby-name acquire many 0");
        mapper.all("channel create c /channel 65536\nchannel send c 3 sent-before -");
        // Of no name, on its way to whoever receives it.
        mapper.all("create-nameless o size=65536 controlled\nmap mo o rw shared 0 0\nfill mo 0 16 9");
        mapper.ok("channel object c 4 sent o rw -");
        mapper.all("create e /ephemeral size=65536 ephemeral=0\nmap me e rw shared 0 0\nfill me 0 16 8");
        mapper.ok("sync atomic 0 65536"); // in the journal
        let counter = old.worker(host);
        counter.all("create n /counted size=65536 controlled\nmap n n rw shared 0 0");
        let ledger = host.scratch().join("ledger");
        counter.ok(&format!("count n 0 1 16 {} 2", ledger.display()));
        let others = vec![old.worker(host), host.worker()];
        for other in &others {
            other.all("by-name open lock mutex /lock\nchannel open c /channel");
            for (kind, _) in &kinds {
                other.all(&format!("open {kind} /used/{kind} rw\nmap m{kind} {kind} rw shared 0 0"));
            }
        }
        let kinds = kinds.into_iter().map(|(kind, _)| kind).collect();
        let in_use = InUse { mapper, counter, others, kinds, ledger, seed: 1 };
        in_use.is_whole();
        in_use
    }

    /// Each byte and each lock is as it was.
    fn is_whole(&self) {
        for kind in &self.kinds {
            for worker in self.others.iter().chain([&self.mapper]) {
                worker.ok(&format!("check m{kind} 0 16 {}", self.seed));
            }
            assert!(self.mapper.ok(&format!("stat /used/{kind} owner")).ends_with(" 640"));
            assert_eq!(self.mapper.ok(&format!("info {kind} tag")), "<u4");
        }
        self.mapper.all("check ms 0 16 1\ncheck mo 0 16 9\ncheck me 0 16 8");
        self.others.iter().for_each(|other| drop(other.refused("by-name lock lock 0", "TimedOut")));
        assert_eq!(self.mapper.ok("by-name value many"), "4");
    }

    /// And all goes on.
    fn changes(&mut self) {
        self.is_whole();
        self.seed += 1;
        for kind in &self.kinds {
            self.mapper.ok(&format!("fill m{kind} 0 16 {}", self.seed));
            // What is not atomic or ordered is synced by whoever uses it.
            self.others[1].ok(&format!("sync {kind} 0 65536"));
        }
        self.mapper.ok("by-name unlock lock");
        for other in &self.others {
            other.all("by-name lock lock 0\nby-name unlock lock");
        }
        self.mapper.ok("by-name lock lock 0");
        let round = self.seed;
        self.others[0].ok(&format!("channel send c 3 round-{round} -"));
        self.is_whole();
    }

    fn end(self, messages: &[&str]) {
        self.is_whole();
        let last = &self.others[1];
        assert_eq!(last.ok("channel receive c -"), "3 sent-before");
        assert_eq!(last.ok("channel receive c - as=o"), "4 sent object 65536 rw");
        last.all("map mo o rw shared 0 0\ncheck mo 0 16 9");
        for message in messages {
            assert_eq!(last.ok("channel receive c -"), format!("3 {message}"));
        }
        self.mapper.all("drop me\nclose e");
        last.refused("open e /ephemeral r", "NotFound");
        self.counter.ok("halt");
        self.counter.ok(&format!("counted n 0 1 16 {}", self.ledger.display()));
    }
}

#[test]
#[ignore = "needs a build of an earlier version: ./run soak makes it"]
fn a_host_with_objects_in_use_is_upgraded_and_all_goes_on() {
    let (old, new) = (Old::find(), new_program());
    let mut host = TestHost::of(&old.program, &[]);
    let mut in_use = InUse::begin(&old, &host);
    let before = host.status();
    upgrade(&host, &new, &new).unwrap();
    host.set_program(&new);
    let after = host.status();
    assert_ne!((after.host_pid, after.keeper_pid), (before.host_pid, before.keeper_pid));
    assert_eq!(after.objects, before.objects);
    in_use.changes();
    for words in [&["host", "restart"][..], &["host", "restart", "--keeper"], &["host", "upgrade"]] {
        host.command(words, |_| {}).unwrap();
        in_use.is_whole();
    }
    // The way back, and here again.
    let back = upgrade(&host, &new, &old.program);
    in_use.changes();
    back.unwrap();
    upgrade(&host, &old.program, &new).unwrap();
    in_use.changes();
    // What only a host knew is written: after the death of both each byte is there.
    host.kill_both();
    host.start_again().unwrap();
    in_use.is_whole();
    in_use.end(&["round-2", "round-3", "round-4"]);
    let file = |kind: &str| std::fs::read(host.scratch().join(kind)).unwrap();
    for kind in ["file", "ordered", "atomic"] {
        assert!(file(kind) == page::bytes(0, 16, 4), "{kind}");
    }
}

#[test]
#[ignore = "needs a build of an earlier version: ./run soak makes it"]
fn a_state_directory_is_begun_with_by_the_other_version() {
    let (old, new) = (Old::find(), new_program());
    let mut host = TestHost::of(&old.program, &[]);
    let mut stored = Vec::new();
    for (kind, options) in host.kinds().into_iter().filter(|(_, options)| options.contains("file=")) {
        let worker = host.worker();
        worker.ok(&format!("create o /{kind} {options} mode=604"));
        worker.all("map m o rw shared 0 0\nfill m 0 16 1\nsync o 0 65536");
        stored.push(kind);
    }
    for (round, program) in [&new, &old.program, &new].into_iter().enumerate() {
        // Once with journals to be redone, and once in order.
        if round == 0 {
            host.kill_both();
        } else {
            host.command(&["host", "stop"], |_| {}).unwrap();
            wait::until("both are gone", || host.processes().is_empty().then_some(()));
        }
        host.set_program(program);
        host.start_again().unwrap();
        let seed = round + 1;
        for kind in &stored {
            let worker = host.worker();
            worker.all(&format!("open o /{kind} rw\nmap m o rw shared 0 0\ncheck m 0 16 {seed}"));
            assert!(worker.ok(&format!("stat /{kind} owner")).ends_with(" 604"));
            worker.all(&format!("fill m 0 16 {}\nsync o 0 65536\ndrop m\nclose o", seed + 1));
        }
    }
}

/// All that a client can ask, by programs and libraries of one version of a host of the other.
fn all_is_answered(host: &TestHost, program: &Path, worker: &Worker, name: &str) {
    worker.ok(&format!("create o /{name}/o size=65536 controlled"));
    worker.all(
        "map m o rw shared 0 0\nfill m 0 16 1\nsync o 0 65536\nincore o 0 65536\nlock o 0 4096\nunlock o 0 4096",
    );
    worker.all(&format!("resize /{name}/o 131072\nchmod /{name}/o 600\nrename /{name}/o /{name}/p"));
    worker.all(&format!("by-name create l mutex /{name}/l\nby-name lock l 0\nby-name unlock l"));
    worker.all(&format!("channel create c /{name}/c 65536\nchannel send c 1 text -"));
    assert_eq!(worker.ok("channel receive c -"), "1 text");
    let words = |words: &str| words.replace("NAME", &format!("/{name}/p"));
    for line in [
        "host status",
        "ls /",
        "stat NAME",
        "hosts",
        "map-info NAME",
        "stats NAME",
        "incore NAME",
        "sync NAME",
        "chmod 640 NAME",
        "host status --json",
    ] {
        let mut command = std::process::Command::new(program);
        command.args(words(line).split(' ')).env("COMMONHOLD_HOST", host.state());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    worker.all("check m 0 16 1\ndrop m\nclose o");
    worker.ok(&format!("remove /{name}/p"));
}

#[test]
#[ignore = "needs a build of an earlier version: ./run soak makes it"]
fn libraries_and_hosts_of_the_two_versions_work_together() {
    let (old, new) = (Old::find(), new_program());
    let host = TestHost::of(&old.program, &["--plain", "--listen", &free_address()]);
    all_is_answered(&host, &new, &host.worker(), "new-at-old");
    all_is_answered(&host, &old.program, &old.worker(&host), "old-at-old");
    let host = TestHost::of(&new, &["--plain", "--listen", &free_address()]);
    all_is_answered(&host, &old.program, &old.worker(&host), "old-at-new");
}

/// It keeps a cluster's list, and the addresses of objects that hosts share.
#[test]
#[ignore = "needs a build of an earlier version: ./run soak makes it"]
fn a_host_that_keeps_a_clusters_list_is_upgraded_and_the_way_back_is_refused_in_words() {
    let (old, new) = (Old::find(), new_program());
    let mut host = TestHost::of(&old.program, &["--plain", "--listen", &free_address()]);
    let worker = old.worker(&host);
    worker.ok("create o /o size=65536 strict fixed");
    worker.all("map m o rw shared 0 0\nfill m 0 16 1");
    let address = worker.ok("address m");
    upgrade(&host, &new, &new).unwrap();
    host.set_program(&new);
    worker.ok("check m 0 16 1");
    let other = host.worker();
    other.all("open o /o rw\nmap m o rw shared 0 0\ncheck m 0 16 1");
    assert_eq!(other.ok("address m"), address);
    other.ok("create p /p size=65536 strict fixed");
    for file in ["members", "addresses"] {
        let bytes = std::fs::read(host.state().join(file)).unwrap();
        assert!(bytes.starts_with(b"Ch"), "{file} says its version now");
    }
    // The old one cannot read these, and says so; this one comes back, with everything.
    let before = host.status();
    let refused = upgrade(&host, &new, &old.program).unwrap_err();
    assert!(refused.contains("did not go on") && refused.contains("nothing is lost"), "{refused}");
    host.wait_for_other_host(before.host_pid);
    worker.ok("check m 0 16 1");
    other.all("check m 0 16 1\nfill m 0 16 2");
    worker.ok("check m 0 16 2");
}
