//! More of everything than anybody needs.

use super::{user, user_of, with};
use crate::Attack;
use crate::scene::{Local, asked, name, open, small};
use commonhold_object::wire::{Event, PagerReply, Request};
use commonhold_object::{Access, ErrorKind, limits};
use commonhold_tests::raw::bytes_of;
use commonhold_tests::wait;
use std::os::fd::OwnedFd;

/// Objects that a user may have.
const OBJECTS: usize = 300;

pub(crate) const ATTACKS: &[Attack] = &[
    user("floods.connections", "connect as often as the host lets one user", connections),
    user("floods.comings_and_goings", "connect and go without a word, thousands of times", comings),
    user("floods.answers_unread", "ask without end, and read no answer", unread),
    user_of(
        with(&["--max-objects", "300"]),
        "floods.objects",
        "make more objects than a user may have",
        objects,
    ),
    user("floods.opens", "open one object more often than a client may", opens),
    user_of(with(&["--budget", "16MiB"]), "floods.locks", "lock more pages than a user may", locks),
    user("floods.pagers", "serve pagers under many names, and the names of others' pagers", pagers),
    user("floods.sessions_that_say_nothing", "connections that end in the middle of a message", halves),
];

fn connections(scene: &Local) {
    let mut all: Vec<OwnedFd> = Vec::new();
    for _ in 0..limits::CLIENTS {
        match scene.try_socket() {
            Ok(socket) => all.push(socket),
            Err(_) => break,
        }
        if all.len().is_multiple_of(256) {
            // The bystander works meanwhile; so does root.
            let clients = scene.host.connect().status().expect("root may ask").clients;
            // The bystander, and who asks or has just asked.
            assert!(clients <= limits::CLIENTS / 2 + 8, "{clients} clients");
        }
    }
    scene.other().ok("stat /bystander size");
}

fn comings(scene: &Local) {
    for _ in 0..3000 {
        drop(scene.try_socket());
    }
}

fn unread(scene: &Local) {
    let before = scene.host.status().clients;
    let all: Vec<_> = (0..4).map(|_| scene.greeted()).collect();
    let bytes = bytes_of(5, &Request::Status);
    wait::until("the host hangs up on all", || {
        for raw in &all {
            // Where there is no room for more the host has not read it, and need not.
            (0..500).take_while(|_| raw.push(&bytes)).for_each(drop);
        }
        (scene.host.status().clients <= before).then_some(())
    });
}

fn objects(scene: &Local) {
    let mut raw = scene.greeted();
    let mut made = 0;
    let refused = loop {
        let options = small();
        let create = Request::Create {
            name: name(&format!("/many/o{made}")),
            options,
            nonce: made as u128 + 1,
            in_directory: false,
        };
        match raw.ask(&create, &[]).expect("an answer") {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        assert!(made <= OBJECTS, "{made} objects");
    };
    assert_eq!((refused.kind, made), (ErrorKind::Quota, OBJECTS), "{refused}");
    // Another user has room for as many.
    scene.other().ok("create n /another size=4096");
    for number in 0..made {
        let remove = Request::Remove { name: name(&format!("/many/o{number}")), of: None };
        raw.ask(&remove, &[]).expect("an answer").expect("it is the attacker's");
    }
    raw.ask(&Request::Remove { name: name("/many"), of: None }, &[])
        .expect("an answer")
        .expect("an empty directory");
}

fn opens(scene: &Local) {
    let (mut raw, _) = scene.with_an_object("/own");
    for _ in 0..limits::OPEN_OBJECTS_PER_CLIENT + 100 {
        if raw.ask(&open("/own", Access::ReadWrite), &[]).is_none() {
            raw = scene.greeted();
        }
    }
    raw.ask(&Request::Remove { name: name("/own"), of: None }, &[])
        .expect("an answer")
        .expect("it is the attacker's");
}

fn locks(scene: &Local) {
    let attacker = scene.attacker();
    attacker.ok("create l /locked size=67108864 controlled");
    // Every other page, so that no two become one; half of the budget is for one user.
    let most = (16 << 20) / 2 / 4096;
    let mut locked = 0;
    let refused = loop {
        match attacker.ask(&format!("lock l {} 4096", locked * 2 * 4096)) {
            Ok(_) => locked += 1,
            Err(refused) => break refused,
        }
        assert!(locked <= most, "{locked} pages are locked");
    };
    assert_eq!(refused.kind, "NoSpace", "{refused:?}");
    // Another has room for what he uses, and for locks of his own.
    let other = scene.other();
    other.all("create n /another size=1048576 controlled\nmap m n rw shared 0 0\nfill m 0 256 1");
    other.all("lock n 0 65536\ncheck m 0 256 1\nunlock n 0 65536");
    attacker.all("close l\nremove /locked");
}

fn pagers(scene: &Local) {
    let mut all = Vec::new();
    for number in 0..300 {
        let mut raw = scene.greeted();
        let serve = Request::ServePager { pager: name(&format!("/pager{number}")) };
        // Refused or not: what counts is what others notice.
        let _ = raw.ask(&serve, &[]);
        all.push(raw);
    }
    // Another serves a pager of the same name, and that is the one that is asked.
    let pager = scene.pager_of_other("/pager7");
    let theirs = scene.other();
    theirs.all("create p /paged size=65536 pager=/pager7 mode=600\nmap m p rw shared 0 0");
    theirs.send("get m 0");
    let Event::PageIn { call, length, .. } = asked(&pager) else { panic!("nothing is stored yet") };
    let result = PagerReply::Data(vec![9; length as usize]);
    assert!(pager.throw(&bytes_of(0, &Request::PagerAnswer { call, result }), &[]), "the host takes it");
    assert_eq!(theirs.answer().as_deref(), Ok("9"));
}

fn halves(scene: &Local) {
    for length in 0..200 {
        let raw = scene.raw();
        let bytes = bytes_of(
            1,
            &Request::Create { name: name("/half"), options: small(), nonce: 1, in_directory: false },
        );
        raw.throw(&bytes[..length.min(bytes.len() - 1).max(1)], &[]);
    }
    scene.other().refused("stat /half size", "NotFound");
}
