//! A member of the cluster that lies, floods or plays deaf: nobody else notices.

use super::member_of;
use crate::Attack;
use crate::scene::{CLUSTER, Cluster, Members, Rights, Until, name};
use commonhold::ErrorKind;
use commonhold_coherence::HostId;
use commonhold_host::cluster::registry::{Before, Joined};
use commonhold_host::cluster::wire::{Answer, Call, Claim, Message, Shared};
use commonhold_object::{Access, Credentials, Ownership};
use commonhold_tests::cluster::{says, sharers, until_says};
use commonhold_tests::stranger::Stranger;
use commonhold_tests::{TestHost, Worker, wait};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A cluster in which nobody's lease ends while an attack runs; all may write.
pub(super) const STEADY: Cluster =
    Cluster { lease_s: Some(600), last_reads: false, home: 0, user: 2, ..CLUSTER };
/// The second host dies, and is lost so many seconds later.
const fn losing(lease_s: u32) -> Cluster {
    Cluster { lease_s: Some(lease_s), kills: Some(1), ..STEADY }
}

pub(crate) const ATTACKS: &[Attack] = &[
    member_of(STEADY, "liars.anothers_object_central", "give one's own name another's object", |scene| {
        anothers_object(scene, "central");
    }),
    member_of(STEADY, "liars.anothers_object_forwarding", "the same of a forwarded object", |scene| {
        anothers_object(scene, "forwarding");
    }),
    member_of(STEADY, "liars.anothers_object_explicit", "the same of an explicit object", |scene| {
        anothers_object(scene, "explicit");
    }),
    member_of(
        losing(4),
        "liars.place_of_a_lost_home",
        "become the home of a lost host's object",
        place_of_a_home,
    ),
    member_of(
        Cluster { lease_s: Some(5), ..STEADY },
        "liars.names_without_end",
        "have names without end, tell them again and again, and ask without end",
        names_without_end,
    ),
    member_of(losing(2), "liars.deaf", "renew a lease, and never hear of a loss", deaf),
    member_of(STEADY, "liars.sessions_that_end", "end sessions again and again", sessions_that_end),
];

fn root() -> Credentials {
    Credentials { uid: 0, gid: 0, groups: vec![] }
}

pub(super) fn claim(text: &str, object: u128) -> Claim {
    Claim { name: name(text), object, moving: None, fixed: None }
}

/// A member with a valid certificate, that all hosts know; their numbers.
pub(super) struct Evil {
    pub stranger: Stranger,
    pub hosts: Vec<HostId>,
    joined: Joined,
}

impl Evil {
    pub fn among(scene: &Members, number: u32, claims: Vec<Claim>) -> Evil {
        let stranger = scene.stranger(number, "evil", Rights::Write);
        let known: Vec<HostId> = (0..scene.hosts.len())
            .map(|at| stranger.connect(&scene.address(at)).expect("it has a certificate"))
            .collect();
        let joined = stranger.join(known[0], claims).expect("it belongs");
        let knows = |host: &TestHost| {
            host.connect().hosts().is_ok_and(|all| all.iter().any(|host| host.name == "evil"))
        };
        wait::until("all know it", || scene.hosts.iter().all(knows).then_some(()));
        Evil { stranger, hosts: known, joined }
    }

    pub fn open(&self, at: usize, path: &str) -> Shared {
        let call = Call::Open { name: name(path), who: root(), access: Access::Read };
        match self.stranger.ask(self.hosts[at], call).expect("an answer") {
            Answer::Opened(shared) => *shared,
            other => panic!("{other:?}"),
        }
    }

