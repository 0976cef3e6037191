//! Processes are killed while they send and receive: nothing that was sent is lost or comes twice,
//! and the queue goes on. And programs that write nonsense into a channel while others use it.

use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::huge::HugePages;
use commonhold_tests::ledger::Ledger;
use commonhold_tests::wait::{LONG, until};
use commonhold_tests::{TestHost, Worker};
use std::time::Duration;

const SENDERS: usize = 2;

/// Senders with numbered messages, and a receiver that looks whether any is missing.
struct Traffic {
    host: TestHost,
    path: String,
    sent: Ledger,
    received: Ledger,
    /// Some messages are so large that who is killed while copying one is a matter of course.
    most: usize,
}

impl Traffic {
    fn new(channel: &str, most: usize) -> (Traffic, Worker) {
        let host = TestHost::start();
        let path = host.scratch().join("ledger").display().to_string();
        let ledger = |what: &str| Ledger::open(format!("{path}-{what}").as_ref(), SENDERS + 1);
        let (sent, received) = (ledger("sent"), ledger("received"));
        let keeper = host.worker();
        keeper.ok(&format!("channel create c /ch {channel}"));
        (Traffic { host, sent, received, path, most }, keeper)
    }

    fn begin_sender(&self, entry: usize) -> Worker {
        let worker = self.host.worker();
        worker.ok("channel open c /ch");
        worker.send(&format!("channel flood c {entry} {}-sent 1000000000 {}", self.path, self.most));
        worker
    }

    fn begin_receiver(&self) -> Worker {
        let worker = self.host.worker();
        worker.ok("channel open c /ch");
        worker.send(&format!("channel drain c {}-received {}", self.path, SENDERS + 1));
        worker
    }

    /// Waits until something comes from each sender that was not there before.
    fn wait_for_progress(&self) {
        let seen = || [1, 2].map(|entry| self.received.get(entry).0);
        let before = seen();
        until("messages come from all senders", || {
            (0..SENDERS).all(|n| seen()[n] > before[n] + 3).then_some(())
        });
    }

    fn wait_until_all_is_received(&self) {
        until("what was sent is received", || {
            (1..=SENDERS).all(|entry| self.received.get(entry).0 >= self.sent.get(entry).0).then_some(())
        });
    }
}

#[test]
fn killed_senders_lose_nothing_that_was_sent() {
    let (traffic, keeper) = Traffic::new("4194304", 300_000);
    let mut chance = Chance::new("killed senders");
    let receiver = traffic.begin_receiver();
    let mut senders: Vec<Worker> = (1..=SENDERS).map(|entry| traffic.begin_sender(entry)).collect();
    let mut unsure = 0;
    for round in 0..rounds(60) {
        traffic.wait_for_progress();
        chance.pause(5);
        let entry = 1 + round % SENDERS;
        senders[entry - 1].kill();
        let (done, begun) = traffic.sent.get(entry);
        // Of the one that it was about to send nobody knows yet.
        unsure += begun - done;
        senders[entry - 1] = traffic.begin_sender(entry);
    }
    senders.iter().for_each(Worker::kill);
    unsure +=
        (1..=SENDERS).map(|entry| traffic.sent.get(entry)).map(|(done, begun)| begun - done).sum::<u64>();
    traffic.wait_until_all_is_received();
    keeper.ok("channel send c 0 end 10000");
    let missing: u64 = receiver.answer().unwrap().parse().unwrap();
    let all: u64 = (1..=SENDERS).map(|entry| traffic.received.get(entry).0).sum();
    eprintln!("{all} messages, {unsure} that were being sent, {missing} of those not");
    assert!(
        missing <= unsure,
        "{missing} are missing, and {unsure} were being sent when their senders were killed"
    );
    assert!(all >= (4 * SENDERS * rounds(60)) as u64, "{all}");
}

#[test]
fn killed_receivers_take_no_more_than_what_they_had() {
    let (traffic, keeper) = Traffic::new("4194304", 300_000);
    let mut chance = Chance::new("killed receivers");
    let senders: Vec<Worker> = (1..=SENDERS).map(|entry| traffic.begin_sender(entry)).collect();
    let rounds = rounds(60);
    let mut receiver = traffic.begin_receiver();
    for _ in 0..rounds {
        traffic.wait_for_progress();
        chance.pause(5);
        receiver.kill();
        receiver = traffic.begin_receiver();
    }
    senders.iter().for_each(Worker::kill);
    traffic.wait_until_all_is_received();
    keeper.ok("channel send c 0 end 10000");
    let missing: u64 = receiver.answer().unwrap().parse().unwrap();
    eprintln!("{missing} messages went with {rounds} receivers");
    // One that it had received and not noted, at most; and one of each sender that was being sent.
    assert!(missing <= (rounds + SENDERS) as u64, "{missing}");
}

