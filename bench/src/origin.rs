//! What a result is of: the commit that the program was built from, and the machine.

use serde_json::{Value, json};
use std::process::Command;

/// Documents and results change without a change of what is measured.
const SOURCES: [&str; 4] = ["--", ".", ":!docs", ":!*.md"];

/// Where results come from. Results of another origin are not of the same run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The last commit that changed more than documents, and whether there are changes since.
    pub commit: String,
    /// Kernel, processors and memory.
    pub machine: String,
}

impl Origin {
    /// Of this checkout and machine.
    pub fn here() -> Origin {
        let git = |words: &[&str]| {
            let output = Command::new("git").args(words).args(SOURCES).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let commit = git(&["log", "-1", "--format=%h", "--abbrev=12"]).filter(|commit| !commit.is_empty());
        let changes = git(&["status", "--porcelain"]).is_none_or(|changes| !changes.is_empty());
        let commit = commit.unwrap_or_else(|| "no commit".into());
        Origin { commit: if changes { format!("{commit} with changes") } else { commit }, machine: machine() }
    }

    /// Notes it in a row's line.
    pub fn note(&self, line: &mut Value) {
        line["commit"] = json!(self.commit);
        line["machine"] = json!(self.machine);
    }

    /// Whether that line is a result of just this. With changes nobody knows whether they were the
    /// same.
    pub fn is_of(&self, line: &Value) -> bool {
        let same = line["commit"] == json!(self.commit) && line["machine"] == json!(self.machine);
        same && !self.commit.ends_with("changes") && line["value"].is_number() && line["quick"] != true
    }
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let memory = read("/proc/meminfo");
    let kib: u64 = memory.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = read("/proc/cpuinfo");
    let model =
        model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": processor unknown");
    format!(
        "Linux {}, {cores} × {}, {} GiB",
        read("/proc/sys/kernel/osrelease").trim(),
        model.trim_start_matches([' ', '\t', ':']),
        (kib + (1 << 19)) >> 20
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_results_of_the_same_commit_and_machine_count() {
        let origin = Origin { commit: "abc".into(), machine: "m".into() };
        let mut line = json!({ "value": 1.0 });
        assert!(!origin.is_of(&line));
        origin.note(&mut line);
        assert!(origin.is_of(&line));
        for (name, other) in [("value", Value::Null), ("quick", json!(true)), ("commit", json!("abd"))] {
            let mut line = line.clone();
            line[name] = other;
            assert!(!origin.is_of(&line), "{line}");
        }
        let changed = Origin { commit: "abc with changes".into(), machine: "m".into() };
        changed.note(&mut line);
        assert!(!changed.is_of(&line));
    }
}
