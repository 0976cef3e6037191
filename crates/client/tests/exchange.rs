//! Requests and answers against a pretended host: repeats, garbage, death, many threads.

mod common;

use common::{Do, FakeHost, ordered, plain};
use commonhold::{Access, ErrorKind, Host, Pager};
use commonhold_object::wire::{Event, FromHost, Header, PagerReply, Reply, Request, encode};
use std::io;
use std::time::{Duration, Instant};

/// Does something the first `times` times a request fits, and the usual afterwards.
fn first(
    times: usize,
    fits: impl Fn(&Request) -> bool + Send + 'static,
    what: impl Fn() -> Do + Send + 'static,
) -> impl FnMut(&Header, &Request) -> Do + Send + 'static {
    let mut left = times;
    move |_, request| {
        if left > 0 && fits(request) {
            left -= 1;
            return what();
        }
        Do::Usual
    }
}

fn is_open(request: &Request) -> bool {
    matches!(request, Request::Open { .. })
}

fn fake_with_object() -> (FakeHost, Host) {
    let fake = FakeHost::start();
    let host = Host::connect_to(&fake.directory).unwrap();
    host.create("/a", &plain(4096), None).unwrap();
    (fake, host)
}

#[test]
fn what_was_not_answered_is_repeated_when_a_new_host_takes_over() {
    let (fake, host) = fake_with_object();
    fake.rule(first(2, is_open, || Do::SayReplaced));
    host.open("/a", Access::Read).unwrap();
    let opens: Vec<Header> = fake.seen().iter().filter(|(_, r)| is_open(r)).map(|(h, _)| *h).collect();
    let first = opens[0];
    assert_eq!((first.repeated, first.generation), (false, 0));
    let again = Header { repeated: true, generation: 2, ..first };
    assert_eq!(opens[1..], [again, again]);
    host.open("/a", Access::Read).unwrap();
    let (next, _) = fake.seen().into_iter().rfind(|(_, request)| is_open(request)).unwrap();
    assert_eq!((next.repeated, next.generation), (false, 2));
    assert_eq!(fake.connections(), 1);
}

#[test]
fn a_refusal_is_told_as_it_is() {
    let (fake, host) = fake_with_object();
    let error = host.open("/none", Access::Read).unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::NotFound, "no object /none"));
    fake.rule(first(1, is_open, || Do::Answer(Ok(Reply::Pages(3)))));
    assert_eq!(host.open("/a", Access::Read).unwrap_err().kind, ErrorKind::Protocol);
    host.open("/a", Access::Read).unwrap();
}

#[test]
fn garbage_is_an_error_and_the_next_call_begins_anew() {
    let mut no_message = Vec::new();
    encode(Header::of(1), &FromHost::Reply(Ok(Reply::Done)), &mut no_message).unwrap();
    no_message.truncate(24);
    no_message.push(0xff);
    for garbage in [vec![0xff; 100], b"CmHd".to_vec(), vec![0; 16], no_message] {
        let (fake, host) = fake_with_object();
        fake.rule(first(1, is_open, move || Do::Raw(garbage.clone())));
        assert_eq!(host.open("/a", Access::Read).unwrap_err().kind, ErrorKind::Protocol);
        host.open("/a", Access::Read).unwrap();
        assert_eq!(fake.connections(), 2);
    }
}

#[test]
fn another_version_is_named_and_nothing_hangs() {
    let fake = FakeHost::start();
    fake.rule(|_, _| {
        let mut bytes = Vec::new();
        let header = Header::of(1);
        encode(header, &FromHost::Reply(Ok(Reply::Done)), &mut bytes).unwrap();
        bytes[4] = 99;
        Do::Raw(bytes)
    });
    let host = Host::connect_to(&fake.directory).unwrap();
    let error = host.open("/a", Access::Read).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Version);
    assert!(error.message.contains("version 99"), "{error}");
}

