//! More of everything than anybody needs.

use super::user;
use crate::Attack;
use crate::scene::{Local, name, small};
use commonhold_object::wire::Request;
use commonhold_object::{Access, limits};
use commonhold_tests::raw::bytes_of;
use std::os::fd::OwnedFd;

pub(crate) const ATTACKS: &[Attack] = &[
    user("floods.connections", "connect as often as the host lets one user", connections),
    user("floods.comings_and_goings", "connect and go without a word, thousands of times", comings),
    user("floods.answers_unread", "ask without end, and read no answer", unread),
    user("floods.objects", "make objects by the thousand", objects),
    user("floods.opens", "open one object more often than a client may", opens),
    user("floods.locks", "hold more locks than a client may", locks),
    user("floods.pagers", "serve pagers under many names", pagers),
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
            assert!(scene.host.connect().status().is_ok());
        }
    }
    assert!(scene.host.connect().status().is_ok());
}

fn comings(scene: &Local) {
    for _ in 0..3000 {
        drop(scene.try_socket());
    }
}

fn unread(scene: &Local) {
    for _ in 0..4 {
        let raw = scene.greeted();
        let bytes = bytes_of(5, &Request::Status);
        for _ in 0..20_000 {
            if !raw.push(&bytes) {
                std::thread::yield_now();
            }
        }
    }
}

fn objects(scene: &Local) {
    let mut raw = scene.greeted();
    let made = (0..1500u32).take_while(|number| {
        let create = Request::Create {
            name: name(&format!("/many/o{number}")),
            options: small(),
            nonce: u128::from(*number) + 1,
        };
        matches!(raw.ask(&create, &[]), Some(Ok(_)))
    });
    let made = made.count();
    for number in 0..made {
        let remove = Request::Remove { name: name(&format!("/many/o{number}")) };
        raw.ask(&remove, &[]).expect("an answer").expect("it is the attacker's");
    }
    raw.ask(&Request::Remove { name: name("/many") }, &[]).expect("an answer").expect("an empty directory");
}

fn opens(scene: &Local) {
    let mut raw = scene.greeted();
    let create = Request::Create { name: name("/own"), options: small(), nonce: 9 };
    raw.ask(&create, &[]).expect("an answer").expect("an object of one's own");
    for _ in 0..limits::OPEN_OBJECTS_PER_CLIENT + 100 {
        if raw.ask(&Request::Open { name: name("/own"), access: Access::ReadWrite }, &[]).is_none() {
            raw = scene.greeted();
        }
    }
    raw.ask(&Request::Remove { name: name("/own") }, &[]).expect("an answer").expect("it is the attacker's");
}

fn locks(scene: &Local) {
    let attacker = scene.attacker();
    attacker.ok("create l /locked size=8388608 controlled");
    // Every other page, so that no two become one.
    for page in (0..2048u64).step_by(2) {
        // Refused from the limit on.
        let _ = attacker.ask(&format!("lock l {} 4096", page * 4096));
    }
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
}

fn halves(scene: &Local) {
    for length in 0..200 {
        let raw = scene.raw();
        let bytes = bytes_of(1, &Request::Create { name: name("/half"), options: small(), nonce: 1 });
        raw.throw(&bytes[..length.min(bytes.len() - 1).max(1)], &[]);
    }
}