#[test]
fn a_channel_outlives_all_that_use_it() {
    let (traffic, keeper) = Traffic::new("65536", 4000);
    let mut chance = Chance::new("all killed");
    for _ in 0..rounds(20) {
        let senders: Vec<Worker> = (1..=SENDERS).map(|entry| traffic.begin_sender(entry)).collect();
        let receiver = traffic.begin_receiver();
        traffic.wait_for_progress();
        chance.pause(3);
        let all = [senders[0].pid(), receiver.pid(), senders[1].pid()];
        commonhold_tests::host::kill_together(&all);
    }
    let receiver = traffic.begin_receiver();
    traffic.wait_until_all_is_received();
    keeper.ok("channel send c 0 end 10000");
    receiver.answer().unwrap();
}

#[test]
fn a_sender_that_died_with_a_landing_holds_it_until_it_is_withdrawn() {
    let Some(_pool) = HugePages::more(12) else { return };
    let host = TestHost::start();
    let receiver = host.worker();
    receiver.ok("channel create c /c/ch 4096");
    receiver.ok("create o /c/input size=16777216 wired");
    let mut chance = Chance::new("killed with a landing");
    let mut held = 0;
    for _ in 0..rounds(20) {
        let landing = receiver.ok("channel post c o 0 16777216");
        let sender = host.worker();
        sender.all("channel open c /c/ch\nchannel try-send c 1 here");
        assert_eq!(receiver.ok("channel receive c 1000"), "1 here");
        sender.send("channel region c 2 x 16777216 5 1000");
        chance.pause(40);
        sender.kill();
        match receiver.ask("channel receive c 0") {
            Ok(message) => assert_eq!(message, format!("2 x {landing} 16777216")),
            Err(refused) => {
                assert_eq!(refused.kind, "TimedOut", "{}", refused.message);
                held += 1;
                receiver.ok(&format!("channel withdraw c {landing}"));
            }
        }
    }
    eprintln!("{held} times nothing was sent");
    assert_eq!(receiver.ok("channel withdraw c all"), "0");
}

#[test]
fn a_stopped_owner_is_named_and_goes_on() {
    let (traffic, keeper) = Traffic::new("4194304", 2_000_000);
    let _receiver = traffic.begin_receiver();
    let senders: Vec<Worker> = (1..=SENDERS).map(|entry| traffic.begin_sender(entry)).collect();
    let said = until("one is stopped while it has the lock", || {
        commonhold_tests::host::stop(&[senders[0].pid()]);
        let refused = keeper.ask("channel send c 5 x 100").err();
        let refused = refused.filter(|refused| refused.message.contains("is in the queue"));
        if refused.is_none() {
            commonhold_tests::host::signal(senders[0].pid(), libc::SIGCONT);
            std::thread::sleep(Duration::from_micros(700));
        }
        refused
    });
    assert_eq!(said.kind, "TimedOut");
    let thread = senders[0].pid();
    assert!(said.message.contains(&format!("thread {thread} is in the queue")), "{}", said.message);
    commonhold_tests::host::signal(thread, libc::SIGCONT);
    until("it goes on", || keeper.ask("channel send c 5 x 100").ok());
}

#[test]
fn whatever_is_written_into_a_channel_nobody_crashes_or_hangs() {
    let host = TestHost::start();
    let mut chance = Chance::new("nonsense");
    let users: Vec<Worker> = (0..3).map(|_| host.worker()).collect();
    let mut damaged = 0;
    for round in 0..rounds(10) {
        let name = format!("/ch{round}");
        users[0].ok(&format!("channel create c {name} 4096"));
        users[1..].iter().for_each(|user| drop(user.ok(&format!("channel open c {name}"))));
        let attacker = host.worker();
        attacker.all(&format!("open o {name} rw\nmap m o rw shared 0 0"));
        // The line of the queue's own numbers, the landings, or all of it.
        let bytes = [32, 8192, 36_864][round % 3];
        attacker.ok(&format!("channel smash m {bytes} {}", chance.below(1 << 40)));
        let line = |n: u64| format!("channel hammer c 500 {n}");
        users.iter().for_each(|user| user.send(&line(chance.below(1 << 40))));
        for user in &users {
            let said = user.answer_within(LONG).expect("each call ends").expect("nobody crashes");
            damaged += said.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
        }
        drop(attacker);
        users.iter().for_each(|user| drop(user.ok("channel close c")));
        users[0].ok(&format!("remove {name}"));
    }
    assert!(damaged > 0, "somebody is told");
}
