//! A member that takes part in the scheduling of an object, where each is believed what it says of
//! its pages: that costs the others no more than that object.

use super::member;
use crate::Attack;
use crate::scene::{Members, Rights, name};
use commonhold_coherence::HostId;
use commonhold_coherence::forwarding::{Epoch, Message as Said, Standing, View};
use commonhold_host::cluster::wire::{Answer, Call, Message};
use commonhold_host::shared;
use commonhold_object::{Access, Credentials};
use commonhold_tests::stranger::Stranger;
use commonhold_tests::{TestHost, Worker, wait};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

pub(crate) const ATTACKS: &[Attack] = &[
    member("schedulers.strangers", "ask for pages for hosts that nobody knows, again and again", strangers),
    member("schedulers.losses", "say that thousands were lost, each followed by the next", losses),
    member("schedulers.members", "say that thousands take part", members),
    member("schedulers.never_settled", "never settle a loss, and ask for pages all the time", never_settled),
    member("schedulers.keepers", "hand pages over that thousands keep", keepers),
];

/// What a host may take more of memory.
pub(super) const MORE_BYTES: u64 = 24 << 20;
/// The longest that others wait.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// A member that takes part in `/public`, which everybody may open.
struct Fellow {
    stranger: Stranger,
    home: HostId,
    object: u128,
    /// Another host that takes part, and a process there.
    other: HostId,
    _worker: Worker,
}

impl Fellow {
    fn new(scene: &Members, number: u32) -> Fellow {
        let maker = scene.hosts[1].worker();
        maker.eventually("create p /public size=262144 forwarding mode=666");
        let stranger = scene.stranger(number, &format!("fellow{number}"), Rights::Write);
        let list = stranger.connect(&scene.address(0)).expect("it has a certificate");
        stranger.join(list, Vec::new()).expect("it belongs");
        let home = stranger.connect(&scene.address(1)).expect("it has a certificate");
        let who = || Credentials { uid: 0, gid: 0, groups: Vec::new() };
        let access = Access::ReadWrite;
        let open = Call::Open { name: name("/public"), who: who(), access };
        let object = match stranger.ask(home, open) {
            Ok(Answer::Opened(shared)) => shared.object,
            other => panic!("{other:?}"),
        };
        let worker = scene.hosts[0].worker();
        worker.eventually("open p /public rw");
        worker.all("map m p rw shared 0 0\nfill m 0 16 1");
        let this = Fellow { stranger, home, object, other: list, _worker: worker };
        wait::until("the home lets it begin", || {
            this.stranger.ask(home, Call::Use { object, who: who(), access, number: 1, types: 0 }).ok()
        });
        this.says(vec![Said::Join]);
        wait::until("it takes part", || this.hears_of_members().then_some(()));
        drop(maker);
        this
    }

    fn hears_of_members(&self) -> bool {
        let Some((_, Message::Coherence { messages, .. })) = self.stranger.hears_within(SOON) else {
            return false;
        };
        messages.iter().any(|said| matches!(said, shared::Said::Forwarding(Said::Welcome(_))))
    }

    /// Says it to the home; whether that still listens.
    fn says(&self, messages: Vec<Said>) -> bool {
        self.says_to(self.home, messages)
    }

    fn says_to(&self, host: HostId, messages: Vec<Said>) -> bool {
        let messages = messages.into_iter().map(shared::Said::Forwarding).collect();
        let message = Message::Coherence { object: self.object, home: Some(self.home), messages };
        self.stranger.tell(host, &message, &[]).is_ok()
    }

    fn hosts(&self, count: u32) -> impl Iterator<Item = HostId> {
        (0..count).map(|number| HostId(1_000_000 + number))
    }
}

