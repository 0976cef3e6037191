//! A host with a valid certificate, or one that says it has, against a cluster of three.

use super::member;
use crate::Attack;
use crate::scene::{Members, Rights, name};
use commonhold_coherence::HostId;
use commonhold_host::cluster::wire::{Answer, Call, Claim, Keep, Message};
use commonhold_object::{Access, Credentials, ErrorKind};
use commonhold_tests::cluster::ca;
use commonhold_tests::stranger::{Numbers, Stranger};
use commonhold_tests::{Scratch, wait};

pub(crate) const ATTACKS: &[Attack] = &[
    member("members.without_certificate", "speak without a certificate", without),
    member("members.foreign_certificate", "speak with a certificate of another authority", foreign),
    member("members.garbage", "messages by chance, with a valid certificate", garbage),
    member("members.never_joined", "every call, without belonging to the cluster", never_joined),
    member("members.parts_without_end", "parts of a message that never ends", parts),
    member("members.a_name_that_is_taken", "join under the name of a host that lives", namesake),
    member("members.a_number_that_is_taken", "join under the number of a host that lives", number),
    member("members.anothers_name", "claim the name of another's object", claims),
    member("members.reader", "write, claim and resize with a certificate for reading", reader),
    member("members.no_home_of_it", "give orders about an object as if one were its home", no_home),
    member("members.answers_unasked", "answer calls that nobody made", answers),
];

/// Everybody: the strongest that a member can say of who asks.
fn root() -> Credentials {
    Credentials { uid: 0, gid: 0, groups: Vec::new() }
}

/// Calls about an object that the caller has nothing to do with.
fn calls(object: u128) -> Vec<Call> {
    let who = root;
    vec![
        Call::WhereIs(object),
        Call::Use { object, who: who(), access: Access::ReadWrite, number: 1 },
        Call::GiveBack { object, former: HostId(1), lent_by: None, pages: vec![(0, 1)] },
        Call::Valid { object, lost: HostId(1), from_page: 0 },
        Call::Keep { object, number: 1, what: Keep::Begin { size_bytes: 4096, anew: true } },
        Call::Keep { object, number: 2, what: Keep::Resize(u64::MAX) },
        Call::Kept { object, from_page: 0 },
        Call::HasCome { object },
        Call::Leave { object, number: 1 },
        Call::Sync { object, offset: 0, length: u64::MAX, freeze: false },
        Call::About(object),
        Call::Lost { object, pages: (0, u64::MAX) },
        Call::GaveUp { home: HostId(1), object, former: HostId(2), number: u64::MAX },
    ]
}

/// Asks each from a session of its own; none may be granted.
fn none_is_granted(scene: &Members, from: impl Fn(usize) -> Stranger, object: u128) {
    for (number, call) in calls(object).into_iter().enumerate() {
        let stranger = from(number);
        let host = stranger.connect(&scene.address(1)).expect("it has a certificate");
        let words = format!("{call:?}");
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stranger.ask(host, call)));
        // The end of the session is an answer, too.
        if let Ok(Ok(answer)) = asked {
            let harmless = matches!(answer, Answer::Done | Answer::Keeps(false) | Answer::Home(_));
            assert!(harmless, "{words} was answered with {answer:?}");
        }
    }
}

fn without(scene: &Members) {
    for host in 0..3 {
        let stranger = Stranger::new(70, "plain");
        assert!(stranger.connect(&scene.address(host)).is_err(), "it was let in");
    }
}

fn foreign(scene: &Members) {
    let theirs = Scratch::new();
    ca(&theirs.join("ca"), &["init"]);
    let identity = theirs.join("host1");
    ca(&theirs.join("ca"), &["issue", "host1", "--into", &identity.display().to_string()]);
    for host in 0..3 {
        let stranger = Stranger::certified(1, "host1", &identity);
        assert!(stranger.connect(&scene.address(host)).is_err(), "it was let in");
    }
}

fn garbage(scene: &Members) {
    let mut numbers = Numbers(20);
    for round in 0..40 {
        let stranger = scene.stranger(70 + round, &format!("garbage{round}"), Rights::Write);
        let host = stranger.connect(&scene.address(round as usize % 2)).expect("it has a certificate");
        let bytes: Vec<u8> = (0..1 + numbers.below(400)).map(|_| numbers.draw() as u8).collect();
        let payload = vec![0xa5; numbers.below(9000) as usize];
        // It may be cut off meanwhile.
        let _ = stranger.say(host, &bytes, &payload);
        let _ = stranger.say(host, &bytes, &[]);
    }
}

fn never_joined(scene: &Members) {
    none_is_granted(
        scene,
        |number| scene.stranger(100 + number as u32, &format!("outsider{number}"), Rights::Write),
        0x1234_5678,
    );
}

