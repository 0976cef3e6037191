//! Programs that know nothing of Commonhold: `docs/UNMODIFIED.md`.

use commonhold::{Access, CreateOptions, EntryInfo, Errand, PATIENCE};
use commonhold_tests::huge::HugePages;
use commonhold_tests::left_out::has;
use commonhold_tests::unmodified::{Unmodified, key, text};
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, TestHost, is_root};
use rustix::io::Errno;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

const SYSTEM_V: &str = "system-v";
const SHARE: &str = "share-page-tables";
/// `IPC_SHARE_PAGE_TABLE`, `SHM_SHARE_PAGE_TABLE`.
const SHARES: [&str; 2] = ["0x200000", "0x100000"];

fn said(mut command: Command, words: &[&str]) -> String {
    let output = command.args(words).output().expect("the program runs");
    let text = text(&output);
    assert!(output.status.success(), "{words:?}: {}: {text}", output.status);
    text
}

/// The numbers of the segments that the kernel has for us and our twins, by their keys.
fn twins(key: i32) -> Vec<i32> {
    let all = std::fs::read_to_string("/proc/sysvipc/shm").expect("the kernel's list");
    let lines = all.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .filter(|words| words[0] == key.to_string())
        .map(|words| words[1].parse().expect("a number"))
        .collect()
}

fn names(host: &TestHost) -> Vec<String> {
    let all = host.connect().list("/").expect("root may list");
    all.iter().filter_map(|entry| entry.name().map(ToString::to_string)).collect()
}

/// A process that has a segment attached.
struct Holder {
    child: Child,
    lines: BufReader<ChildStdout>,
    id: i32,
}

impl Holder {
    fn of(mut command: Command, key: i32, size: u64, [get, attach]: [&str; 2]) -> Holder {
        let words = ["holding", &key.to_string(), &size.to_string(), get, attach];
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut this = Holder { child, lines, id: 0 };
        let line = this.line();
        let (id, how) = line.split_once(' ').expect("two words");
        assert_eq!(how, "ok", "{line}");
        this.id = id.parse().expect("a number");
        this
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it speaks");
        line.trim().to_owned()
    }

