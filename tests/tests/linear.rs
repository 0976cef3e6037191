//! Reads and writes of processes on several hosts, as they noted them, are those of one memory: in peace, and while
//! hosts are killed, stopped and cut off. What a loss may take is said in `commonhold-linear`, and only that is allowed.
//!
//! `COMMONHOLD_TESTS_ROUNDS` makes it longer, `COMMONHOLD_TESTS_SEED` repeats the choices of a run.

use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::field::{Field, HOME, Strike};
use std::time::Duration;

const OF_CLIENTS: [Strike; 1] = [Strike::Client];
const OF_PROCESSES: [Strike; 5] =
    [Strike::Client, Strike::Host, Strike::Keeper, Strike::Both, Strike::Machine];
const OF_ONE_PROCESS: [Strike; 3] = [Strike::Host, Strike::Client, Strike::Keeper];
const OF_TIME: [Strike; 4] = [Strike::Stop, Strike::Cut, Strike::Pause, Strike::Flicker];

fn in_peace(hosts: usize, options: &str) {
    let mut field = Field::new(hosts, 1, options);
    field.go_on_for(Duration::from_millis(50 * rounds(20) as u64));
    field.end();
}

/// Each kind of strike in turn, on hosts by chance, of three to five.
fn struck(options: &str, strikes: &[Strike], times: usize) {
    let hosts = 3 + Chance::new(&format!("hosts, {options}")).below(3) as usize;
    strike_all(Field::new(hosts, 2, options), options, strikes, times);
}

fn strike_all(mut field: Field, options: &str, strikes: &[Strike], times: usize) {
    let mut chance = Chance::new(options);
    for turn in 0..times {
        let strike = strikes[turn % strikes.len()];
        if matches!(strike, Strike::Cut | Strike::Flicker) && !field.has_wires() {
            continue;
        }
        let mut host = chance.below(field.hosts() as u64) as usize;
        // An object in memory dies with the whole machine that is its home.
        if strike == Strike::Machine && host == HOME {
            host = field.hosts() - 1;
        }
        eprintln!("{turn}: {strike:?} at host{host}");
        field.strike(host, strike, &mut chance);
    }
    field.end();
}

#[test]
fn two_hosts_are_one_memory() {
    in_peace(2, "central");
    in_peace(2, "forwarding");
}

#[test]
fn eight_hosts_are_one_memory() {
    in_peace(8, "central");
    in_peace(8, "forwarding");
}

/// Words that are neighbours in one page of the scheduler's, or of a host's, and on pages of their own elsewhere.
#[test]
fn hosts_with_pages_of_other_sizes_are_one_memory() {
    for options in
        ["central", "central page-size=8192", "central page-size=16384", "forwarding page-size=16384"]
    {
        let mut field = Field::of_sizes(&["4KiB", "8KiB", "16KiB"], 2, options);
        field.go_on_for(Duration::from_millis(50 * rounds(20) as u64));
        field.end();
    }
}

#[test]
fn killed_processes_of_hosts_with_pages_of_other_sizes() {
    for options in ["central=revert page-size=8192", "central"] {
        let field = Field::of_sizes(&["4KiB", "8KiB", "16KiB"], 2, options);
        strike_all(field, options, &OF_PROCESSES, rounds(5));
    }
}

#[test]
fn killed_processes_and_what_they_had_newest_reverts() {
    struck("central=revert", &OF_PROCESSES, rounds(10));
}

/// Where the keepers live, what a process had newest is given back: nothing may be lost at all.
#[test]
fn killed_processes_whose_keepers_live_lose_nothing() {
    for options in ["central", "central=revert"] {
        struck(options, &OF_ONE_PROCESS, rounds(8));
    }
}

#[test]
fn stopped_and_cut_off_hosts_and_what_they_had_newest_reverts() {
    struck("central=revert", &OF_TIME, rounds(6));
}

#[test]
fn killed_processes_and_what_they_had_newest_is_an_error() {
    struck("central", &OF_PROCESSES, rounds(10));
}

#[test]
fn stopped_and_cut_off_hosts_and_what_they_had_newest_is_an_error() {
    struck("central", &OF_TIME, rounds(6));
}

#[test]
fn killed_clients_under_forwarding() {
    struck("forwarding", &OF_CLIENTS, rounds(10));
}

#[test]
fn struck_hosts_under_forwarding() {
    for options in ["forwarding", "forwarding=revert"] {
        struck(options, &OF_PROCESSES, rounds(5));
        struck(options, &OF_TIME, rounds(3));
    }
}

#[test]
fn struck_hosts_under_forwarding_with_a_replica() {
    for options in ["forwarding=revert replicas=1", "forwarding replicas=1"] {
        struck(options, &OF_PROCESSES, rounds(5));
        struck(options, &OF_TIME, rounds(3));
    }
}
