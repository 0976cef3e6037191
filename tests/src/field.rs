//! A cluster whose clients note what they read and write of one shared object, while its hosts are struck.
//!
//! What may be lost is taken from who was struck and from what the logs say of other hosts: on a machine that is slow
//! enough a lease ends by itself, and that is no fault. When it may be lost ends with the strike: then every client has
//! used every register again.

use crate::cluster::free_address;
use crate::crash::Chance;
use crate::host::{kill_together, signal};
use crate::left_out::left_out;
use crate::network::Network;
use crate::{PAGE, Scratch, TestHost, Worker, wait};
use commonhold_linear::trouble::{self, Window};
use commonhold_linear::{Act, History, Kept, Loss, OnLoss, Operation, check, now, record};
use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

/// Words that are read and written, each on a page of its own.
pub const REGISTERS: u32 = 3;
/// Seconds of a lease.
const LEASE: u64 = 2;
/// The host on which the object is made; host 0 keeps the list.
pub const HOME: usize = 1;
/// How long nobody reverts what was lost, so that others see the error too.
const GRIEF: Duration = Duration::from_millis(30);

/// What is done to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// One of its clients is killed.
    Client,
    /// Its process is killed.
    Host,
    /// Its keeper is killed.
    Keeper,
    /// Host and keeper are killed; clients live on, and keep what they have mapped until the next host is there.
    Both,
    /// Host, keeper and clients are killed, as when the machine dies.
    Machine,
    /// Its process is stopped for less than the lease.
    Pause,
    /// Its process is stopped for good: its keeper acts.
    Stop,
    /// Its wire is down for less than the lease.
    Flicker,
    /// Its wire is down for longer than the lease.
    Cut,
}

/// A client process.
struct Client {
    host: usize,
    worker: Worker,
    notes: PathBuf,
}

/// The whole.
pub struct Field {
    clients: Vec<Client>,
    /// Notes of all processes that ever were.
    notes: Vec<PathBuf>,
    /// What is not in the notes: errors, reverts.
    more: Vec<Operation>,
    /// The last operation of these was ended by SIGBUS, then.
    failed: HashMap<PathBuf, u64>,
    losses: Vec<Loss>,
    /// How many leases of one host ended between the last two looks at its log, at most.
    leases: usize,
    /// Of clients whose host and keeper were dead: what they did then is discarded.
    windows: Vec<Window>,
    hosts: Vec<TestHost>,
    network: Option<Network>,
    scratch: Scratch,
    options: String,
    /// Of hosts whose pages are larger than 4 KiB, what they are started with.
    page_sizes: Vec<String>,
    on_loss: OnLoss,
    each: usize,
    started: u32,
    /// How much of each log was looked at.
    read: Vec<usize>,
    /// The end of the last strike.
    quiet_since: u64,
}

impl Field {
    /// Starts `hosts` hosts with `each` clients on each, which begin at once. `options` are those of the object.
    pub fn new(hosts: usize, each: usize, options: &str) -> Field {
        Field::of_sizes(&vec!["4KiB"; hosts], each, options)
    }

    /// The same, of hosts with pages of these sizes.
    pub fn of_sizes(sizes: &[&str], each: usize, options: &str) -> Field {
        let hosts = sizes.len();
        let network = match Network::new(hosts) {
            Ok(network) => Some(network),
            Err(why) => {
                left_out(&format!("hosts that are cut off from each other ({why})"));
                None
            }
        };
        let list = network.as_ref().map_or_else(free_address, |network| network.listen(0));
        let mut this = Field {
            clients: Vec::new(),
            notes: Vec::new(),
            more: Vec::new(),
            failed: HashMap::new(),
            losses: Vec::new(),
            leases: 0,
            windows: Vec::new(),
            hosts: Vec::new(),
            network,
            scratch: Scratch::new(),
            options: options.to_owned(),
            page_sizes: sizes.iter().map(|size| (*size).to_owned()).collect(),
            on_loss: if options.contains("revert") { OnLoss::Revert } else { OnLoss::Error },
            each,
            started: 0,
            read: vec![0; hosts],
            quiet_since: now(),
        };
        (0..hosts).for_each(|number| this.start_host(number, &list));
        for host in (HOME..hosts).chain(0..HOME) {
            (0..each).for_each(|_| this.start_client(host));
        }
        this.wait_for_progress();
        this
    }

    /// Whether hosts can be cut off.
    pub fn has_wires(&self) -> bool {
        self.network.is_some()
    }

    fn is_forwarded(&self) -> bool {
        self.options.starts_with("forwarding")
    }

