//! Many clients and many objects at once, as they are stated in `docs/LIMITS.md`: all are served, none is lost when the
//! host is killed under them, what one more costs does not grow with how many there are, and nothing is left in the end.
//!
//! By default a tenth of the full numbers, which are 1,000 client processes and 10,000 objects:
//! `COMMONHOLD_TESTS_SCALE=full`. How long each step took is printed and not judged.

use commonhold::{CreateOptions, EntryInfo, Host, PagerKind};
use commonhold_tests::{TestHost, Worker, wait};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Directories over which the objects are spread.
const DIRECTORIES: usize = 8;
/// Bytes of an object.
const SIZE: u64 = 65_536;

/// How many of what.
struct Scale {
    clients: usize,
    objects: usize,
}

impl Scale {
    fn new() -> Scale {
        let full = std::env::var("COMMONHOLD_TESTS_SCALE").is_ok_and(|words| words == "full");
        if full { Scale { clients: 1_000, objects: 10_000 } } else { Scale { clients: 100, objects: 1_000 } }
    }
}

/// Of ten objects one is controlled, one is a file, and eight are plain sparse memory.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Controlled,
    File,
    Sparse,
}

fn kind(n: usize) -> Kind {
    match n % 10 {
        0 => Kind::Controlled,
        1 => Kind::File,
        _ => Kind::Sparse,
    }
}

fn name(n: usize) -> String {
    format!("/many/{}/o{n:05}", n / 10 % DIRECTORIES)
}

/// The objects that a client maps, each for itself alone: a sparse one and a controlled one.
fn own(client: usize) -> [usize; 2] {
    [client * 10 + 2, client * 10]
}

/// Says how long something took.
fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    eprintln!("{what}: {:.3} s", start.elapsed().as_secs_f64());
    result
}

/// Does something with each number below `count`, several at a time.
fn each(count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        break;
                    }
                    work(n);
                }
            });
        }
    });
}

/// Creates an object and writes its number at its beginning.
fn create(test: &TestHost, host: &Host, n: usize) {
    let controlled = kind(n) == Kind::Controlled;
    let mut options =
        CreateOptions { size_bytes: SIZE, reserve: Some(false), controlled, ..Default::default() };
    let file = (kind(n) == Kind::File).then(|| {
        options.pager = PagerKind::File;
        let path = test.scratch().file(&format!("file{n}"), SIZE);
        File::options().read(true).write(true).open(path).expect("file")
    });
    let object = host.create(&name(n), &options, file.as_ref().map(AsFd::as_fd)).expect("create");
    object.write_at(&(n as u64).to_le_bytes(), 0).expect("write");
}

/// That number is there.
fn check(host: &Host, n: usize) {
    let object = host.open(&name(n), commonhold::Access::Read).unwrap_or_else(|e| panic!("{}: {e}", name(n)));
    let mut bytes = [0; 8];
    object.read_at(&mut bytes, 0).expect("read");
    assert_eq!(u64::from_le_bytes(bytes), n as u64, "{}", name(n));
}

/// The names of all objects, as they are listed.
fn listed(host: &Host) -> Vec<String> {
    let directories = (0..DIRECTORIES).flat_map(|d| host.list(&format!("/many/{d}")).expect("list"));
    let mut names: Vec<String> = directories
        .map(|entry| match entry {
            EntryInfo::Object(info) => info.name.expect("a name").to_string(),
            EntryInfo::Directory { name, .. } => panic!("{name} is a directory"),
        })
        .collect();
    names.sort_unstable();
    names
}

/// Every client does the same at once.
fn all(workers: &[Worker], line: impl Fn(usize) -> String) {
    workers.iter().enumerate().for_each(|(n, worker)| worker.send(&line(n)));
    for (n, worker) in workers.iter().enumerate() {
        if let Err(refused) = worker.answer() {
            panic!("client {n}: {}: {refused:?}", line(n));
        }
    }
}

/// Each client opens and maps its own two objects, and writes to their second page.
fn attach(workers: &[Worker]) {
    for (at, what) in ["sparse", "controlled"].iter().enumerate() {
        all(workers, |n| format!("open {what} {} rw", name(own(n)[at])));
    }
    map_and_fill(workers);
}

fn map_and_fill(workers: &[Worker]) {
    for what in ["sparse", "controlled"] {
        all(workers, |_| format!("map {what} {what} rw shared 0 0"));
        all(workers, |n| format!("fill {what} 1 1 {}", n + 1));
    }
}

/// What they wrote is there, and they can go on.
fn go_on(workers: &[Worker]) {
    for what in ["sparse", "controlled"] {
        all(workers, |n| format!("check {what} 1 1 {}", n + 1));
        all(workers, |n| format!("fill {what} 2 1 {}", n + 1));
        all(workers, |n| format!("check {what} 2 1 {}", n + 1));
    }
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").count()
}

/// Bytes that a process has written to files so far. (Messages are not counted.)
fn written(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).expect("its counters");
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: ")).expect("wchar");
    line.parse().expect("a number")
}

/// Descriptors of a host or keeper: some of its own, of each object its memory or file, of each that is controlled
/// frames and book, of each client socket, process, and userfaultfd and page map twice (one to use, one to keep).
fn most_descriptors(scale: &Scale, clients: usize) -> usize {
    100 + scale.objects + 2 * scale.objects.div_ceil(10) + 6 * clients
}

