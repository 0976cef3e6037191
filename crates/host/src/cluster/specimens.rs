//! One of every message: what hosts say to each other is pinned to the version that they tell, and tests make garbage of it.

use super::registry::{Before, Joined, News};
use super::wire::{Answer, Call, Claim, Keep, Member, Message, Moving, Shared};
use crate::shared::{Said, Seen, Told};
use commonhold_coherence::forwarding::{Epoch, Fate, Restored, Settled, Standing, View};
use commonhold_coherence::{Access as Right, HostId, Span, Why, central, explicit, forwarding};
use commonhold_object::{
    Access, Coherence, CreateOptions, Credentials, EntryInfo, Error, ErrorKind, Fixed, Losses, Name,
    ObjectId, ObjectInfo, OnLoss, Ownership, Scheduler, SessionId, Synced, Tagging,
};
use commonhold_tags::{Machine, Tag, Translated, Type, Types};
use std::time::Duration;

fn name() -> Name {
    Name::new("/a/b").unwrap()
}

fn member() -> Member {
    let (host, name, address) = (HostId(7), "seven".into(), ([192, 0, 2, 1], 7420).into());
    Member { host, name, address, former: vec![HostId(5), HostId(6)] }
}

fn claim() -> Claim {
    let fixed = Some((Fixed { address: 3 << 20, room_bytes: 2 << 20 }, 7));
    Claim { name: name(), object: 9, moving: None, fixed }
}

fn moving_claim() -> Claim {
    let about = shared(Coherence::Explicit);
    let (ownership, options) = (about.ownership, about.options);
    let moving = Moving { name: name(), ownership, options, path: "/srv/file".into() };
    Claim { moving: Some(Box::new(moving)), ..claim() }
}

fn news() -> News {
    News { epoch: 1, number: 2, settled: 3, members: vec![member()], lost: vec![(4, HostId(5))] }
}

fn leaving() -> commonhold_tokens::Leaving {
    use commonhold_tokens::{Has, Kept, Leaving};
    let kept = Kept { moves: 1, changes: 2, value: 3 };
    let (here, waits, died, readers) = (true, false, true, 4);
    let has = vec![Has { index: 1, here, waits, died, went_to: Some(HostId(2)), kept, readers }];
    Leaving { known: 2, has }
}

fn tokens() -> Vec<commonhold_tokens::Message> {
    use commonhold_tokens::{Kept, Message, Placed, State};
    let kept = Kept { moves: 1, changes: 2, value: 3 };
    let has = || leaving().has;
    let state = || State { kept, watchers: vec![HostId(2)], readers: vec![(HostId(3), 4)], is_missed: true };
    let placed =
        vec![Placed { index: 1, holder: HostId(2), died: true, queue: vec![HostId(3)], state: state() }];
    vec![
        Message::Request { count: 1, index: 2, by: HostId(3) },
        Message::Token { count: 1, index: 2, died: true, queue: vec![HostId(3)], state: state() },
        Message::Changed { count: 1, index: 2 },
        Message::Join { count: 1, known: 2, has: has() },
        Message::Leave(leaving()),
        Message::Count { count: 1 },
        Message::Counted { count: 1, known: 2, has: has() },
        Message::Begin { count: 1, placed },
    ]
}

fn who() -> Credentials {
    Credentials { uid: 1, gid: 2, groups: vec![3, 4] }
}

fn told() -> Told {
    Told { change: 1, size_bytes: 2, room_bytes: 3, grows: true }
}

fn tagging() -> Tagging {
    Tagging { offset: 4096, length: 8192, tag: "{24: 0 int32, 8 float64*2}".into() }
}

fn types() -> Types {
    let (integers, types) = (Tag::Of(Type::Integer(4)), Types::default());
    let types = types.tag(1, 2, &integers, Machine::BIG).expect("pages of integers");
    let record = Tag::of_text(&tagging().tag).expect("a record");
    types.tag(3, 4, &record, Machine::BIG).expect("pages of records")
}

fn lock() -> super::locks::Said {
    (SessionId(5), 6, 7)
}

fn shared(coherence: Coherence) -> Shared {
    let options = CreateOptions { coherence, types: types(), ..CreateOptions::default() };
    let ownership = Ownership { uid: 2, gid: 3, mode: 0o640 };
    Shared { object: 1, name: name(), ownership, options, loss_generation: 5 }
}

