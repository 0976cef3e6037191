//! A member of the cluster that lies, floods or plays deaf: nobody else notices.

use commonhold::ErrorKind;
use commonhold_coherence::HostId;
use commonhold_host::cluster::registry::{Before, Joined};
use commonhold_host::cluster::wire::{Answer, Call, Claim, Message, Shared};
use commonhold_object::{Access, Credentials, Name, Ownership};
use commonhold_tests::cluster::{address_of, leased_cluster, says, sharers, until_says};
use commonhold_tests::stranger::Stranger;
use commonhold_tests::{TestHost, Worker, wait};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Nobody's lease ends while a test runs, unless the test says so.
const LONG_LEASE_S: u32 = 600;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn root() -> Credentials {
    Credentials { uid: 0, gid: 0, groups: vec![] }
}

fn claim(text: &str, object: u128) -> Claim {
    Claim { name: name(text), object, moving: None }
}

/// A member with a valid name, that all hosts know; their numbers.
struct Evil {
    stranger: Stranger,
    hosts: Vec<HostId>,
    joined: Joined,
}

impl Evil {
    fn among(hosts: &[TestHost], number: u32, claims: Vec<Claim>) -> Evil {
        let stranger = Stranger::new(number, "evil");
        let known: Vec<HostId> =
            hosts.iter().map(|host| stranger.connect(&address_of(host)).unwrap()).collect();
        let joined = stranger.join(known[0], claims).unwrap();
        wait::until("all know it", || {
            let knows = |host: &TestHost| host.connect().hosts().is_ok_and(|all| all.len() > hosts.len());
            hosts.iter().all(knows).then_some(())
        });
        Evil { stranger, hosts: known, joined }
    }

    fn open(&self, at: usize, path: &str) -> Shared {
        let call = Call::Open { name: name(path), who: root(), access: Access::Read };
        match self.stranger.ask(self.hosts[at], call).unwrap() {
            Answer::Opened(shared) => *shared,
            other => panic!("{other:?}"),
        }
    }

    /// Answers openings of its name with that, as often as it is asked, until it is told to stop.
    fn answers_openings_with(&self, shared: &Shared, until: &AtomicBool) -> usize {
        let mut asked = 0;
        while !until.load(Ordering::SeqCst) {
            let Some((from, message)) = self.stranger.hears_within(Duration::from_millis(50)) else {
                continue;
            };
            if let Message::Call { number, call: Call::Open { .. } } = message {
                asked += 1;
                let answer = Ok(Answer::Opened(Box::new(shared.clone())));
                // It may be cut off by now.
                let _ = self.stranger.tell(from, &Message::Answer { number, answer }, &[]);
            }
        }
        asked
    }
}

/// What a host that was a member knows of `/secret`, whose home keeps the list.
fn spied_out(home: &TestHost) -> Shared {
    let spy = Stranger::new(60_000, "spy");
    let list = spy.connect(&address_of(home)).unwrap();
    spy.join(list, vec![]).unwrap();
    let call = Call::Open { name: name("/secret"), who: root(), access: Access::Read };
    let Answer::Opened(shared) = spy.ask(list, call).unwrap() else { panic!("it is opened") };
    // The end may come before the answer.
    spy.tell(list, &Message::Call { number: 0, call: Call::Resign }, &[]).unwrap();
    until_says(home, "spy is lost");
    *shared
}

/// `/secret` at the first host, for its owner alone; the second reads it.
fn readers_of_a_secret(hosts: &[TestHost], home: usize, reader: usize, how: &str) -> [Worker; 2] {
    let workers = [hosts[home].worker(), hosts[reader].worker()];
    workers[0].eventually(&format!("create o /secret size=16384 {how} mode=600"));
    workers[0].all("map m o rw shared 0 0\nfill m 0 4 1\nsync o 0 16384");
    workers[1].eventually("open o /secret r");
    workers[1].all("map m o r shared 0 0\ncheck m 0 4 1");
    workers
}

