//! Mutexes that hosts share while clients, host processes, keepers and whole machines are killed, stopped, replaced and ended:
//! `docs/PRIMITIVES.md`, "Between hosts".

use commonhold_tests::cluster::{address_of, brief_cluster, cluster, free_address};
use commonhold_tests::contended::Notes;
use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::host::{has_ended, kill_together, signal};
use commonhold_tests::wait::until;
use commonhold_tests::{TestHost, Worker};

/// Contenders of one mutex, each with the number of its host.
struct Field {
    hosts: Vec<TestHost>,
    notes: Notes,
    contenders: Vec<(usize, Worker)>,
    /// They change a strict object, too, that the mutex guards.
    guarded: bool,
}

impl Field {
    fn begin(hosts: Vec<TestHost>, guarded: bool) -> Field {
        let notes = Notes::open(&hosts[0].scratch().join("notes"));
        let maker = hosts[0].worker();
        maker.ok("by-name create m mutex /m hosts");
        maker.ok("create o /guarded size=4096 strict");
        let mut field = Field { hosts, notes, contenders: Vec::new(), guarded };
        (0..field.hosts.len() * 2).for_each(|number| field.add(number / 2));
        field
    }

    fn add(&mut self, host: usize) {
        let worker = self.hosts[host].worker();
        let mapping = if self.guarded {
            worker.eventually("open o /guarded rw");
            worker.ok("map g o rw shared 0 0");
            "g"
        } else {
            "-"
        };
        worker.send(&format!("by-name contend /m {} {mapping}", self.notes.path()));
        self.contenders.push((host, worker));
    }

    /// One is killed, whatever it does, and another takes its place.
    fn kill_one(&mut self, chance: &mut Chance) {
        let (host, worker) = self.contenders.remove(chance.below(self.contenders.len() as u64) as usize);
        worker.kill();
        self.add(host);
    }

    /// One is stopped for a while.
    fn stop_one(&self, chance: &mut Chance) {
        let (_, worker) = &self.contenders[chance.below(self.contenders.len() as u64) as usize];
        signal(worker.pid(), libc::SIGSTOP);
        chance.pause(300);
        signal(worker.pid(), libc::SIGCONT);
    }

    fn any_host(&self, chance: &mut Chance) -> &TestHost {
        &self.hosts[chance.below(self.hosts.len() as u64) as usize]
    }

    /// All get it.
    fn goes_on(&self) {
        self.contenders.iter().for_each(|(_, worker)| {
            assert!(!has_ended(worker.pid()), "a contender ended by itself");
            let said = worker.answer_within(std::time::Duration::ZERO);
            assert!(said.is_none(), "{}: {said:?}", worker.pid());
        });
        let pids: Vec<u32> = self.contenders.iter().map(|(_, worker)| worker.pid()).collect();
        self.notes.wait_for(&pids);
    }

    fn end(self) {
        self.notes.end();
        self.contenders.iter().for_each(|(_, worker)| drop(worker.answer().expect("it ends")));
        self.notes.check();
    }
}

fn joins(host: &TestHost, name: &str) -> TestHost {
    let (own, list) = (free_address(), address_of(host));
    TestHost::with(&["--plain", "--name", name, "--listen", &own, "--join", &list])
}

/// Several threads of each host want it all the time, and each gets it as often as another, nearly.
#[test]
fn nobody_gets_it_always_before_another_of_the_same_host() {
    let field = Field::begin(cluster(3), false);
    field.goes_on();
    until("they took it often", || (field.notes.count() > 20_000).then_some(()));
    let times: Vec<usize> =
        field.contenders.iter().map(|(_, worker)| field.notes.times_of(worker.pid())).collect();
    let all: usize = times.iter().sum();
    assert!(times.iter().all(|times| times * 25 > all), "of {all} times they had it {times:?}");
    field.end();
}

#[test]
fn it_is_one_threads_whoever_is_killed_or_replaced() {
    let mut chance = Chance::new("it_is_one_threads_whoever_is_killed_or_replaced");
    let mut field = Field::begin(cluster(3), true);
    let rounds = rounds(20);
    for round in 0..rounds {
        field.goes_on();
        let what = chance.below(6);
        eprintln!("round {round}: {what}, {} notes", field.notes.count());
        match what {
            0 => field.kill_one(&mut chance),
            1 => field.any_host(&mut chance).kill_host(),
            2 => field.any_host(&mut chance).kill_keeper(),
            3 => field.stop_one(&mut chance),
            4 => {
                let host = field.any_host(&mut chance);
                // The one before may have been killed a moment ago: it is asked again.
                let keeper = round.is_multiple_of(2);
                until("it is replaced", || host.connect().replace(None, keeper).ok());
            }
            _ => {
                field.any_host(&mut chance).kill_host();
                field.kill_one(&mut chance);
            }
        }
        if round == rounds / 2 {
            let other = joins(&field.hosts[0], "other");
            field.hosts.push(other);
            let number = field.hosts.len() - 1;
            field.add(number);
        }
    }
    field.goes_on();
    field.end();
}

#[test]
fn no_two_are_its_owners_to_the_end_whatever_machine_is_lost() {
    let mut chance = Chance::new("no_two_are_its_owners_to_the_end_whatever_machine_is_lost");
    let mut field = Field::begin(brief_cluster(3), false);
    for round in 0..rounds(6) {
        field.goes_on();
        let (what, which) = (chance.below(5), 1 + chance.below(2) as usize);
        eprintln!("round {round}: {what} of {which}, {} notes", field.notes.count());
        let host = &field.hosts[which];
        match what {
            // Host and keeper, and clients live.
            0 => {
                host.kill_both();
                host.start_again().expect("it starts");
            }
            // All at once, as if the power failed.
            1 => {
                let (there, others): (Vec<_>, Vec<_>) =
                    field.contenders.drain(..).partition(|(at, _)| *at == which);
                field.contenders = others;
                let clients = there.iter().map(|(_, worker)| worker.pid()).collect();
                kill_together(&[host.processes(), clients].concat());
                host.start_again().expect("it starts");
                there.iter().for_each(|_| field.add(which));
            }
            // For longer than the lease: the others take it for lost.
            2 => {
                let all = host.processes();
                all.iter().for_each(|pid| signal(*pid, libc::SIGSTOP));
                std::thread::sleep(std::time::Duration::from_millis(2000 + chance.below(2000)));
                all.iter().for_each(|pid| signal(*pid, libc::SIGCONT));
            }
            // The whole machine stands still.
            3 => {
                let there = field.contenders.iter().filter(|(at, _)| *at == which);
                let clients = there.map(|(_, worker)| worker.pid()).collect();
                let all = [host.processes(), clients].concat();
                all.iter().for_each(|pid| signal(*pid, libc::SIGSTOP));
                std::thread::sleep(std::time::Duration::from_millis(2000 + chance.below(2000)));
                all.iter().for_each(|pid| signal(*pid, libc::SIGCONT));
            }
            _ => {
                host.kill_host();
                field.kill_one(&mut chance);
            }
        }
    }
    field.goes_on();
    field.end();
}
