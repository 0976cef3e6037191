//! A host with more shared objects than one message can name: it belongs, and goes on belonging, to its cluster.

use commonhold_tests::cluster::cluster;
use commonhold_tests::{TestHost, wait};

/// Names of a thousand bytes, and as many as say 70 KiB.
const NAMES: usize = 70;

#[test]
fn a_host_with_more_names_than_a_message_holds_joins_again_and_renames() {
    let hosts = cluster(2);
    let (list, home) = (hosts[0].worker(), hosts[1].worker());
    home.eventually("create w /warm size=4096 strict");
    let part = "n".repeat(240);
    let directory = format!("/{part}/{part}/{part}");
    let name = |number: usize| format!("{directory}/{number:0>240}");
    for number in 0..NAMES {
        home.ok(&format!("create o {} size=4096 strict mode=666", name(number)));
        home.ok("close o");
    }
    // It tells all of them to the list's next process.
    let before = hosts[0].status().host_pid;
    hosts[0].kill_host();
    hosts[0].wait_for_other_host(before);
    list.eventually(&format!("open o {} r", name(NAMES - 1)));
    // What it renames is free, and so is what it removes: the names are told before the call returns.
    home.ok(&format!("rename {} /short", name(0)));
    home.ok(&format!("remove {}", name(1)));
    for number in [0, 1] {
        list.ok(&format!("create o {} size=4096 strict", name(number)));
    }
    // The next process joins with them, too.
    let before = hosts[1].status().host_pid;
    hosts[1].kill_host();
    hosts[1].wait_for_other_host(before);
    let reader = hosts[0].worker();
    reader.eventually(&format!("open o {} r", name(NAMES - 1)));
    reader.eventually("open s /short r");
    assert!(!hosts[1].log().contains("too long"), "{}", hosts[1].log());
    wait::until("both belong", || (hosts[0].connect().hosts().ok()?.len() == 2).then_some(()));
}

/// A name that is claimed while the registry is told all others is not given up as one of none of them.
fn makes_while_others_are_told(hosts: &[TestHost], options: &str) {
    const MADE: usize = 60;
    let (makes, renames, opens) = (hosts[1].worker(), hosts[1].worker(), hosts[0].worker());
    makes.eventually("create w /warm size=4096 strict");
    renames.ok("create a /here size=4096 strict");
    std::thread::scope(|scope| {
        let making = scope.spawn(move || {
            for number in 0..MADE {
                makes.all(&format!("create o /made/{number} size=4096 {options}\nclose o"));
            }
        });
        while !making.is_finished() {
            renames.all("rename /here /there\nrename /there /here");
        }
    });
    (0..MADE).for_each(|number| drop(opens.ok(&format!("open o{number} /made/{number} r"))));
}

#[test]
fn names_that_are_claimed_while_others_are_told_are_kept() {
    makes_while_others_are_told(&cluster(2), "strict");
}

#[cfg(feature = "etcd")]
#[test]
fn names_that_are_claimed_in_etcd_while_others_are_told_are_kept() {
    let Some(etcd) = commonhold_tests::etcd::Etcd::start() else { return };
    let hosts: Vec<TestHost> = (0..2).map(|number| etcd.host(number)).collect();
    makes_while_others_are_told(&hosts, "home-moves strict replicas=1");
}
