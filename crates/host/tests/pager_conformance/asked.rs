//! Questions to pager processes that no thread waits for: each is answered once, whatever the process does.

use crate::player::{Act, Player, Ram};
use commonhold_host::asker::Asker;
use commonhold_host::pagers::{Answer, ExternalPager, Pager, PagerLines};
use commonhold_object::wire::{Event, PagerReply};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const NAME: &str = "/pagers/odd";
const OWNER: u32 = 1000;
const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(60);

fn pager(lines: &Arc<PagerLines>, deadline: Duration) -> ExternalPager {
    ExternalPager::new(lines.clone(), NAME.into(), OWNER, "/lab/object".into(), deadline)
}

/// Asks for the page of that number; what was heard comes there.
fn ask(pager: &ExternalPager, asker: &Arc<Asker>, page: u64) -> Option<Receiver<Answer>> {
    let (sender, receiver) = channel();
    let then = Box::new(move |answer| sender.send(answer).unwrap());
    pager.ask(page * PAGE as u64, PAGE, asker, then).then_some(receiver)
}

/// What is heard, once and no more.
fn heard(receiver: &Receiver<Answer>) -> Result<u8, String> {
    let answer = receiver.recv_timeout(LONG).expect("somebody hears of it");
    assert!(receiver.recv_timeout(SHORT).is_err(), "once");
    match answer {
        Answer::Bytes(bytes, uid) => {
            assert_eq!((bytes.len(), uid), (PAGE, Some(OWNER)));
            Ok(bytes[0])
        }
        Answer::Failed(error) => Err(error.message),
        Answer::Gone => Err("gone".into()),
    }
}

/// What comes of one question to a process that behaves so.
fn ask_one(behave: impl FnMut(&Event) -> Act + Send + 'static) -> Result<u8, String> {
    let lines = Arc::new(PagerLines::default());
    let _player = Player::start(&lines, NAME, 1, OWNER, behave);
    heard(&ask(&pager(&lines, SHORT), &Asker::new(OWNER), 0).expect("somebody serves"))
}

fn data(byte: u8) -> PagerReply {
    PagerReply::Data(vec![byte; PAGE])
}

#[test]
fn answers_of_all_kinds_are_heard_once() {
    let length = |length: usize| ask_one(move |_| Act::Reply(PagerReply::Data(vec![1; length]))).unwrap_err();
    for wrong in [0, 1, PAGE - 1, PAGE + 1, 2 * PAGE] {
        assert!(length(wrong).contains(&format!("answered {wrong} bytes where 4096 were asked")));
    }
    assert!(ask_one(|_| Act::Reply(PagerReply::Stored)).unwrap_err().contains("answered `stored`"));
    let failed = |_: &Event| Act::Reply(PagerReply::Failed("the disk is on fire".into()));
    assert!(ask_one(failed).unwrap_err().contains("failed: the disk is on fire"));
    let wrong_number = |event: &Event| match event {
        Event::PageIn { call, .. } => Act::ReplyTo(call + 1, data(9)),
        _ => Act::Silence,
    };
    for late in [ask_one(wrong_number), ask_one(|_| Act::Silence)] {
        assert!(late.unwrap_err().contains("did not answer within 300 ms"));
    }
    for gone in [ask_one(|_| Act::Garbage), ask_one(|_| Act::Die)] {
        assert_eq!(gone.unwrap_err(), "gone", "others may be asked");
    }
    assert_eq!(ask_one(|_| Act::Reply(data(7))), Ok(7));
}