    /// Answers openings of its name with that, as often as it is asked, until it is told to stop.
    pub fn answers_openings_with(&self, shared: &Shared, until: &AtomicBool) -> usize {
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
fn spied_out(scene: &Members) -> Shared {
    let spy = scene.stranger(60_000, "spy", Rights::Write);
    let list = spy.connect(&scene.address(0)).expect("it has a certificate");
    spy.join(list, vec![]).expect("it belongs");
    let call = Call::Open { name: name("/secret"), who: root(), access: Access::Read };
    let Ok(Answer::Opened(shared)) = spy.ask(list, call) else { panic!("it is opened") };
    // The end may come before the answer.
    spy.tell(list, &Message::Call { number: 0, call: Call::Resign }, &[]).expect("it is said");
    until_says(&scene.hosts[0], "spy is lost");
    *shared
}

/// `/secret` at one host, for its owner alone; another reads it.
fn readers_of_a_secret(hosts: &[TestHost], home: usize, reader: usize, how: &str) -> [Worker; 2] {
    let workers = [hosts[home].worker(), hosts[reader].worker()];
    workers[0].eventually(&format!("create o /secret size=16384 {how} mode=600"));
    workers[0].all("map m o rw shared 0 0\nfill m 0 4 1\nsync o 0 16384");
    workers[1].eventually("open o /secret r");
    workers[1].all("map m o r shared 0 0\ncheck m 0 4 1");
    workers
}

/// A member that is asked for its own name answers with the identity of another home's object, which everybody may write.
fn anothers_object(scene: &Members, how: &str) {
    let hosts = &scene.hosts;
    let [home, reader] = readers_of_a_secret(hosts, 0, 1, how);
    // Whoever takes part in a forwarded object may end its session at others' cost: this one does not.
    let secret = spied_out(scene);
    let evil = Evil::among(scene, 70_000, vec![claim("/evil", 7)]);
    assert_eq!(secret.ownership.mode, 0o600);
    let ownership = Ownership { mode: 0o666, ..secret.ownership };
    let lie = Shared { name: name("/evil"), ownership, ..secret.clone() };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _until = Until(&is_over);
        let lying = scope.spawn(|| evil.answers_openings_with(&lie, &is_over));
        let victim = hosts[1].worker();
        for access in ["r", "rw"] {
            let refused = victim.ask(&format!("open e /evil {access}"));
            let why = refused.expect_err("the identity is another's");
            assert!(["Permission", "Disconnected"].contains(&why.kind.as_str()), "{how}: {why:?}");
        }
        is_over.store(true, Ordering::SeqCst);
        assert!(lying.join().expect("it lies") > 0);
    });
    until_says(&hosts[1], "cut off|than the registry says");
    // Who reads it goes on, and nobody else had it.
    home.all("fill m 0 4 2\nsync o 0 16384");
    match how {
        "explicit" => drop(reader.ok("open o /secret r")),
        _ => drop(reader.ok("check m 0 4 2")),
    }
    let listed = hosts[1].connect().hosts().expect("the hosts");
    assert!(listed.iter().any(|host| host.name == "host0" && !host.is_unreachable), "{listed:?}");
    assert!(!says(&hosts[1], "messages from and to host0 may be lost"));
}

/// The home is lost, and a member claims the identity: what others have of the object stays theirs.
fn place_of_a_home(scene: &Members) {
    let hosts = &scene.hosts;
    let [home, reader] = readers_of_a_secret(hosts, 1, 2, "central");
    let evil = Evil::among(scene, 70_000, vec![]);
    let (list, victim) = (evil.hosts[0], evil.hosts[2]);
    let before = Before { epoch: evil.joined.news.epoch, heard: u64::MAX, seen: u64::MAX };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| evil.stranger.renews(list, before, &is_over));
        let _renewing = Until(&is_over);
        let secret = evil.open(1, "/secret").object;
        hosts[1].kill_both();
        until_says(&hosts[2], "host1 is lost");
        evil.stranger.ask(list, Call::Claim(claim("/evil", secret))).expect("the name is free");
        // Nobody is given it, and nobody is asked back what is here of it.
        let other = hosts[2].worker();
        for access in ["r", "rw"] {
            let why = other.refused(&format!("open e /evil {access}"), "Permission");
            assert!(why.contains("opened at host1"), "{why}");
        }
        let back = Call::GiveBack { object: secret, former: victim, lent_by: None, pages: vec![(0, 1)] };
        let why = evil.stranger.ask(victim, back).expect_err("it is not the home");
        assert!(why.kind == ErrorKind::Permission && why.message.contains("opened at host1"), "{why}");
        evil.stranger.ask(list, Call::Names(vec![])).expect("it may have no names");
        // The home comes back under its name, and all goes on.
        hosts[1].start_again().expect("the home starts");
        home.ok("check m 0 4 1");
        reader.eventually("open s /secret r");
        reader.ok("check m 0 4 1");
    });
}

