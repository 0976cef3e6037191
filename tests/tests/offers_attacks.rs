//! Objects in messages against users who want what is not theirs, or that the host keeps for ever what nobody has.

use commonhold::{Access, Channel, ChannelOptions, CreateOptions, MapOptions, Protection};
use commonhold_object::wire::{FromHost, Offered, Reply, Request, Sizing};
use commonhold_object::{Error, ErrorKind, Name, ObjectId, Translation, limits};
use commonhold_tests::huge::HugePages;
use commonhold_tests::raw::{Raw, bytes_of};
use commonhold_tests::user::as_user;
use commonhold_tests::wait::until;
use commonhold_tests::{PAGE, TestHost, is_root};
use std::os::fd::AsFd;

/// Who attacks.
const OTHER: u32 = 65_532;

fn name(name: &str) -> Name {
    Name::new(name).expect("a name")
}

fn of_pages(pages: u64) -> CreateOptions {
    CreateOptions { size_bytes: pages * PAGE as u64, ..CreateOptions::default() }
}

fn id_of(reply: Reply) -> ObjectId {
    let Reply::Opened(opened) = reply else { panic!("{reply:?} is no opened object") };
    opened.info.id
}

fn open(raw: &mut Raw, path: &str, access: Access) -> ObjectId {
    id_of(raw.ask_for(&Request::Open { name: name(path), access }).0)
}

fn make(raw: &mut Raw, path: &str, options: CreateOptions, nonce: u128) -> ObjectId {
    id_of(raw.ask_for(&Request::Create { name: name(path), options, in_directory: false, nonce }).0)
}

fn make_channel(raw: &mut Raw, path: &str) -> ObjectId {
    let options = CreateOptions { description: "channel".into(), mode: 0o666, ..of_pages(16) };
    make(raw, path, options, 77)
}

fn ask(raw: &mut Raw, request: &Request) -> Result<Reply, Error> {
    raw.ask_with(request, &[]).0
}

fn offer(channel: ObjectId, token: u128, object: ObjectId, access: Access) -> Request {
    Request::Offer { channel, token, what: Offered::Object { object, access } }
}

fn take(channel: ObjectId, token: u128) -> Request {
    Request::TakeOffer { channel, token }
}

/// Says both at once, and waits for both answers.
fn at_once(raw: &Raw, first: u64, requests: &[Request]) {
    for (number, request) in (first..).zip(requests) {
        assert!(raw.throw(&bytes_of(number, request), &[]), "the host takes a message");
    }
    let mut answers = 0;
    until("all are answered", || {
        if let Some((_, FromHost::Reply(_))) = raw.hear().expect("the host goes on") {
            answers += 1;
        }
        (answers == requests.len()).then_some(())
    });
}

/// Notes of objects without a name, and of what is offered.
fn notes(host: &TestHost) -> Vec<String> {
    let folder = std::fs::read_dir(host.state().join("live")).expect("the folder");
    let names = folder.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
    names.filter(|name| name.contains(".record") || name.contains(".offer-")).collect()
}

fn nothing_is_left(host: &TestHost) {
    until("no note is left", || notes(host).is_empty().then_some(()));
}

/// Numbers of objects are counted up: anybody can guess them.
#[test]
fn nobody_offers_what_he_has_not_open() {
    if !is_root("processes of two users") {
        return;
    }
    let host = TestHost::start();
    let owner = host.connect();
    let secret = owner.create("/secret", &of_pages(1), None).expect("it is made");
    let gone = owner.create("/gone", &of_pages(1), None).expect("it is made");
    owner.remove("/gone").expect("it has no name");
    let mut raw = as_user(OTHER, || Raw::connect(&host));
    let channel = make_channel(&mut raw, "/x/ch");
    for (token, object) in (1..).zip([secret.id(), gone.id(), ObjectId(u64::MAX)]) {
        for access in [Access::Read, Access::ReadWrite] {
            let said = ask(&mut raw, &offer(channel, token, object, access));
            assert_eq!(said.expect_err("it is not open").kind, ErrorKind::NotFound);
            let said = ask(&mut raw, &take(channel, token));
            assert_eq!(said.expect_err("it was not offered").kind, ErrorKind::Lost);
        }
        let what = Offered::Pages { of: object, offset: 0, length: 1 };
        assert!(ask(&mut raw, &Request::Offer { channel, token, what }).is_err());
    }
    nothing_is_left(&host);
}

