//! etcd on this machine: three members, which Debian's `etcd-server` has, and which is installed if that is allowed.

use crate::cluster::free_address;
use crate::{Scratch, TestHost, wait};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Three members of etcd on this machine.
pub struct Etcd {
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
    /// Starts them; none where etcd cannot be had.
    pub fn start() -> Option<Etcd> {
        if !etcd_is_there() {
            return None;
        }
        // Whoever runs beside this test may have taken a port meanwhile.
        Some(wait::until("three members of etcd run", Etcd::try_start))
    }

    fn try_start() -> Option<Etcd> {
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
        // One whose port somebody else had has ended by the time that the others have a leader.
        wait::within(Duration::from_secs(10), || {
            etcd.clients.iter().all(|client| is_healthy(client)).then_some(())
        })?;
        let mut members = etcd.members.iter_mut().flatten();
        members.all(|member| matches!(member.try_wait(), Ok(None))).then_some(etcd)
    }

    /// Starts one again.
    pub fn run(&mut self, number: usize) {
        let log = std::fs::File::create(self.scratch.join(&format!("log{number}"))).unwrap();
        let mut command = Command::new("etcd");
        command.args(&self.lines[number]).stdout(Stdio::null()).stderr(log);
        self.members[number] = Some(command.spawn().expect("etcd runs"));
    }

    /// Kills one.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.members[number].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A host of theirs, called `hostN`, with a lease of six seconds.
    pub fn host(&self, number: usize) -> TestHost {
        let url = format!("etcd://{}/lab", self.clients.join(","));
        let (own, name) = (free_address(), format!("host{number}"));
        let words = ["--plain", "--listen", &own, "--name", &name, "--registry", &url, "--lease", "6"];
        TestHost::with(&words)
    }
}

fn is_healthy(client: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(client)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains("\"health\":\"true\""))
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