/// A member that is asked for its own name answers with the identity of another home's object, which everybody may write.
#[test]
fn nobody_gets_anothers_object_by_a_name_of_a_liar() {
    for how in ["central", "forwarding", "explicit"] {
        let hosts = leased_cluster(2, LONG_LEASE_S);
        let [home, reader] = readers_of_a_secret(&hosts, 0, 1, how);
        // Whoever takes part in a forwarded object may end its session at others' cost: this one does not.
        let secret = spied_out(&hosts[0]);
        let evil = Evil::among(&hosts, 70_000, vec![claim("/evil", 7)]);
        assert_eq!(secret.ownership.mode, 0o600);
        let ownership = Ownership { mode: 0o666, ..secret.ownership };
        let lie = Shared { name: name("/evil"), ownership, ..secret.clone() };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _lying = Renewing(&is_over);
            let lying = scope.spawn(|| evil.answers_openings_with(&lie, &is_over));
            let victim = hosts[1].worker();
            for access in ["r", "rw"] {
                victim.send(&format!("open e /evil {access}"));
                let refused = victim.answer();
                is_over.store(refused.is_ok(), Ordering::SeqCst);
                let why = refused.expect_err("the identity is another's");
                assert!(["Permission", "Disconnected"].contains(&why.kind.as_str()), "{how}: {why:?}");
            }
            is_over.store(true, Ordering::SeqCst);
            assert!(lying.join().unwrap() > 0);
        });
        until_says(&hosts[1], "cut off|than the registry says");
        // Who reads it goes on, and nobody else had it.
        home.all("fill m 0 4 2\nsync o 0 16384");
        match how {
            "explicit" => drop(reader.ok("open o /secret r")),
            _ => drop(reader.ok("check m 0 4 2")),
        }
        let listed = hosts[1].connect().hosts().unwrap();
        assert!(listed.iter().any(|host| host.name == "host0" && !host.is_unreachable), "{listed:?}");
        assert!(!says(&hosts[1], "messages from and to host0 may be lost"));
    }
}

/// Renews a member's lease until it is dropped.
struct Renewing<'s>(&'s AtomicBool);

impl Drop for Renewing<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The home is lost, and a member claims the identity: what others have of the object stays theirs.
#[test]
fn nobody_becomes_the_home_of_what_another_lost_host_was_the_home_of() {
    let hosts = leased_cluster(3, 4);
    let [home, reader] = readers_of_a_secret(&hosts, 1, 2, "central");
    let evil = Evil::among(&hosts, 70_000, vec![]);
    let (list, victim) = (evil.hosts[0], evil.hosts[2]);
    let before = Before { epoch: evil.joined.news.epoch, heard: u64::MAX, seen: u64::MAX };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| evil.stranger.renews(list, before, &is_over));
        let _renewing = Renewing(&is_over);
        let secret = evil.open(1, "/secret").object;
        hosts[1].kill_both();
        until_says(&hosts[2], "host1 is lost");
        evil.stranger.ask(list, Call::Claim(claim("/evil", secret))).unwrap();
        // Nobody is given it, and nobody is asked back what is here of it.
        let other = hosts[2].worker();
        for access in ["r", "rw"] {
            let why = other.refused(&format!("open e /evil {access}"), "Permission");
            assert!(why.contains("opened at host1"), "{why}");
        }
        let back = Call::GiveBack { object: secret, former: victim, lent_by: None, pages: vec![(0, 1)] };
        let why = evil.stranger.ask(victim, back).unwrap_err();
        assert!(why.kind == ErrorKind::Permission && why.message.contains("opened at host1"), "{why}");
        evil.stranger.ask(list, Call::Names(vec![])).unwrap();
        // The home comes back under its name, and all goes on.
        hosts[1].start_again().unwrap();
        home.ok("check m 0 4 1");
        reader.eventually("open s /secret r");
        reader.ok("check m 0 4 1");
    });
}