pub(super) fn own_bytes(host: &TestHost) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.status().host_pid));
    let status = status.expect("the host's status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Lets the fellow say things: it costs the others little memory, and other objects of theirs no time.
fn is_borne(scene: &Members, number: u32, attack: impl FnOnce(&Fellow)) {
    let fellow = Fellow::new(scene, number);
    let before: Vec<u64> = scene.hosts.iter().map(own_bytes).collect();
    attack(&fellow);
    for host in [fellow.home, fellow.other] {
        // Answered when all before it has been heard, or the fellow is cut off.
        let asked = AssertUnwindSafe(|| fellow.stranger.ask(host, Call::WhereIs(fellow.object)));
        drop(catch_unwind(asked));
    }
    others_go_on(scene);
    for (host, before) in scene.hosts.iter().zip(before) {
        let more = own_bytes(host).saturating_sub(before);
        assert!(more < MORE_BYTES, "a host has {more} bytes more");
    }
}

/// Whoever has other objects on the hosts does not wait.
pub(super) fn others_go_on(scene: &Members) {
    for (at, host) in scene.hosts[..2].iter().enumerate() {
        let worker = host.worker();
        let (create, remove) =
            (format!("create c /others{at} size=65536 central"), format!("remove /others{at}"));
        for line in [&create, "map m c rw shared 0 0", "fill m 0 16 3", &remove] {
            worker.send(line);
            let answer =
                worker.answer_within(SOON).unwrap_or_else(|| panic!("{line}: no answer in {SOON:?}"));
            assert!(answer.is_ok(), "{line}: {answer:?}");
        }
    }
}

fn strangers(scene: &Members) {
    is_borne(scene, 300, |fellow| {
        // It is asked for its copy of the page, and never says that it gave it up: what others ask for waits.
        fellow.says(vec![Said::Read { page: 0, who: fellow.stranger.me.host, hops: 0 }]);
        fellow.says(vec![Said::Write { page: 0, who: fellow.stranger.me.host, keeps_copy: true }]);
        let hosts: Vec<HostId> = fellow.hosts(400_000).collect();
        for some in hosts.chunks(250) {
            let asks = some.iter().map(|who| Said::Read { page: 0, who: *who, hops: 0 });
            if !fellow.says(asks.collect()) {
                return;
            }
        }
    });
}

fn losses(scene: &Members) {
    is_borne(scene, 301, |fellow| {
        let all: Vec<HostId> = std::iter::once(fellow.other).chain(fellow.hosts(60_000)).collect();
        let lost = |some: &[HostId]| some.windows(2).map(|pair| (pair[0], Some(pair[1]))).collect();
        // All of them at once ends the session, so some at a time, again and again.
        for reverts in 1..5 {
            for some in [201, 401, 801, 1001, 1601] {
                if !fellow.says(vec![Said::Flush(Epoch { lost: lost(&all[..some]), reverts })]) {
                    return;
                }
            }
        }
        fellow.says(vec![Said::Flush(Epoch { lost: lost(&all), reverts: 9 })]);
    });
}

fn members(scene: &Members) {
    is_borne(scene, 302, |fellow| {
        let all: Vec<(HostId, u32)> = fellow.hosts(400_000).zip(5..).collect();
        for (reverts, some) in all.chunks(1000).enumerate().take(40) {
            let epoch = Epoch { reverts: reverts as u32, ..Epoch::default() };
            let view = View { ranks: some.iter().copied().collect(), epoch };
            let hello = vec![Said::Hello(view)];
            if !fellow.says(hello.clone()) || !fellow.says_to(fellow.other, hello) {
                return;
            }
        }
        let view = View { ranks: all.into_iter().collect(), epoch: Epoch::default() };
        fellow.says(vec![Said::Hello(view)]);
    });
}

fn never_settled(scene: &Members) {
    is_borne(scene, 303, |fellow| {
        let me = fellow.stranger.me.host;
        let epoch = Epoch { reverts: 1, ..Epoch::default() };
        // It is a round, and the fellow says that it is in it, and never what it has.
        fellow.says(vec![Said::Flush(epoch)]);
        for _ in 0..4000 {
            let asks = (0..250).map(|page| Said::Write { page: page % 64, who: me, keeps_copy: true });
            if !fellow.says(asks.collect()) {
                return;
            }
        }
    });
}

fn keepers(scene: &Members) {
    is_borne(scene, 304, |fellow| {
        let me = fellow.stranger.me.host;
        for page in 0..64 {
            fellow.says(vec![Said::Write { page, who: me, keeps_copy: true }]);
            let standing = Standing { owned: true, ..Standing::nothing(page) };
            fellow.says(vec![Said::Report {
                pages: vec![standing],
                settled_reverts: 0,
                speaks_for: fellow.hosts(100_000).collect(),
                is_last: false,
            }]);
        }
    });
}
