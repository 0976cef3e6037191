//! Pagers that lie: what they say of one page is no other's, and whoever touches a page gets what
//! was asked for, or SIGBUS.

use super::user;
use crate::Attack;
use crate::by_hand::{ByHand, Memory, PAGE};
use crate::scene::{Local, name, others_go_on, small};
use commonhold_object::wire::{Event, FromHost, PagerReply, Reply, Request};
use commonhold_object::{CreateOptions, PagerKind, limits};
use commonhold_tests::raw::{Raw, bytes_of};
use commonhold_tests::wait;
use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) const ATTACKS: &[Attack] = &[
    user("pagers.lies_of_size", "answer with more bytes than were asked for, or fewer, or none", sizes),
    user(
        "pagers.lies_of_kind",
        "answer that what was asked for was stored, or failed, with all kinds of words",
        kinds,
    ),
    user("pagers.answers_twice", "answer a call twice, and others that were never made", twice),
    user("pagers.answers_late", "answer when the object is removed and another has its name", late),
    user("pagers.answers_of_another", "answer a call of another connection of one's own", another),
    user(
        "pagers.answers_nobody_wants",
        "answer what nobody asked, with as many bytes as can be, without end",
        unwanted,
    ),
    user(
        "pagers.own_pages",
        "ask for pages of which one is the pager, from the pager itself, and end",
        own_pages,
    ),
    user(
        "pagers.stores_nothing",
        "say of each page that it is stored, and supply it as it never was",
        stores_nothing,
    ),
];

/// What an honest pager says.
const HONEST: u8 = 0x55;

/// A connection that serves `/liar`.
fn serves(scene: &Local) -> Raw {
    let mut raw = scene.greeted();
    let served = raw.ask(&Request::ServePager { pager: name("/liar") }, &[]);
    assert!(matches!(served, Some(Ok(Reply::Done))), "{served:?}");
    raw
}

fn options(deadline_ms: u32) -> CreateOptions {
    let pager = PagerKind::External { pager: "/liar".into() };
    CreateOptions { pager, pager_deadline_ms: Some(deadline_ms), ..small() }
}

/// Touches a page meanwhile; what is read there.
fn touched(page: Memory) -> JoinHandle<io::Result<u8>> {
    std::thread::spawn(move || page.get())
}

/// The next call that the host makes: its number, and where.
fn call(pager: &Raw) -> (u64, u64, u64) {
    wait::until("the pager is asked", || match pager.hear() {
        Some(Some((_, FromHost::Event(Event::PageIn { call, offset, length, .. })))) => {
            Some((call, offset, length))
        }
        Some(_) => None,
        None => panic!("the pager's connection ended"),
    })
}

fn answers(pager: &Raw, call: u64, result: PagerReply) {
    assert!(pager.throw(&bytes_of(0, &Request::PagerAnswer { call, result }), &[]), "the host listens");
}

fn data(byte: u8, length: u64) -> PagerReply {
    PagerReply::Data(vec![byte; length as usize])
}

/// Pages that nobody takes for a run: each is asked for alone.
fn apart(number: usize) -> usize {
    12 - 2 * number
}

/// Touches a page, and answers what is asked for it so; whoever touches it gets nothing. Another
/// page is had all the same.
fn is_refused(scene: &Local, lies: impl Fn(u64) -> Vec<PagerReply>) {
    let pager = serves(scene);
    let client = ByHand::with(scene, name("/lies"), options(5000));
    for (number, lie) in lies(PAGE as u64).into_iter().enumerate() {
        let words = format!("{lie:?}").chars().take(40).collect::<String>();
        let number = apart(number);
        let touch = touched(client.memory.page(number));
        let (call, offset, length) = call(&pager);
        assert_eq!((offset, length), ((number * PAGE) as u64, PAGE as u64));
        answers(&pager, call, lie);
        assert!(touch.join().expect("a thread").is_err(), "{words}: a byte was had");
    }
    is_had(&pager, client.memory.page(15));
}

/// Touches a page that an honest pager supplies.
fn is_had(pager: &Raw, page: Memory) {
    let touch = touched(page);
    let (call, _, length) = call(pager);
    answers(pager, call, data(HONEST, length));
    assert_eq!(touch.join().expect("a thread").expect("the page is had"), HONEST);
}

fn sizes(scene: &Local) {
    is_refused(scene, |length| {
        [0, 1, length - 1, length + 1, 2 * length, 128 << 10].map(|wrong| data(7, wrong)).into()
    });
}

fn kinds(scene: &Local) {
    let cursor = "no\u{1b}[2J\r\n2026-01-01T00:00:00Z host[1]: all is well\u{7}";
    is_refused(scene, |_| {
        let words = [cursor.to_owned(), "x".repeat(150_000), String::new(), "\u{202e}{}%s<b>".into()];
        std::iter::once(PagerReply::Stored).chain(words.map(PagerReply::Failed)).collect()
    });
    let log = scene.host.log();
    assert!(!log.contains('\u{1b}') && !log.lines().any(|line| line.ends_with("host[1]: all is well")));
    let shown = scene.host.command(&["stat", "/lies"], |_| {}).expect("root may ask");
    assert!(!shown.contains('\u{1b}') && !shown.contains('\r'), "{shown:?}");
}

