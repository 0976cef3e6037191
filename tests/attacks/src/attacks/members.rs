//! A host with a valid certificate, or one that says it has, against a cluster of three.

use super::member;
use crate::Attack;
use crate::scene::{ATTACKER, Members, Rights, name};
use commonhold_coherence::HostId;
use commonhold_host::cluster::wire::{Answer, Call, Claim, Keep, Message};
use commonhold_object::{Access, Credentials, Synced};
use commonhold_tests::cluster::ca;
use commonhold_tests::stranger::{Numbers, Stranger};
use commonhold_tests::{Scratch, wait};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

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

/// Somebody who may not open the bystander's object.
fn nobody() -> Credentials {
    Credentials { uid: ATTACKER.0, gid: ATTACKER.1, groups: Vec::new() }
}

/// Calls about an object that the caller has nothing to do with, for a process of that user.
fn calls(object: u128, who: Credentials) -> Vec<Call> {
    vec![
        Call::WhereIs(object),
        Call::Use { object, who, access: Access::ReadWrite, number: 1, types: 0 },
        Call::GiveBack { object, former: HostId(1), lent_by: None, pages: vec![(0, 1)] },
        Call::Valid { object, lost: HostId(1), from_page: 0 },
        Call::Keep { object, number: 1, what: Keep::Begin { size_bytes: 4096, anew: true } },
        Call::Keep { object, number: 2, what: Keep::Resize(u64::MAX) },
        Call::Kept { object, from_page: 0 },
        Call::HasCome { object },
        Call::Leave { object, number: 1, tokens: None },
        Call::Sync { object, offset: 0, length: u64::MAX, freeze: false },
        Call::About(object),
        Call::Lost { object, pages: (0, u64::MAX) },
        Call::GaveUp { home: HostId(1), object, former: HostId(2), number: u64::MAX },
    ]
}

/// Asks each from a session of its own; none may be granted, but that who has no part in an object leaves it.
fn none_is_granted(scene: &Members, from: &dyn Fn(usize) -> Stranger, object: u128, who: Credentials) {
    for (number, call) in calls(object, who).into_iter().enumerate() {
        let stranger = from(number);
        let host = stranger.connect(&scene.address(1)).expect("it has a certificate");
        let (words, leaves) = (format!("{call:?}"), matches!(call, Call::Leave { .. }));
        // The end of the session is an answer, too.
        if let Some(Ok(answer)) = asked(&stranger, host, call) {
            assert!(leaves && matches!(answer, Answer::Done), "{words} was answered with {answer:?}");
        }
    }
}

/// What it is answered; none: the session ended.
fn asked(stranger: &Stranger, host: HostId, call: Call) -> Option<commonhold_peers::Result<Answer>> {
    catch_unwind(AssertUnwindSafe(|| stranger.ask(host, call))).ok()
}

/// Somebody who belongs, and asks what is so.
struct Asker {
    stranger: Stranger,
    list: HostId,
}

impl Asker {
    fn of(scene: &Members, number: u32) -> Asker {
        let stranger = scene.stranger(number, &format!("asker{number}"), Rights::Write);
        let list = stranger.connect(&scene.address(0)).expect("it has a certificate");
        stranger.join(list, Vec::new()).expect("it belongs");
        Asker { stranger, list }
    }

    /// The home of the bystander's object, and its identity.
    fn bystander(&self) -> (HostId, u128) {
        match self.stranger.ask(self.list, Call::Lookup(name("/bystander"))) {
            Ok(Answer::Named { home, object }) => (home, object),
            other => panic!("the name is lost: {other:?}"),
        }
    }

