//! Pager processes that die, hang, lie or answer late: the call that waits fails, and no other.

use crate::player::{Act, Player, Ram};
use commonhold_host::pagers::{ExternalPager, Pager, PagerLines};
use commonhold_object::wire::{Event, PagerReply};
use commonhold_object::{Error, ErrorKind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const NAME: &str = "/pagers/odd";
const OWNER: u32 = 1000;
/// Of calls that are expected to fail.
const SHORT: Duration = Duration::from_millis(300);
/// Of calls that are not.
const LONG: Duration = Duration::from_secs(60);

fn pager(lines: &Arc<PagerLines>, name: &str, uid: u32, deadline: Duration) -> ExternalPager {
    ExternalPager::new(lines.clone(), name.into(), uid, "/lab/object".into(), deadline)
}

fn failure(result: commonhold_object::Result<()>, says: &str) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Pager, "{error}");
    assert!(error.message.contains(says), "{error}");
    error
}

/// What comes of a page-in and a page-out served by a process that behaves so.
fn ask(behave: impl FnMut(&Event) -> Act + Send + 'static) -> [commonhold_object::Result<()>; 2] {
    let lines = Arc::new(PagerLines::default());
    let _player = Player::start(&lines, NAME, 1, OWNER, behave);
    let pager = pager(&lines, NAME, OWNER, SHORT);
    [pager.page_in(0, &mut [0; PAGE]), pager.page_out(0, &[1; PAGE])]
}

#[test]
fn an_answer_of_another_length_is_an_error() {
    for length in [0, 1, PAGE - 1, PAGE + 1, 2 * PAGE] {
        let [page_in, _] = ask(move |_| Act::Reply(PagerReply::Data(vec![1; length])));
        failure(page_in, &format!("answered {length} bytes where 4096 were asked"));
    }
}

#[test]
fn an_answer_to_another_question_is_an_error() {
    let [page_in, page_out] = ask(|event| {
        Act::Reply(match event {
            Event::PageIn { .. } => PagerReply::Stored,
            _ => PagerReply::Data(vec![0; PAGE]),
        })
    });
    failure(page_in, "answered `stored` to a page-in");
    failure(page_out, "answered data to a page-out");
}

#[test]
fn a_failure_is_passed_on_in_the_pagers_words() {
    for result in ask(|_| Act::Reply(PagerReply::Failed("the disk is on fire".into()))) {
        failure(result, "/pagers/odd failed: the disk is on fire");
    }
}

#[test]
fn a_process_that_answers_under_a_wrong_number_answers_nobody() {
    for result in ask(|event| match event {
        Event::PageIn { call, .. } => Act::ReplyTo(call + 1, PagerReply::Data(vec![9; PAGE])),
        Event::PageOut { call, .. } => Act::ReplyTo(call - 1, PagerReply::Stored),
        _ => Act::Silence,
    }) {
        failure(result, "did not answer within 300 ms");
    }
}

#[test]
fn a_process_that_sends_garbage_or_dies_fails_the_call_after_its_deadline() {
    for garbage in [true, false] {
        let before = Instant::now();
        for result in ask(move |_| if garbage { Act::Garbage } else { Act::Die }) {
            failure(result, "/pagers/odd");
        }
        assert!(before.elapsed() >= SHORT, "another process could have begun to serve until then");
    }
}

#[test]
fn nobody_serves() {
    let lines = Arc::new(PagerLines::default());
    failure(pager(&lines, NAME, OWNER, SHORT).page_in(0, &mut [0; PAGE]), "no process of user 1000 serves");
}

