//! Identities that were never given to the attacker.

use super::user;
use crate::Attack;
use crate::scene::{Local, asked, name, small};
use commonhold_object::wire::{Event, MapRequest, PagerReply, Reply, Request};
use commonhold_object::{Access, ErrorKind, ObjectId, SessionId};
use commonhold_tests::raw::{Raw, bytes_of, map_request};
use std::os::fd::AsFd;
use std::time::Duration;

pub(crate) const ATTACKS: &[Attack] = &[
    user("guesses.objects", "use objects by their numbers, which were never opened", objects),
    user("guesses.sessions", "return as the session of another", sessions),
    user("guesses.frames", "reattach objects of others with memory of one's own", frames),
    user("guesses.calls_of_pagers", "answer calls that were made to another's pager", calls),
    user("guesses.pagers_of_others", "serve the pager by which another's object is paged", pagers),
    user("guesses.what_is_counted", "read numbers, traces and mappings of another's object", counted),
    user("guesses.orders", "stop and replace the host", orders),
    user("guesses.a_nonce", "create under another's name as if it were repeated", nonce),
];

/// Every request that names an object by number.
fn by_number(object: ObjectId) -> Vec<Request> {
    let (offset, length) = (0, 65_536);
    vec![
        Request::StatObject { object },
        Request::Sync { object, offset, length, freeze: false },
        Request::Sync { object, offset, length, freeze: true },
        Request::Lock { object, offset, length },
        Request::Unlock { object, offset, length },
        Request::Incore { object, first_page: 0, pages: 16 },
        Request::Prefetch { object, offset, length },
        Request::Close { object },
        Request::Map(MapRequest {
            with_descriptors: false,
            with_claims: false,
            ..map_request(object, 0x10_0000, length)
        }),
    ]
}

fn objects(scene: &Local) {
    let mut raw = scene.greeted();
    let numbers = (0..64).chain([u64::from(u32::MAX), u64::MAX - 1, u64::MAX, 1 << 63]);
    for object in numbers.map(ObjectId) {
        for request in by_number(object) {
            match raw.ask(&request, &[]).expect("an answer") {
                // Nothing is closed twice, or never was open.
                Ok(Reply::Done) if matches!(request, Request::Close { .. } | Request::Unlock { .. }) => {}
                Ok(reply) => panic!("{request:?} was answered with {reply:?}"),
                Err(error) => {
                    let known = [ErrorKind::NotFound, ErrorKind::Invalid, ErrorKind::Protocol];
                    assert!(known.contains(&error.kind), "{request:?}: {error:?}");
                }
            }
        }
    }
}

fn sessions(scene: &Local) {
    for number in (0..40).chain([u64::MAX, u64::MAX / 2, 1 << 32]) {
        let mut raw = scene.raw();
        // It may be told that it is nobody, or be given a session of its own, but no object of another.
        let _ = raw.ask(&Request::Return { session: SessionId(number) }, &[]);
        for object in (0..8).map(ObjectId) {
            if let Some(Ok(reply)) = raw.ask(&Request::StatObject { object }, &[]) {
                panic!("session {number} has object {object:?}: {reply:?}");
            }
        }
    }
}

fn frames(scene: &Local) {
    for number in 0..16 {
        let mut raw = scene.raw();
        // Whatever it is told: what counts is what it has afterwards.
        let _ = raw.ask(&Request::Return { session: SessionId(number) }, &[]);
        let memory = commonhold_sys::frames::create("commonhold-frames-1", 65_536).expect("a memfd");
        let object = ObjectId(number);
        for access in [Access::Read, Access::ReadWrite] {
            let request = Request::Reattach { object, access };
            if let Some(Ok(reply)) = raw.ask(&request, &[memory.as_fd()]) {
                panic!("{request:?} was answered with {reply:?}");
            }
        }
    }
}

/// Says what only the pager may say, of that call and of others.
fn answer_for_the_pager(scene: &Local, asked: u64, result: &PagerReply) {
    let mut raw = scene.greeted();
    for call in (0..200).chain([asked]) {
        let bytes = bytes_of(0, &Request::PagerAnswer { call, result: result.clone() });
        // The connection may end at the first.
        if !raw.throw(&bytes, &[]) {
            raw = scene.greeted();
        }
    }
}