fn info() -> ObjectInfo {
    let Shared { name, ownership, options, .. } = shared(Coherence::Explicit);
    ObjectInfo {
        id: ObjectId(1),
        uuid: 11,
        name: Some(name),
        ownership,
        options,
        controlled: true,
        file_path: "/srv/file".into(),
        resident_bytes: 2,
        dirty_bytes: 3,
        spilled_bytes: 4,
        mappings: 5,
        opens: 6,
        charged_to: "a".into(),
        warning: "b".into(),
        home: "c".into(),
        is_elsewhere: true,
        page_tables: 0,
        modified_ns: 10,
        place: None,
        translated: Translated { pages: 11, losses: Default::default() },
        losses: Losses { lost_pages: 7, reverted_pages: 8, generation: 9 },
    }
}

fn range() -> commonhold_watches::Range {
    commonhold_watches::Range::new(100, 8).unwrap()
}

fn watches() -> Vec<commonhold_watches::Message> {
    use commonhold_watches::Message::{self, *};
    let list = vec![Changed { number: 3, ranges: [range()].into_iter().collect() }, Heard { number: 4 }];
    let all = |message: &Message| match message {
        Changed { .. } | Heard { .. } => {}
    };
    list.iter().for_each(all);
    list
}

fn central() -> Vec<central::Message> {
    use central::Message::*;
    let span = Span::new(1, 2);
    // A new message must come here, and into the list.
    let all = |message: &central::Message| match message {
        Request { .. } | Grant { .. } | Recall { .. } | Invalidate { .. } => {}
        PageOut { .. } | Done { .. } | Refuse { .. } => {}
    };
    let list = vec![
        Request { span, access: Right::Read, has_copy: true },
        Grant { span, access: Right::Write, with_data: false },
        Recall { page: 1, keep: Right::None },
        Invalidate { page: 2 },
        PageOut { page: 3, answers: true, keeps: Right::Read },
        Done { page: 4 },
        Refuse { span, why: Why::HomeLost },
        Refuse { span, why: Why::NewestLost },
    ];
    list.iter().for_each(all);
    list
}

fn explicit() -> Vec<explicit::Message> {
    use explicit::Message::*;
    let span = Span::new(1, 2);
    let all = |message: &explicit::Message| match message {
        Fetch { .. } | Pages { .. } | NotRead { .. } | Sync { .. } | Changed { .. } => {}
        Known | Synced | NotSynced | Leave => {}
    };
    let (pages, none) = (vec![3, 4], vec![]);
    let list = vec![
        Fetch { span },
        Pages { span },
        NotRead { span },
        Sync { pages },
        Changed { pages: none },
        Known,
        Synced,
        NotSynced,
        Leave,
    ];
    list.iter().for_each(all);
    list
}

fn forwarding() -> Vec<forwarding::Message> {
    use forwarding::Message::*;
    let (page, who, number) = (1, HostId(2), 3);
    let hosts = || [HostId(4), HostId(5)].into();
    let epoch = Epoch { lost: [(HostId(4), None), (HostId(5), Some(HostId(6)))].into(), reverts: 6 };
    let view = View { ranks: [(HostId(7), 8)].into(), epoch: epoch.clone() };
    let standing = Standing {
        page,
        owned: true,
        number: 1,
        has_copy: true,
        kept: None,
        sent_to: Some(who),
        lost: Some(2),
    };
    let owned = Fate::Owned { owner: who, number, copies: vec![HostId(9)], restored: Some(Restored::Older) };
    let settled = |fate| Settled { page, fate, keepers: hosts() };
    let all = |message: &forwarding::Message| match message {
        Read { .. } | Write { .. } | Insist { .. } | Copy { .. } | HandOver { .. } | Invalidate { .. } => {}
        Invalidated { .. } | Forget { .. } | Take { .. } | Missing { .. } | Replica { .. } | Held { .. } => {}
        NotRead { .. } => {}
        Join | Welcome(_) | Hello(_) | Known(_) | Flush(_) | Report { .. } | Settle { .. } => {}
    };
    let list = vec![
        Read { page, who, hops: 4 },
        Write { page, who, keeps_copy: true },
        Insist { page },
        Copy { page },
        HandOver { page, number, keepers: hosts(), before: hosts() },
        Invalidate { page, owner: who, number },
        Invalidated { page },
        Forget { page, number },
        Take { page },
        Missing { page },
        NotRead { page },
        Replica { page, number },
        Held { page },
        Join,
        Welcome(view.clone()),
        Hello(view.clone()),
        Known(view),
        Flush(epoch),
        Report { pages: vec![standing], settled_reverts: 2, speaks_for: vec![who], is_last: true },
        Settle { pages: vec![settled(owned), settled(Fate::Lost(3))], is_last: false },
    ];
    list.iter().for_each(all);
    list
}

