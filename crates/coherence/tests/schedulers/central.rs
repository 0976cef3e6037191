//! Figures 2 to 4 of the paper, transition by transition, and its counts of messages.

use commonhold_coherence::central::{Home, Message, OnLoss, Options, State};
use commonhold_coherence::{Access, Action, HostId, Span};

const PAGE: u32 = 3;

fn host(number: u32) -> HostId {
    HostId(number)
}

fn request(home: &mut Home, from: u32, access: Access) -> Vec<(u32, Message)> {
    sent(home, from, Message::Request { span: Span::one(PAGE), access, has_copy: false })
}

fn sent(home: &mut Home, from: u32, message: Message) -> Vec<(u32, Message)> {
    let mut actions = Vec::new();
    home.handle(host(from), message, &mut actions);
    let only_messages =
        |action| if let Action::Send { to, message } = action { Some((to.0, message)) } else { None };
    actions.into_iter().filter_map(only_messages).collect()
}

fn grant(to: u32, access: Access) -> (u32, Message) {
    (to, Message::Grant { span: Span::one(PAGE), access, with_data: true })
}

fn paged_out(keeps: Access) -> Message {
    Message::PageOut { page: PAGE, answers: true, keeps }
}

#[test]
fn figure_2_read_faults() {
    let mut home = Home::new(Options::default());
    assert_eq!(home.state(PAGE), State::Read);
    assert_eq!(request(&mut home, 1, Access::Read), [grant(1, Access::Read)], "Read: provided at once");
    assert_eq!(home.table().readers(PAGE), [host(1)]);
    let mut home = Home::new(Options::default());
    request(&mut home, 1, Access::Write);
    assert_eq!(home.state(PAGE), State::Write);
    let asked = request(&mut home, 2, Access::Read);
    assert_eq!(asked, [(1, Message::Recall { page: PAGE, keep: Access::Read })], "Write: the owner is asked");
    assert_eq!(home.state(PAGE), State::ReadWait);
    assert_eq!(request(&mut home, 3, Access::Read), [], "else: just enqueued");
    assert_eq!(home.state(PAGE), State::ReadWait);
    let answers = sent(&mut home, 1, paged_out(Access::Read));
    assert_eq!(answers, [grant(2, Access::Read), grant(3, Access::Read)], "all readers at once");
    assert_eq!((home.state(PAGE), home.table().owner(PAGE)), (State::Read, None));
}

/// Two readers want to write: the second has no copy any more when its turn comes, though it had one when it asked.
#[test]
fn a_copy_that_was_taken_meanwhile_is_not_counted_on() {
    let mut home = Home::new(Options::default());
    let upgrade = || Message::Request { span: Span::one(PAGE), access: Access::Write, has_copy: true };
    request(&mut home, 1, Access::Read);
    request(&mut home, 2, Access::Read);
    assert_eq!(sent(&mut home, 2, upgrade()), [(1, Message::Invalidate { page: PAGE })]);
    assert_eq!(sent(&mut home, 1, upgrade()), [], "it has not heard yet that its copy goes");
    let granted = sent(&mut home, 1, Message::Done { page: PAGE });
    let as_it_is = Message::Grant { span: Span::one(PAGE), access: Access::Write, with_data: false };
    assert_eq!(granted, [(2, as_it_is), (2, Message::Recall { page: PAGE, keep: Access::None })]);
    assert_eq!(sent(&mut home, 2, paged_out(Access::None)), [grant(1, Access::Write)], "with the bytes");
}

#[test]
fn figure_3_write_faults() {
    let mut home = Home::new(Options::default());
    request(&mut home, 1, Access::Read);
    request(&mut home, 2, Access::Read);
    let asked = request(&mut home, 1, Access::Write);
    assert_eq!(asked, [(2, Message::Invalidate { page: PAGE })], "every other reader loses its copy");
    assert_eq!(home.state(PAGE), State::WriteWait, "and must say so first: the paper grants at once");
    let granted = sent(&mut home, 2, Message::Done { page: PAGE });
    assert_eq!(granted, [grant(1, Access::Write)]);
    assert_eq!((home.state(PAGE), home.table().owner(PAGE)), (State::Write, Some(host(1))));
    assert_eq!(
        request(&mut home, 2, Access::Write),
        [(1, Message::Recall { page: PAGE, keep: Access::None })]
    );
    assert_eq!(home.state(PAGE), State::WriteWait);
    assert_eq!(request(&mut home, 3, Access::Write), [], "asked already");
}