#[test]
fn answers_may_come_in_any_order_and_twice() {
    let lines = Arc::new(PagerLines::default());
    let mut first = None;
    // It answers the second question, then the first, then both again, and last one that nobody asked.
    let player = Player::start(&lines, NAME, 1, OWNER, move |event| match (event, first) {
        (Event::PageIn { call, .. }, None) => {
            first = Some(*call);
            Act::Silence
        }
        (Event::PageIn { call, .. }, Some(before)) => Act::All(vec![
            (*call, data(2)),
            (before, data(1)),
            (before, data(3)),
            (*call, data(4)),
            (before - 1, data(5)),
        ]),
        _ => Act::Silence,
    });
    let (pager, asker) = (pager(&lines, LONG), Asker::new(OWNER));
    let both = [0, 1].map(|page| ask(&pager, &asker, page).unwrap());
    assert_eq!(both.each_ref().map(heard), [Ok(1), Ok(2)]);
    assert_eq!(player.calls.lock().unwrap().len(), 2);
}

#[test]
fn nobody_is_asked_where_nobody_serves_or_reads() {
    let lines = Arc::new(PagerLines::default());
    let (pager, asker) = (pager(&lines, SHORT), Asker::new(OWNER));
    assert!(ask(&pager, &asker, 0).is_none());
    let _deaf = Player::unread(&lines, NAME, 1, OWNER);
    let asked: Vec<_> = (0..1 << 20).map_while(|page| ask(&pager, &asker, page)).collect();
    assert!(!asked.is_empty() && asked.len() < 1 << 20, "the socket fills");
    for one in asked {
        let Answer::Failed(error) = one.recv_timeout(LONG).unwrap() else { panic!("nobody reads it") };
        assert!(error.message.contains("did not answer within 300 ms"), "{error}");
    }
}

#[test]
fn who_is_replaced_is_gone_and_who_has_left_wants_nothing() {
    let lines = Arc::new(PagerLines::default());
    let _hangs = Player::start(&lines, NAME, 1, OWNER, |_| Act::Silence);
    let (pager, asker, leaves) = (pager(&lines, LONG), Asker::new(OWNER), Asker::new(OWNER));
    let (stays, goes) = (ask(&pager, &asker, 0).unwrap(), ask(&pager, &leaves, 1).unwrap());
    leaves.leave();
    assert!(heard(&goes).unwrap_err().contains("is not asked any more"));
    let ram = Ram::default();
    let _next = Player::honest(&lines, NAME, 2, OWNER, &ram);
    assert_eq!(heard(&stays).unwrap_err(), "gone");
    let again = ask(&pager, &asker, 0).unwrap();
    assert_eq!(heard(&again), Ok(0), "the next is asked");
    let _hangs_too = Player::start(&lines, NAME, 3, OWNER, |_| Act::Silence);
    let of_object = ask(&pager, &asker, 0).unwrap();
    pager.end();
    assert!(heard(&of_object).unwrap_err().contains("is not asked any more"));
}

/// Processes begin and end while threads ask: every question is heard of, once.
#[test]
fn no_question_is_forgotten_however_processes_come_and_go() {
    let lines = Arc::new(PagerLines::default());
    let until = Instant::now() + Duration::from_secs(2);
    let counts = Mutex::new([0u32; 3]);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (pager, asker) = (pager(&lines, LONG), Asker::new(OWNER));
                while Instant::now() < until {
                    let Some(asked) = ask(&pager, &asker, 0) else { continue };
                    let kind = match asked.recv_timeout(LONG).expect("it is heard of") {
                        Answer::Bytes(..) => 0,
                        Answer::Gone => 1,
                        Answer::Failed(_) => 2,
                    };
                    counts.lock().unwrap()[kind] += 1;
                }
            });
        }
        let mut left = 3;
        for session in 1.. {
            if Instant::now() > until {
                break;
            }
            let honest = Player::start(&lines, NAME, session, OWNER, move |_| {
                left = (left + 1) % 7;
                if left == 0 { Act::Silence } else { Act::Reply(data(1)) }
            });
            std::thread::sleep(Duration::from_millis(session % 4));
            drop(honest);
        }
    });
    let [answered, gone, failed] = counts.into_inner().unwrap();
    assert!(answered > 100 && gone > 10 && failed == 0, "{answered} {gone} {failed}");
}