#[test]
fn a_process_that_hangs_fails_its_own_calls_and_no_others() {
    let lines = Arc::new(PagerLines::default());
    let hangs = Player::start(&lines, NAME, 1, OWNER, |_| Act::Silence);
    let ram = Ram::default();
    let _works = Player::honest(&lines, "/pagers/good", 2, OWNER, &ram);
    let patient = pager(&lines, NAME, OWNER, LONG);
    let good = pager(&lines, "/pagers/good", OWNER, LONG);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..4u64)
            .map(|n| {
                let patient = &patient;
                scope.spawn(move || patient.page_in(n * 4096, &mut [0; PAGE]))
            })
            .collect();
        while hangs.calls.lock().unwrap().len() < waiters.len() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..20 {
            good.page_out(0, &[3; PAGE]).unwrap();
            good.page_in(0, &mut [0; PAGE]).unwrap();
        }
        failure(pager(&lines, NAME, OWNER, SHORT).page_in(0, &mut [0; PAGE]), "did not answer within 300 ms");
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "the process did not hang all the while");
        let _next = Player::honest(&lines, NAME, 3, OWNER, &Ram::default());
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap().unwrap());
    });
}

#[test]
fn a_process_that_does_not_even_read_cannot_hold_a_call_past_its_deadline() {
    let lines = Arc::new(PagerLines::default());
    let _deaf = Player::unread(&lines, NAME, 1, OWNER);
    let pager = pager(&lines, NAME, OWNER, SHORT);
    // The first of these fills the socket's buffer; the others cannot even be asked.
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..8)
            .map(|n| {
                scope.spawn({
                    let pager = &pager;
                    move || pager.page_out(n << 20, &[1; 32 * PAGE])
                })
            })
            .collect();
        let errors: Vec<_> =
            waiters.into_iter().map(|w| failure(w.join().unwrap(), "within 300 ms")).collect();
        assert!(errors.iter().any(|e| e.message.contains("did not even read")), "{errors:?}");
    });
}

#[test]
fn an_answer_that_comes_too_late_is_not_taken_for_another() {
    let lines = Arc::new(PagerLines::default());
    let mut asked = 0u8;
    let _slow = Player::start(&lines, NAME, 1, OWNER, move |_| {
        asked += 1;
        let data = PagerReply::Data(vec![asked; PAGE]);
        if asked == 1 { Act::Late(SHORT * 2, data) } else { Act::Reply(data) }
    });
    failure(pager(&lines, NAME, OWNER, SHORT).page_in(0, &mut [0; PAGE]), "did not answer");
    let mut page = [0; PAGE];
    pager(&lines, NAME, OWNER, LONG).page_in(0, &mut page).unwrap();
    assert_eq!(page, [2; PAGE], "the answer to the second question");
}

#[test]
fn another_process_that_serves_under_the_same_name_is_asked_instead() {
    let lines = Arc::new(PagerLines::default());
    let ram = Ram::default();
    pager(&lines, NAME, OWNER, SHORT).page_out(0, &[4; PAGE]).unwrap_err();
    let first = Player::start(&lines, NAME, 1, OWNER, |_| Act::Die);
    let pager = pager(&lines, NAME, OWNER, LONG);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pager.page_out(0, &[4; PAGE]));
        while first.calls.lock().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _second = Player::honest(&lines, NAME, 2, OWNER, &ram);
        waiter.join().unwrap().unwrap();
        let mut page = [0; PAGE];
        pager.page_in(0, &mut page).unwrap();
        assert_eq!(page, [4; PAGE]);
    });
}

#[test]
fn one_that_takes_over_while_the_first_hangs_is_asked_at_once() {
    let lines = Arc::new(PagerLines::default());
    let hangs = Player::start(&lines, NAME, 1, OWNER, |_| Act::Silence);
    let pager = pager(&lines, NAME, OWNER, LONG);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pager.page_out(0, &[4; PAGE]));
        while hangs.calls.lock().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _second = Player::honest(&lines, NAME, 2, OWNER, &Ram::default());
        waiter.join().unwrap().unwrap();
    });
    // The end of the first does not end the second.
    let _third = Player::honest(&lines, NAME, 3, OWNER, &Ram::default());
    drop(hangs);
    assert!(lines.serves(3) && !lines.serves(1));
    pager.page_out(0, &[4; PAGE]).unwrap();
}

