//! What was said before, and comings without end, by a host with a valid certificate.

use super::member;
use crate::Attack;
use crate::scene::{Members, Rights, name};
use commonhold_coherence::HostId;
use commonhold_host::cluster::registry::Before;
use commonhold_host::cluster::wire::{Answer, Call, Message};
use commonhold_object::{Access, Credentials, ErrorKind};
use commonhold_peers::{Hello, Identity, Security};
use commonhold_tests::TestHost;
use commonhold_tests::stranger::Stranger;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) const ATTACKS: &[Attack] = &[
    member("members.replay", "say once more what was said in a session before", replay),
    member("members.stale_sessions", "come as the process before the one that is there", stale_sessions),
    member("members.stale_epochs", "say that one has heard of what will be, or of nothing", stale_epochs),
    member("members.join_churn", "join and end, again and again, under one name", join_churn),
    member(
        "members.allocation_bombs",
        "messages of few bytes that speak of as many things as there are numbers",
        bombs,
    ),
    member(
        "members.parts_that_add_up",
        "halves of long messages, in many sessions of one certificate",
        parts,
    ),
];

/// What a host may take more of memory.
const MORE_BYTES: u64 = 64 << 20;

fn own_bytes(host: &TestHost) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.status().host_pid));
    let status = status.expect("the host's status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Asks; the end of the session is an answer, too.
fn asked(stranger: &Stranger, host: HostId, call: Call) -> Option<Result<Answer, commonhold_peers::Error>> {
    catch_unwind(AssertUnwindSafe(|| stranger.ask(host, call))).ok()
}

fn who() -> Credentials {
    Credentials { uid: 0, gid: 0, groups: Vec::new() }
}

fn open() -> Call {
    Call::Open { name: name("/bystander"), who: who(), access: Access::ReadWrite }
}

/// The three of the scene are members, whoever else is.
fn are_there(scene: &Members) {
    let hosts = scene.hosts[1].connect().hosts().expect("the hosts");
    for number in 0..3 {
        let named = format!("host{number}");
        assert!(hosts.iter().any(|host| host.name == named), "{named} is not among {hosts:?}");
    }
}

fn replay(scene: &Members) {
    let stranger = scene.stranger(400, "again", Rights::Write);
    let list = stranger.connect(&scene.address(0)).expect("it has a certificate");
    stranger.join(list, Vec::new()).expect("it belongs");
    let home = stranger.connect(&scene.address(1)).expect("it has a certificate");
    let Some(Ok(Answer::Opened(shared))) = asked(&stranger, home, open()) else { panic!("it may open it") };
    let object = shared.object;
    let begins = |number| Call::Use { object, who: who(), access: Access::ReadWrite, number, types: 0 };
    assert!(matches!(asked(&stranger, home, begins(5)), Some(Ok(_))), "it may use it");
    assert!(
        matches!(asked(&stranger, home, Call::Leave { object, number: 6, tokens: None }), Some(Ok(_))),
        "it may leave"
    );
    // What it said before begins nothing.
    for number in [5, 4, 0, 5] {
        drop(asked(&stranger, home, begins(number)));
    }
    // After it left, what it says of the object is nothing.
    let sync = Call::Sync { object, offset: 0, length: 4096, freeze: false };
    match asked(&stranger, home, sync) {
        None | Some(Err(_)) => {}
        Some(Ok(answer)) => panic!("it has left, and may sync: {answer:?}"),
    }
    drop(stranger);
    // The next process of that host is not what the one before was.
    let next = Stranger::certified(401, "again", &scene.authority().join("again"));
    let home = next.connect(&scene.address(1)).expect("it has a certificate");
    let sync = Call::Sync { object, offset: 0, length: 4096, freeze: false };
    if let Some(Ok(answer)) = asked(&next, home, sync) {
        panic!("it has opened nothing, and may sync: {answer:?}");
    }
    are_there(scene);
}

fn stale_sessions(scene: &Members) {
    let authority = scene.authority();
    drop(scene.stranger(402, "stale", Rights::Write));
    let identity = || Identity::load(&authority.join("stale")).expect("an identity");
    let of = |incarnation| {
        let hello = Hello::new(identity().cluster(), HostId(402), "stale", incarnation).expect("a hello");
        Stranger::with(hello, Security::Tls(identity())).expect("it listens")
    };
    let newer = of(9);
    let home = newer.connect(&scene.address(1)).expect("it has a certificate");
    let older = of(3);
    assert!(older.connect(&scene.address(1)).is_err(), "an older process was let in");
    assert!(newer.is_connected(home), "an older process has ended the session of a newer");
    assert!(asked(&newer, home, open()).is_some(), "the newer one is not answered any more");
}

fn stale_epochs(scene: &Members) {
    let stranger = scene.stranger(403, "epochs", Rights::Write);
    let list = stranger.connect(&scene.address(0)).expect("it has a certificate");
    for epoch in [0, 1, u128::MAX] {
        for (heard, seen) in [(0, 0), (u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            let before = Before { epoch, heard, seen };
            let member = stranger.me.clone();
            drop(asked(&stranger, list, Call::Join { member, claims: Vec::new(), before: Some(before) }));
            drop(asked(&stranger, list, Call::Renew(before)));
        }
    }
    are_there(scene);
}

fn join_churn(scene: &Members) {
    let before = own_bytes(&scene.hosts[0]);
    let mut refused = 0;
    for number in 0..120 {
        // The authority gives one certificate; the process has another number each time.
        let stranger = match number {
            0 => scene.stranger(500, "churn", Rights::Write),
            _ => Stranger::certified(500 + number, "churn", &scene.authority().join("churn")),
        };
        let Ok(list) = stranger.connect(&scene.address(0)) else { continue };
        match catch_unwind(AssertUnwindSafe(|| stranger.join(list, Vec::new()))) {
            Ok(Ok(_)) if number % 2 == 0 => drop(asked(&stranger, list, Call::Resign)),
            Ok(Err(why)) if why.kind == ErrorKind::Busy => refused += 1,
            _ => {}
        }
    }
    assert!(refused > 0, "it may join as often as it likes");
    are_there(scene);
    let more = own_bytes(&scene.hosts[0]).saturating_sub(before);
    assert!(more < MORE_BYTES, "the list's host has {more} bytes more");
}

fn bombs(scene: &Members) {
    let before = own_bytes(&scene.hosts[1]);
    let answer = |answer| Message::Answer { number: 1, answer: Ok(answer) };
    let call = |call| Message::Call { number: 1, call };
    // Each ends with the length of a list, or with that of a map.
    let all = [
        call(Call::Names(Vec::new())),
        call(Call::Locks { object: 7, locks: Vec::new() }),
        call(Call::GiveBack { object: 7, former: HostId(1), lent_by: None, pages: Vec::new() }),
        Message::Coherence { object: 7, home: None, messages: Vec::new() },
        answer(Answer::Locks(Vec::new())),
        answer(Answer::Lost(Vec::new())),
    ];
    for (number, message) in all.iter().enumerate() {
        let bytes = postcard::to_stdvec(message).expect("a message");
        for count in [1 << 20, 1 << 32, u64::MAX] {
            let mut bomb = bytes[..bytes.len() - 1].to_vec();
            bomb.extend(postcard::to_stdvec(&count).expect("a number"));
            bomb.extend([1; 64]);
            let number = 700 + 100 * number as u32 + count.trailing_zeros();
            let stranger = scene.stranger(number, &format!("bomb{number}"), Rights::Write);
            let home = stranger.connect(&scene.address(1)).expect("it has a certificate");
            // Cut off or not.
            let _ = stranger.say(home, &bomb, &[]);
            drop(asked(&stranger, home, Call::WhereIs(7)));
        }
    }
    let more = own_bytes(&scene.hosts[1]).saturating_sub(before);
    assert!(more < MORE_BYTES, "the host has {more} bytes more");
}

fn parts(scene: &Members) {
    let before = own_bytes(&scene.hosts[1]);
    let payload = vec![0; 1 << 20];
    let mut all = Vec::new();
    drop(scene.stranger(600, "halves", Rights::Write));
    for number in 0..8 {
        let stranger = Stranger::certified(600 + number, "halves", &scene.authority().join("halves"));
        let Ok(home) = stranger.connect(&scene.address(1)) else { continue };
        for part in 0..20 {
            let message = Message::Part { is_first: part == 0, is_last: false };
            if stranger.tell(home, &message, &payload).is_err() {
                break;
            }
        }
        drop(asked(&stranger, home, Call::WhereIs(7)));
        all.push(stranger);
    }
    let more = own_bytes(&scene.hosts[1]).saturating_sub(before);
    assert!(more < MORE_BYTES, "the host has {more} bytes more");
}
