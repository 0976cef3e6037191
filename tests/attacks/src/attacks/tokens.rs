//! A member that takes part in mutexes which hosts share, where each is believed what it says of its own tokens: that costs
//! the others no more than those mutexes.

use super::member;
use super::schedulers::{MORE_BYTES, SOON, others_go_on, own_bytes};
use crate::Attack;
use crate::scene::{Members, Rights, name};
use commonhold_coherence::HostId;
use commonhold_host::cluster::wire::{Answer, Call, Message};
use commonhold_object::{Access, Credentials};
use commonhold_tests::stranger::Stranger;
use commonhold_tests::{Worker, wait};
use commonhold_tokens::{Has, Leaving, Message as Said, State};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) const ATTACKS: &[Attack] = &[
    member("tokens.counts", "say that tokens were counted as often as there are numbers", counts),
    member("tokens.early", "keep a count from its end, and hand tokens over with endless queues", early),
    member("tokens.strangers", "ask for all tokens for hosts that nobody knows", strangers),
];

/// All that one object holds.
const MUTEXES: u32 = 65_536;
/// Threads that a host may have more.
const MORE_THREADS: u64 = 32;

/// A member that takes part in the mutexes `/public`, which everybody may open.
struct Fellow {
    stranger: Stranger,
    home: HostId,
    object: u128,
    /// Processes with the object open: at the home, and at another host.
    workers: [Worker; 2],
}

impl Fellow {
    fn new(scene: &Members, number: u32) -> Fellow {
        let workers = [1, 0].map(|host| scene.hosts[host].worker());
        workers[0].eventually(&format!("by-name create m mutex /public hosts mode=0666 count={MUTEXES}"));
        workers[1].eventually("by-name open m mutex /public");
        let stranger = scene.stranger(number, &format!("fellow{number}"), Rights::Write);
        let list = stranger.connect(&scene.address(0)).expect("it has a certificate");
        stranger.join(list, Vec::new()).expect("it belongs");
        let home = stranger.connect(&scene.address(1)).expect("it has a certificate");
        let who = || Credentials { uid: 0, gid: 0, groups: Vec::new() };
        let access = Access::ReadWrite;
        let object = match stranger.ask(home, Call::Open { name: name("/public"), who: who(), access }) {
            Ok(Answer::Opened(shared)) => shared.object,
            other => panic!("{other:?}"),
        };
        wait::until("the home lets it begin", || {
            stranger.ask(home, Call::Use { object, who: who(), access, number: 1, types: 0 }).ok()
        });
        Fellow { stranger, home, object, workers }
    }

    /// Says it to the home; whether that still listens.
    fn says(&self, message: Said) -> bool {
        let message = Message::Tokens { object: self.object, message };
        self.stranger.tell(self.home, &message, &[]).is_ok()
    }

    /// What it hears of tokens next.
    fn hears(&self) -> Said {
        loop {
            match self.stranger.hears_within(SOON) {
                Some((_, Message::Tokens { message, .. })) => return message,
                Some(_) => {}
                None => panic!("it hears nothing"),
            }
        }
    }

    /// Takes part; gives the number of the count.
    fn joins(&self) -> u64 {
        self.says(Said::Join { count: 0, known: 0, has: Vec::new() });
        loop {
            if let Said::Begin { count, .. } = self.hears() {
                return count;
            }
        }
    }

    /// A count begins, and this host says nothing to it.
    fn holds_a_count_up(&self) {
        self.joins();
        let worker = &self.workers[1];
        worker.all("by-name lock m 5000\nby-name unlock m\nby-name close m");
        while !matches!(self.hears(), Said::Count { .. }) {}
    }
}

fn threads(host: &commonhold_tests::TestHost) -> u64 {
    let path = format!("/proc/{}/task", host.status().host_pid);
    std::fs::read_dir(path).expect("the host's threads").count() as u64
}

/// Lets the fellow say things: it costs the others little memory and few threads, and other objects of theirs no time.
fn is_borne(scene: &Members, number: u32, attack: impl FnOnce(&Fellow)) {
    let fellow = Fellow::new(scene, number);
    let before: Vec<_> = scene.hosts.iter().map(|host| (own_bytes(host), threads(host))).collect();
    attack(&fellow);
    // Answered when all before it has been heard, or the fellow is cut off.
    let asked = AssertUnwindSafe(|| fellow.stranger.ask(fellow.home, Call::WhereIs(fellow.object)));
    drop(catch_unwind(asked));
    others_go_on(scene);
    for (host, (bytes, many)) in scene.hosts.iter().zip(before) {
        let more = own_bytes(host).saturating_sub(bytes);
        assert!(more < MORE_BYTES, "a host has {more} bytes more");
        let more = threads(host).saturating_sub(many);
        assert!(more < MORE_THREADS, "a host has {more} threads more");
    }
}

fn early(scene: &Members) {
    is_borne(scene, 310, |fellow| {
        fellow.holds_a_count_up();
        let queue: Vec<HostId> = (0..200_000).map(HostId).collect();
        for index in 0..300 {
            let queue = queue.clone();
            if !fellow.says(Said::Token {
                count: u64::MAX,
                index,
                died: true,
                queue,
                state: State::default(),
            }) {
                return;
            }
        }
    });
}

fn strangers(scene: &Members) {
    is_borne(scene, 312, |fellow| {
        let count = fellow.joins();
        for index in 0..MUTEXES {
            if !fellow.says(Said::Request { count, index, by: HostId(1_000_000 + index) }) {
                return;
            }
        }
    });
}

/// The home's next process begins with the number that the fellow says: it must be able to count on.
fn counts(scene: &Members) {
    is_borne(scene, 313, |fellow| {
        fellow.joins();
        for count in [u64::MAX - 1, u64::MAX] {
            let has = Has::default();
            if !fellow.says(Said::Join { count, known: count, has: vec![has] }) {
                return;
            }
            while !matches!(fellow.hears(), Said::Begin { .. }) {}
        }
        fellow.says(Said::Leave(Leaving { known: 0, has: Vec::new() }));
        // Who takes part goes on.
        let worker = &fellow.workers[1];
        worker.eventually("by-name lock m 5000");
        worker.ok("by-name unlock m");
    });
}
