//! A member of the cluster that wants addresses of others, all of them, or to have its object mapped where it likes.

use super::liars::{Evil, STEADY, claim};
use super::member_of;
use crate::Attack;
use crate::scene::{Members, Until, name};
use commonhold::{ErrorKind, Result};
use commonhold_host::cluster::wire::{Answer, Call, Shared};
use commonhold_object::{Coherence, CreateOptions, Fixed, OnLoss, Ownership, Part};
use std::sync::atomic::{AtomicBool, Ordering};

const ROOM: u64 = 2 << 20;

pub(crate) const ATTACKS: &[Attack] = &[
    member_of(STEADY, "places.anothers", "ask for another's addresses, and for all of them", anothers),
    member_of(
        STEADY,
        "places.where_it_likes",
        "say of an object that it is where no host gives addresses",
        said,
    ),
];

/// What the list's host answers.
fn asks(evil: &Evil, object: u128, room_bytes: u64) -> Result<u64> {
    match evil.stranger.ask(evil.hosts[0], Call::Addresses { object, room_bytes, uid: 0 })? {
        Answer::Addresses(address) => Ok(address),
        other => panic!("{other:?}"),
    }
}

fn anothers(scene: &Members) {
    let honest = scene.hosts[1].worker();
    honest.eventually("create o /good size=4096 strict fixed mode=666");
    let given = honest.ok("info o address");
    let evil = Evil::among(scene, 70_000, vec![claim("/evil", 7)]);
    let good = evil.open(1, "/good");
    assert_eq!(good.options.fixed.expect("it is fixed").address.to_string(), given);
    let refused = |object, room| asks(&evil, object, room).expect_err("it is not its own").kind;
    assert_eq!(refused(good.object, ROOM), ErrorKind::Permission);
    assert_eq!(refused(8, ROOM), ErrorKind::Permission, "it has no such name");
    for nonsense in [0, 4096, ROOM + 1] {
        assert_eq!(refused(7, nonsense), ErrorKind::Protocol);
    }
    for too_much in [1 << 43, u64::MAX - (ROOM - 1)] {
        assert_eq!(refused(7, too_much), ErrorKind::Quota);
    }
    // As much as it may have: others have theirs.
    let address = asks(&evil, 7, 1 << 42).expect("half of it");
    assert_eq!(asks(&evil, 7, 1 << 42).expect("the same again"), address);
    honest.ok(&format!("create p /more size=4096 strict fixed={}", 1u64 << 40));
    let more: u64 = honest.ok("info p address").parse().expect("an address");
    assert!(!(address..address + (1 << 42)).contains(&more) && address.to_string() != given);
    honest.all("map o o rw shared 0 0\nput o 0 1\nmap p p rw shared 0 0\nput p 0 1");
}

/// Whoever opens the object is told where it is, and maps nothing there.
fn said(scene: &Members) {
    let evil = Evil::among(scene, 70_000, vec![claim("/evil", 7)]);
    let victim = scene.hosts[1].worker();
    for (address, room_bytes) in [
        (0, ROOM),
        (0x7fff_f000_0000, ROOM),
        (0x5555_5540_0000, ROOM),
        (Part::Local.addresses().start, ROOM),
        (Part::Shared.addresses().start + 4096, ROOM),
        (Part::Shared.addresses().end - ROOM, 2 * ROOM),
        (Part::Shared.addresses().start, 8192),
    ] {
        let options = CreateOptions {
            size_bytes: 8192,
            coherence: Coherence::strict(OnLoss::Error),
            fixed: Some(Fixed { address, room_bytes }),
            ..CreateOptions::default()
        };
        let ownership = Ownership { uid: 0, gid: 0, mode: 0o666 };
        let lie = Shared { object: 7, name: name("/evil"), ownership, options, loss_generation: 0 };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _until = Until(&is_over);
            let lying = scope.spawn(|| evil.answers_openings_with(&lie, &is_over));
            let why = victim.refused("open o /evil rw", "Protocol");
            assert!(why.contains("are no addresses for"), "{why}");
            is_over.store(true, Ordering::SeqCst);
            assert!(lying.join().expect("it lies") > 0);
        });
    }
    // What is honest can be had as before.
    scene.hosts[0].worker().ok("create o /good size=4096 strict fixed mode=666");
    victim.all("open g /good rw\nmap g g rw shared 0 0\nput g 0 1");
}