#[test]
fn only_the_owner_of_an_object_or_root_supplies_its_pages() {
    let lines = Arc::new(PagerLines::default());
    let says = |byte: u8| move |_: &Event| Act::Reply(PagerReply::Data(vec![byte; PAGE]));
    let found = |uid, deadline| {
        let mut page = [0; PAGE];
        pager(&lines, NAME, uid, deadline).page_in(0, &mut page).map(|()| page[0])
    };
    let _stranger = Player::start(&lines, NAME, 1, 2000, says(1));
    failure(found(OWNER, SHORT).map(drop), "no process of user 1000 serves");
    let root = Player::start(&lines, NAME, 2, 0, says(2));
    assert_eq!(found(OWNER, LONG).unwrap(), 2);
    let _owner = Player::start(&lines, NAME, 3, OWNER, says(3));
    assert_eq!(found(OWNER, LONG).unwrap(), 3, "the owner's own comes first");
    assert_eq!(found(2000, LONG).unwrap(), 1, "and a name is nobody's alone");
    assert_eq!(found(0, LONG).unwrap(), 2);
    drop(root);
    failure(found(0, SHORT).map(drop), "no process of user 0 serves");
}

#[test]
fn a_connection_serves_one_name() {
    let lines = Arc::new(PagerLines::default());
    let player = Player::honest(&lines, NAME, 1, OWNER, &Ram::default());
    let (end, _other) = commonhold_sys::socket::pair().unwrap();
    let error = lines.connect("/pagers/second", 1, OWNER, Arc::new(end)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
    drop(player);
    assert!(!lines.serves(1));
}

/// A pager process outlives the host process that asked it, and answers both over the same socket: an answer to
/// the first must not look like one to the second.
#[test]
fn two_host_processes_never_ask_under_the_same_number() {
    let numbers = |_: u32| {
        let lines = Arc::new(PagerLines::default());
        let player = Player::honest(&lines, NAME, 1, OWNER, &Ram::default());
        let pager = pager(&lines, NAME, OWNER, LONG);
        (0..50).for_each(|n| pager.page_out(n * 4096, &[1; PAGE]).unwrap());
        player.calls.lock().unwrap().clone()
    };
    let first = numbers(1);
    std::thread::sleep(Duration::from_millis(5));
    let second = numbers(2);
    assert!(first.is_sorted() && second.is_sorted());
    assert!(first.iter().max() < second.iter().min(), "{first:?} and {second:?}");
}

#[test]
fn a_long_range_is_asked_in_messages_that_fit_and_in_order() {
    let lines = Arc::new(PagerLines::default());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (ram, noted) = (Ram::default(), asked.clone());
    let _player = Player::start(&lines, NAME, 1, OWNER, move |event| {
        match event {
            Event::PageIn { object, offset, length, .. } => {
                noted.lock().unwrap().push((object.clone(), *offset, *length))
            }
            Event::PageOut { object, offset, data, .. } => {
                noted.lock().unwrap().push((object.clone(), *offset, data.len() as u64));
            }
            _ => {}
        }
        Act::Reply(ram.answer(event))
    });
    let pager = pager(&lines, NAME, OWNER, LONG);
    let data: Vec<u8> = (0..70 * PAGE).map(|n| (n / 7) as u8).collect();
    pager.page_out(8192, &data).unwrap();
    let mut found = vec![0; data.len()];
    pager.page_in(8192, &mut found).unwrap();
    assert!(found == data);
    let parts = [(8192, 131_072), (139_264, 131_072), (270_336, 24_576)];
    let expected: Vec<_> =
        parts.iter().chain(&parts).map(|(o, l)| ("/lab/object".to_owned(), *o, *l)).collect();
    assert_eq!(*asked.lock().unwrap(), expected);
}
