//! Snapshots while hosts, keepers and clients are killed at any instant: each shows its instant or an error, the object has all that was
//! written, and nothing is left when all are gone.

use commonhold_tests::crash::{Chance, Job, Victim, kill_and_recover, rounds};
use commonhold_tests::host::{kill, signal, stop};
use commonhold_tests::ledger::Ledger;
use commonhold_tests::scratch::{RamDisk, Scratch};
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, PAGE, TestHost, Worker, left_out};

fn notes(host: &TestHost) -> Vec<String> {
    let live = std::fs::read_dir(host.state().join("live")).expect("a directory").flatten();
    let names = live.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(".of")).collect()
}

fn nothing_is_left(host: &TestHost) {
    until("nothing is left", || (host.status().objects == 0).then_some(()));
    until("no note is left", || notes(host).is_empty().then_some(()));
}

fn kill_host(host: &TestHost) {
    let before = host.status().host_pid;
    kill(before);
    host.wait_for_other_host(before);
}

/// What a snapshot is to have of each page: at least what was done before, at most what was begun after.
struct Taken {
    name: String,
    least: std::path::PathBuf,
}

/// Writes down, as a ledger of its own, between which versions each page of a snapshot must be.
fn taken(host: &TestHost, name: &str, pages: u64, before: &[u64], after: &[u64]) -> Taken {
    let least = host.scratch().join(&format!("taken{}", name.replace('/', "-")));
    let ledger = Ledger::open(&least, pages as usize);
    for page in 0..pages as usize {
        ledger.done(page, before[page]);
        ledger.begin(page, after[page]);
    }
    Taken { name: name.to_owned(), least }
}

/// Writers count, snapshots come and go, and things are killed. `options`: the object's.
fn counted(what: &str, options: &str, host_options: &[&str], victims: &[Victim], share: usize) {
    const PAGES: u64 = 512;
    let host = TestHost::with(host_options);
    let mut chance = Chance::new(what);
    let job = Job::begin(&host, "/a", options, PAGES, 2);
    let ledger = Ledger::open(&host.scratch().join("ledger-a"), PAGES as usize);
    let all = |one: fn((u64, u64)) -> u64| -> Vec<u64> {
        (0..PAGES as usize).map(|page| one(ledger.get(page))).collect()
    };
    let mut takers: Vec<Worker> = (0..2).map(|_| host.worker()).collect();
    // Whoever has something mapped comes back by itself.
    takers.iter().for_each(|taker| taker.all("open o /a rw\nmap m o r shared 0 0"));
    let mut known: Vec<Taken> = Vec::new();
    for round in 0..rounds(share) {
        let taker = chance.below(2) as usize;
        let name = format!("/s{round}");
        let kind = ["", " writable", " whole", ""][chance.below(4) as usize];
        let before = all(|(done, _)| done);
        takers[taker].send(&format!("snapshot {} o {name}{kind}", &name[1..]));
        let victim = victims[chance.below(victims.len() as u64) as usize];
        let killed = chance.below(3) != 0;
        if killed {
            let most_ms = if chance.below(2) == 0 { 1 } else { 20 };
            chance.pause(most_ms);
            if victim == Victim::Client {
                takers[taker].kill();
                takers[taker] = host.worker();
                takers[taker].all("open o /a rw\nmap m o r shared 0 0");
            } else {
                kill_and_recover(&host, victim);
            }
        }
        if !(killed && victim == Victim::Client) {
            // After the death of host and keeper: who else has the object may not be back.
            let answer = takers[taker].answer();
            if let Err(refused) = &answer {
                assert_eq!(refused.kind, "Busy", "{refused:?}");
            }
            if answer.is_ok() {
                known.push(taken(&host, &name, PAGES, &before, &all(|(_, begun)| begun)));
            }
        }
        if killed && victim == Victim::Both {
            // A snapshot that nobody had is lost with its memory.
            job.wait_until_back(&host.worker());
            let reader = host.worker();
            known.retain(|one| reader.ask(&format!("open x {} r", one.name)).is_ok());
        }
        if known.len() > 2 {
            let one = known.swap_remove(chance.below(known.len() as u64) as usize);
            look(&host, &one, PAGES, victims.contains(&Victim::Both));
            let _ = host.worker().ask(&format!("remove {}", one.name));
        }
        job.wait_for_progress();
    }
    for one in &known {
        look(&host, one, PAGES, victims.contains(&Victim::Both));
    }
    job.end(&host);
    drop(takers);
    let client = host.worker();
    for name in client.ok("list /").split_whitespace().filter(|name| name.starts_with("/s") || *name == "/a")
    {
        let _ = client.ask(&format!("remove {name}"));
    }
    for round in 0..rounds(share) {
        let _ = client.ask(&format!("remove /s{round}"));
    }
    let _ = client.ask("remove /a");
    drop((job, client));
    nothing_is_left(&host);
}