    /// How many hosts there are.
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    fn start_host(&mut self, number: usize, list: &str) {
        let own = match (&self.network, number) {
            (_, 0) => list.to_owned(),
            (Some(network), _) => network.listen(number),
            (None, _) => free_address(),
        };
        let (name, lease) = (format!("host{number}"), LEASE.to_string());
        let size = self.page_sizes[number].clone();
        let mut words = vec!["--plain", "--listen", &own, "--name", &name, "--page-size", &size];
        words.extend(if number == 0 { ["--lease", &lease] } else { ["--join", list] });
        words.extend(self.network.as_ref().map(|_| "--even-beyond-loopback"));
        let before = self.network.as_ref().map(|network| network.before(number)).unwrap_or_default();
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        let host = if before.is_empty() { TestHost::with(&words) } else { TestHost::by(&before, &words) };
        self.hosts.push(host);
    }

    fn start_client(&mut self, host: usize) {
        self.started += 1;
        let worker = self.hosts[host].worker();
        if self.notes.is_empty() {
            let size = REGISTERS as usize * PAGE;
            worker.eventually(&format!("create o /words size={size} {}", self.options));
        } else {
            worker.eventually("open o /words rw");
        }
        let notes = self.scratch.join(&format!("notes-{}", self.started));
        worker.ok("map m o rw shared 0 0");
        let path = notes.display();
        worker.ok(&format!("record m o {REGISTERS} {path} {host} {} 40 300 0", self.started));
        self.notes.push(notes.clone());
        self.clients.push(Client { host, worker, notes });
    }

    /// Lets all clients go on for a while.
    pub fn go_on_for(&mut self, time: Duration) {
        let end = std::time::Instant::now() + time;
        while std::time::Instant::now() < end {
            self.wait_for_progress();
        }
    }

    /// Waits until every client has used every register again. Those that an error ended are replaced, and what was
    /// lost is reverted.
    fn wait_for_progress(&mut self) {
        let begun = |client: &Client| record::begun(&client.notes).unwrap_or(0);
        let mut wanted: HashMap<PathBuf, u64> = HashMap::new();
        wait::until("every client goes on", || {
            let ended: Vec<usize> =
                (0..self.clients.len()).filter(|n| self.clients[*n].worker.has_ended()).collect();
            if !ended.is_empty() {
                self.bury(&ended);
                self.revert();
            }
            for host in 0..self.hosts.len() {
                let here = self.clients.iter().filter(|client| client.host == host).count();
                (here..self.each).for_each(|_| self.start_client(host));
            }
            let more = 2 * u64::from(REGISTERS) + 1;
            self.clients
                .iter()
                .all(|client| {
                    let goal = *wanted.entry(client.notes.clone()).or_insert_with(|| begun(client) + more);
                    begun(client) >= goal
                })
                .then_some(())
        });
    }

    /// Clients that ended by themselves: an error is all that may end them.
    fn bury(&mut self, ended: &[usize]) {
        for index in ended.iter().rev() {
            let client = self.clients.swap_remove(*index);
            let status = client.worker.wait();
            assert_eq!(status.signal(), Some(libc::SIGBUS), "a client of host{}: {status:?}", client.host);
            self.failed.insert(client.notes, now());
        }
    }

    fn revert(&mut self) {
        std::thread::sleep(GRIEF);
        let start = now();
        let worker = self.hosts[HOME].worker();
        worker.eventually("revert /words");
        let end = Some(now());
        let host = HOME as u8;
        let one = |register| Operation { register, host, act: Act::Revert, start, end };
        self.more.extend((0..REGISTERS).map(one));
    }

    /// Strikes a host, and waits until all go on.
    pub fn strike(&mut self, host: usize, strike: Strike, chance: &mut Chance) {
        chance.pause(100);
        let start = now();
        // Between strikes leases may end too.
        let before = self.named_in_logs();
        self.note_losses(before, self.quiet_since, start);
        self.do_strike(host, strike, chance);
        self.wait_for_progress();
        let end = now();
        let mut hosts = self.named_in_logs();
        // Centrally scheduled, the home says what is lost, and nothing else may be.
        if self.is_forwarded() && !matches!(strike, Strike::Client | Strike::Keeper) {
            hosts |= 1 << host;
        }
        self.note_losses(hosts, start, end);
        // Its keeper has the frames, and the next process gives back what was newest in them.
        let keeps_all = matches!(strike, Strike::Client | Strike::Keeper | Strike::Host);
        assert!(
            self.is_forwarded() || !keeps_all || hosts == 0,
            "{strike:?} of host{host} lost pages of {hosts:#b}"
        );
        self.windows.iter_mut().filter(|window| window.end == 0).for_each(|window| window.end = end);
        self.quiet_since = end;
    }