    /// All that can be seen of the bystander's object. Its bytes are looked at by the bystander.
    fn sees(&self, scene: &Members) -> impl PartialEq + std::fmt::Debug + use<> {
        let home = scene.hosts[1].worker();
        let told = ["size", "owner"].map(|what| home.ok(&format!("stat /bystander {what}")));
        let replicas = std::fs::read_dir(scene.hosts[1].state().join("replicas")).into_iter().flatten();
        (self.bystander(), told, home.ok("list /"), replicas.count())
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

/// Says that of all of these objects and of the bystander's, by members of these numbers, at once;
/// nothing is otherwise after it.
fn about_objects(
    scene: &Members,
    objects: &[u128],
    first: u32,
    from: &(dyn Fn(u32) -> Stranger + Sync),
    who: fn() -> Credentials,
) {
    let asker = Asker::of(scene, 90);
    let before = asker.sees(scene);
    let (_, real) = asker.bystander();
    std::thread::scope(|threads| {
        let all = objects.iter().chain([&real]).zip((first..).step_by(20));
        let all: Vec<_> = all
            .map(|(object, first)| {
                let stranger = move |number| from(first + number as u32);
                threads.spawn(move || none_is_granted(scene, &stranger, *object, who()))
            })
            .collect();
        all.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
    assert_eq!(asker.sees(scene), before);
    scene.hosts[0].worker().ok("open o /bystander rw");
}

fn never_joined(scene: &Members) {
    let outsider = |number| scene.stranger(number, &format!("outsider{number}"), Rights::Write);
    about_objects(scene, &[0x1234_5678], 100, &outsider, root);
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
        let _ = asked(&stranger, host, bytes);
    }
    are_the_three(scene);
}

fn claims(scene: &Members) {
    let asker = Asker::of(scene, 90);
    let before = asker.sees(scene);
    let stranger = scene.stranger(73, "claimer", Rights::Write);
    let list = stranger.connect(&scene.address(0)).expect("it has a certificate");
    let claim = || Claim { name: name("/bystander"), object: 77, moving: None, fixed: None };
    let joined = stranger.join(list, vec![claim()]);
    if joined.is_ok() {
        let claimed = stranger.ask(list, Call::Claim(claim()));
        assert!(claimed.is_err(), "it has the name: {claimed:?}");
    }
    assert_eq!(asker.sees(scene), before, "the name is the attacker's");
}

fn reader(scene: &Members) {
    let stranger = scene.stranger(75, "reader", Rights::Read);
    let home = stranger.connect(&scene.address(1)).expect("it has a certificate");
    let open = |access| Call::Open { name: name("/bystander"), who: root(), access };
    let asker = Asker::of(scene, 90);
    let before = asker.sees(scene);
    for call in [
        open(Access::ReadWrite),
        Call::Resize {
            name: name("/bystander"),
            who: root(),
            size_bytes: 4096,
            sizing: commonhold_object::wire::Sizing::Exactly,
            of: None,
        },
        Call::Claim(Claim { name: name("/bystander"), object: 77, moving: None, fixed: None }),
        Call::Names(Vec::new()),
    ] {
        let words = format!("{call:?}");
        if let Some(Ok(answer)) = asked(&stranger, home, call) {
            panic!("{words} was answered with {answer:?}");
        }
    }
    assert_eq!(asker.sees(scene), before);
}

fn no_home(scene: &Members) {
    // It belongs to the cluster, and has no part in the object.
    let member = |number| {
        let stranger = scene.stranger(number, &format!("no-home{number}"), Rights::Write);
        let list = stranger.connect(&scene.address(0)).expect("it has a certificate");
        stranger.join(list, Vec::new()).expect("it belongs");
        stranger
    };
    about_objects(scene, &[0, 1, u128::MAX], 200, &member, nobody);
}

fn answers(scene: &Members) {
    let stranger = scene.stranger(76, "answerer", Rights::Write);
    let host = stranger.connect(&scene.address(0)).expect("it has a certificate");
    for number in 0..2000 {
        let synced = Synced { pages: u64::MAX, loss_generation: u64::MAX };
        for answer in [Answer::Done, Answer::Keeps(true), Answer::Home(HostId(76)), Answer::Synced(synced)] {
            let message = Message::Answer { number, answer: Ok(answer) };
            if stranger.tell(host, &message, &[]).is_err() {
                return;
            }
        }
    }
}