fn parts(scene: &Members) {
    let stranger = scene.stranger(70, "parts", Rights::Write);
    let host = stranger.connect(&scene.address(0)).expect("it has a certificate");
    let part = |is_first| Message::Part { is_first, is_last: false };
    let payload = vec![0; 60_000];
    let mut sent = 0u64;
    // Far beyond what one message may have.
    while sent < 200 << 20 && stranger.is_connected(host) {
        if stranger.tell(host, &part(sent == 0), &payload).is_err() {
            break;
        }
        sent += payload.len() as u64;
    }
    wait::until("it is cut off", || (!stranger.is_connected(host)).then_some(()));
}

fn namesake(scene: &Members) {
    // A certificate for that name is what no authority gives twice; a host that has one is that host's next process.
    let stranger = scene.stranger(71, "host9", Rights::Write);
    let list = stranger.connect(&scene.address(0)).expect("it has a certificate");
    let mut member = stranger.me.clone();
    member.name = "host1".into();
    let refused = stranger.ask(list, Call::Join { member, claims: Vec::new(), before: None });
    assert!(refused.is_err(), "it joined as host1: {refused:?}");
    are_the_three(scene);
}

/// The cluster is of just those hosts that it was of.
fn are_the_three(scene: &Members) {
    let hosts = scene.hosts[1].connect().hosts().expect("the hosts");
    let mut names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["host0", "host1", "host2"]);
    let list = hosts.iter().find(|host| host.name == "host0").expect("the list's host");
    assert_eq!(list.address.to_string(), scene.address(0));
}

fn number(scene: &Members) {
    let list = scene.stranger(72, "looker", Rights::Write).connect(&scene.address(0)).expect("a certificate");
    let stranger = scene.stranger(list.0, "host8", Rights::Write);
    // It is refused, or told that the number is another's.
    if let Ok(host) = stranger.connect(&scene.address(1)) {
        let bytes = Call::Lookup(name("/bystander"));
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stranger.ask(host, bytes)));
    }
    are_the_three(scene);
}

fn claims(scene: &Members) {
    let stranger = scene.stranger(73, "claimer", Rights::Write);
    let list = stranger.connect(&scene.address(0)).expect("it has a certificate");
    let claim = || Claim { name: name("/bystander"), object: 77, moving: None };
    let joined = stranger.join(list, vec![claim()]);
    if joined.is_ok() {
        let claimed = stranger.ask(list, Call::Claim(claim()));
        assert!(claimed.is_err(), "it has the name: {claimed:?}");
    }
    let home = scene.stranger(74, "asker", Rights::Write);
    let list = home.connect(&scene.address(0)).expect("it has a certificate");
    if home.join(list, Vec::new()).is_ok() {
        match home.ask(list, Call::Lookup(name("/bystander"))) {
            Ok(Answer::Named { home, object }) => {
                assert!(home != HostId(73) && object != 77, "the name is the attacker's");
            }
            other => panic!("the name is lost: {other:?}"),
        }
    }
}

fn reader(scene: &Members) {
    let stranger = scene.stranger(75, "reader", Rights::Read);
    let home = stranger.connect(&scene.address(1)).expect("it has a certificate");
    let open = |access| Call::Open { name: name("/bystander"), who: root(), access };
    let ask = |call: Call| {
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stranger.ask(home, call)));
        asked.unwrap_or_else(|_| Err(commonhold_peers::Error::new(ErrorKind::Disconnected, "cut off")))
    };
    for call in [
        open(Access::ReadWrite),
        Call::Resize { name: name("/bystander"), who: root(), size_bytes: 4096 },
        Call::Claim(Claim { name: name("/bystander"), object: 77, moving: None }),
        Call::Names(Vec::new()),
    ] {
        let words = format!("{call:?}");
        if let Ok(answer) = ask(call) {
            panic!("{words} was answered with {answer:?}");
        }
    }
}

fn no_home(scene: &Members) {
    // The object is one that the host knows; the attacker only guesses what it is called inside.
    for object in [0, 1, u128::MAX] {
        none_is_granted(
            scene,
            |number| {
                let number = 200 + number as u32 + (object as u32 & 1) * 20;
                scene.stranger(number, &format!("no-home{number}-{}", object % 7), Rights::Write)
            },
            object,
        );
    }
}

fn answers(scene: &Members) {
    let stranger = scene.stranger(76, "answerer", Rights::Write);
    let host = stranger.connect(&scene.address(0)).expect("it has a certificate");
    for number in 0..2000 {
        for answer in [Answer::Done, Answer::Keeps(true), Answer::Home(HostId(76)), Answer::Pages(u64::MAX)] {
            let message = Message::Answer { number, answer: Ok(answer) };
            if stranger.tell(host, &message, &[]).is_err() {
                return;
            }
        }
    }
}
