//! Machines as System V sees them: hosts of one cluster, each in an IPC namespace of its own, and programs there.

use crate::cluster::free_address;
use crate::unmodified::{Unmodified, key, text};
use crate::wait::until;
use crate::{TestHost, is_root};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

const WORDS: &str = "system-v,shared-keys";

/// Two hosts of one cluster, each with System V segments of its own, as on two machines.
pub struct Machines {
    /// They.
    pub hosts: Vec<TestHost>,
    /// `tests/c/keys.c`.
    pub unmodified: Unmodified,
    /// The key of which its programs are told.
    pub key: i32,
}

/// None: that takes rights.
pub fn machines() -> Option<Machines> {
    if !is_root("IPC namespaces") {
        return None;
    }
    let (list, own) = (free_address(), free_address());
    let apart = ["/usr/bin/env", "unshare", "--ipc"];
    let first = TestHost::by(&apart, &["--plain", "--listen", &list, "--name", "alpha"]);
    let second = TestHost::by(&apart, &["--plain", "--listen", &own, "--join", &list, "--name", "beta"]);
    let both = || second.connect().hosts().ok().filter(|hosts| hosts.len() == 2);
    until("the second host belongs to the cluster", both);
    Some(Machines { hosts: vec![first, second], unmodified: Unmodified::new("keys.c"), key: key() })
}

impl Machines {
    /// A command on a machine.
    pub fn on(&self, number: usize, command: &Command) -> Command {
        let mut on = Command::new("nsenter");
        on.arg(format!("--ipc=/proc/{}/ns/ipc", self.hosts[number].status().host_pid)).arg("--");
        on.arg(command.get_program()).args(command.get_args());
        on.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        on
    }

    /// A program on a machine, run by these words.
    pub fn run(&self, number: usize, words: &str) -> Program {
        let stderr = rustix::fs::fstat(std::io::stderr()).expect("it is open");
        let words = format!("{words},stderr={}:{}", stderr.st_dev, stderr.st_ino);
        let mut command = self.unmodified.run(&self.hosts[number], &words);
        command.arg(self.key.to_string());
        Program::new(self.on(number, &command))
    }

    /// The same, by the words for shared keys.
    pub fn program(&self, number: usize) -> Program {
        self.run(number, WORDS)
    }

    /// The program `commonhold` on a machine.
    pub fn command(&self, number: usize, words: &[&str]) -> String {
        let host = &self.hosts[number];
        let mut command = Command::new(host.program());
        command.args(words).env("COMMONHOLD_HOST", host.state());
        text(&self.on(number, &command).output().expect("it runs"))
    }

    /// The name of its segment in the cluster.
    pub fn name(&self) -> String {
        format!("/system-v-key-{:#010x}", self.key)
    }

    /// The key, as people write it.
    pub fn word(&self) -> String {
        format!("{:#010x}", self.key)
    }
}

/// A process of `tests/c/keys.c`.
pub struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Program {
    /// Runs it.
    pub fn new(mut command: Command) -> Program {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Program { child, lines }
    }

    /// Tells it what to do.
    pub fn send(&mut self, what: &str) {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{what}").expect("it listens");
    }

    /// Its next line.
    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it speaks");
        line.trim().to_owned()
    }

    /// The answer to that.
    pub fn ask(&mut self, what: &str) -> String {
        self.send(what);
        self.answer()
    }

    /// It answers so.
    #[track_caller]
    pub fn says(&mut self, what: &str, answer: &str) {
        assert_eq!(self.ask(what), answer, "{what}");
    }

    /// `shmget`.
    pub fn get(&mut self, size: usize, flags: i32) -> String {
        self.ask(&format!("get {size} {flags}"))
    }

    /// Finds the segment, or makes it, and attaches it.
    #[track_caller]
    pub fn attaches(&mut self, size: usize, flags: i32) {
        assert_eq!(self.get(size, flags), "ok");
        self.says("attach 0 0", "ok");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait(); // with whatever status
    }
}