#[test]
fn a_slow_request_holds_nobody_else() {
    let fake = FakeHost::start();
    let host = Host::connect_to(&fake.directory).unwrap();
    let object = host.create("/a", &ordered(4096), None).unwrap();
    let is_sync = |r: &Request| matches!(r, Request::Sync { .. });
    fake.rule(first(1, is_sync, || Do::Ignore));
    std::thread::scope(|threads| {
        let slow = threads.spawn(|| object.sync(0, 4096));
        fake.wait_for(1, is_sync);
        let begun = Instant::now();
        let others: Vec<_> = (0..8)
            .map(|_| {
                threads.spawn(|| {
                    for _ in 0..50 {
                        host.open("/a", Access::Read).unwrap();
                    }
                })
            })
            .collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(!slow.is_finished());
        fake.tell(Event::HostReplaced { generation: 2 });
        assert_eq!(slow.join().unwrap().unwrap(), 1);
    });
    assert_eq!(fake.connections(), 1);
}

#[test]
fn when_host_and_keeper_died_the_next_host_is_asked() {
    let (mut fake, host) = fake_with_object();
    let object = host.open("/a", Access::ReadWrite).unwrap();
    fake.rule(first(1, is_open, || Do::HangUp));
    host.open("/a", Access::Read).unwrap();
    assert_eq!(fake.connections(), 2);
    fake.die();
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| host.open("/a", Access::Read).map(drop));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished(), "it waits for a host");
        fake.listen();
        waiting.join().unwrap().unwrap();
    });
    // The memory of an anonymous object was brought along, before anything else was asked.
    let after: Vec<Request> = fake.seen().into_iter().map(|(_, r)| r).collect();
    let last = after.iter().rposition(|r| matches!(r, Request::Hello { .. })).unwrap();
    assert!(matches!(after[last + 1], Request::Return { .. }), "{:?}", &after[last..]);
    assert!(
        after[last..].iter().any(|r| matches!(r, Request::Reattach { object: id, .. } if *id == object.id()))
    );
    object.info().unwrap();
}

/// What a return that broke off had brought is served by the host until it hears of the session that followed.
#[test]
fn a_return_that_broke_off_is_ended_by_the_next() {
    let (mut fake, host) = fake_with_object();
    let object = host.open("/a", Access::ReadWrite).unwrap();
    let is_reattach = |request: &Request| matches!(request, Request::Reattach { .. });
    fake.rule(first(2, is_reattach, || Do::HangUp));
    fake.die();
    fake.listen();
    object.info().unwrap();
    assert_eq!(fake.connections(), 3);
    let named: Vec<u64> = fake
        .seen()
        .iter()
        .filter_map(|(_, r)| if let Request::Return { session } = r { Some(session.0) } else { None })
        .collect();
    // Each attempt names the one before both; the one that is whole also those that were not.
    let [first, second, third, last, broken @ ..] = &named[..] else { panic!("{named:?}") };
    assert_eq!([first, second, third], [last; 3]);
    assert_eq!(broken.len(), 2, "{named:?}");
    assert!(!broken.contains(last) && broken[0] != broken[1], "{named:?}");
    // Said once: they are over.
    fake.die();
    fake.listen();
    object.info().unwrap();
    let again = fake.seen().iter().filter(|(_, r)| matches!(r, Request::Return { .. })).count();
    assert_eq!(again, named.len() + 2);
}

/// Far less than the time that a request waits for the next host, and more than a slow machine needs.
const AT_ONCE: Duration = Duration::from_secs(15);

#[test]
fn where_the_host_was_stopped_requests_fail_at_once_and_drops_are_quick() {
    let (mut fake, host) = fake_with_object();
    let objects: Vec<_> = (0..3).map(|_| host.open("/a", Access::ReadWrite).unwrap()).collect();
    let begun = Instant::now();
    fake.stop();
    for _ in 0..3 {
        let error = host.open("/a", Access::Read).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Disconnected);
        let place = fake.directory.canonicalize().unwrap();
        let what =
            format!("was stopped: start it again with `commonhold host start --state {}`", place.display());
        assert!(error.message.contains(&what), "{error}");
    }
    drop(objects);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    fake.listen();
    host.open("/a", Access::Read).unwrap();
}