/// A snapshot has what it is to have. `may_be_lost`: or it is an error.
fn look(host: &TestHost, one: &Taken, pages: u64, may_be_lost: bool) {
    let reader = host.worker();
    let line = format!("counted m 0 1 {pages} {}", one.least.display());
    let lines = [format!("open s {} r", one.name), "map m s r shared 0 0".into(), line.clone(), line];
    for line in lines {
        let Err(refused) = reader.ask(&line) else { continue };
        // Lost, or SIGBUS.
        let is_lost = line.starts_with("open") || refused.kind == "Ended";
        assert!(may_be_lost && is_lost, "{}: {line}: {refused:?}: {}", one.name, host.log());
        break;
    }
}

#[test]
fn hosts_and_clients_are_killed() {
    counted(
        "snapshots, and hosts and clients are killed",
        "freezable",
        &[],
        &[Victim::Host, Victim::Client, Victim::Keeper],
        24,
    );
}

#[test]
fn hosts_are_killed_where_memory_is_short() {
    let options = "file=FILE sync=ordered freezable budget=1048576";
    counted(
        "snapshots in little memory",
        options,
        &["--budget", "3MiB"],
        &[Victim::Host, Victim::Keeper],
        16,
    );
}

#[test]
fn host_and_keeper_are_killed() {
    counted("snapshots, and host and keeper are killed", "freezable", &[], &[Victim::Both, Victim::Host], 10);
}

#[test]
fn of_a_file_that_syncs_as_a_whole() {
    let options = "file=FILE sync=atomic freezable budget=1048576";
    counted("snapshots of an atomic object", options, &[], &[Victim::Host, Victim::Both, Victim::Client], 10);
}

/// After host and keeper died a reader waits until the writer brings back what the snapshot lacks.
#[test]
fn a_reader_waits_for_what_others_bring_back() {
    let host = TestHost::start();
    let (writer, reader) = (host.worker(), host.worker());
    writer.all(
        "create o /a size=262144 freezable mode=666\nmap m o rw shared 0 0\nfill m 0 64 1\nsnapshot s o /s",
    );
    writer.all("close s\nsnapshot t o /t\nfill m 0 8 2");
    reader.all("open s /s r\nmap m s r shared 0 0\ncheck m 0 4 1\nopen t /t r\nmap n t r shared 0 0");
    stop(&[writer.pid()]);
    host.kill_both();
    host.start_again().expect("the next begins");
    reader.send("check m 0 64 1");
    assert!(
        reader.answer_within(std::time::Duration::from_millis(300)).is_none(),
        "it has not got what it lacks"
    );
    assert!(!reader.has_ended(), "it waits");
    signal(writer.pid(), libc::SIGCONT);
    reader.answer().expect("what was there");
    reader.ok("check n 0 64 1");
    writer.all("fill m 0 64 3");
    reader.all("check m 0 64 1\ncheck n 0 64 1");
}

/// After host and keeper died nothing is left of a snapshot that nobody had, and its object ends.
#[test]
fn what_nobody_had_is_in_nobodys_way() {
    let host = TestHost::start();
    let writer = host.worker();
    writer.all("create o /a size=262144 freezable\nmap m o rw shared 0 0\nfill m 0 64 1");
    writer.all("snapshot s o /s\nclose s\nsnapshot t o /t\nsnapshot u o /u writable\nclose u\nremove /t");
    host.kill_both();
    host.start_again().expect("the next begins");
    writer.eventually("check m 0 64 1");
    writer.refused("open s /s r", "NotFound");
    writer.all(
        "map n t r shared 0 0\ncheck n 0 64 1\nremove /a\ndrop m\nclose o\ncheck n 0 64 1\ndrop n\nclose t",
    );
    nothing_is_left(&host);
}