/// Another channel, one that is open for reading, and one that is closed.
#[test]
fn an_offer_is_of_one_channel_and_of_who_may_write_it() {
    let host = TestHost::start();
    let (mut sender, mut other) = (Raw::connect(&host), Raw::connect(&host));
    let object = make(&mut sender, "/o", of_pages(1), 1);
    let channel = make_channel(&mut sender, "/c/ch");
    let second = make_channel(&mut other, "/c/second");
    ask(&mut sender, &offer(channel, 5, object, Access::Read)).expect("it is offered");
    let said = ask(&mut other, &take(channel, 5)).expect_err("the channel is not open");
    assert_eq!(said.kind, ErrorKind::NotFound);
    assert_eq!(ask(&mut other, &take(second, 5)).expect_err("of another channel").kind, ErrorKind::Lost);
    assert_eq!(ask(&mut other, &take(object, 5)).expect_err("it is not open").kind, ErrorKind::NotFound);
    assert_eq!(ask(&mut sender, &take(object, 5)).expect_err("no channel").kind, ErrorKind::Permission);
    open(&mut other, "/c/ch", Access::Read);
    assert_eq!(ask(&mut other, &take(channel, 5)).expect_err("a reader").kind, ErrorKind::Permission);
    let said = ask(&mut other, &offer(channel, 6, channel, Access::Read)).expect_err("a reader");
    assert_eq!(said.kind, ErrorKind::Permission);
    open(&mut other, "/c/ch", Access::ReadWrite);
    ask(&mut other, &take(channel, 5)).expect("it may");
    assert_eq!(ask(&mut sender, &take(channel, 5)).expect_err("it is taken").kind, ErrorKind::Lost);
    let said = ask(&mut other, &offer(channel, 7, object, Access::ReadWrite)).expect_err("less is open");
    assert_eq!(said.kind, ErrorKind::Permission);
    ask(&mut other, &Request::Close { object }).expect("closed");
    nothing_is_left(&host);
}

/// The rest of a page whose first bytes are sent.
#[test]
fn who_gets_part_of_a_page_does_not_see_the_rest() {
    const SENT: u64 = 100;
    let host = TestHost::start();
    let (owner, other) = (host.connect(), host.connect());
    let options = CreateOptions { freezable: true, ..of_pages(2) };
    let object = owner.create("/o", &options, None).expect("it is made");
    object.write_at(&[7; 2 * PAGE], 0).expect("it is written");
    let sends = Channel::create(&owner, "/ch", &ChannelOptions::default()).expect("a channel");
    let receives = Channel::open(&other, "/ch").expect("it is there");
    for is_written in [false, true] {
        let part = (PAGE as u64, SENT);
        sends.send_by_reference(1, &[], &object, part, None).expect("it is sent");
        if is_written {
            object.write_at(&[8; PAGE], PAGE as u64).expect("it is written");
        }
        let part = receives.receive(None).expect("it is received").object.expect("an object");
        assert_eq!(part.size_bytes(), SENT);
        let options = MapOptions { protection: Protection::Read, ..MapOptions::default() };
        let mapped = part.map(&options).expect("it is mapped");
        // SAFETY: a page is mapped, and nobody writes it.
        let bytes = unsafe { std::slice::from_raw_parts(mapped.as_ptr().cast_const(), PAGE) };
        let (sent, rest) = bytes.split_at(SENT as usize);
        assert!(sent.iter().all(|byte| *byte == 7) && rest.iter().all(|byte| *byte == 0), "{bytes:?}");
    }
}

/// Who has an object open takes it again and again: what the host notes of that has a bound.
#[test]
fn the_same_object_taken_for_ever() {
    let host = TestHost::start();
    let mut raw = Raw::connect(&host);
    let object = make(&mut raw, "/o", of_pages(1), 1);
    let channel = make_channel(&mut raw, "/ch");
    for token in 0..1500 {
        ask(&mut raw, &offer(channel, token, object, Access::Read)).expect("it is offered");
        ask(&mut raw, &take(channel, token)).expect("it is taken");
    }
    until("no more is noted than requests can be under way", || (notes(&host).len() <= 1024).then_some(()));
    // Those that may not have been answered are asked again.
    for token in 1499 - 1023..1500 {
        ask(&mut raw, &take(channel, token)).expect("the same again");
    }
    ask(&mut raw, &Request::Close { object }).expect("closed");
    nothing_is_left(&host);
}

