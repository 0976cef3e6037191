//! The program as root runs it, without any host: what it says, how long it takes and how much memory.

use commonhold_tests::host::program;
use commonhold_tests::{MIB, Scratch};
use std::ffi::OsStr;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// No answer takes so long: it is ended then.
const MOST_TIME: Duration = Duration::from_secs(10);
/// Nor so much memory.
const MOST_BYTES: u64 = 192 * MIB;

/// What came of it.
pub struct Said {
    /// Whether it did what it was asked for.
    pub is_done: bool,
    /// What it wrote, errors behind the rest.
    pub text: String,
}

impl Said {
    /// The one line of a command that refused.
    pub fn complaint(self) -> String {
        assert!(!self.is_done, "it was done: {}", self.text);
        assert!(
            self.text.starts_with("commonhold: ") && self.text.trim_end().lines().count() == 1,
            "{self:?}"
        );
        self.text
    }
}

impl std::fmt::Debug for Said {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.text.fmt(to)
    }
}

/// The program with these words.
pub fn command(words: &[&dyn AsRef<OsStr>]) -> Command {
    let mut command = Command::new(program("commonhold-tests-host"));
    command.args(words.iter().map(|word| word.as_ref())).stdin(Stdio::null());
    command
}

/// Runs it to its end, which must be an answer: no crash, soon, and without taking all memory.
pub fn said(words: &[&dyn AsRef<OsStr>]) -> Said {
    let scratch = Scratch::new();
    let [out, errors] = ["out", "errors"].map(|name| scratch.file(name, 0));
    let write = |path| File::options().append(true).open(path).expect("a file");
    let mut child = command(words).stdout(write(&out)).stderr(write(&errors)).spawn().expect("it starts");
    let status = end_of(&mut child);
    let text =
        [out, errors].map(|path| String::from_utf8(std::fs::read(path).expect("its words")).expect("text"));
    let text = text.concat();
    assert!(matches!(status.code(), Some(0 | 1)), "it ends with {status}: {text}");
    Said { is_done: status.success(), text }
}

fn end_of(child: &mut Child) -> std::process::ExitStatus {
    let since = Instant::now();
    let mut most = 0;
    loop {
        if let Some(status) = child.try_wait().expect("its end") {
            return status;
        }
        most = most.max(peak_bytes(child.id()));
        if since.elapsed() > MOST_TIME || most > MOST_BYTES {
            child.kill().and_then(|()| child.wait()).expect("it ends");
            panic!("after {:?} it has {} MiB and no answer", since.elapsed(), most / MIB);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The most memory that a process has had; none of one that has ended.
fn peak_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
