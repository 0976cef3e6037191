//! The strategies of `examples/strategies` keep what `docs/STRATEGIES.md` says that they promise, on two hosts; and without what
//! they do nobody keeps it.

use commonhold_tests::c_program::{CProgram, Running};
use commonhold_tests::cluster::{another, cluster, counts, sharers, sharers_of};
use commonhold_tests::{TestHost, Worker};
use std::collections::BTreeMap;

/// A strategy that works ends long before.
const PATIENCE_S: u32 = 120;
/// One that does nothing waits in vain.
const IN_VAIN_S: u32 = 3;

/// The strategy, and the same without one of its calls.
fn compiled(name: &str, without: &str) -> (CProgram, CProgram) {
    let source = format!("examples/strategies/{name}.c");
    (CProgram::new(&source, &[]), CProgram::new(&source, &[without]))
}

fn two_hosts() -> Vec<TestHost> {
    let hosts = cluster(2);
    let worker = hosts[1].worker();
    worker.eventually("create o /begun size=4096 explicit"); // it belongs to the cluster
    hosts
}

/// What good ends said.
fn all_well(processes: Vec<Running>) -> Vec<String> {
    let ends: Vec<(bool, String)> = processes.into_iter().map(Running::end).collect();
    assert!(ends.iter().all(|(well, _)| *well), "{ends:?}");
    ends.into_iter().map(|(_, said)| said).collect()
}

#[test]
fn transparent_sharing_is_one_order_for_all() {
    let hosts = two_hosts();
    let (strategy, nothing) = compiled("transparent", "ch_sync");
    // Home and another, two processes of one host, and each the other way round.
    for (round, [one, other]) in [[0, 1], [1, 0], [1, 1], [0, 0]].into_iter().enumerate() {
        let words = |me: u32| format!("/t{round} {me} 100 {PATIENCE_S}");
        let (one, other) = (&hosts[one], &hosts[other]);
        let said = all_well(vec![strategy.start(one, &words(0)), strategy.start(other, &words(1))]);
        assert_eq!(said, ["100 rounds\n", "100 rounds\n"]);
    }
    let words = |me: u32| format!("/nothing {me} 100 {IN_VAIN_S}");
    let both = [nothing.start(&hosts[0], &words(0)), nothing.start(&hosts[1], &words(1))];
    assert!(both.into_iter().map(Running::end).any(|(well, _)| !well), "nobody told anybody anything");
}

#[test]
fn entry_consistency_lets_one_in_who_sees_what_the_last_did() {
    let hosts = two_hosts();
    let count = |strategy: &CProgram, name: &str, patience_s: u32| -> String {
        let words = format!("{name} 50 {patience_s}");
        // While these have it mapped, no end of a process is a sync.
        let _mapped = sharers_of(&hosts, name, "size=12288 explicit");
        let all = [0, 1, 0, 1].map(|host| strategy.start(&hosts[host], &words));
        let ends: Vec<(bool, String)> = all.into_iter().map(Running::end).collect();
        if ends.iter().any(|(well, _)| !well) {
            return format!("{ends:?}");
        }
        strategy.start(&hosts[0], &format!("{name} 0 {patience_s}")).end().1
    };
    let (strategy, unsynced) = compiled("entry", "ch_sync");
    assert_eq!(count(&strategy, "/entry", PATIENCE_S), "200\n");
    assert_ne!(count(&unsynced, "/unsynced", IN_VAIN_S), "200\n", "nobody told anybody anything");
    let unlocked = CProgram::new("examples/strategies/entry.c", &["ch_lock", "ch_unlock"]);
    assert_ne!(count(&unlocked, "/unlocked", IN_VAIN_S), "200\n", "hosts were within together");
}

#[test]
fn a_process_that_is_killed_within_keeps_nobody_out() {
    let hosts = two_hosts();
    let (strategy, _) = compiled("entry", "ch_sync");
    for host in [&hosts[1], &hosts[0], &hosts[1]] {
        let killed = strategy.start(host, &format!("/killed 1000000 {PATIENCE_S}"));
        strategy.start(host, &format!("/killed 20 {PATIENCE_S}")).end();
        drop(killed); // wherever it is
        for next in &hosts {
            let (_, said) = strategy.start(next, &format!("/killed 3 {PATIENCE_S}")).end();
            // It may have been killed in the middle: then the pages differ, and the next one says so, but nobody waits.
            assert!(!said.contains("waited too long"), "{said}");
        }
    }
}