fn calls(object: u128) -> Vec<Call> {
    let before = Before { epoch: 2, heard: 4, seen: 3 };
    let all = |call: &Call| match call {
        Call::Join { .. } | Call::Renew(_) | Call::Resign | Call::Claim(_) | Call::Names(_) => {}
        Call::Addresses { .. }
        | Call::Lookup(_)
        | Call::Open { .. }
        | Call::WhereIs(_)
        | Call::Use { .. }
        | Call::GaveUp { .. } => {}
        Call::GiveBack { .. }
        | Call::Valid { .. }
        | Call::Keep { .. }
        | Call::Kept { .. }
        | Call::HasCome { .. }
        | Call::Leave { .. }
        | Call::Sync { .. }
        | Call::Tag { .. }
        | Call::Resize { .. } => {}
        Call::Size { .. } | Call::Lock { .. } | Call::Unlock { .. } | Call::Locks { .. } => {}
        Call::About(_) | Call::Lost { .. } | Call::Look { .. } | Call::List { .. } => {}
        Call::TakesPart { .. } | Call::Remove { .. } | Call::Notify { .. } => {}
    };
    let keep = |what| Call::Keep { object, number: 8, what };
    let every = |what: &Keep| match what {
        Keep::Begin { .. } | Keep::Pages(_) | Keep::Newer { .. } | Keep::OnlyNewer { .. } => {}
        Keep::Resize(_) | Keep::Forget => {}
    };
    let kept = [
        Keep::Begin { size_bytes: 4096, anew: true },
        Keep::Pages(3),
        Keep::Newer { runs: vec![(4, 5)], are: true },
        Keep::OnlyNewer { runs: vec![(6, 7)], is_last: true },
        Keep::Resize(8192),
        Keep::Forget,
    ];
    kept.iter().for_each(every);
    let mut list = vec![
        Call::Join { member: member(), claims: vec![claim()], before: Some(before) },
        Call::Renew(before),
        Call::Resign,
        Call::Claim(moving_claim()),
        Call::Names(vec![claim()]),
        Call::Addresses { object, room_bytes: 2 << 20, uid: 7 },
        Call::Lookup(name()),
        Call::Open { name: name(), who: who(), access: Access::ReadWrite },
        Call::WhereIs(object),
        Call::Use { object, who: who(), access: Access::Read, number: 9, types: 3 },
        Call::GaveUp { home: HostId(1), object, former: HostId(2), number: 9 },
        Call::GiveBack { object, former: HostId(3), lent_by: Some(HostId(2)), pages: vec![(4, 5)] },
        Call::Valid { object, lost: HostId(3), from_page: 4 },
        Call::HasCome { object },
        Call::Leave { object, number: 9, tokens: None },
        Call::Leave { object, number: 9, tokens: Some(leaving()) },
        Call::Sync { object, offset: 4096, length: 8192, freeze: true },
        Call::Resize {
            name: name(),
            who: who(),
            size_bytes: 4096,
            sizing: commonhold_object::wire::Sizing::AtLeast,
            of: Some(7),
        },
        Call::Size { object, told: told() },
        Call::Lock { object, lock: lock() },
        Call::Unlock { object, lock: lock(), only_waits: true },
        Call::Locks { object, locks: vec![lock()] },
        Call::Kept { object, from_page: 4 },
        Call::TakesPart { object, host: HostId(2) },
        Call::About(object),
        Call::Lost { object, pages: (4, 5) },
        Call::Look { name: name(), who: who() },
        Call::List { directory: name(), after: Some(name()), who: who() },
        Call::Remove { name: name(), who: who(), of: Some(7) },
        Call::Tag { name: name(), who: who(), of: Some(7), tagging: tagging() },
        Call::Notify { object, range: range() },
    ];
    list.extend(kept.map(keep));
    list.iter().for_each(all);
    list
}

