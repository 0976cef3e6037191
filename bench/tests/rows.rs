//! Rows of the benchmark with few rounds: that they run to their end, and that those which count faults find none. What they
//! measure then is nobody's figure.
//!
//! It takes minutes, so it is asked for: `./run test` does, as does `cargo test -p commonhold-bench -- --ignored`.

use std::fs::{File, create_dir_all};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// All rows of rebasing and of images; and those of several hosts that are done in seconds.
const CHOSEN: &[&str] = &[
    "apps.matrix_speedup",
    "rebase.",
    "images.",
    "govindan.fig",
    "ephemeral.left",
    "explicit.messages",
    "hotspot.central_messages",
    "hotspot.first_cycle",
    "ipc.",
    "mach.fig8",
    "mach.rm_table",
    "ptshare.hugetlb_second_faults",
    "scale.hosts_1000",
    "scale.untouched_bytes",
    "security.breaches",
    "security.fuzz_failures",
    "segments.divergence",
    "segments.races",
    "snapshot.",
    "sync.",
    "types.table2",
    "types.translat",
    "wired.faults",
    "wired.mappings",
];

/// Of these neither time nor other processes are a part: their bars hold with few rounds as with many. So do those of rows
/// that count faults, which must be none.
const EXACT: &[&str] = &["explicit.messages", "scale.untouched_bytes"];

fn bench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_commonhold-bench"));
    command.env("COMMONHOLD_BENCH_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-state"));
    command.stdin(Stdio::null());
    command
}

fn chosen() -> Vec<String> {
    let list = bench().arg("list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let is_chosen = |id: &&str| CHOSEN.iter().any(|chosen| id.starts_with(chosen));
    list.lines().filter(is_chosen).map(str::to_owned).collect()
}

/// What is wrong with what a row said, if anything is. A bar of time or memory may be missed in so few rounds; a count of
/// faults may not.
fn complaint(line: &serde_json::Value) -> Option<String> {
    if line["failed"] == true {
        return Some(line["skipped"].to_string());
    }
    let counts = line["detail"]["bar"].as_str().is_some_and(|bar| bar.starts_with('='));
    let exact = counts || line["id"].as_str().is_some_and(|id| EXACT.contains(&id));
    let missed = exact && line["skipped"].is_null() && line["detail"]["met"] != true;
    missed.then(|| format!("{} is not what it must be: {}", line["value"], line["detail"]))
}

#[test]
#[ignore = "it takes minutes: ./run test asks for it"]
fn every_chosen_row_runs_to_its_end() {
    let rows = chosen();
    assert!(rows.len() >= 43, "{rows:?}");
    // For whoever asked, who says at the end what was not tried.
    create_dir_all(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut left_out = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("rows-left-out")).unwrap();
    let mut child =
        bench().arg("run").args(&rows).args(["--quick", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut begun = Instant::now();
    let mut complaints = Vec::new();
    let mut seen = Vec::new();
    for text in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
        let id = line["id"].as_str().unwrap().to_owned();
        let wrong = complaint(&line);
        let outcome = match (&wrong, line["skipped"].as_str()) {
            (Some(_), _) => "WRONG".to_owned(),
            (None, Some(why)) => {
                writeln!(left_out, "{id}: {why}").unwrap();
                format!("left out: {why}")
            }
            (None, None) => format!("{} {}", line["value"], line["unit"].as_str().unwrap_or_default()),
        };
        println!("{id}: {outcome} ({:.0} s)", begun.elapsed().as_secs_f64());
        complaints.extend(wrong.map(|what| format!("{id}: {what}")));
        seen.push(id);
        begun = Instant::now();
    }
    child.wait().unwrap();
    assert_eq!(seen, rows);
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn a_row_that_fails_or_counts_a_fault_is_seen() {
    let line = |text| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert!(complaint(&line(r#"{"id":"a","value":null,"skipped":"failed: x","failed":true}"#)).is_some());
    assert!(complaint(&line(r#"{"id":"a","value":1.0,"detail":{"bar":"= 0","met":false}}"#)).is_some());
    assert!(complaint(&line(r#"{"id":"a","value":0.0,"detail":{"bar":"= 0","met":true}}"#)).is_none());
    assert!(
        complaint(&line(r#"{"id":"explicit.messages","value":1.0,"detail":{"bar":"≤ 0","met":false}}"#))
            .is_some()
    );
    assert!(complaint(&line(r#"{"id":"a","value":2.0,"detail":{"bar":"≤ 1","met":false}}"#)).is_none());
    assert!(complaint(&line(r#"{"id":"a","value":null,"skipped":"clang is not installed"}"#)).is_none());
}
