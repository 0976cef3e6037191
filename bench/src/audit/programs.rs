//! Programs of this machine: where they are, and processes of them that wait for input until they are dropped.

use crate::failure::{Doing, Result, failed};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to come to rest on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The Python interpreter itself: what is found by name may be a script that starts it.
pub fn python() -> Option<PathBuf> {
    let names = [std::env::var_os("PYTHON"), Some("python3".into())];
    names.into_iter().flatten().find_map(|name| {
        let ask = ["-c", "import os, sys; print(os.path.realpath(sys.executable))"];
        let output = Command::new(name).args(ask).stdin(Stdio::null()).output().ok()?;
        let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        path.is_file().then_some(path)
    })
}

/// A process that ends when its input does, which is when this is dropped.
#[derive(Debug)]
pub struct Waiting {
    child: Child,
    input: Option<ChildStdin>,
}

impl Waiting {
    /// Starts it. What it says is not wanted.
    pub fn start(command: &mut Command) -> Result<Waiting> {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().doing(format!("starting {command:?}"))?;
        let input = child.stdin.take();
        Ok(Waiting { child, input })
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives it lines to work on; it goes on waiting afterwards.
    pub fn tell(&mut self, lines: &str) -> Result<()> {
        use std::io::Write;
        let Some(input) = &mut self.input else { return failed("this program takes no lines") };
        input.write_all(lines.as_bytes()).doing("giving a program its work")
    }

    /// Waits until it sleeps with nothing more to read, three looks long.
    pub fn rest(&mut self) -> Result<()> {
        let begun = Instant::now();
        let mut quiet = 0;
        let mut before = String::new();
        while quiet < 3 {
            if let Some(status) = self.child.try_wait()? {
                return failed(format!("a program that was to wait ended ({status})"));
            }
            if begun.elapsed() > PATIENCE {
                return failed(format!("process {} did not come to rest", self.pid()));
            }
            std::thread::sleep(Duration::from_millis(10));
            let now = state(self.pid());
            quiet = if now.starts_with('S') && now == before { quiet + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }
}

/// State of a process, and the faults it has had: what changes as long as it works.
fn state(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    // State, and minflt, majflt, utime and stime.
    let chosen = fields.split(' ').enumerate().filter(|(n, _)| matches!(n, 0 | 7 | 9 | 11 | 12));
    chosen.map(|(_, field)| field).collect::<Vec<_>>().join(" ")
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_waits_until_it_is_dropped() {
        let mut waiting = Waiting::start(&mut Command::new("cat")).unwrap();
        waiting.tell("work\n").unwrap();
        waiting.rest().unwrap();
        let pid = waiting.pid();
        assert!(fs::exists(format!("/proc/{pid}")).unwrap());
        drop(waiting);
        assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
    }

    #[test]
    fn a_program_that_ends_is_told() {
        let mut waiting = Waiting::start(&mut Command::new("true")).unwrap();
        assert!(waiting.rest().is_err());
    }
}