fn answers() -> Vec<Answer> {
    let joined = Joined { lease: Duration::from_millis(1500), news: news(), begin_at: 4 };
    let all = |answer: &Answer| match answer {
        Answer::Done | Answer::Joined(_) | Answer::Home(_) | Answer::Opened(_) | Answer::Synced(_) => {}
        Answer::Locks(_) | Answer::Used(_) | Answer::Valid { .. } | Answer::GivenBack { .. } => {}
        Answer::Keeps(_) | Answer::Kept { .. } | Answer::Named { .. } | Answer::Addresses(_) => {}
        Answer::About(_) | Answer::Lost(_) | Answer::Entry(_) | Answer::Entries { .. } => {}
    };
    let strict = |scheduler, on_loss| Coherence::Strict { scheduler, on_loss, hold_us: 5 };
    let central = strict(Scheduler::Central { reader_bound: 6 }, OnLoss::Error);
    let opened = [Coherence::Explicit, central, strict(Scheduler::Forwarding, OnLoss::Revert)];
    let opened = opened.map(|coherence| Answer::Opened(Box::new(shared(coherence))));
    let Shared { name, ownership, .. } = shared(Coherence::Local);
    let directory = EntryInfo::Directory { name, ownership };
    let mut list = vec![
        Answer::Done,
        Answer::Joined(Box::new(joined)),
        Answer::Home(HostId(1)),
        Answer::Named { home: HostId(1), object: 2 },
        Answer::Addresses(3 << 20),
        Answer::Synced(Synced { pages: 2, loss_generation: 3 }),
        Answer::Locks(vec![lock()]),
        Answer::Used(told()),
        Answer::Valid { pages: vec![3], more: true, loss_generation: 4 },
        Answer::Keeps(true),
        Answer::Kept { pages: vec![3], newer: vec![4], next: Some(5) },
        Answer::GivenBack {
            pages: vec![3],
            untouched: vec![4],
            kept: vec![(5, 6, Some(HostId(7))), (8, 9, None)],
            seen: Some(Seen { by: vec![HostId(7)], numbers: vec![(5, 6)] }),
        },
        Answer::About(Box::new(info())),
        Answer::Lost(vec![(3, 4)]),
        Answer::Entry(Box::new(EntryInfo::Object(Box::new(info())))),
        Answer::Entries { entries: vec![directory], more: true },
    ];
    list.extend(opened);
    list.iter().for_each(all);
    list
}

/// One of each kind, about that object. (A kind that is missing here does not compile.)
pub fn messages(object: u128) -> Vec<Message> {
    let said = central().into_iter().map(Said::Central);
    let said = said.chain(explicit().into_iter().map(Said::Explicit));
    let said = said.chain(forwarding().into_iter().map(Said::Forwarding));
    let mut list: Vec<Message> = said
        .map(|message| Message::Coherence { object, home: Some(HostId(7)), messages: vec![message] })
        .collect();
    list.extend(calls(object).into_iter().map(|call| Message::Call { number: 1, call }));
    list.extend(answers().into_iter().map(|answer| Message::Answer { number: 2, answer: Ok(answer) }));
    list.extend(tokens().into_iter().map(|message| Message::Tokens { object, message }));
    list.extend(watches().into_iter().map(|message| Message::Watches { object, message }));
    let refused = Err(Error::new(ErrorKind::Protocol, "why")); // the last kind
    list.extend([
        Message::Answer { number: 3, answer: refused },
        Message::News(news()),
        Message::Part { is_first: false, is_last: true },
    ]);
    let all = |message: &Message| match message {
        Message::Coherence { .. } | Message::Call { .. } | Message::Answer { .. } => {}
        Message::News(_) | Message::Part { .. } | Message::Tokens { .. } | Message::Watches { .. } => {}
    };
    list.iter().for_each(all);
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;
    use crate::shared::MOST_TOGETHER;
    use commonhold_peers::PROTOCOL_VERSION;

    #[test]
    fn no_more_than_may_go_together_is_a_message() {
        let done = Said::Central(central::Message::Done { page: 1 });
        for (count, good) in [(0, false), (1, true), (MOST_TOGETHER, true), (MOST_TOGETHER + 1, false)] {
            let message = Message::Coherence { object: 1, home: None, messages: vec![done.clone(); count] };
            let bytes = postcard::to_stdvec(&message).unwrap();
            assert_eq!(postcard::from_bytes::<Message>(&bytes).is_ok(), good, "{count}");
        }
    }

    /// Whoever changes a message, in form or meaning, from the first release on gives `PROTOCOL_VERSION` in
    /// `crates/peers/src/hello.rs` the next number. Until then the golden file alone changes: hosts of two builds that were not
    /// released are not meant to understand each other.
    #[test]
    fn messages_are_those_of_their_version() {
        let written: Vec<Vec<u8>> =
            messages(1).iter().map(|message| postcard::to_stdvec(message).unwrap()).collect();
        let written = golden::together(&written);
        let kept = golden::check(env!("CARGO_MANIFEST_DIR"), "messages", PROTOCOL_VERSION.into(), &written);
        for one in golden::apart(&kept) {
            let message: Message = postcard::from_bytes(&one).unwrap();
            assert_eq!(postcard::to_stdvec(&message).unwrap(), one);
        }
    }
}
