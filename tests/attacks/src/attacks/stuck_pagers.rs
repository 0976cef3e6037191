//! Locks of the kernel that a client holds while pages come that a pager of its own supplies: whoever reads the pager's
//! answers waits, and nobody else.

use super::stuck::{SMALL, others_go_on, silent_files};
use super::user_of;
use crate::scene::{ATTACKER, Local, name, open};
use crate::{Attack, leave_out};
use commonhold_object::Access;
use commonhold_object::wire::{Event, FromHost, PagerReply, Request};
use commonhold_tests::raw::{Raw, bytes_of};
use commonhold_tests::stuck::{StuckWrite, holds_address_space};
use commonhold_tests::user::as_user;
use commonhold_tests::{PAGE, wait};

pub(crate) const ATTACKS: &[Attack] = &[
    user_of(
        SMALL,
        "stuck.an_address_space_that_a_pager_fills",
        "hold the lock of an address space into which a pager's page is to come",
        |scene| an_address_space(scene, |_| 0),
    ),
    user_of(
        SMALL,
        "stuck.an_address_space_that_one_pager_of_many_fills",
        "the same, of a pager that no thread of its own reads",
        |scene| an_address_space(scene, |pagers| pagers - 1),
    ),
    user_of(
        SMALL,
        "stuck.a_pager_that_leaves",
        "hold the lock of an object while the pager leaves that was asked for its pages, and comes again",
        a_pager_that_leaves,
    ),
];

fn serve(scene: &Local, pager: &str) -> Raw {
    let raw = as_user(ATTACKER.0, || Raw::connect(&scene.host));
    let serve = Request::ServePager { pager: name(pager) };
    assert!(raw.throw(&raw.bytes_for(99, false, &serve), &[]));
    raw
}

fn question(pager: &Raw) -> u64 {
    wait::until("the pager is asked", || match pager.hear() {
        Some(Some((_, FromHost::Event(Event::PageIn { call, .. })))) => Some(call),
        _ => None,
    })
}

fn answer(pager: &Raw, call: u64) {
    let result = PagerReply::Data(vec![1; PAGE]);
    assert!(pager.throw(&bytes_of(0, &Request::PagerAnswer { call, result }), &[]));
}

/// Of the first, which a thread of its own reads, and of the last, which the control thread reads.
fn an_address_space(scene: &Local, which: fn(usize) -> usize) {
    const PAGERS: usize = 20;
    let pagers: Vec<Raw> = (0..PAGERS).map(|number| serve(scene, &format!("/pager{number}"))).collect();
    let (worker, number) = (scene.attacker(), which(PAGERS));
    worker.ok(&format!("create o /own size=65536 pager=/pager{number}"));
    worker.ok("map m o rw shared 0 0");
    // It ends first, whatever happens: until then the worker cannot.
    let Some(fuse) = silent_files(&scene.host) else { leave_out("FUSE cannot be mounted here") };
    worker.ok(&format!("hold-address-space {}", fuse.file().display()));
    worker.send("get m 4096"); // the lock is taken a moment later
    let call = question(&pagers[number]);
    wait::until("the mapping waits", || holds_address_space(worker.pid()).then_some(()));
    answer(&pagers[number], call);
    (0..3).for_each(|_| others_go_on(scene));
    fuse.end();
    worker.answer().expect("the page comes when the lock is free");
    others_go_on(scene);
}

fn a_pager_that_leaves(scene: &Local) {
    let pager = serve(scene, "/leaves");
    let [waits, resizes] = [scene.attacker(), scene.attacker()];
    waits.ok("create o /own size=65536 pager=/leaves");
    waits.ok("map m o rw shared 0 0");
    waits.send("get m 4096");
    question(&pager); // which it leaves without an answer
    let memory = scene.raw().ask_for(&open("/own", Access::ReadWrite)).1.remove(0);
    let stuck = StuckWrite::new(memory, 8 * PAGE as u64);
    resizes.send("resize /own 131072");
    (0..2).for_each(|_| others_go_on(scene));
    drop(pager);
    (0..2).for_each(|_| others_go_on(scene));
    let pager = serve(scene, "/leaves");
    (0..2).for_each(|_| others_go_on(scene));
    drop(stuck);
    answer(&pager, question(&pager));
    waits.answer().expect("the next is asked");
    resizes.answer().expect("the object grows when the write is over");
    others_go_on(scene);
}