    fn do_strike(&mut self, host: usize, strike: Strike, chance: &mut Chance) {
        let target = &self.hosts[host];
        let lease = Duration::from_secs(LEASE);
        match strike {
            Strike::Client => self.kill_clients(host, 1),
            Strike::Host => {
                let pid = target.status().host_pid;
                kill_together(&[pid]);
            }
            Strike::Keeper => {
                let pid = target.status().keeper_pid;
                kill_together(&[pid]);
            }
            Strike::Both | Strike::Machine => {
                let start = now();
                target.kill_both();
                let killed = now();
                if strike == Strike::Machine {
                    self.kill_clients(host, self.each);
                }
                // Sooner or later than its lease ends.
                std::thread::sleep(if chance.below(2) == 0 { Duration::ZERO } else { lease });
                chance.pause(500);
                // Where the home schedules, nobody gets a page while it is away.
                if host != HOME || self.is_forwarded() {
                    self.windows.push(Window { host: host as u8, start, killed, starts: now(), end: 0 });
                }
                self.hosts[host].start_again().expect("the host starts again");
            }
            Strike::Pause => {
                let pid = target.status().host_pid;
                signal(pid, libc::SIGSTOP);
                chance.pause(lease.as_millis() as u64 / 4);
                signal(pid, libc::SIGCONT);
            }
            Strike::Stop => {
                let pid = target.status().host_pid;
                signal(pid, libc::SIGSTOP);
                wait::until("its keeper kills it", || crate::host::has_ended(pid).then_some(()));
            }
            Strike::Flicker | Strike::Cut => {
                let network = self.network.as_ref().expect("wires");
                network.wire(host, false);
                if strike == Strike::Cut {
                    std::thread::sleep(lease + Duration::from_millis(500));
                } else {
                    chance.pause(lease.as_millis() as u64 / 4);
                }
                network.wire(host, true);
            }
        }
    }

    fn kill_clients(&mut self, host: usize, mut count: usize) {
        while count > 0 {
            let Some(index) = self.clients.iter().position(|client| client.host == host) else { return };
            let client = self.clients.swap_remove(index);
            client.worker.kill();
            count -= 1;
        }
    }

    /// Hosts of which the logs, since they were last looked at, say that what they alone had may be gone.
    fn named_in_logs(&mut self) -> u64 {
        let (count, forwarded) = (self.hosts.len(), self.is_forwarded());
        let mut leases = 0;
        let look = |(number, (host, read)): (usize, (&TestHost, &mut usize))| {
            let log = host.log();
            let new = log.get(*read..).unwrap_or_default();
            *read = log.len();
            leases = leases.max(trouble::leases_that_ended(new));
            match (forwarded, number) {
                (true, _) => trouble::named_in(new, number, count, HOME),
                (false, HOME) => trouble::lost_in(new, count, HOME),
                (false, _) => 0,
            }
        };
        let all = self.hosts.iter().zip(&mut self.read).enumerate().map(look).fold(0, |all, one| all | one);
        self.leases = leases;
        all
    }

    /// These hosts may have lost what they alone had, between two instants. On a machine that is slow enough leases end again
    /// before anybody looks: then what was reverted may be lost again.
    fn note_losses(&mut self, hosts: u64, start: u64, end: u64) {
        let loss = trouble::loss(hosts, HOME, start, end);
        self.losses.extend(loss.into_iter().flat_map(|loss| std::iter::repeat_n(loss, self.leases.max(1))));
    }

    /// All that was done, as the check wants it.
    fn history(&self) -> History {
        let mut operations = self.more.clone();
        for path in &self.notes {
            let mut noted = record::read(path).expect("notes");
            if let (Some(end), Some(last)) = (self.failed.get(path), noted.last_mut()) {
                (last.act, last.end) = (Act::Failed, Some(*end));
            }
            operations.extend(noted);
        }
        let kept = if self.is_forwarded() { Kept::WhatHomeHad(HOME as u8) } else { Kept::AtHome };
        trouble::judged(&mut operations, &self.windows);
        History { operations, losses: self.losses.clone(), on_loss: self.on_loss, kept }
    }

    /// Ends the clients, and checks what they noted.
    pub fn end(mut self) {
        self.wait_for_progress();
        // The last look: between strikes leases may end too.
        let last = self.named_in_logs();
        self.note_losses(last, self.quiet_since, now());
        self.clients.iter().for_each(|client| client.worker.kill());
        let history = self.history();
        let reads = history.operations.iter().filter(|one| matches!(one.act, Act::Read(_))).count();
        let failed = history.operations.iter().filter(|one| one.act == Act::Failed).count();
        eprintln!(
            "{} operations of {} processes on {} hosts, {reads} of them reads, {failed} errors, {} losses",
            history.operations.len(),
            self.notes.len(),
            self.hosts.len(),
            history.losses.len(),
        );
        for loss in &history.losses {
            eprintln!("  may be lost: hosts {:#b}, {}..{:?}", loss.hosts, loss.start, loss.end);
        }
        if let Err(violation) = check(&history) {
            panic!("register {}: {}", violation.register, violation.text);
        }
    }
}