/// A member has as many names as it can, tells them again and again, and asks without end: nobody's lease ends, and others
/// have names.
#[test]
fn one_member_with_names_without_end_fences_nobody() {
    const NAMES: usize = 100_000;
    let hosts = leased_cluster(3, 5);
    let pids: Vec<u32> = hosts.iter().map(|host| host.status().host_pid).collect();
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    workers[1].eventually("create o /shared size=4096 central mode=666");
    workers[2].eventually("open o /shared rw");
    let evil = Evil::among(&hosts, 70_000, vec![]);
    let list = evil.hosts[0];
    let before = Before { epoch: evil.joined.news.epoch, heard: u64::MAX, seen: u64::MAX };
    let many = |count: usize| (0..count).map(|n| claim(&format!("/{n}"), n as u128)).collect::<Vec<Claim>>();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| evil.stranger.renews(list, before, &is_over));
        let _renewing = Renewing(&is_over);
        let names = many(NAMES);
        for round in 0..6 {
            if let Err(why) = evil.stranger.ask(list, Call::Names(names.clone())) {
                assert_eq!(why.kind, ErrorKind::Busy, "{why}");
            }
            // Others have their names meanwhile.
            workers[1].ok(&format!("create n{round} /honest{round} size=4096 central"));
            workers[2].ok(&format!("open n{round} /honest{round} r"));
        }
        for number in 0..40_000 {
            let call = Call::Lookup(name("/honest0"));
            let _ = evil.stranger.tell(list, &Message::Call { number: 1 << 40 | number, call }, &[]);
        }
        workers[1].ok("create last /last size=4096 central");
    });
    // More than one host may have is no message.
    let call = Call::Names(many(262_145));
    // It may be cut off before the last part.
    let _ = evil.stranger.tell(list, &Message::Call { number: 1, call }, &[]);
    evil.stranger.cut_off_by(list);
    workers[2].ok("open last /last r");
    for (host, pid) in hosts.iter().zip(pids) {
        assert_eq!(host.status().host_pid, pid, "{}", host.log());
        assert!(!says(host, "fenced"), "{}", host.log());
    }
}

/// A member renews its lease, and never says that it heard of a loss: who waits for all to have heard waits for eight leases.
#[test]
fn a_deaf_member_is_lost_itself_and_nobody_waits_for_ever() {
    let hosts = leased_cluster(2, 2);
    let workers = [hosts[0].worker(), hosts[1].worker()];
    workers[1].eventually("create o /x size=16384 central");
    workers[1].all("map m o rw shared 0 0\nfill m 0 4 1");
    let evil = Evil::among(&hosts, 70_000, vec![]);
    let heard = evil.joined.news.number;
    let before = Before { epoch: evil.joined.news.epoch, heard, seen: heard };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| evil.stranger.renews(evil.hosts[0], before, &is_over));
        let _renewing = Renewing(&is_over);
        let first = hosts[1].status().host_pid;
        hosts[1].kill_host();
        hosts[1].wait_for_other_host(first);
        until_says(&hosts[0], "evil renews its lease, and does not follow");
        workers[0].eventually("open o /x r");
        workers[0].all("map m o r shared 0 0\ncheck m 0 4 1");
    });
    for host in &hosts {
        assert!(!says(host, "fenced"), "{}", host.log());
    }
}

/// A member with the smallest number ends its sessions again and again: who uses objects in which it has no part goes on.
#[test]
fn a_member_that_ends_its_sessions_makes_nobody_begin_anew() {
    let hosts = leased_cluster(3, LONG_LEASE_S);
    let workers = sharers(&hosts, 16_384, "forwarding");
    let pids: Vec<u32> = hosts.iter().map(|host| host.status().host_pid).collect();
    workers[1].ok("fill m 0 4 1");
    let evil = Evil::among(&hosts, 1, vec![]);
    for _ in 0..3 {
        for at in [1, 2] {
            let host = evil.hosts[at];
            wait::until("they reach each other", || {
                let known = hosts[at].connect().hosts().ok()?;
                let reached = known.iter().any(|host| host.name == "evil" && !host.is_unreachable);
                (reached && evil.stranger.is_connected(host)).then_some(())
            });
            evil.stranger.forget();
            evil.stranger.say(host, &[0xff; 64], &[]).unwrap();
            evil.stranger.cut_off_by(host);
        }
    }
    workers[2].ok("check m 0 4 1");
    workers[0].ok("fill m 0 4 2");
    for (at, (host, pid)) in hosts.iter().zip(pids).enumerate() {
        workers[at].ok("check m 0 4 2");
        assert!(!says(host, "fenced"), "{}", host.log());
        assert_eq!(host.status().host_pid, pid, "{}", host.log());
    }
}
