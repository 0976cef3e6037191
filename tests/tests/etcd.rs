//! The registry in etcd: the cluster outlives any host, and a member of etcd. Needs the feature `etcd`, and Debian's
//! `etcd-server`, which is installed if that is allowed.
#![cfg(feature = "etcd")]

use commonhold_tests::cluster::free_address;
use commonhold_tests::{MIB, Scratch, TestHost, Worker, wait};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// Three members of etcd on this machine.
struct Etcd {
    members: Vec<Option<Child>>,
    clients: Vec<String>,
    lines: Vec<Vec<String>>,
    scratch: Scratch,
}

/// Whether the program can be had.
fn etcd_is_there() -> bool {
    let runs = || {
        let version =
            Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    if runs() {
        return true;
    }
    let install = ["install", "-y", "-qq", "--no-install-recommends", "etcd-server"];
    let mut apt = Command::new("apt-get");
    let installed = apt.args(install).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null()).status();
    let there = installed.is_ok_and(|status| status.success()) && runs();
    if !there {
        eprintln!("skipped: etcd is not there, and Debian's etcd-server cannot be installed");
    }
    there
}

impl Etcd {
    fn start() -> Option<Etcd> {
        if !etcd_is_there() {
            return None;
        }
        let scratch = Scratch::new();
        let (clients, peers): (Vec<_>, Vec<_>) = (0..3).map(|_| (free_address(), free_address())).unzip();
        let all: Vec<String> =
            peers.iter().enumerate().map(|(number, peer)| format!("m{number}=http://{peer}")).collect();
        let line = |number: usize| {
            let (client, peer) = (format!("http://{}", clients[number]), format!("http://{}", peers[number]));
            let data = scratch.join(&format!("etcd{number}")).display().to_string();
            let words: [(&str, &str); 8] = [
                ("--name", &format!("m{number}")),
                ("--data-dir", &data),
                ("--listen-client-urls", &client),
                ("--advertise-client-urls", &client),
                ("--listen-peer-urls", &peer),
                ("--initial-advertise-peer-urls", &peer),
                ("--initial-cluster", &all.join(",")),
                ("--log-level", "error"),
            ];
            words.into_iter().flat_map(|(word, value)| [word.to_owned(), value.to_owned()]).collect()
        };
        let lines = (0..3).map(line).collect();
        let mut etcd = Etcd { members: vec![None, None, None], clients, lines, scratch };
        (0..3).for_each(|number| etcd.run(number));
        for client in &etcd.clients {
            wait::until("etcd listens", || TcpStream::connect(client).ok());
        }
        Some(etcd)
    }

    fn run(&mut self, number: usize) {
        let log = std::fs::File::create(self.scratch.join(&format!("log{number}"))).unwrap();
        let mut command = Command::new("etcd");
        command.args(&self.lines[number]).stdout(Stdio::null()).stderr(log);
        self.members[number] = Some(command.spawn().expect("etcd runs"));
    }

    fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.members[number].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn host(&self, number: usize) -> TestHost {
        let url = format!("etcd://{}/lab", self.clients.join(","));
        let (own, name) = (free_address(), format!("host{number}"));
        let words = ["--plain", "--listen", &own, "--name", &name, "--registry", &url, "--lease", "6"];
        TestHost::with(&words)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for number in 0..3 {
                let log =
                    std::fs::read_to_string(self.scratch.join(&format!("log{number}"))).unwrap_or_default();
                eprintln!("--- etcd {number}\n{}", log.lines().rev().take(5).collect::<Vec<_>>().join("\n"));
            }
        }
        (0..3).for_each(|number| self.kill(number));
    }
}

fn sharers(hosts: &[TestHost], name: &str) -> Vec<Worker> {
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    workers[0].eventually(&format!("create o {name} size={MIB} strict=revert"));
    workers[1..].iter().for_each(|worker| drop(worker.eventually(&format!("open o {name} rw"))));
    workers.iter().for_each(|worker| drop(worker.ok("map m o rw shared 0 0")));
    workers
}

