//! `commonhold audit` on the machine the tests run on, and what it refuses. No host is needed here.

use commonhold_audit::report::{FORMAT, Report};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_commonhold"));
    command.arg("audit").args(words);
    command
}

fn audit(words: &[&str]) -> Output {
    command(words).output().unwrap()
}

fn text(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn report(words: &[&str]) -> Report {
    Report::from_json(text(audit(words)).as_bytes()).unwrap()
}

/// The one line on standard error of a command that ended with this code.
fn complaint(words: &[&str], code: i32) -> String {
    let output = audit(words);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    assert!(output.stdout.is_empty(), "{words:?}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("commonhold: "), "{said}");
    said
}

fn file(folder: &TempDir, name: &str, content: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A process that waits until it is killed.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Sleeper(Command::new("sleep").arg("3600").spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_process_tree_as_a_table_and_as_a_document() {
    let sleeper = Sleeper::start();
    let report = report(&["--pid", &sleeper.pid(), "--json"]);
    assert_eq!((report.format, report.processes), (FORMAT, 1));
    assert_eq!(report.scope, format!("process tree {}", sleeper.pid()));
    assert!(report.memory.resident_bytes > 0);
    assert!(report.sharing.programs.active <= 1);
    assert!(report.unique.iter().any(|unique| unique.name == format!("sleep ({})", sleeper.pid())));

    let table = text(audit(&["--pid", &sleeper.pid()]));
    assert!(table.starts_with(&format!("process tree {} of ", sleeper.pid())), "{table}");
    assert!(table.contains("1 process read"), "{table}");
    for part in ["SHARING", "LARGEST SAVINGS", "EQUAL FILES", "PAGE TABLES", "NOT SEEN", "0.298"] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    assert!(!table.contains('\x1b'));
}

#[test]
fn the_page_is_written_and_a_longer_one_before_it_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let sleeper = Sleeper::start();
    let page = file(&folder, "page.html", &"old ".repeat(1_000_000));
    let table = text(audit(&["--pid", &sleeper.pid(), "--html", &page]));
    assert!(table.contains("SHARING"));
    let written = std::fs::read_to_string(&page).unwrap();
    assert!(written.starts_with("<!DOCTYPE html>") && written.ends_with("</html>"), "{written}");
    assert!(written.contains(&format!("process tree {}", sleeper.pid())));
}

#[test]
fn a_page_that_cannot_be_written_is_said_before_the_look_and_what_was_there_stays() {
    let said = complaint(&["--html", "/no/such/folder/page.html", "--every", "1h", "--for", "100h"], 1);
    assert!(said.contains("/no/such/folder/page.html"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let page = file(&folder, "page.html", "old");
    complaint(&["--html", &page, "--pid", "4194305"], 1);
    assert_eq!(std::fs::read_to_string(page).unwrap(), "old");
}

#[test]
fn samples_have_means() {
    let sleeper = Sleeper::start();
    let report = report(&["--pid", &sleeper.pid(), "--every", "1ms", "--for", "2ms", "--json"]);
    let samples = report.samples.expect("it was sampled");
    assert!((1..=3).contains(&samples.count) && !samples.ended_early, "{samples:?}");
    assert!(samples.overruns > 0 || samples.count == 3, "{samples:?}");
    let processes = samples.figures.iter().find(|figure| figure.name == "processes").unwrap();
    assert_eq!((processes.mean, processes.min, processes.max), (1.0, 1.0, 1.0));
}

/// Waits until the process has taken over SIGINT; it must not end before.
fn until_interrupts_are_caught(child: &mut Child) {
    let path = format!("/proc/{}/status", child.id());
    loop {
        assert!(child.try_wait().unwrap().is_none(), "it ended at once");
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        if mask & (1 << (Signal::INT.as_raw() - 1)) != 0 && mask & (1 << (Signal::TERM.as_raw() - 1)) != 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn an_interrupt_ends_sampling_early_with_a_report() {
    let sleeper = Sleeper::start();
    for signal in [Signal::INT, Signal::TERM] {
        let words = ["--pid", &sleeper.pid(), "--every", "1h", "--for", "1000h", "--json"];
        let mut child = command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until_interrupts_are_caught(&mut child);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let report = Report::from_json(text(child.wait_with_output().unwrap()).as_bytes()).unwrap();
        let samples = report.samples.expect("means");
        assert!(samples.ended_early);
        assert_eq!(samples.count, 1);
        assert!(samples.figures.iter().all(|figure| figure.low.is_none()), "one sample has no interval");
    }
}

#[test]
fn a_set_of_programs_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_commonhold"), folder.path().join("tool")).unwrap();
    std::fs::create_dir(folder.path().join("tools")).unwrap();
    file(&folder, "script", "#!/bin/sh\n");
    let sleeper = Sleeper::start();
    let pattern = format!("mine={}/*", folder.path().display());
    let report = report(&["--pid", &sleeper.pid(), "--set", &pattern, "--json"]);
    let set = &report.library_sets[0];
    assert_eq!((set.name.as_str(), set.programs, set.skipped), ("mine", 1, 1));
}

#[test]
fn two_looks_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let sleeper = Sleeper::start();
    let before = file(&folder, "before", &text(audit(&["--pid", &sleeper.pid(), "--json"])));
    let after = file(&folder, "after", &text(audit(&["--pid", &sleeper.pid(), "--json"])));
    let said: Value = serde_json::from_str(&text(audit(&["diff", &before, &after, "--json"]))).unwrap();
    assert_eq!(said["format"], FORMAT);
    let cautions = said["cautions"].as_array().unwrap();
    assert!(!cautions.iter().any(|caution| caution.as_str().unwrap().contains("different")), "{said}");
    assert!(said["figures"].as_array().unwrap().iter().all(|figure| figure["name"] != "processes"), "{said}");
    let table = text(audit(&["diff", &before, &after]));
    assert!(table.starts_with("before: process tree") && table.contains("SAVINGS GOT"), "{table}");
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let whole = serde_json::to_string(&Report { format: FORMAT, ..Report::default() }).unwrap();
    let good = file(&folder, "good", &whole);
    for (name, content, says) in [
        ("damaged", &whole[..whole.len() / 2], "no JSON"),
        ("empty", "", "no JSON"),
        ("foreign", r#"{"works": true}"#, "no audit report"),
        ("partial", r#"{"format": 1, "version": "x"}"#, "missing field"),
        (
            "newer",
            &whole.replacen("\"format\":1", "\"format\":9", 1),
            "format 9 and this program reads format 1",
        ),
        ("older", &whole.replacen("\"format\":1", "\"format\":0", 1), "audit anew"),
    ] {
        let path = file(&folder, name, content);
        for words in [["diff", good.as_str(), path.as_str()], ["diff", path.as_str(), good.as_str()]] {
            let said = complaint(&words, 1);
            assert!(said.contains(says) && said.contains(name), "{said}");
        }
    }
    let missing = folder.path().join("missing");
    assert!(complaint(&["diff", &good, missing.to_str().unwrap()], 1).contains("missing"));
    assert!(complaint(&["diff", &good, folder.path().to_str().unwrap()], 1).contains("cannot read"));
}

#[test]
fn what_is_not_there_is_a_failure() {
    // Linux gives no pid above 4194304.
    assert!(complaint(&["--pid", "4194305"], 1).contains("4194305"));
    assert!(complaint(&["--cgroup", "/no/such/group"], 1).contains("/no/such/group"));
    assert!(complaint(&["--container", "no-such-container"], 1).contains("no-such-container"));
    assert!(complaint(&["--root", "/no/such/root"], 1).contains("/no/such/root"));
    let said = complaint(&["--set", "x=/no/such/folder/*", "--every", "1h", "--for", "100h"], 1);
    assert!(said.contains("/no/such/folder/*"), "{said}");
}

#[test]
fn what_makes_no_sense_is_refused_with_code_2() {
    for (words, says) in [
        (vec!["--pid", "0"], "--pid"),
        (vec!["--pid", "self"], "--pid"),
        (vec!["--pid", "1", "--cgroup", "/x"], "cannot be used with"),
        (vec!["--container", "a", "--root", "/"], "cannot be used with"),
        (vec!["--every", "5m"], "--for"),
        (vec!["--for", "6h"], "--every"),
        (vec!["--every", "0s", "--for", "6h"], "1ms"),
        (vec!["--every", "often", "--for", "6h"], "5m or 6h"),
        (vec!["--budget", "10"], "10s"),
        (vec!["--set", "/usr/bin/[a"], "NAME="),
        (vec!["--set", "x="], "missing"),
        (vec!["--archive", "libx.a"], "--set"),
        (vec!["diff"], "<BEFORE>"),
        (vec!["diff", "one"], "<AFTER>"),
        (vec!["--pid", "1", "diff", "one", "other"], "diff"),
        (vec!["report.json"], "report.json"),
    ] {
        let said = complaint(&words, 2);
        assert!(said.contains(says), "{words:?}: {said}");
    }
}

#[test]
fn help_and_man_pages_have_it() {
    let help = text(audit(&["--help"]));
    for word in ["--container", "--every", "--for", "--budget", "--html", "diff"] {
        assert!(help.contains(word), "{word}:\n{help}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut man = Command::new(env!("CARGO_BIN_EXE_commonhold"));
    assert!(man.args(["man", "--dir"]).arg(folder.path()).status().unwrap().success());
    for name in ["commonhold-audit.1", "commonhold-audit-diff.1"] {
        assert!(Path::new(&folder.path().join(name)).exists(), "{name}");
    }
}