fn twice(scene: &Local) {
    let pager = serves(scene);
    let client = ByHand::with(scene, name("/lies"), options(5000));
    for number in (0..6).map(apart) {
        let touch = touched(client.memory.page(number));
        let (call, _, length) = call(&pager);
        answers(&pager, call, data(HONEST, length));
        for wrong in [call, call - 1, 0, u64::MAX] {
            answers(&pager, wrong, data(7, length));
        }
        assert_eq!(touch.join().expect("a thread").expect("a byte"), HONEST);
    }
    // None of those answers is for this.
    is_had(&pager, client.memory.page(15));
}

fn late(scene: &Local) {
    let pager = serves(scene);
    let mut client = ByHand::with(scene, name("/lies"), options(200));
    let touch = touched(client.memory.page(0));
    let (old, _, length) = call(&pager);
    assert!(touch.join().expect("a thread").is_err(), "its deadline is over");
    client
        .raw
        .ask(&Request::Remove { name: name("/lies"), of: None }, &[])
        .expect("an answer")
        .expect("its own");
    let again = ByHand::with(scene, name("/lies"), options(5000));
    answers(&pager, old, data(7, length));
    let touch = touched(again.memory.page(0));
    answers(&pager, old, data(7, length));
    let (call, ..) = call(&pager);
    answers(&pager, old, data(7, length));
    answers(&pager, call, data(HONEST, length));
    assert_eq!(touch.join().expect("a thread").expect("a byte"), HONEST);
}

fn another(scene: &Local) {
    let (pager, other) = (serves(scene), scene.greeted());
    let client = ByHand::with(scene, name("/lies"), options(5000));
    let touch = touched(client.memory.page(0));
    let (call, _, length) = call(&pager);
    answers(&other, call, data(7, length));
    answers(&client.raw, call, data(7, length));
    std::thread::sleep(Duration::from_millis(100));
    answers(&pager, call, data(HONEST, length));
    assert_eq!(touch.join().expect("a thread").expect("a byte"), HONEST);
}

fn unwanted(scene: &Local) {
    let all: Vec<Raw> = (0..4).map(|_| serves(scene)).collect();
    let bytes = bytes_of(0, &Request::PagerAnswer { call: 7, result: data(7, limits::PAGER_BYTES) });
    let floods: Vec<_> = all
        .into_iter()
        .map(|raw| {
            let bytes = bytes.clone();
            std::thread::spawn(move || (0..3000).take_while(|_| raw.throw(&bytes, &[])).count())
        })
        .collect::<Vec<_>>();
    others_go_on(scene);
    floods.into_iter().for_each(|flood| drop(flood.join()));
}

fn own_pages(scene: &Local) {
    let mut all = Vec::new();
    for number in 0..4 {
        let named = format!("/lies{number}");
        let client = ByHand::with(scene, name(&named), options(3_600_000));
        // The very connection that serves asks, and then hears nothing.
        client.raw.throw(&bytes_of(900, &Request::ServePager { pager: name("/liar") }), &[]);
        let (object, offset, length) = (client.object, 0, 65_536);
        for (at, request) in [
            Request::Prefetch { object, offset, length },
            Request::Lock { object, offset, length },
            Request::Sync { object, offset, length, freeze: false },
            Request::Resize { name: name(&named), size_bytes: 4096, of: None },
            Request::Remove { name: name(&named), of: None },
            Request::Unmap { address: client.memory.address as u64, length },
        ]
        .into_iter()
        .enumerate()
        {
            client.raw.throw(&bytes_of(1000 + at as u64, &request), &[]);
        }
        drop(touched(client.memory.page(3)));
        all.push(client);
    }
    others_go_on(scene);
    drop(all);
    others_go_on(scene);
}

fn stores_nothing(scene: &Local) {
    let pager = serves(scene);
    let mut client = ByHand::with(scene, name("/lies"), options(5000));
    is_had(&pager, client.memory.page(0));
    client.memory.page(0).put(9).expect("a byte");
    let sync = Request::Sync { object: client.object, offset: 0, length: 4096, freeze: false };
    assert!(client.raw.throw(&bytes_of(1000, &sync), &[]));
    let call = wait::until("the pager is to store", || match pager.hear() {
        Some(Some((_, FromHost::Event(Event::PageOut { call, .. })))) => Some(call),
        Some(_) => None,
        None => panic!("the pager's connection ended"),
    });
    // A lie of another kind first.
    answers(&pager, call, data(7, PAGE as u64));
    let refused = client.raw.answer_to(1000).expect("an answer");
    assert!(refused.is_err(), "{refused:?}");
    // What was not stored is there still.
    assert_eq!(client.memory.page(0).get().expect("a byte"), 9);
    client
        .raw
        .ask(&Request::Remove { name: name("/lies"), of: None }, &[])
        .expect("an answer")
        .expect("its own");
}
