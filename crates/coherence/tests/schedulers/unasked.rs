//! What nobody asked for: whoever says it changes nothing of what others have.

use commonhold_coherence::forwarding::{Epoch, Message, Node, Options, View};
use commonhold_coherence::{Access, Action, Event, HostId, Scheduler, Span, explicit};
use std::collections::BTreeSet;

const PAGE: u32 = 5;
const OPTIONS: Options = Options {
    has_hold: false,
    patience: 64,
    on_loss: commonhold_coherence::central::OnLoss::Error,
    replicas: 0,
    migrates_after: 2,
};

fn said(node: &mut Node, from: u32, message: Message) -> Vec<Action<Message>> {
    let mut actions = Vec::new();
    node.handle(Event::Message { from: HostId(from), message }, &mut actions);
    actions
}

fn fault(node: &mut Node, access: Access) -> Vec<Action<Message>> {
    let mut actions = Vec::new();
    node.handle(Event::Fault { span: Span::one(PAGE), access, may_write: false }, &mut actions);
    actions
}

fn founders() -> [Node; 3] {
    let members = [0, 1, 2].map(HostId);
    members.map(|me| Node::founder(me, members[0], &members, OPTIONS))
}

fn hand_over() -> Message {
    Message::HandOver { page: PAGE, number: u64::MAX, keepers: BTreeSet::new(), before: BTreeSet::new() }
}

#[test]
fn pages_that_were_not_asked_for_are_not_taken_by_owners_or_others() {
    let unasked = [
        Message::Copy { page: PAGE },
        hand_over(),
        Message::Missing { page: PAGE },
        Message::NotRead { page: PAGE },
    ];
    for message in unasked {
        let [mut home, mut other, _] = founders();
        for node in [&mut home, &mut other] {
            let before = node.clone();
            assert_eq!(said(node, 2, message.clone()), [], "{message:?}");
            assert_eq!(*node, before, "{message:?}");
        }
        // Who asked to read does not get the page to own, nor the other way round.
        let asks = match message {
            Message::Copy { .. } => Access::Write,
            Message::HandOver { .. } => Access::Read,
            _ => continue,
        };
        assert!(!fault(&mut other, asks).is_empty());
        assert_eq!(said(&mut other, 2, message), []);
    }
}

#[test]
fn who_takes_no_part_is_not_heard_and_has_nothing_sent() {
    let [mut home, ..] = founders();
    for message in [
        Message::Read { page: PAGE, who: HostId(2), hops: 0 },
        Message::Write { page: PAGE, who: HostId(9), keeps_copy: true },
        Message::Invalidate { page: PAGE, owner: HostId(9), number: 0 },
        Message::Take { page: PAGE },
    ] {
        assert_eq!(said(&mut home, 9, message), []);
    }
    // Nor for others who take none.
    assert_eq!(said(&mut home, 1, Message::Read { page: PAGE, who: HostId(9), hops: 0 }), []);
    assert_eq!(said(&mut home, 1, Message::Write { page: PAGE, who: HostId(9), keeps_copy: true }), []);
    assert!(home.owns(PAGE));
}

#[test]
fn the_home_alone_gives_ranks() {
    let [mut home, ..] = founders();
    let ranks = [(HostId(1), 1), (HostId(7), u32::MAX)].into();
    said(&mut home, 1, Message::Hello(View { ranks, epoch: Epoch::default() }));
    said(&mut home, 8, Message::Join);
    assert_eq!(home.members().ranks[&HostId(8)], 3);
    assert!(!home.members().ranks.contains_key(&HostId(7)));
}

#[test]
fn copies_are_gone_when_who_has_them_says_so() {
    let [mut home, ..] = founders();
    said(&mut home, 1, Message::Read { page: PAGE, who: HostId(1), hops: 0 });
    fault(&mut home, Access::Write);
    assert_eq!(said(&mut home, 2, Message::Invalidated { page: PAGE }), [], "it is not that one's to say");
    let may_write = said(&mut home, 1, Message::Invalidated { page: PAGE });
    assert!(matches!(may_write[..], [Action::Install { access: Access::Write, .. }]), "{may_write:?}");
}

/// Of explicit coherence: as many syncs as memory holds, and each ends at once.
#[test]
fn a_long_queue_of_empty_syncs_takes_no_stack() {
    let (home, reader, writer) = (HostId(0), HostId(1), HostId(2));
    let mut node = explicit::Node::new(home, home);
    let mut actions = Vec::new();
    let mut say = |from, message| {
        actions.clear();
        node.handle(Event::Message { from, message }, &mut actions);
        actions.len()
    };
    say(reader, explicit::Message::Fetch { span: Span::one(PAGE) });
    say(writer, explicit::Message::Sync { pages: vec![PAGE] });
    for _ in 0..200_000 {
        say(reader, explicit::Message::Sync { pages: vec![] });
    }
    assert!(say(reader, explicit::Message::Known) > 200_000, "all of them are answered");
}