/// What was to be whole is, also where the host was killed meanwhile.
#[test]
fn one_that_is_to_be_whole_will_be() {
    let host = TestHost::start();
    let mut chance = Chance::new("one that is to be whole will be");
    let pages = 16 * MIB / PAGE as u64;
    let writer = host.worker();
    writer
        .all(&format!("create o /a size={} freezable\nmap m o rw shared 0 0\nfill m 0 {pages} 1", 16 * MIB));
    for round in 0..rounds(6) {
        writer.ok(&format!("snapshot s o /s{round} whole"));
        chance.pause(4);
        kill_host(&host);
        until("it is whole", || notes(&host).is_empty().then_some(()));
        writer.all(&format!("fill m 0 {pages} {}", round + 2));
        writer.all(&format!("map n s r shared 0 0\ncheck n 0 {pages} {}", round + 1));
        writer.all(&format!("drop n\nclose s\nremove /s{round}"));
    }
}

/// The host is killed while the object gets smaller: the next host makes it so, and its snapshots have what was there.
#[test]
fn a_shrink_is_cut_short() {
    let host = TestHost::start();
    let mut chance = Chance::new("a shrink that is cut short");
    let pages = 8 * MIB / PAGE as u64;
    let (writer, reader) = (host.worker(), host.worker());
    writer.all(&format!("create o /a size={} freezable mode=666", 8 * MIB));
    for round in 1..=rounds(6) {
        writer.all(&format!("resize /a {}\nmap m o rw shared 0 0\nfill m 0 {pages} {round}", 8 * MIB));
        writer.all("snapshot s o /s\nsnapshot t o /t writable\nfill m 0 64 77");
        reader.all("open s /s r\nmap m s r shared 0 0\nopen t /t r\nmap n t r shared 0 0");
        writer.send(&format!("resize /a {}", MIB + 5000));
        chance.pause(12);
        kill_host(&host);
        writer.answer().expect("it is smaller");
        reader.all(&format!("check m 0 {pages} {round}\ncheck n 0 {pages} {round}"));
        writer.all("check m 0 64 77\ndrop m\nremove /s\nremove /t\nclose s\nclose t");
        reader.all("drop m\ndrop n\nclose s\nclose t");
    }
    until("one object is left", || (host.status().objects == 1).then_some(()));
}

/// First writes that the book could not note, for lack of room on the disk, are held by an instant after the host's death.
#[test]
fn on_a_full_disk_the_next_host_holds_all_writers() {
    let disk = match RamDisk::new(16) {
        Ok(disk) => disk,
        Err(why) => return left_out(&why.to_string()),
    };
    let host = TestHost::at(Scratch::new(), disk.path().join("state"), &[]);
    let writer = host.worker();
    writer.all("create o /a size=262144 freezable\nmap m o rw shared 0 0");
    let ballast = disk.use_up(0);
    writer.ok("fill m 0 64 1");
    kill_host(&host);
    writer.ok("check m 0 64 1");
    std::fs::remove_file(ballast).expect("it is there");
    writer.all("snapshot s o /s\nfill m 0 64 2\nmap n s r shared 0 0\ncheck n 0 64 1");
}

/// Hosts are replaced, stopped for a while and killed while a chain of versions of a large sparse object is used.
#[test]
fn a_large_object_goes_through_many_hosts() {
    let host = TestHost::start();
    let mut chance = Chance::new("a large object and many hosts");
    let writer = host.worker();
    writer.all(&format!("create o /a size={} freezable\nmap m o rw shared 0 0", 4096 * MIB));
    let pages = 4096 * MIB / PAGE as u64;
    let places: Vec<u64> =
        (0..48).map(|number| number * (pages / 48) + chance.below(pages / 48 - 16)).collect();
    for (number, place) in places.iter().enumerate() {
        writer.ok(&format!("fill m {place} 16 {}", number + 1));
    }
    writer.all("snapshot s o /s\nmap n s r shared 0 0");
    for round in 0..rounds(6) {
        writer.all(&format!("snapshot t{round} o /t{round}"));
        for place in &places {
            writer.ok(&format!("fill m {place} 16 {}", 100 + round));
        }
        match round % 3 {
            0 => {
                host.command(&["host", "restart"], |_| {}).expect("another host");
            }
            1 => kill_host(&host),
            _ => {
                let pid = host.status().host_pid;
                stop(&[pid]);
                writer.send(&format!("snapshot u{round} o /u{round}"));
                chance.pause(5);
                kill(pid);
                writer.answer().expect("a snapshot");
            }
        }
    }
    for (number, place) in places.iter().enumerate() {
        writer.ok(&format!("check n {place} 16 {}", number + 1));
    }
}