/// A member has as many names as it can, tells them again and again, and asks without end: nobody's lease ends, and others
/// have names.
fn names_without_end(scene: &Members) {
    const NAMES: usize = 100_000;
    let hosts = &scene.hosts;
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    workers[1].eventually("create o /shared size=4096 central mode=666");
    workers[2].eventually("open o /shared rw");
    let evil = Evil::among(scene, 70_000, vec![]);
    let list = evil.hosts[0];
    let before = Before { epoch: evil.joined.news.epoch, heard: u64::MAX, seen: u64::MAX };
    let many = |count: usize| (0..count).map(|n| claim(&format!("/{n}"), n as u128)).collect::<Vec<Claim>>();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| evil.stranger.renews(list, before, &is_over));
        let _renewing = Until(&is_over);
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
            // It may be cut off.
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
    drop(workers);
    let home = hosts[1].worker();
    (0..6).for_each(|round| drop(home.ok(&format!("remove /honest{round}"))));
    home.all("remove /last\nremove /shared");
    nobody_is_fenced(hosts);
}

fn nobody_is_fenced(hosts: &[TestHost]) {
    for host in hosts {
        assert!(!says(host, "fenced"), "{}", host.log());
    }
}

/// A member renews its lease, and never says that it heard of a loss: who waits for all to have heard waits for eight leases.
fn deaf(scene: &Members) {
    let hosts = &scene.hosts;
    let workers = [hosts[0].worker(), hosts[1].worker()];
    workers[1].eventually("create o /x size=16384 central");
    workers[1].all("map m o rw shared 0 0\nfill m 0 4 1");
    let evil = Evil::among(scene, 70_000, vec![]);
    let heard = evil.joined.news.number;
    let before = Before { epoch: evil.joined.news.epoch, heard, seen: heard };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| evil.stranger.renews(evil.hosts[0], before, &is_over));
        let _renewing = Until(&is_over);
        let first = hosts[1].status().host_pid;
        hosts[1].kill_host();
        hosts[1].wait_for_other_host(first);
        until_says(&hosts[0], "evil renews its lease, and does not follow");
        workers[0].eventually("open o /x r");
        workers[0].all("map m o r shared 0 0\ncheck m 0 4 1");
    });
    nobody_is_fenced(hosts);
}

/// A member with the smallest number ends its sessions again and again: who uses objects in which it has no part goes on.
fn sessions_that_end(scene: &Members) {
    let hosts = &scene.hosts;
    let workers = sharers(hosts, 16_384, "forwarding");
    workers[1].ok("fill m 0 4 1");
    let evil = Evil::among(scene, 1, vec![]);
    for _ in 0..3 {
        for at in [1, 2] {
            let host = evil.hosts[at];
            wait::until("they reach each other", || {
                let known = hosts[at].connect().hosts().ok()?;
                let reached = known.iter().any(|host| host.name == "evil" && !host.is_unreachable);
                (reached && evil.stranger.is_connected(host)).then_some(())
            });
            evil.stranger.forget();
            evil.stranger.say(host, &[0xff; 64], &[]).expect("it is said");
            evil.stranger.cut_off_by(host);
        }
    }
    workers[2].ok("check m 0 4 1");
    workers[0].ok("fill m 0 4 2");
    workers.iter().for_each(|worker| drop(worker.ok("check m 0 4 2")));
    nobody_is_fenced(hosts);
}
