//! Two hosts that cannot reach each other, though both reach the registry: neither is lost, and what they share goes on for
//! both, from one version.

use commonhold_tests::cluster::{says, sharers_from, until_says};
use commonhold_tests::network::Network;
use commonhold_tests::{MIB, TestHost, Worker, left_out};
use std::time::Duration;

/// The home of the object; host 0 keeps the list, and host 2 is parted from the home.
const HOME: usize = 1;
const PAIR: [usize; 2] = [HOME, 2];

/// Of a host that passes nothing on.
const ALONE: &[&str] = &["--lease", "5", "--no-relay"];

struct Setting {
    workers: Vec<Worker>,
    hosts: Vec<TestHost>,
    network: Network,
}

impl Setting {
    /// All have 256 pages of version 1, which are synced, and host 2 has the first ten of version 2. `more`: words for host 0.
    fn new(options: &str, more: &[&'static str]) -> Option<Setting> {
        let network = Network::new(3).map_err(|why| left_out(&why.to_string())).ok()?;
        let host = |number: usize| {
            let (name, own, list) = (format!("host{number}"), network.listen(number), network.listen(0));
            let mut words = vec!["--plain", "--even-beyond-loopback", "--listen", &own, "--name", &name];
            let join = ["--join", list.as_str()];
            words.extend(if number == 0 { more } else { &join });
            let before = network.before(number);
            TestHost::by(&before.iter().map(String::as_str).collect::<Vec<_>>(), &words)
        };
        let hosts: Vec<TestHost> = (0..3).map(host).collect();
        let workers = sharers_from(&hosts, HOME, "/parted", &format!("size={MIB} {options}"));
        workers[HOME].all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
        workers[2].ok("fill m 0 10 2");
        Some(Setting { workers, hosts, network })
    }

    fn nobody_is_lost(&self) {
        for host in &self.hosts {
            let lost = (0..3).any(|number| says(host, &format!("host{number} is lost")));
            assert!(!lost, "{}", host.log());
        }
    }
}

/// What they say to each other goes through the one that both reach: nobody begins anew, nothing is lost, and nothing waits longer
/// than a broken connection takes to be noticed.
#[test]
fn hosts_that_are_parted_speak_through_another() {
    for options in ["central", "forwarding"] {
        let Some(Setting { workers, hosts, network }) = Setting::new(options, &["--lease", "5"]) else {
            return;
        };
        network.part(PAIR, true);
        workers[HOME].ok("check m 0 10 2");
        for round in 3..7 {
            let (writer, reader) = if round % 2 == 0 { (HOME, 2) } else { (2, HOME) };
            workers[writer].ok(&format!("fill m 0 20 {round}"));
            workers[reader].ok(&format!("check m 0 20 {round}"));
        }
        workers[0].ok("check m 0 20 6");
        until_says(&hosts[0], "what they say to each other is passed on here");
        let listed = |number: usize| hosts[number].command(&["hosts"], |_| {}).unwrap();
        let of_pair = PAIR.map(listed);
        assert!(of_pair.iter().any(|list| list.contains("reached through host0")), "{of_pair:?}");
        assert!(!listed(0).contains("through"), "{}", listed(0));
        for host in &hosts {
            for word in ["beginning again", "begins anew", "may be lost", "were lost"] {
                assert!(!says(host, word), "{options}: {}", host.log());
            }
        }
        network.part(PAIR, false);
        workers[2].ok("check m 20 10 1");
        Setting { workers, hosts, network }.nobody_is_lost();
    }
}

/// The host that keeps the list is one of the two: who cannot reach it renews its lease through another.
#[test]
fn a_lease_is_renewed_through_another_host() {
    let Some(Setting { workers, hosts, network }) = Setting::new("forwarding", &["--lease", "36"]) else {
        return;
    };
    network.part([0, 2], true);
    workers[2].ok("fill m 0 10 3");
    until_says(&hosts[1], "what they say to each other is passed on here");
    std::thread::sleep(Duration::from_secs(40)); // longer than its lease
    workers[2].ok("fill m 0 10 4");
    workers[0].ok("check m 0 10 4");
    network.part([0, 2], false);
    Setting { workers, hosts, network }.nobody_is_lost();
}

/// They reach each other again in time: who asked for a page waited, and gets what is newest.
#[test]
fn hosts_that_are_parted_for_a_moment_lose_nothing() {
    for options in ["central", "forwarding"] {
        let Some(Setting { workers, hosts, network }) = Setting::new(options, ALONE) else { return };
        network.part(PAIR, true);
        workers[HOME].send("check m 0 10 2");
        let waits = workers[HOME].answer_within(Duration::from_millis(500));
        assert!(waits.is_none(), "{options}: no version without who has the newest: {waits:?}");
        workers[0].ok("check m 20 10 1"); // the home serves others
        network.part(PAIR, false);
        assert_eq!(workers[HOME].answer().as_deref(), Ok(""), "{options}");
        workers[2].all("check m 0 10 2\nfill m 3 1 3");
        workers[0].all("check m 3 1 3\ncheck m 4 6 2");
        Setting { workers, hosts, network }.nobody_is_lost();
    }
}

/// For so long that they do not wait for each other any more: what the other had newest is lost, wholly, and said; when they reach
/// each other again there is one version for both.
#[test]
fn hosts_that_are_parted_for_long_go_on_with_one_version() {
    let Some(Setting { workers, hosts, network }) = Setting::new("central=revert", ALONE) else { return };
    network.part(PAIR, true);
    workers[HOME].ok("check m 0 10 1");
    until_says(&hosts[HOME], "newest versions of 10 pages are lost with host2");
    workers[HOME].ok("fill m 0 1 4");
    workers[0].all("check m 0 1 4\ncheck m 1 9 1");
    // Whoever is parted waits, and sees nothing older than the home has.
    workers[2].send("check m 0 1 4");
    network.part(PAIR, false);
    assert_eq!(workers[2].answer().as_deref(), Ok(""));
    workers[2].all("check m 1 9 1\nfill m 5 1 5");
    workers[HOME].all("check m 5 1 5\ncheck m 0 1 4");
    Setting { workers, hosts, network }.nobody_is_lost();
}