/// A host that has left the object off before its grant came answers for a page that nobody wrote.
#[test]
fn an_owner_that_has_nothing_is_none() {
    let mut home = Home::new(Options::default());
    request(&mut home, 1, Access::Write);
    assert_eq!(
        request(&mut home, 2, Access::Read),
        [(1, Message::Recall { page: PAGE, keep: Access::Read })]
    );
    assert_eq!(sent(&mut home, 1, Message::Done { page: PAGE }), [grant(2, Access::Read)]);
    assert_eq!((home.state(PAGE), home.table().owner(PAGE)), (State::Read, None));
    assert_eq!(request(&mut home, 3, Access::Read), [grant(3, Access::Read)], "nobody is asked again");
}

#[test]
fn an_upgrade_needs_no_bytes() {
    let mut home = Home::new(Options::default());
    request(&mut home, 1, Access::Read);
    let upgrade = Message::Request { span: Span::one(PAGE), access: Access::Write, has_copy: true };
    let unlocked = Message::Grant { span: Span::one(PAGE), access: Access::Write, with_data: false };
    assert_eq!(sent(&mut home, 1, upgrade), [(1, unlocked)], "memory_object_data_unlock");
}

#[test]
fn figure_4_page_outs() {
    let mut home = Home::new(Options::default());
    request(&mut home, 1, Access::Write);
    let out = Message::PageOut { page: PAGE, answers: false, keeps: Access::None };
    assert_eq!(sent(&mut home, 1, out), [], "a true page-out");
    assert_eq!((home.state(PAGE), home.table().owner(PAGE)), (State::Read, None));
    request(&mut home, 1, Access::Write);
    request(&mut home, 2, Access::Write);
    request(&mut home, 3, Access::Read);
    request(&mut home, 4, Access::Write);
    let next = sent(&mut home, 1, paged_out(Access::None));
    let recalled = |from| (from, Message::Recall { page: PAGE, keep: Access::None });
    assert_eq!(next, [grant(2, Access::Write), recalled(2)], "the next writer, who is asked for it at once");
    assert_eq!(home.state(PAGE), State::WriteWait);
    let next = sent(&mut home, 2, paged_out(Access::None));
    let for_reading = (4, Message::Recall { page: PAGE, keep: Access::Read });
    assert_eq!(next, [grant(4, Access::Write), for_reading], "writers before readers");
    assert_eq!(home.state(PAGE), State::ReadWait);
    assert_eq!(sent(&mut home, 4, paged_out(Access::Read)), [grant(3, Access::Read)]);
    assert_eq!(home.state(PAGE), State::Read);
}

/// Writers who ask again as soon as the page is taken from them, and a reader among them. Gives how many of them got the
/// page after the reader had asked and before it did; none: a hundred, and it still waits.
fn writers_before_a_reader(reader_bound: u32, writers: u32) -> Option<u32> {
    const READER: u32 = 99;
    let mut home = Home::new(Options { reader_bound, ..Options::default() });
    let write = Message::Request { span: Span::one(PAGE), access: Access::Write, has_copy: false };
    let read = Message::Request { span: Span::one(PAGE), access: Access::Read, has_copy: false };
    let mut under_way: std::collections::VecDeque<(u32, Message)> =
        (1..=writers).map(|from| (from, write.clone())).collect();
    under_way.push_back((READER, read));
    let mut before = 0;
    while let Some((from, message)) = under_way.pop_front() {
        for (to, answer) in sent(&mut home, from, message) {
            match answer {
                Message::Grant { .. } if to == READER => return Some(before),
                Message::Grant { .. } => before += 1,
                Message::Recall { keep, .. } => {
                    under_way.extend([(to, paged_out(keep)), (to, write.clone())]);
                }
                other => panic!("{other:?} to {to}"),
            }
        }
        if before > 100 {
            return None;
        }
    }
    panic!("nobody asks any more");
}