fn calls(scene: &Local) {
    let mut pager = scene.pager_of_other("/theirs");
    let theirs = scene.other();
    theirs.ok("create p /paged size=65536 sync=ordered pager=/theirs pager-deadline=60000 mode=600");
    theirs.ok("map m p rw shared 0 0");
    let others_bytes = |length: u64| PagerReply::Data(vec![7; length as usize]);
    theirs.send("get m 0");
    let Event::PageIn { call, length, .. } = asked(&pager) else { panic!("nothing is stored yet") };
    for result in [others_bytes(length), PagerReply::Stored, PagerReply::Failed("no".into())] {
        answer_for_the_pager(scene, call, &result);
        assert_eq!(theirs.answer_within(Duration::from_millis(50)), None, "{result:?} was taken");
    }
    let answer = |pager: &mut Raw, call, result| {
        let bytes = bytes_of(0, &Request::PagerAnswer { call, result });
        assert!(pager.throw(&bytes, &[]), "the host takes it");
    };
    answer(&mut pager, call, PagerReply::Data(vec![9; length as usize]));
    assert_eq!(theirs.answer().as_deref(), Ok("9"));
    // Nor is a page stored on the attacker's word.
    theirs.ok("put m 0 5");
    theirs.send("sync p 0 4096");
    let Event::PageOut { call, data, .. } = asked(&pager) else { panic!("the page is there") };
    assert_eq!(data[0], 5);
    answer_for_the_pager(scene, call, &PagerReply::Stored);
    assert_eq!(theirs.answer_within(Duration::from_millis(50)), None, "it counts as stored");
    answer(&mut pager, call, PagerReply::Failed("the disk is full".into()));
    let refused = theirs.answer().expect_err("it was not stored");
    assert!(refused.message.contains("the disk is full"), "{refused:?}");
}

fn pagers(scene: &Local) {
    let theirs = scene.other();
    theirs.ok("create p /paged size=65536 pager=/theirs pager-deadline=2000 mode=600");
    let mut raw = scene.greeted();
    // It may serve that name, but is asked only for objects of its own user.
    let _ = raw.ask(&Request::ServePager { pager: name("/theirs") }, &[]).expect("an answer");
    theirs.all("map m p rw shared 0 0");
    let asked = theirs.ask("prefetch p 0 4096");
    for _ in 0..4 {
        if let Some(Some((_, commonhold_object::wire::FromHost::Event(event)))) = raw.hear() {
            panic!("it is asked for another's pages: {event:?} ({asked:?})");
        }
    }
}

fn counted(scene: &Local) {
    let mut raw = scene.greeted();
    let bystander = name("/bystander");
    let all = [
        Request::Counts { name: Some(bystander.clone()), after: None, hottest: 8 },
        Request::Trace { name: bystander.clone(), place: None },
        Request::MapInfo { name: bystander },
    ];
    for request in all {
        match raw.ask(&request, &[]).expect("an answer") {
            Err(error) => assert_eq!(error.kind, ErrorKind::Permission, "{request:?}: {error:?}"),
            Ok(reply) => panic!("{request:?} was answered with {reply:?}"),
        }
    }
    match raw.ask(&Request::Counts { name: None, after: None, hottest: 8 }, &[]).expect("an answer") {
        Ok(Reply::Counts(seen)) => assert!(seen.objects.is_empty(), "{seen:?}"),
        other => panic!("{other:?}"),
    }
}

fn orders(scene: &Local) {
    let mut raw = scene.greeted();
    let program = Some("/bin/true".to_owned());
    for request in [
        Request::Stop { force: true },
        Request::Stop { force: false },
        Request::Replace { program: None, keeper: true },
        Request::Replace { program, keeper: false },
    ] {
        match raw.ask(&request, &[]).expect("an answer") {
            Err(error) => assert_eq!(error.kind, ErrorKind::Permission, "{request:?}: {error:?}"),
            Ok(reply) => panic!("{request:?} was answered with {reply:?}"),
        }
    }
}

fn nonce(scene: &Local) {
    let mut raw = scene.greeted();
    for nonce in (0..50).chain([u128::MAX]) {
        let create =
            Request::Create { name: name("/bystander"), options: small(), nonce, in_directory: false };
        let error = raw.ask(&create, &[]).expect("an answer").expect_err("another's object");
        assert!([ErrorKind::Exists, ErrorKind::Permission].contains(&error.kind), "{error:?}");
    }
}