/// Channels that are in each other's queues would hold each other for ever, and end one within the other.
#[test]
fn a_channel_is_not_offered() {
    let host = TestHost::start();
    let mut raw = Raw::connect(&host);
    let (first, second) = (make_channel(&mut raw, "/a"), make_channel(&mut raw, "/b"));
    for (through, what) in [(first, first), (first, second), (second, first)] {
        let said = ask(&mut raw, &offer(through, 9, what, Access::ReadWrite));
        assert_eq!(said.expect_err("a channel is not offered").kind, ErrorKind::Unsupported);
    }
    let options = CreateOptions { description: "channel".into(), ..of_pages(16) };
    let said = ask(&mut raw, &Request::CreateNameless { options, nonce: 3 });
    assert_eq!(said.expect_err("nobody else could open it").kind, ErrorKind::Unsupported);
    for path in ["/a", "/b"] {
        ask(&mut raw, &Request::Remove { name: name(path), of: None }).expect("it has no name");
    }
    drop(raw);
    until("all have ended", || (host.status().objects == 0).then_some(()));
}

/// Who may open an arena could send all wired objects of a class to whoever may open none of them.
#[test]
fn an_arena_is_not_offered() {
    if !is_root("huge pages") {
        return;
    }
    let Some(_pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let mut raw = Raw::connect(&host);
    let options = CreateOptions { translation: Translation::Wired, ..of_pages(16) };
    make(&mut raw, "/o", options, 1);
    let arena = open(&mut raw, "/.arena-1", Access::ReadWrite);
    let channel = make_channel(&mut raw, "/ch");
    for access in [Access::Read, Access::ReadWrite] {
        let said = ask(&mut raw, &offer(channel, 4, arena, access));
        assert_eq!(said.expect_err("an arena is not offered").kind, ErrorKind::Unsupported);
    }
}

/// A channel ends while something is offered through it.
#[test]
fn a_channel_that_ends_while_something_is_offered() {
    let host = TestHost::start();
    let mut raw = Raw::connect(&host);
    let options = CreateOptions { freezable: true, ..of_pages(256) };
    let object = make(&mut raw, "/o", options, 1);
    for round in 0..100u64 {
        let channel = make_channel(&mut raw, "/ch");
        ask(&mut raw, &Request::Remove { name: name("/ch"), of: None }).expect("it has no name");
        let what = match round % 2 {
            0 => Offered::Pages { of: object, offset: 0, length: 256 * PAGE as u64 },
            _ => Offered::Object { object, access: Access::Read },
        };
        let requests =
            [Request::Offer { channel, token: round.into(), what }, Request::Close { object: channel }];
        at_once(&raw, 1_000_000 + round * 2, &requests);
    }
    nothing_is_left(&host);
    until("the others have ended", || (host.status().objects == 1).then_some(()));
    ask(&mut raw, &Request::Remove { name: name("/o"), of: None }).expect("it has no name");
    drop(raw);
    until("all have ended", || (host.status().objects == 0).then_some(()));
}

/// Offered, taken, withdrawn and closed at once, in any order.
#[test]
fn an_offer_that_is_withdrawn_and_taken_while_it_is_made() {
    let host = TestHost::start();
    let mut raw = Raw::connect(&host);
    let options = CreateOptions { freezable: true, ..of_pages(16) };
    let object = make(&mut raw, "/o", options, 1);
    let channel = make_channel(&mut raw, "/ch");
    for round in 0..300u64 {
        let token = u128::from(round);
        let what = match round % 2 {
            0 => Offered::Pages { of: object, offset: 0, length: 16 * PAGE as u64 },
            _ => Offered::Object { object, access: Access::Read },
        };
        let withdraw = Request::WithdrawOffer { channel, token };
        let early = if round % 3 == 0 { take(channel, token) } else { withdraw.clone() };
        let offer = Request::Offer { channel, token, what };
        at_once(&raw, 1_000_000 + round * 8, &[offer, early, withdraw.clone()]);
        ask(&mut raw, &withdraw).expect("it may not be there");
    }
    drop(raw);
    nothing_is_left(&host);
    until("the others have ended", || (host.status().objects == 2).then_some(()));
}

/// Who was given an object to read says that it brings it back for writing.
#[test]
fn a_handle_to_read_is_not_brought_back_for_writing() {
    if !is_root("processes of two users") {
        return;
    }
    let host = TestHost::start();
    let mut sender = Raw::connect(&host);
    ask(&mut sender, &Request::MakeDirectory { name: name("/mine"), mode: 0o700 }).expect("a directory");
    for (has_name, controlled) in [(false, false), (false, true), (true, false), (true, true)] {
        let channel = make_channel(&mut sender, "/ch");
        let options = CreateOptions { mode: 0o666, controlled, ..of_pages(1) };
        let object = match has_name {
            true => make(&mut sender, &format!("/mine/{controlled}"), options, 7),
            false => id_of(sender.ask_for(&Request::CreateNameless { options, nonce: 8 }).0),
        };
        ask(&mut sender, &offer(channel, 1, object, Access::Read)).expect("it is offered");
        let mut receiver = as_user(OTHER, || Raw::connect(&host));
        open(&mut receiver, "/ch", Access::ReadWrite);
        let (_, fds) = receiver.ask_for(&take(channel, 1));
        let again = Request::Reattach { object, access: Access::ReadWrite };
        let said = receiver.ask_with(&again, &[fds[0].as_fd()]).0;
        assert_eq!(said.expect_err("it may read").kind, ErrorKind::Permission);
        let said = ask(&mut receiver, &offer(channel, 2, object, Access::ReadWrite));
        assert_eq!(said.expect_err("it may read").kind, ErrorKind::Permission);
        ask(&mut sender, &Request::Remove { name: name("/ch"), of: None }).expect("it has no name");
        ask(&mut sender, &Request::Close { object }).expect("closed");
    }
}

/// A user made an object that another has by now, and says again that he makes it.
#[test]
fn a_creation_that_is_repeated_is_of_ones_own_object() {
    if !is_root("processes of two users") {
        return;
    }
    let host = TestHost::start();
    let mut before = as_user(OTHER, || Raw::connect(&host));
    let options = CreateOptions { mode: 0o644, ..of_pages(1) };
    make(&mut before, "/o", options.clone(), 5);
    drop(before);
    let mut owner = Raw::connect(&host);
    let given = Request::SetOwner { name: name("/o"), of: None, uid: Some(65_533), gid: Some(65_533) };
    ask(&mut owner, &given).expect("it is another's");
    let mut raw = as_user(OTHER, || Raw::connect(&host));
    let object = open(&mut raw, "/o", Access::Read);
    let made =
        id_of(ask(&mut raw, &Request::CreateNameless { options: options.clone(), nonce: 5 }).expect("one"));
    assert_ne!(made, object, "another's object was given for writing");
    let again = Request::Create { name: name("/o"), options, in_directory: false, nonce: 5 };
    assert_eq!(ask(&mut raw, &again).expect_err("it is another's").kind, ErrorKind::Exists);
    let asked = Request::ResizeOpened { object, size_bytes: 1, sizing: Sizing::Exactly };
    assert_eq!(ask(&mut raw, &asked).expect_err("it may read").kind, ErrorKind::Permission);
}

/// Memory without a name counts, and stays as it is.
#[test]
fn memory_without_a_name_has_bounds() {
    if !is_root("an ordinary user") {
        return;
    }
    let host = TestHost::with(&["--quota", "1m", "--max-objects", "20"]);
    let mut raw = as_user(OTHER, || Raw::connect(&host));
    let nameless = |options, nonce| Request::CreateNameless { options, nonce };
    for size_bytes in [u64::MAX, limits::OBJECT_BYTES, 2 << 20] {
        for controlled in [false, true] {
            let options = CreateOptions { size_bytes, controlled, ..CreateOptions::default() };
            let said = ask(&mut raw, &nameless(options, 1)).expect_err("it is too large");
            assert!(matches!(said.kind, ErrorKind::Invalid | ErrorKind::Quota), "{said}");
        }
    }
    for controlled in [false, true] {
        let options = CreateOptions { controlled, freezable: controlled, ..of_pages(2) };
        let object = id_of(raw.ask_for(&nameless(options, 2 + u128::from(controlled))).0);
        for sizing in [Sizing::Exactly, Sizing::BeforeWrite] {
            for size_bytes in [1, 3 * PAGE as u64] {
                let said = ask(&mut raw, &Request::ResizeOpened { object, size_bytes, sizing });
                // Who is to write needs no other size where it is large enough.
                let is_enough = sizing != Sizing::Exactly && size_bytes == 1;
                assert_eq!(said.is_ok(), is_enough, "it keeps its size: {said:?}");
                let Reply::Entry(entry) = ask(&mut raw, &Request::StatObject { object }).expect("it is open")
                else {
                    panic!("no entry")
                };
                assert!(format!("{entry:?}").contains(&format!("size_bytes: {}", 2 * PAGE)), "{entry:?}");
            }
        }
    }
    let object = id_of(raw.ask_for(&nameless(CreateOptions { freezable: true, ..of_pages(1) }, 9)).0);
    let channel = make_channel(&mut raw, "/ch");
    let offered = |raw: &mut Raw, token| {
        let what = Offered::Pages { of: object, offset: 0, length: 1 };
        ask(raw, &Request::Offer { channel, token, what })
    };
    let failed = (0..40).find_map(|token| offered(&mut raw, token).err());
    assert_eq!(failed.expect("there is a bound").kind, ErrorKind::Quota);
    // What is on its way ends with its channel.
    ask(&mut raw, &Request::Remove { name: name("/ch"), of: None }).expect("it has no name");
    drop(raw);
    until("none is left", || (host.status().objects == 0).then_some(()));
}
