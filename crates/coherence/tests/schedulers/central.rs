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
        assert_eq!(actions.contains(&Action::Reverted { page: PAGE }), reverts, "{actions:?}");
        assert_eq!(home.table().lost_pages().is_empty(), reverts);
    }
}
