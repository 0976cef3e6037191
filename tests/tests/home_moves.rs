//! Homes that move: the home's host and its keeper are killed, and another host goes on with what was stored and what hosts
//! had. Needs etcd, as the tests of `etcd.rs`.
#![cfg(feature = "etcd")]

use commonhold_tests::cluster::until_says;
use commonhold_tests::etcd::Etcd;
use commonhold_tests::{MIB, Scratch, TestHost, Worker};
use std::path::PathBuf;

const NAME: &str = "/lab/moving";

/// Hosts that share an object of a MiB whose home is the first, and moves; a client of each has it mapped as `m`.
struct Setting {
    hosts: Vec<TestHost>,
    workers: Vec<Worker>,
    file: PathBuf,
    _scratch: Scratch,
    _etcd: Etcd,
}

impl Setting {
    fn new(count: usize, options: &str) -> Option<Setting> {
        let etcd = Etcd::start()?;
        let hosts: Vec<TestHost> = (0..count).map(|number| etcd.host(number)).collect();
        let scratch = Scratch::new();
        let file = scratch.join("file");
        std::fs::write(&file, vec![0; MIB as usize]).unwrap();
        let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
        workers[0].eventually(&format!("create o {NAME} file={} home-moves {options}", file.display()));
        let setting = Setting { hosts, workers, file, _scratch: scratch, _etcd: etcd };
        setting.workers[1..].iter().for_each(|worker| drop(worker.eventually(&format!("open o {NAME} rw"))));
        setting.workers.iter().for_each(|worker| drop(worker.ok("map m o rw shared 0 0")));
        Some(setting)
    }

    /// The machine of that host is no more, and with it its processes.
    fn lose(&self, number: usize) {
        self.hosts[number].kill_both();
        self.workers[number].kill();
    }
}

/// What others had, what was synced, and what the home alone had and had not.
#[test]
fn another_host_goes_on_as_the_home() {
    for on_loss in ["strict", "strict=revert"] {
        let Some(setting) = Setting::new(3, on_loss) else { return };
        let Setting { hosts, workers, .. } = &setting;
        workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
        workers[1].ok("fill m 0 20 2"); // newest with another host
        workers[0].ok("fill m 30 10 3");
        workers[2].ok("check m 30 10 3"); // read by another host
        workers[0].ok("fill m 240 5 4"); // the home's alone: nobody reads ahead so far
        workers[2].ok("fill m 10 5 5");
        setting.lose(0);
        for worker in &workers[1..] {
            worker.all("check m 0 10 2\ncheck m 10 5 5\ncheck m 15 5 2\ncheck m 20 10 1\ncheck m 30 10 3");
            worker.all("check m 40 200 1\ncheck m 245 11 1");
        }
        let home = if hosts[1].log().contains("becomes the home of") { 1 } else { 2 };
        assert!(
            hosts[home].log().contains("the newest versions of 5 pages are lost"),
            "{}",
            hosts[home].log()
        );
        if on_loss == "strict" {
            let doomed = hosts[3 - home].worker();
            doomed.all(&format!("open o {NAME} r\nmap m o r shared 0 0"));
            doomed.dies("get m 983040", libc::SIGBUS);
            assert_eq!(workers[home].ok(&format!("revert {NAME}")), "5");
        }
        workers[3 - home].all("check m 240 5 1\nfill m 240 5 6\nfill m 0 1 7");
        workers[home].all("check m 240 5 6\ncheck m 0 1 7\ncheck m 1 9 2");
        // It is a home as any other: sync, names, and a host that opens the object for the first time.
        workers[3 - home].ok(&format!("sync o 0 {MIB}"));
        workers[3 - home].refused(&format!("create x {NAME} size=4096 strict"), "Exists");
        assert_eq!(workers[home].ok(&format!("stat {NAME} size")), MIB.to_string());
        assert_eq!(std::fs::metadata(&setting.file).unwrap().len(), MIB);
        // Who was the home comes back as any sharer.
        hosts[0].start_again().unwrap();
        until_says(&hosts[0], "another host is its home by now");
        let back = hosts[0].worker();
        back.eventually(&format!("open o {NAME} rw"));
        back.all("map m o rw shared 0 0\ncheck m 240 5 6\ncheck m 0 1 7\ncheck m 30 10 3\nfill m 5 1 8");
        workers[home].ok("check m 5 1 8");
    }
}
