//! Pagers that answer out of order, twice, half, or while they die: whoever waits gets its page, or learns why not.

use commonhold_object::wire::{Event, FromHost, PagerReply, Request};
use commonhold_object::{Name, PAGE_SIZE_BYTES};
use commonhold_tests::raw::{Raw, bytes_of};
use commonhold_tests::{TestHost, Worker, page, wait};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const PAGE: usize = PAGE_SIZE_BYTES as usize;
const NAME: &str = "/pagers/odd";

/// A process that serves. It may be asked before it hears that it does.
fn serve(host: &TestHost) -> Raw {
    let pager = Raw::connect(host);
    let serve = Request::ServePager { pager: Name::new(NAME).unwrap() };
    assert!(pager.throw(&pager.bytes_for(99, false, &serve), &[]));
    pager
}

/// Two processes that have an object of it mapped.
fn two_of_an_object(host: &TestHost) -> [Worker; 2] {
    let workers = [host.worker(), host.worker()];
    workers[0].all(&format!("create o /x size=1048576 pager={NAME} mode=600\nmap m o rw shared 0 0"));
    workers[1].all("open o /x rw\nmap m o rw shared 0 0");
    workers
}

/// The next question: its number, and the page.
fn question(pager: &Raw) -> (u64, u64) {
    wait::until("it is asked", || match pager.hear() {
        Some(Some((_, FromHost::Event(Event::PageIn { call, offset, length, .. })))) => {
            assert_eq!(length, PAGE_SIZE_BYTES);
            Some((call, offset / PAGE_SIZE_BYTES))
        }
        _ => None,
    })
}

/// Two pages that nobody has asked for in a round before, and none of them next to another: nothing is asked for ahead.
fn far_apart(round: u64) -> [u64; 2] {
    [round * 37 % 127, 128 + round * 53 % 127]
}

fn answer(pager: &Raw, (call, number): (u64, u64)) {
    let result = PagerReply::Data(page::bytes(number, 1, 1));
    assert!(pager.throw(&bytes_of(0, &Request::PagerAnswer { call, result }), &[]));
}

#[test]
fn answers_come_to_whoever_waits_for_them_in_any_order_and_twice() {
    let host = TestHost::start();
    let pager = serve(&host);
    let [first, second] = two_of_an_object(&host);
    for round in 0..20 {
        let pages = far_apart(round);
        first.send(&format!("check m {} 1 1", pages[0]));
        let asked = question(&pager);
        second.send(&format!("check m {} 1 1", pages[1]));
        let then = question(&pager);
        assert_eq!([asked.1, then.1], pages);
        [then, asked, asked, then].iter().for_each(|one| answer(&pager, *one));
        [&first, &second].iter().for_each(|worker| drop(worker.answer().unwrap()));
    }
    let before = host.status().host_pid;
    host.kill_host();
    host.wait_for_other_host(before);
    // What comes for a host that is gone, and what nobody asked for.
    (0..100).for_each(|call| answer(&pager, (call, 0)));
    first.send("check m 255 1 1");
    let asked = question(&pager);
    answer(&pager, asked);
    first.answer().unwrap();
}

#[test]
fn half_an_answer_fails_whoever_waits_for_it_alone() {
    let host = TestHost::start();
    let pager = serve(&host);
    let [waits, other] = two_of_an_object(&host);
    waits.send("get m 0");
    let (call, _) = question(&pager);
    other.send("check m 200 1 1");
    let theirs = question(&pager);
    let half = PagerReply::Data(vec![1; PAGE / 2]);
    assert!(pager.throw(&bytes_of(0, &Request::PagerAnswer { call, result: half }), &[]));
    assert_eq!(waits.wait().signal(), Some(libc::SIGBUS));
    answer(&pager, theirs);
    other.answer().unwrap();
    // The page can be had by who asks again.
    other.send("check m 0 1 1");
    let asked = question(&pager);
    answer(&pager, asked);
    other.answer().unwrap();
}

#[test]
fn one_that_dies_while_it_answers_is_replaced_by_the_next() {
    let host = TestHost::start();
    let workers = two_of_an_object(&host);
    for round in 0..20 {
        let (pager, [first, second]) = (serve(&host), far_apart(round));
        workers[0].send(&format!("check m {first} 1 1"));
        let asked = question(&pager);
        workers[1].send(&format!("check m {second} 1 1"));
        if round % 2 == 0 {
            answer(&pager, asked); // it may be read, or not
        }
        drop(pager);
        let next = serve(&host);
        let mut waiting: Vec<&Worker> = workers.iter().collect();
        wait::until("both have their pages", || {
            if let Some(Some((_, FromHost::Event(Event::PageIn { call, offset, .. })))) = next.hear_now() {
                answer(&next, (call, offset / PAGE_SIZE_BYTES));
            }
            let done = |worker: &Worker| {
                worker.answer_within(Duration::from_millis(1)).map(Result::unwrap).is_some()
            };
            waiting.retain(|worker| !done(worker));
            waiting.is_empty().then_some(())
        });
    }
}
