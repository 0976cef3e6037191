//! The four applications of `bench/applications`, compiled for a test, and what they say.

use crate::host::program;
use crate::{Scratch, TestHost};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// All four.
pub const APPLICATIONS: [&str; 4] = ["matrix", "path", "locus", "mp3d"];

/// The programs, compiled in a directory of their own.
pub struct Applications(Scratch);

fn compile(name: &str, into: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let sources = root.join("bench/applications");
    let library = library();
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I"]).arg(root.join("include"));
    cc.arg("-o").arg(into).args(["app.c", "sync.c", &format!("{name}.c")].map(|source| sources.join(source)));
    cc.arg(&library).arg("-lm").arg(format!("-Wl,-rpath,{}", library.parent().unwrap().display()));
    let output = cc.output().expect("cc");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Where cargo puts the library that it builds with the tests.
fn library() -> PathBuf {
    let beside = program("commonhold-tests-host");
    let places = ["deps", ""].map(|place| beside.with_file_name(place).join("libcommonhold.so"));
    let found = places.into_iter().find(|place| place.is_file());
    found.expect("cargo builds the library with the tests")
}

impl Applications {
    /// Compiles all.
    pub fn new() -> Applications {
        Applications::of(&APPLICATIONS)
    }

    /// Compiles these.
    pub fn of(names: &[&str]) -> Applications {
        crate::limit::begin();
        let folder = Scratch::new();
        names.iter().for_each(|name| compile(name, &folder.join(name)));
        Applications(folder)
    }

    /// A command line of an application; `words` are divided by spaces.
    pub fn command(&self, name: &str, words: &str) -> Command {
        let mut command = Command::new(self.0.join(name));
        command.args(words.split_ascii_whitespace()).stdin(Stdio::null());
        command
    }

    /// The same for activities that use a host.
    pub fn on(&self, host: &TestHost, name: &str, words: &str) -> Command {
        let mut command = self.command(name, words);
        command.env("COMMONHOLD_HOST", host.state());
        command
    }

    /// Starts an activity on each of these hosts.
    pub fn start_on_each(&self, hosts: &[TestHost], name: &str, words: &str) -> Vec<Running> {
        let start = |(index, host)| {
            let words = format!("--activities {} --index {index} {words}", hosts.len());
            Running::start(self.on(host, name, &words))
        };
        hosts.iter().enumerate().map(start).collect()
    }

    /// Runs an activity on each of these hosts; what the first says, in the end.
    pub fn run_on_each(&self, hosts: &[TestHost], name: &str, words: &str) -> Said {
        let all = self.start_on_each(hosts, name, words).into_iter().map(Running::end);
        let mut all: Vec<Said> = all.collect();
        assert!(all.iter().all(|said| said.status.success()), "{all:?}");
        all.remove(0)
    }
}

impl Default for Applications {
    fn default() -> Applications {
        Applications::new()
    }
}

/// What an application said, in the end.
#[derive(Debug)]
pub struct Said {
    /// The line of each activity that ran in it, by number.
    pub lines: Vec<String>,
    /// What it said is wrong.
    pub errors: String,
    /// How it ended.
    pub status: ExitStatus,
}

impl Said {
    /// A member of the line of the first activity, as it stands there.
    pub fn member(&self, name: &str) -> &str {
        let line = self.lines.first().unwrap_or_else(|| panic!("it said nothing: {self:?}"));
        let (_, rest) = line.split_once(&format!("\"{name}\": ")).unwrap_or_else(|| panic!("{name}: {line}"));
        rest.split([',', '}']).next().unwrap_or_default().trim_matches('"')
    }

    /// A number of the line of the first activity.
    pub fn number(&self, name: &str) -> u64 {
        self.member(name).parse().unwrap_or_else(|_| panic!("{name} is a number: {self:?}"))
    }

    /// It must have found its result right.
    pub fn is_right(self) -> Said {
        assert!(self.status.success() && self.member("right") == "true", "{self:?}");
        assert!(self.lines.iter().all(|line| line.contains("\"right\": true")), "{self:?}");
        self
    }

    /// It must have failed, with these words.
    pub fn says(self, words: &str) -> Said {
        assert!(!self.status.success() && self.errors.contains(words), "not `{words}`: {self:?}");
        self
    }
}

/// An application that runs.
pub struct Running {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Starts one.
    pub fn start(mut command: Command) -> Running {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Running { child, output }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it says this word, with `--stepped`.
    pub fn await_word(&mut self, word: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        if line.trim_end() != word {
            let mut errors = String::new();
            self.child.stderr.take().expect("errors").read_to_string(&mut errors).expect("text");
            panic!("`{line}` where `{word}` was awaited: {errors}");
        }
    }

    /// Waits until it says `done`: other activities of the same process group have said by then what they did.
    pub fn await_done(&mut self) {
        let mut line = String::new();
        while line.trim_end() != "done" {
            line.clear();
            let bytes = self.output.read_line(&mut line).expect("a line");
            assert!(bytes > 0, "it ended before it was done");
        }
    }

    /// Says that it may go on.
    pub fn go_on(&mut self) {
        self.child.stdin.as_mut().expect("its input").write_all(b"\n").expect("it listens");
    }

    /// Waits until it has ended.
    pub fn end(mut self) -> Said {
        let mut lines: Vec<String> = self.output.by_ref().lines().map(|line| line.expect("text")).collect();
        let mut errors = String::new();
        self.child.stderr.take().expect("errors").read_to_string(&mut errors).expect("text");
        let status = self.child.wait().expect("it ends");
        let activity = |line: &String| line.split_once("\"activity\": ").map(|(_, rest)| rest.to_owned());
        lines.sort_by_key(activity);
        Said { lines, errors, status }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs it to its end.
pub fn run(command: Command) -> Said {
    Running::start(command).end()
}