#[test]
fn what_the_next_host_says_to_a_returning_client_is_told_at_once() {
    let (mut fake, host) = fake_with_object();
    let _memory = host.open("/a", Access::ReadWrite).unwrap();
    fake.die();
    let is_hello = |r: &Request| matches!(r, Request::Hello { .. });
    let full =
        || Do::Refuse(commonhold::Error::new(ErrorKind::TooMany, "the host serves 0 clients, its limit"));
    fake.rule(first(1, is_hello, full));
    fake.listen();
    let begun = Instant::now();
    let error = host.open("/a", Access::Read).unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::TooMany, "the host serves 0 clients, its limit")
    );
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    host.open("/a", Access::Read).unwrap();
}

#[test]
fn a_host_that_ends_connections_without_a_word_is_not_asked_as_fast_as_it_can() {
    let fake = FakeHost::start();
    fake.rule(first(12, |r| matches!(r, Request::Hello { .. }), || Do::HangUp));
    let host = Host::connect_to(&fake.directory).unwrap();
    let begun = Instant::now();
    host.create("/a", &plain(4096), None).unwrap();
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(10 * 50), "twelve attempts took only {took:?}");
}

#[test]
fn a_named_host_must_be_there() {
    let nowhere = std::env::temp_dir().join(format!("commonhold-nowhere-{}", std::process::id()));
    let error = Host::connect_to(&nowhere).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Disconnected);
    assert!(!nowhere.exists());
    let mut fake = FakeHost::start();
    fake.die();
    // A stale socket: the file is there, and nobody listens.
    drop(commonhold_sys::socket::listen(&fake.directory, "host.sock", 1).unwrap());
    assert_eq!(Host::connect_to(&fake.directory).unwrap_err().kind, ErrorKind::Disconnected);
}

#[test]
fn stopping_a_host_is_done_when_it_is_gone() {
    let (fake, host) = fake_with_object();
    fake.rule(first(1, |r| matches!(r, Request::Stop { .. }), || Do::HangUp));
    host.stop(true).unwrap();
    assert_eq!(fake.connections(), 1, "nobody asked for another host");
}

struct Echo;

impl Pager for Echo {
    fn page_in(&mut self, object: &str, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        assert_eq!(object, "/a");
        buffer.fill(offset as u8);
        Ok(())
    }

    fn page_out(&mut self, _: &str, _: u64, data: &[u8]) -> io::Result<()> {
        if data.len() == 3 { Ok(()) } else { Err(io::Error::other("not three")) }
    }
}

#[test]
fn a_pager_answers_until_its_connection_ends() {
    let (mut fake, host) = fake_with_object();
    std::thread::scope(|threads| {
        let serving = threads.spawn(|| host.serve_pager("/pagers/echo", Echo));
        fake.wait_for(1, |r| matches!(r, Request::ServePager { .. }));
        let object = || "/a".to_owned();
        fake.tell_last(Event::PageIn { call: 5, object: object(), offset: 7, length: 4 });
        fake.tell_last(Event::HostReplaced { generation: 2 });
        fake.tell_last(Event::PageOut { call: 6, object: object(), offset: 0, data: vec![1, 2, 3] });
        fake.tell_last(Event::PageOut { call: 7, object: object(), offset: 0, data: vec![] });
        fake.wait_for(3, |r| matches!(r, Request::PagerAnswer { .. }));
        let answers: Vec<(u64, PagerReply)> = fake
            .seen()
            .into_iter()
            .filter_map(|(_, r)| match r {
                Request::PagerAnswer { call, result } => Some((call, result)),
                _ => None,
            })
            .collect();
        assert_eq!(
            answers,
            [
                (5, PagerReply::Data(vec![7; 4])),
                (6, PagerReply::Stored),
                (7, PagerReply::Failed("page_out: not three".into()))
            ]
        );
        assert!(!serving.is_finished());
        fake.die();
        serving.join().unwrap().unwrap();
    });
}