#[test]
fn what_is_published_comes_whole_in_order_and_the_last_of_it_for_certain() {
    let hosts = two_hosts();
    let (strategy, nothing) = compiled("publish", "ch_sync");
    for (round, publisher) in [0, 1].into_iter().enumerate() {
        let words = |role: &str| format!("/p{round} {role} 100 {PATIENCE_S}");
        let subscribers = [0, 1, 1].map(|host| strategy.start(&hosts[host], &words("subscriber")));
        let publishing = strategy.start(&hosts[publisher], &words("publisher"));
        let said = all_well(subscribers.into());
        assert!(said.iter().all(|said| said.contains("the last of each topic among them")), "{said:?}");
        assert_eq!(all_well(vec![publishing]), ["published\n"]);
    }
    let publishing = nothing.start(&hosts[0], &format!("/nothing publisher 100 {PATIENCE_S}"));
    let (well, said) = nothing.start(&hosts[1], &format!("/nothing subscriber 100 {IN_VAIN_S}")).end();
    assert!(!well && said.contains("waited too long for a publication"), "{said}");
    drop(publishing);
}

#[test]
fn each_buffer_of_a_ring_comes_once_and_in_order() {
    let hosts = two_hosts();
    let (strategy, nothing) = compiled("ring", "ch_sync");
    for (round, [producer, consumer]) in [[0, 1], [1, 0], [1, 1]].into_iter().enumerate() {
        let words = |role: &str| format!("/r{round} {role} 200 {PATIENCE_S}");
        let consuming = strategy.start(&hosts[consumer], &words("consumer"));
        let producing = strategy.start(&hosts[producer], &words("producer"));
        assert_eq!(all_well(vec![producing, consuming]), ["200 buffers\n", "200 buffers\n"]);
    }
    let words = |role: &str| format!("/nothing {role} 200 {IN_VAIN_S}");
    let both = [nothing.start(&hosts[0], &words("producer")), nothing.start(&hosts[1], &words("consumer"))];
    assert!(both.into_iter().map(Running::end).all(|(well, _)| !well), "nobody told anybody anything");
}

/// Messages about the object between hosts so far, by name.
fn messages(hosts: &[TestHost]) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for host in hosts {
        for message in counts(host, "/shared").messages {
            *all.entry(message.name).or_default() += message.sent;
        }
    }
    all
}

/// What came by this, such as `2 changed, 2 known`.
fn cost(hosts: &[TestHost], act: impl FnOnce()) -> String {
    let before = messages(hosts);
    act();
    let new = messages(hosts).into_iter().map(|(name, count)| {
        let old = before.get(&name).copied().unwrap_or_default();
        (name, count - old)
    });
    let said: Vec<String> =
        new.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}")).collect();
    said.join(", ")
}

#[test]
fn the_calls_cost_as_many_messages_as_the_table_says() {
    let hosts = cluster(3);
    let workers = sharers(&hosts, 16 * 4096, "explicit");
    let neighbour = another(&hosts[2], "/shared");
    for (page, synced) in [(0, "2 changed, 2 known"), (1, "1 changed, 1 known, 1 sync, 1 synced")] {
        let (writer, sync) = (&workers[page], format!("sync o {} 4096", page * 4096));
        let has = |seed: u32| format!("check m {page} 1 {seed}");
        writer.all(&format!("fill m {page} 1 1\n{sync}"));
        let read = |worker: &Worker| cost(&hosts, || drop(worker.ok(&has(1))));
        // Whoever has not the page fetches it, and its neighbours on that host have it then; at its home nobody asks.
        let asks: Vec<String> = workers.iter().map(read).collect();
        let fetched = |host: usize| if host == 0 || host == page { "" } else { "1 fetch, 1 pages" };
        assert_eq!(asks, [0, 1, 2].map(fetched));
        assert_eq!(read(&neighbour), "");
        // Each host that has it is told.
        writer.ok(&format!("fill m {page} 1 2"));
        assert_eq!(cost(&hosts, || drop(writer.ok(&sync))), synced);
        // Who asks what is here asks nobody else, and finds that the page is not.
        let here = |worker: &Worker| worker.ok(&format!("incore o {} 4096", page * 4096));
        let asking = cost(&hosts, || {
            let states: Vec<String> = workers.iter().map(here).collect();
            assert!((0..3).all(|host| (states[host] == "A") == (host != page)), "{states:?}");
        });
        assert_eq!(asking, "");
    }
}
