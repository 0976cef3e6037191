//! etcd on this machine: three members, which Debian's `etcd-server` has, and which is installed if that is allowed.

use crate::cluster::free_address;
use crate::host::signal;
use crate::left_out::left_out;
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

/// An authority, and a certificate of it for etcd and its hosts on this machine.
pub struct Certificates(Scratch);

impl Certificates {
    /// Makes them; none where `openssl` is not there.
    pub fn make() -> Option<Certificates> {
        let made = Certificates(Scratch::new());
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
        let openssl = |line: &str| {
            let mut command = Command::new("openssl");
            command.args(line.split(' ')).args(if line.starts_with("req") { &key[..] } else { &[] });
            command.current_dir(made.0.path()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        std::fs::write(made.0.join("names"), "subjectAltName=IP:127.0.0.1\n").expect("a file");
        let all = openssl("req -x509 -keyout ca.key -out ca.pem -subj /CN=authority")
            && openssl("req -keyout own.key -out own.csr -subj /CN=own")
            && openssl(
                "x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out own.pem -days 2 -extfile names",
            );
        if !all {
            left_out("openssl, which makes the certificates, is not there or fails");
        }
        all.then_some(made)
    }

    fn path(&self, file: &str) -> String {
        self.0.join(file).display().to_string()
    }

    fn of_etcd(&self) -> Vec<String> {
        let words = [("--cert-file", "own.pem"), ("--key-file", "own.key"), ("--trusted-ca-file", "ca.pem")];
        let words = words.map(|(word, file)| [word.to_owned(), self.path(file)]).concat();
        words.into_iter().chain(["--client-cert-auth".to_owned()]).collect()
    }
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
        left_out("etcd is not there, and Debian's etcd-server cannot be installed");
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
        Some(wait::until("three members of etcd run", || Etcd::try_start(None)))
    }

    /// The same, for those alone who have a certificate of its authority; none where etcd cannot be had.
    pub fn start_with_tls(certificates: &Certificates) -> Option<Etcd> {
        etcd_is_there()
            .then(|| wait::until("three members of etcd run", || Etcd::try_start(Some(certificates))))
    }

    fn try_start(certificates: Option<&Certificates>) -> Option<Etcd> {
        // Leases would end when several tests at once wait for one disk.
        let scratch = Scratch::in_memory();
        let (clients, peers): (Vec<_>, Vec<_>) = (0..3).map(|_| (free_address(), free_address())).unzip();
        // Asked without a certificate.
        let told: Vec<String> = (0..3).map(|_| free_address()).collect();
        let all: Vec<String> =
            peers.iter().enumerate().map(|(number, peer)| format!("m{number}=http://{peer}")).collect();
        let line = |number: usize| {
            let scheme = if certificates.is_some() { "https" } else { "http" };
            let (client, peer) =
                (format!("{scheme}://{}", clients[number]), format!("http://{}", peers[number]));
            let data = scratch.join(&format!("etcd{number}")).display().to_string();
            let words: [(&str, &str); 9] = [
                ("--name", &format!("m{number}")),
                ("--data-dir", &data),
                ("--listen-client-urls", &client),
                ("--advertise-client-urls", &client),
                ("--listen-peer-urls", &peer),
                ("--initial-advertise-peer-urls", &peer),
                ("--initial-cluster", &all.join(",")),
                ("--log-level", "error"),
                ("--listen-metrics-urls", &format!("http://{}", told[number])),
            ];
            let mut line: Vec<String> =
                words.into_iter().flat_map(|(word, value)| [word.to_owned(), value.to_owned()]).collect();
            line.extend(certificates.map(Certificates::of_etcd).unwrap_or_default());
            line
        };
        let lines = (0..3).map(line).collect();
        let mut etcd = Etcd { members: vec![None, None, None], clients, lines, scratch };
        (0..3).for_each(|number| etcd.run(number));
        // One whose port somebody else had ends, and never listens.
        let listen = || etcd.clients.iter().all(|client| TcpStream::connect(client).is_ok()).then_some(());
        wait::within(Duration::from_secs(10), listen)?;
        let healthy = || told.iter().all(|address| is_healthy(address)).then_some(());
        wait::within(Duration::from_secs(10), healthy)?;
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

    /// All of them stand still, or go on.
    pub fn pause(&self, still: bool) {
        let number = if still { libc::SIGSTOP } else { libc::SIGCONT };
        self.members.iter().flatten().for_each(|member| signal(member.id(), number));
    }

    /// A host that knows them by certificates, and shows one.
    pub fn host_with_tls(&self, number: usize, certificates: &Certificates) -> TestHost {
        let url = format!("etcds://{}/lab", self.clients.join(","));
        let (own, name) = (free_address(), format!("host{number}"));
        let words = ["--plain", "--listen", &own, "--name", &name, "--registry", &url, "--lease", "6"];
        let files =
            [("--registry-ca", "ca.pem"), ("--registry-cert", "own.pem"), ("--registry-key", "own.key")];
        let files = files.map(|(word, file)| [word.to_owned(), certificates.path(file)]).concat();
        TestHost::with(&words.into_iter().chain(files.iter().map(String::as_str)).collect::<Vec<_>>())
    }

    /// The words by which a host knows them.
    pub fn words(&self) -> [String; 2] {
        ["--registry".to_owned(), format!("etcd://{}/lab", self.clients.join(","))]
    }

    /// A host of theirs, called `hostN`, with a lease of six seconds.
    pub fn host(&self, number: usize) -> TestHost {
        self.host_with(number, &[])
    }

    /// The same, with more words.
    pub fn host_with(&self, number: usize, more: &[&str]) -> TestHost {
        let url = format!("etcd://{}/lab", self.clients.join(","));
        let (own, name) = (free_address(), format!("host{number}"));
        let words = ["--plain", "--listen", &own, "--name", &name, "--registry", &url, "--lease", "6"];
        TestHost::with(&[&words, more].concat())
    }
}

fn is_healthy(address: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
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