    /// What is there, and puts another value.
    fn swap(&mut self, offset: u64, value: i32) -> String {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{offset} {value}").expect("it listens");
        self.line()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SCENARIOS: [&str; 12] = [
    "unmapping",
    "disturbing",
    "making",
    "attaching",
    "counting",
    "removing",
    "listing",
    "closing",
    "leaving",
    "racing",
    "placing",
    "sharing",
];

fn answers_as_the_kernel(words: &str, size: u64, scenarios: &[&str]) {
    let (host, unmodified, key) = (TestHost::start(), Unmodified::new("segments.c"), key());
    let (number, size) = (key.to_string(), size.to_string());
    for scenario in scenarios {
        let asked = [scenario, number.as_str(), &size, "0", "0"];
        let kernels = said(unmodified.alone(), &asked);
        assert_eq!(said(unmodified.run(&host, words), &asked), kernels, "{scenario}");
    }
    assert_eq!(twins(key), [0; 0], "twins stay");
    // What a killed process left goes before another makes its first.
    said(unmodified.run(&host, words), &["making", &number, &size, "0", "0"]);
    assert_eq!(names(&host), [""; 0], "objects stay");
}

#[test]
fn segments_answer_as_the_kernels() {
    if !is_root("a process that becomes another user") {
        return;
    }
    answers_as_the_kernel(SYSTEM_V, 5000, &SCENARIOS);
}

/// Where segments of hosts differ (`docs/UNMODIFIED.md`), it is tested what they do: `shared_keys`.
#[test]
fn segments_of_shared_keys_answer_as_the_kernels() {
    let differ = ["unmapping", "removing", "placing", "sharing"];
    let scenarios: Vec<_> = SCENARIOS.into_iter().filter(|scenario| !differ.contains(scenario)).collect();
    answers_as_the_kernel("system-v,shared-keys", 5000, &scenarios);
}

#[test]
fn segments_with_shared_page_tables_answer_as_the_kernels() {
    let Some(_pool) = HugePages::more(4 * 34) else { return };
    let scenarios: Vec<_> =
        SCENARIOS.into_iter().filter(|scenario| !["placing", "unmapping"].contains(scenario)).collect();
    answers_as_the_kernel(SHARE, 64 * MIB + 4096, &scenarios);
}

#[test]
fn posix_shared_memory_answers_as_the_kernels() {
    let (host, unmodified) = (TestHost::start(), Unmodified::new("posix.c"));
    let name = format!("/commonhold-tests-{}", std::process::id());
    let kernels = said(unmodified.alone(), &[&name]);
    assert_eq!(said(unmodified.run(&host, "posix"), &[&name]), kernels);
    assert_eq!(names(&host), [""; 0], "objects stay");
    // Without the word it is the kernel's.
    assert_eq!(said(unmodified.run(&host, SYSTEM_V), &[&name]), kernels);
}

#[test]
fn posix_shared_memory_is_an_object() {
    let (host, unmodified) = (TestHost::start(), Unmodified::new("posix.c"));
    let options = CreateOptions { size_bytes: 100, ..CreateOptions::default() };
    let object = host.connect().create("/made", &options, None).unwrap();
    object.write_at(b"bytes", 0).unwrap();
    let mut python = Command::new("python3");
    let read = "from multiprocessing import shared_memory as s; m = s.SharedMemory('made'); print(bytes(m.buf[:5]), m.size)";
    python
        .args(["-c", read])
        .envs(unmodified.run(&host, "posix").get_envs().filter_map(|(k, v)| Some((k, v?))));
    let said = text(&python.output().expect("python3 runs"));
    assert!(said.starts_with("b'bytes' 100"), "{said}");
    // One that has an address the program would map elsewhere.
    let fixed = Some(commonhold::Fixed::asked(0));
    host.connect().create("/fixed", &CreateOptions { fixed, ..options }, None).unwrap();
    let mut python = Command::new("python3");
    python
        .args(["-c", &read.replace("made", "fixed")])
        .envs(unmodified.run(&host, "posix").get_envs().filter_map(|(k, v)| Some((k, v?))));
    let said = text(&python.output().expect("python3 runs"));
    assert!(said.contains("OSError") && !said.contains("b'bytes'"), "{said}");
}

#[test]
fn a_stock_program_that_stresses_shared_memory_runs() {
    if !has("stress-ng", "stress-ng", "a stock program that stresses shared memory") {
        return;
    }
    let (host, unmodified) = (TestHost::start(), Unmodified::new("posix.c"));
    let mut stress = Command::new("stress-ng");
    let words = "--shm 1 --shm-bytes 4M --shm-sysv 1 --shm-sysv-bytes 2M --mmap 1 --mmap-bytes 8M --verify --timeout 2";
    stress.args(words.split(' ')).current_dir(unmodified.scratch().path());
    stress.envs(unmodified.run(&host, "system-v,posix").get_envs().filter_map(|(k, v)| Some((k, v?))));
    let output = stress.output().expect("stress-ng runs");
    let said = text(&output);
    assert!(output.status.success() && said.contains("successful run completed"), "{said}");
    // What is killed between shm_open and telling its parent the name leaves that object, empty; as
    // without us, but where shm_open takes longer and the machine is busy it happens now and then.
    let empty = |name: &str| matches!(host.connect().stat(name), Ok(EntryInfo::Object(one)) if one.options.size_bytes == 0);
    until("nothing is left", || match &names(&host)[..] {
        [] => Some(()),
        [one] => (one.starts_with("/stress-ng-") && empty(one)).then_some(()),
        _ => None,
    });
}

#[test]
fn the_papers_flags_share_page_tables() {
    const SIZE: u64 = 6 * MIB;
    let Some(pool) = HugePages::more(3) else { return };
    let before = pool.free();
    let (host, unmodified, key) = (TestHost::start(), Unmodified::new("segments.c"), key());
    let holder = |flags| Holder::of(unmodified.run(&host, SYSTEM_V), key, SIZE, flags);
    let mut first = holder(SHARES);
    let name = names(&host).pop().expect("its object");
    let tables = || host.worker().ok(&format!("stat {name} page-tables"));
    assert_eq!(before - pool.free(), 3);
    assert_eq!(first.swap(SIZE - 1, 7), "0");
    let (mut second, mut third) = (holder(SHARES), holder(SHARES));
    assert_eq!(second.swap(SIZE - 1, 8), "7");
    assert_eq!(third.swap(0, 1), "0");
    assert_eq!(tables(), "2", "the host's own");
    // 5.3: by tables of its own.
    let mut own = holder([SHARES[0], "0"]);
    assert_eq!(own.swap(SIZE - 1, 9), "8");
    assert_eq!(own.swap(0, 2), "1");
    assert_eq!(tables(), "3");
    assert_eq!(twins(key), [first.id]);
    drop((first, second, third, own));
    host.command(&["ipcrm", "--key", &format!("{key:#x}")], |_| {}).expect("it is removed");
    assert_eq!((twins(key).len(), names(&host).len()), (0, 0));
    until("the pages are back in the pool", || (pool.free() == before).then_some(()));
}

#[test]
fn a_segment_goes_on_without_its_host() {
    let (host, unmodified, key) = (TestHost::start(), Unmodified::new("segments.c"), key());
    let holder = || Holder::of(unmodified.run(&host, SYSTEM_V), key, 5000, ["0", "0"]);
    let mut first = holder();
    first.swap(4999, 7);
    let before = host.status().host_pid;
    host.kill_host();
    let mut second = holder();
    assert_eq!(second.swap(4999, 8), "7");
    assert_eq!(first.swap(4999, 9), "8");
    host.wait_for_other_host(before);
    let list = host.command(&["ipcs"], |_| {}).expect("a list");
    assert!(list.contains(&format!("{key:#x}")) && list.contains("4.9 KiB"), "{list}");
    drop((first, second));
    host.command(&["ipcrm", &twins(key)[0].to_string()], |_| {}).expect("it is removed");
    assert_eq!((twins(key).len(), names(&host).len()), (0, 0));
}

#[test]
fn what_cannot_be_made_leaves_nothing() {
    let (host, unmodified, key) = (TestHost::start(), Unmodified::new("segments.c"), key());
    let asks = |words: &str, size: u64, get: &str| {
        let mut command = unmodified.run(&host, words);
        command.args(["holding", &key.to_string(), &size.to_string(), get, "0"]);
        text(&command.output().expect("the program runs"))
    };
    // More than the pool, and than the machine, has.
    assert_eq!(asks(SYSTEM_V, 1 << 40, SHARES[0]), "-1 ENOMEM\n");
    assert_eq!(asks(SYSTEM_V, 1 << 50, "0"), "-1 EINVAL\n");
    assert_eq!(twins(key), [0; 0]);
    // Not asked for: the kernel's own.
    assert!(asks("", 5000, "0").ends_with("ok\n"));
    let list = std::fs::read_to_string("/proc/sysvipc/shm").expect("the kernel's list");
    let line = list.lines().find(|line| line.split_whitespace().next() == Some(&key.to_string()));
    assert!(line.is_some_and(|line| line.contains(" 5000 ")), "{list}");
    assert_eq!(names(&host), [""; 0]);
    assert_eq!(
        said(unmodified.run(&host, SYSTEM_V), &["making", &key.to_string(), "5000", "0", "0"])
            .lines()
            .count(),
        25
    );
    assert_eq!(twins(key), [0; 0], "it removed the kernel's");
    // No host at all.
    host.command(&["host", "stop", "--force"], |_| {}).expect("it stops");
    assert_eq!(asks(SYSTEM_V, 5000, "0"), "-1 ENOMEM\n");
    assert_eq!(twins(key), [0; 0]);
}

#[test]
fn a_twin_without_an_object_is_no_trap() {
    let (host, unmodified, key) = (TestHost::start(), Unmodified::new("segments.c"), key());
    // What a process leaves that is killed between the two steps of shmget; and what another host's would look like.
    let alone = Holder::of(unmodified.alone(), key, 3076, ["0", "0"]);
    let holding = |size: &str| {
        let mut command = unmodified.run(&host, SYSTEM_V);
        command.args(["holding", &key.to_string(), size, "0", "0"]);
        text(&command.output().expect("the program runs"))
    };
    assert_eq!(holding("3000"), format!("{} EIDRM\n", alone.id), "nobody gets other memory by that key");
    assert_eq!(holding("5000"), "-1 EINVAL\n");
    let id = alone.id;
    drop(alone);
    assert_eq!(holding("5000"), "-1 EINVAL\n", "somebody has used it");
    assert_eq!(twins(key), [id]);
    host.command(&["ipcrm", &id.to_string()], |_| {}).expect("it is removed");
    // One that nobody has used is made whole by the next who makes one.
    let mut made = unmodified.alone();
    made.args(["creating", &key.to_string(), "3076", "0", "0"]);
    assert!(made.output().expect("the program runs").status.success());
    let id = twins(key)[0];
    let made = Holder::of(unmodified.run(&host, SYSTEM_V), key, 5000, ["0", "0"]);
    assert_ne!(made.id, id);
    drop(made);
    host.command(&["ipcrm", "--key", &key.to_string()], |_| {}).expect("it is removed");
    assert_eq!(twins(key), [0; 0]);
}

/// Names of segments can be foretold, and whoever made one could put another object in its place.
#[test]
fn nobody_takes_a_segments_name_or_size() {
    if !is_root("an object of another user") {
        return;
    }
    let (host, unmodified, key) = (TestHost::start(), Unmodified::new("segments.c"), key());
    let holder = || Holder::of(unmodified.run(&host, SYSTEM_V), key, 50_000, ["0", "0"]);
    let mut first = holder();
    first.swap(49_999, 7);
    let name = names(&host).pop().expect("its object");
    let stranger = host.worker_of(64_000, 64_000);
    let next = name.replace(&format!("-{}-", first.id), &format!("-{}-", first.id + 1));
    for name in [next.as_str(), &format!("{next}/x"), "/system-v-1-1-64001"] {
        let refused = stranger.ask(&format!("create o {name} size=4096")).expect_err("it is not theirs");
        assert!(refused.message.contains("choose another name"), "{name}: {}", refused.message);
    }
    let root = host.worker();
    for (request, why) in [
        (format!("resize {name} 4096"), "keeps its size"),
        (format!("rename {name} /mine"), "keeps its name"),
    ] {
        let refused = root.ask(&request).expect_err("a segment keeps it");
        assert!(refused.message.contains(why), "{request}: {}", refused.message);
    }
    // Nor by the descriptor.
    let mut errand = Errand::to(host.state(), PATIENCE).expect("a host");
    let (_, memory) = errand.open(&name, Access::ReadWrite).expect("its memory");
    assert_eq!(rustix::fs::ftruncate(&memory, 4096), Err(Errno::PERM));
    // Its maker removes the object behind everybody's back: who had it has it, and nobody gets other memory.
    root.ok(&format!("remove {name}"));
    root.ok(&format!("create p {name} size=8192 description=nothing"));
    assert_eq!(first.swap(49_999, 8), "7");
    let mut second = unmodified.run(&host, SYSTEM_V);
    second.args(["holding", &key.to_string(), "0", "0", "0"]);
    assert!(text(&second.output().expect("the program runs")).ends_with(" EIDRM\n"));
    drop(first);
    host.command(&["ipcrm", "--key", &key.to_string()], |_| {}).expect("it is removed");
}

/// What was removed, and whose last process was killed, is gone soon without anybody's help.
#[test]
fn the_host_removes_what_nobody_is_left_to_remove() {
    let (host, unmodified, key) = (TestHost::start(), Unmodified::new("segments.c"), key());
    let holder = Holder::of(unmodified.run(&host, SYSTEM_V), key, 50_000, ["0", "0"]);
    host.command(&["ipcrm", &holder.id.to_string()], |_| {}).expect("it is removed");
    let list = host.command(&["ipcs"], |_| {}).expect("a list");
    assert!(list.contains("removed"), "{list}");
    assert_eq!(names(&host).len(), 1);
    drop(holder);
    until("the host has removed the object", || names(&host).is_empty().then_some(()));
}

#[test]
fn large_anonymous_mappings_share_tables_with_children() {
    let Some(pool) = HugePages::more(33) else { return };
    let before = pool.free();
    let (host, unmodified) = (TestHost::start(), Unmodified::new("anonymous.c"));
    let size = (64 * MIB + 4096).to_string();
    assert_eq!(said(unmodified.run(&host, SHARE), &[&size]), said(unmodified.alone(), &[&size]));
    until("the pages are back in the pool", || (pool.free() == before).then_some(()));
    // Where the pool has too few it runs all the same.
    let more = (80 * MIB).to_string();
    assert_eq!(said(unmodified.run(&host, SHARE), &[&more]), said(unmodified.alone(), &[&more]));
}

/// `commonhold run` itself, of programs that Debian made.
#[test]
fn the_command_runs_what_can_be_run() {
    let (host, unmodified) = (TestHost::start(), Unmodified::new("segments.c"));
    if !host.program().with_file_name("libcommonhold_sysv.so").exists() {
        return commonhold_tests::left_out(
            "`commonhold run`: the library is not beside the program (./run test puts it there)",
        );
    }
    let run = |words: &[&str]| host.command(&[&["run", "--system-v", "--"], words].concat(), |_| {});
    assert_eq!(run(&["echo", "-n", "a b"]), Ok("a b".to_owned()));
    let made = run(&["ipcmk", "-M", "10000"]).expect("ipcmk makes one");
    let id = made.trim().rsplit(' ').next().expect("its number").to_owned();
    assert!(run(&["ipcs", "-m"]).expect("a list").contains(&format!(" {id} ")));
    assert!(host.command(&["ipcs", "--json"], |_| {}).expect("a list").contains("\"bytes\": 10000"));
    assert_eq!(run(&["ipcrm", "-m", &id]), Ok(String::new()));
    assert_eq!(names(&host), [""; 0]);
    let refused = run(&["/no/such/program"]).expect_err("there is none");
    assert!(refused.contains("there is no program"), "{refused}");
    let fixed = unmodified.scratch().join("static");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/segments.c");
    let linked = Command::new("cc").args(["-static", "-o"]).arg(&fixed).arg(source).status();
    assert!(linked.expect("cc").success(), "a static program");
    let refused = run(&[&fixed.display().to_string()]).expect_err("nothing can stand before it");
    assert!(refused.contains("linked statically"), "{refused}");
}