/// One more client, of an object that is in use, has the host write a line to its list and no more.
fn one_more_costs_little(host: &TestHost) {
    let pid = host.status().host_pid;
    let before = written(pid);
    let worker = host.worker();
    worker.all(&format!("open o {} rw\nmap m o r shared 0 0\ncheck m 1 1 1", name(own(0)[1])));
    let bytes = written(pid) - before;
    assert!(bytes < 4096, "a client that comes has the host write {bytes} bytes");
}

#[test]
fn all_are_served_and_outlive_the_host() {
    let scale = Scale::new();
    let host = TestHost::start();
    let own_connection = host.connect();
    timed("create", || each(scale.objects, |n| create(&host, &own_connection, n)));
    let mut expected: Vec<String> = (0..scale.objects).map(name).collect();
    expected.sort_unstable();
    assert_eq!(timed("list", || listed(&own_connection)), expected);
    let status = host.status();
    let unattached = [status.host_pid, status.keeper_pid].map(descriptors);

    let workers = timed("clients", || Worker::start_many(host.state(), scale.clients));
    timed("attach", || attach(&workers));
    timed("list with clients", || assert_eq!(listed(&own_connection), expected));
    one_more_costs_little(&host);
    let most = most_descriptors(&scale, scale.clients + 2);
    wait::until("the one more is forgotten", || {
        (host.status().clients as usize == scale.clients + 1).then_some(())
    });
    let before = host.status();
    assert_eq!(before.mappings as usize, scale.clients);
    for pid in [before.host_pid, before.keeper_pid] {
        assert!(descriptors(pid) <= most, "{} descriptors for {most}", descriptors(pid));
    }

    host.kill_host();
    let after = timed("another host answers", || host.wait_for_other_host(before.host_pid));
    timed("all go on", || go_on(&workers));
    assert_eq!(
        (after.objects, after.clients, after.mappings),
        (before.objects, before.clients, before.mappings)
    );
    assert!(descriptors(after.host_pid) <= most, "{} descriptors for {most}", descriptors(after.host_pid));
    assert_eq!(listed(&own_connection), expected);
    timed("look at all", || each(scale.objects, |n| check(&own_connection, n)));
    one_more_costs_little(&host);

    // Half of them go in order, half are killed.
    let (orderly, killed) = workers.split_at(scale.clients / 2);
    all(orderly, |_| "drop sparse".into());
    all(orderly, |_| "drop controlled".into());
    timed("ends", || {
        killed.iter().for_each(Worker::kill);
        orderly.iter().for_each(|worker| worker.send("exit 0"));
        wait::until("the host forgets them", || (host.status().clients == 1).then_some(()));
    });
    let status = host.status();
    wait::until("their descriptors go", || {
        let now = [status.host_pid, status.keeper_pid].map(descriptors);
        (now[0] <= unattached[0] + 8 && now[1] <= unattached[1] + 8).then_some(())
    });
    drop(workers);
    clean_end(&host, own_connection, &scale);
}

/// What is removed leaves nothing; of what is not, the next host knows the files, and says of the rest that it is lost.
fn clean_end(host: &TestHost, connection: Host, scale: &Scale) {
    let removed = |n: usize| n.is_multiple_of(5);
    timed("remove a fifth", || {
        each(scale.objects, |n| {
            if removed(n) {
                connection.remove(&name(n)).expect("remove");
            }
        });
    });
    assert_eq!(listed(&connection).len(), (0..scale.objects).filter(|n| !removed(*n)).count());
    drop(connection);
    host.command(&["host", "stop", "--force"], |_| {}).expect("stop");
    wait::until("host and keeper end", || host.processes().is_empty().then_some(()));
    host.start_again().expect("start again");
    let connection = host.connect();
    let files: Vec<usize> = (0..scale.objects).filter(|n| kind(*n) == Kind::File && !removed(*n)).collect();
    assert_eq!(listed(&connection).len(), files.len());
    files.iter().for_each(|n| check(&connection, *n));
    for folder in ["live", "spill", "journal"] {
        let entries = std::fs::read_dir(host.state().join(folder)).expect("folder").flatten();
        let left: Vec<_> = entries.map(|e| e.file_name()).filter(|name| name != "clients").collect();
        assert!(left.is_empty(), "left in {folder}: {left:?}");
    }
    // Thousands were lost, and the host can still say so.
    let repairs = host.status().repairs;
    assert!(repairs.iter().any(|line| line.contains("memory is gone")), "{repairs:?}");
}

/// Everything that only clients have comes back with them, each with its own.
#[test]
fn all_come_back_after_the_death_of_host_and_keeper() {
    let scale = Scale::new();
    let host = TestHost::start();
    let workers = Worker::start_many(host.state(), scale.clients);
    for (at, (what, more)) in [("sparse", ""), ("controlled", " controlled")].iter().enumerate() {
        all(&workers, |n| format!("create {what} {} size={SIZE} reserve=no{more}", name(own(n)[at])));
    }
    map_and_fill(&workers);
    let before = host.status();
    host.kill_both();
    host.start_again().expect("start again");
    timed("all come back", || {
        wait::until("all are back", || (host.status().mappings == before.mappings).then_some(()));
        go_on(&workers);
    });
    assert_eq!(listed(&host.connect()).len(), 2 * scale.clients);
    all(&workers, |_| "drop controlled".into());
}
