//! A client process, driven line by line: one line asks, one line answers. See `agent` for what can be asked.

use crate::host::{has_ended, program};
use crate::wait;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A client process; it is killed at the end, whatever the test does.
pub struct Worker {
    child: RefCell<Child>,
    input: RefCell<Option<ChildStdin>>,
    output: Receiver<String>,
    pid: u32,
}

/// Why something was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The kind of the error, as `ErrorKind` writes it; `Wrong` if what was found is not what was expected.
    pub kind: String,
    /// What it says.
    pub message: String,
}

impl Worker {
    /// Starts one that connects to the host of a state directory, as another user if that is given.
    pub fn start(state: &Path, user: Option<(u32, u32)>) -> Worker {
        let worker = Worker::begin(&program("commonhold-tests-worker"), state, user);
        worker.wait_until_ready();
        worker
    }

    /// One of another program, such as that of an earlier version.
    pub fn of(program: &Path, state: &Path) -> Worker {
        let worker = Worker::begin(program, state, None);
        worker.wait_until_ready();
        worker
    }

    /// Starts several, which connect at the same time. They end with the thread that calls this.
    pub fn start_many(state: &Path, count: usize) -> Vec<Worker> {
        let workers: Vec<Worker> =
            (0..count).map(|_| Worker::begin(&program("commonhold-tests-worker"), state, None)).collect();
        workers.iter().for_each(Worker::wait_until_ready);
        workers
    }

    fn wait_until_ready(&self) {
        assert_eq!(self.answer().as_deref(), Ok("ready"));
    }

    fn begin(program: &Path, state: &Path, user: Option<(u32, u32)>) -> Worker {
        let mut command = Command::new(program);
        command.arg(state).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some((uid, gid)) = user {
            command.arg(uid.to_string()).arg(gid.to_string());
        }
        let mut child = command.spawn().expect("a worker starts");
        let stdout = BufReader::new(child.stdout.take().expect("output"));
        let (send, output) = channel();
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).all(|line| send.send(line).is_ok()));
        let (pid, input) = (child.id(), RefCell::new(child.stdin.take()));
        Worker { child: RefCell::new(child), input, output, pid }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Asks, and does not wait.
    pub fn send(&self, line: &str) {
        let mut input = self.input.borrow_mut();
        if let Err(error) = writeln!(input.as_mut().expect("input"), "{line}") {
            drop(input);
            panic!(
                "{line}: worker {} does not listen: {error}; {:?}",
                self.pid,
                self.child.borrow_mut().try_wait()
            );
        }
    }

    /// The next answer, if it comes in time.
    pub fn answer_within(&self, time: Duration) -> Option<Result<String, Refused>> {
        match self.output.recv_timeout(time) {
            Ok(line) => Some(parse(&line)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                let message = format!("the worker ended: {:?}", self.wait());
                Some(Err(Refused { kind: "Ended".into(), message }))
            }
        }
    }

    /// The next answer.
    #[track_caller]
    pub fn answer(&self) -> Result<String, Refused> {
        self.answer_within(wait::LONG).expect("the worker answers in time")
    }

    /// Asks and gives the answer.
    pub fn ask(&self, line: &str) -> Result<String, Refused> {
        self.send(line);
        self.answer()
    }

    /// Asks for what must work.
    #[track_caller]
    pub fn ok(&self, line: &str) -> String {
        match self.ask(line) {
            Ok(answer) => answer,
            Err(refused) => panic!("worker {}: {line}: {} ({})", self.pid, refused.message, refused.kind),
        }
    }

    /// Asks for what works sooner or later.
    pub fn eventually(&self, line: &str) -> String {
        let mut refused = String::new();
        let ask = || self.ask(line).inspect_err(|why| refused.clone_from(&why.message)).ok();
        crate::wait::within(crate::wait::LONG, ask)
            .unwrap_or_else(|| panic!("{line}: refused until the end: {refused}"))
    }

    /// Asks for several things that must work, one a line.
    #[track_caller]
    pub fn all(&self, lines: &str) {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.ok(line);
        }
    }

    /// Asks for what must be refused with that kind of error; gives what it says.
    #[track_caller]
    pub fn refused(&self, line: &str, kind: &str) -> String {
        match self.ask(line) {
            Ok(answer) => panic!("{line} was not refused: {answer:?}"),
            Err(refused) => {
                assert_eq!(refused.kind, kind, "{line}: {}", refused.message);
                assert!(!refused.message.contains('\n'), "more than one line: {}", refused.message);
                refused.message
            }
        }
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&self) {
        crate::host::kill(self.pid);
        self.wait();
    }

    /// Waits until it has ended.
    pub fn wait(&self) -> ExitStatus {
        wait::until("the worker ends", || self.child.borrow_mut().try_wait().expect("wait"))
    }

    /// Asks for what must kill it by that signal.
    #[track_caller]
    pub fn dies(&self, line: &str, signal: i32) {
        self.send(line);
        let status = self.wait();
        assert_eq!(status.signal(), Some(signal), "{line}: {status:?}");
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        has_ended(self.pid)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let mut child = self.child.borrow_mut();
        if let Ok(None) = child.try_wait() {
            if std::thread::panicking() && std::env::var_os("COMMONHOLD_TESTS_GDB").is_some() {
                let pid = self.pid.to_string();
                let _ =
                    Command::new("gdb").args(["-p", &pid, "-batch", "-ex", "thread apply all bt"]).status();
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn parse(line: &str) -> Result<String, Refused> {
    let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
    if first == "ok" {
        return Ok(rest.to_owned());
    }
    let (kind, message) = rest.split_once(' ').unwrap_or((rest, ""));
    Err(Refused { kind: kind.to_owned(), message: message.to_owned() })
}