#[test]
fn the_cluster_outlives_any_host_and_a_member_of_etcd() {
    let Some(mut etcd) = Etcd::start() else { return };
    let mut hosts: Vec<TestHost> = (0..3).map(|number| etcd.host(number)).collect();
    let workers = sharers(&hosts, "/lab/shared");
    workers[0].ok("fill m 0 100 1");
    workers[1].ok("fill m 10 10 2");
    workers[2].all("check m 0 10 1\ncheck m 10 10 2");
    etcd.kill(1);
    workers[2].ok("fill m 10 5 3");
    workers[1].all("check m 10 5 3\ncheck m 15 5 2");
    workers[2].refused("create x /lab/shared size=4096 strict", "Exists");
    workers[1].all("create y /lab/y size=8192 strict\nmap y y rw shared 0 0\nfill y 0 2 4");
    workers[2].all("open y /lab/y rw\nmap y y rw shared 0 0\ncheck y 0 2 4");
    // The first host goes, with its keeper: names and objects of the others are in nobody's way.
    hosts[0].kill_both();
    workers[2].ok("fill y 0 1 5");
    workers[1].all("check y 0 1 5\ncreate z /lab/z size=4096 strict");
    workers[2].eventually("open z /lab/z r");
    wait::until("the others hear of the loss", || hosts[2].log().contains("host0 is lost").then_some(()));
    etcd.run(1);
    etcd.kill(2);
    workers[1].ok("fill y 1 1 6");
    workers[2].ok("check y 1 1 6");
    // A sharer goes: the home goes on after its lease.
    hosts.pop().unwrap().kill_both();
    workers[1].ok("fill y 0 2 7");
    assert!(hosts[1].log().contains("host2 is lost"), "{}", hosts[1].log());
}

#[test]
fn a_host_process_that_dies_is_followed_at_once_and_a_namesake_is_refused() {
    let Some(etcd) = Etcd::start() else { return };
    let hosts: Vec<TestHost> = (0..2).map(|number| etcd.host(number)).collect();
    let workers = sharers(&hosts, "/shared");
    workers[0].ok("fill m 0 100 1");
    workers[1].ok("check m 0 100 1");
    hosts[1].kill_host();
    workers[0].ok("fill m 0 10 2");
    workers[1].ok("check m 0 10 2");
    hosts[0].kill_host();
    workers[1].ok("check m 0 10 2");
    workers[0].ok("fill m 5 1 3");
    workers[1].ok("check m 5 1 3");
    let namesake = etcd.host(1);
    wait::until("it is refused", || {
        let said = ["there is a host named host1", "one name"];
        said.iter().any(|said| namesake.log().contains(said)).then_some(())
    });
    namesake.worker().refused("create n /n size=4096 strict", "Disconnected");
    workers[1].ok("check m 5 1 3");
}

/// All of etcd goes, and comes back with what it had.
#[test]
fn hosts_fence_themselves_without_etcd_and_go_on_with_it() {
    let Some(mut etcd) = Etcd::start() else { return };
    let hosts: Vec<TestHost> = (0..2).map(|number| etcd.host(number)).collect();
    let workers = sharers(&hosts, "/shared");
    workers[0].ok("fill m 0 100 1");
    workers[1].ok("check m 0 100 1");
    (0..3).for_each(|number| etcd.kill(number));
    workers[1].ok("check m 0 100 1");
    for host in &hosts {
        wait::until("it fences itself", || host.log().contains("fenced: ").then_some(()));
    }
    workers[0].send("fill m 0 10 2");
    (0..3).for_each(|number| etcd.run(number));
    assert_eq!(workers[0].answer().as_deref(), Ok(""));
    workers[1].all("check m 0 10 2\ncheck m 10 90 1");
}

/// A process that follows another takes its place by one change of the registry: what that one had newest is asked for.
#[test]
fn what_processes_had_newest_is_given_back() {
    let Some(etcd) = Etcd::start() else { return };
    let hosts: Vec<TestHost> = (0..3).map(|number| etcd.host(number)).collect();
    let workers = sharers(&hosts, "/lab/shared");
    workers[0].ok("fill m 0 100 1");
    workers[1].ok("fill m 10 10 2");
    workers[2].ok("fill m 30 10 3");
    hosts[1].kill_host();
    workers[0].ok("check m 10 10 2");
    // The home's: with the sharer's, and by itself.
    workers[1].ok("fill m 50 5 4");
    let pids = [0, 2].map(|number| hosts[number].status().host_pid);
    commonhold_tests::host::kill_together(&pids);
    for worker in &workers {
        worker.all("check m 0 10 1\ncheck m 10 10 2\ncheck m 30 10 3\ncheck m 50 5 4");
    }
    hosts[0].kill_host();
    workers[2].all("check m 50 5 4\nfill m 0 1 5");
    workers[1].ok("check m 0 1 5");
    assert!(!hosts[0].log().contains("are lost with"), "{}", hosts[0].log());
}