#[test]
fn readers_are_not_overtaken_for_ever() {
    assert_eq!(writers_before_a_reader(0, 4), None, "without a bound: for ever, as in the paper");
    for writers in 2..=6 {
        for bound in 1..=8 {
            let before = writers_before_a_reader(bound, writers);
            // The first had the page when the reader came. The bound is reached when the last of `bound` others is served;
            // those who wait then are before it still, and nobody who comes later is.
            let most = 1 + bound + writers - 1;
            assert!(
                before.is_some_and(|before| before <= most),
                "bound {bound}, {writers} writers: {before:?}"
            );
        }
    }
}

/// Readers that take turns do so on all pages of their requests: one that waits for two is not overtaken on either.
#[test]
fn a_reader_of_two_pages_is_not_overtaken_for_ever() {
    let mut home = Home::new(Options { reader_bound: 2, ..Options::default() });
    let both = Span::new(PAGE, 2);
    let write = |page| Message::Request { span: Span::one(page), access: Access::Write, has_copy: false };
    for from in 1..=3 {
        sent(&mut home, from, write(PAGE));
        sent(&mut home, from + 3, write(PAGE + 1));
    }
    sent(&mut home, 9, Message::Request { span: both, access: Access::Read, has_copy: false });
    let mut owners = [1, 4];
    for turn in 0..40 {
        for (at, page) in [(0, PAGE), (1, PAGE + 1)] {
            let keep = match home.table().owner(page) {
                Some(owner) => {
                    owners[at] = owner.0;
                    Message::PageOut { page, answers: true, keeps: Access::None }
                }
                None => continue,
            };
            let answers = sent(&mut home, owners[at], keep);
            if answers.iter().any(|(to, answer)| *to == 9 && matches!(answer, Message::Grant { .. })) {
                assert!(turn >= 2, "it may be overtaken twice");
                return;
            }
            sent(&mut home, owners[at], write(page));
        }
    }
    panic!("the reader waits for ever");
}

#[test]
fn a_cycle_of_writers_takes_four_messages_a_fault() {
    for hosts in 2..=64 {
        let mut home = Home::new(Options::default());
        request(&mut home, hosts, Access::Write); // the page is out before the first cycle
        let mut messages = 0;
        for _cycle in 0..5 {
            let mut under_way: std::collections::VecDeque<(u32, Message)> = (1..=hosts)
                .map(|from| {
                    (from, Message::Request { span: Span::one(PAGE), access: Access::Write, has_copy: false })
                })
                .filter(|(from, _)| home.table().owner(PAGE) != Some(host(*from)))
                .collect();
            while let Some((from, message)) = under_way.pop_front() {
                messages += 1;
                for (to, answer) in sent(&mut home, from, message) {
                    messages += 1;
                    if matches!(answer, Message::Recall { .. }) {
                        under_way.push_back((to, paged_out(Access::None)));
                    }
                }
            }
        }
        // Whoever has the page at the start of a cycle takes no fault.
        let faults = 5 * (hosts - 1);
        assert_eq!(messages, 4 * faults, "{hosts} hosts");
    }
}

#[test]
fn the_home_says_which_pages_went_back() {
    for (on_loss, reverts) in [(OnLoss::Error, false), (OnLoss::Revert, true)] {
        let mut home = Home::new(Options { on_loss, ..Options::default() });
        assert_eq!(request(&mut home, 1, Access::Write), [grant(1, Access::Write)]);
        let mut actions = Vec::new();
        home.lose(host(2), &mut actions);
        assert!(actions.is_empty(), "it had nothing: {actions:?}");
        home.lose(host(1), &mut actions);
        let lost = Action::NewestLost { page: PAGE, older_serves: reverts };
        assert_eq!(actions, [lost], "it is said however it is dealt with");
        assert_eq!(home.table().lost_pages().is_empty(), reverts);
    }
}
