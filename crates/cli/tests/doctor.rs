//! `commonhold doctor` on the machine the tests run on.

#[path = "../../../tests/left_out.rs"]
mod left_out;

use left_out::left_out;
use serde_json::Value;
use std::process::{Command, Output};

fn doctor(words: &[&str]) -> Output {
    let nowhere = std::env::temp_dir().join("commonhold-no-such-state-directory");
    Command::new(env!("CARGO_BIN_EXE_commonhold"))
        .arg("doctor")
        .args(words)
        .env("COMMONHOLD_HOST", nowhere)
        .output()
        .unwrap()
}

#[test]
fn the_answer_for_programs_is_complete_and_agrees_with_the_exit_code() {
    let output = doctor(&["--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = said["checks"].as_array().unwrap();
    let named = |name: &str| {
        checks
            .iter()
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("no check {name:?} in {said}"))
    };
    for name in
        ["kernel", "userfaultfd", "kernel accesses", "dirty tracking", "poison", "small frames", "eviction"]
    {
        named(name);
    }
    for name in [
        "open files",
        "locked memory",
        "swap",
        "huge pages",
        "locked pages",
        "page faults",
        "FUSE",
        "kernel module",
        "state directory",
        "host",
    ] {
        named(name);
    }
    for check in checks {
        let state = check["state"].as_str().unwrap();
        assert!(["ok", "warn", "fail", "info"].contains(&state), "{check}");
        assert!(!check["found"].as_str().unwrap().is_empty(), "{check}");
        let lacks = state == "warn" || state == "fail";
        assert_eq!(check["fix"].is_string(), lacks, "a lack, and only a lack, has a fix: {check}");
    }
    let failed = checks.iter().any(|check| check["state"] == "fail");
    assert_eq!(said["works"], !failed);
    assert_eq!(output.status.success(), !failed);
}

#[test]
fn the_answer_for_people_has_a_line_for_each_check() {
    let output = doctor(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let json: Value = serde_json::from_slice(&doctor(&["--json"]).stdout).unwrap();
    for check in json["checks"].as_array().unwrap() {
        let name = check["name"].as_str().unwrap();
        assert!(
            text.lines().any(|line| line.get(6..).is_some_and(|rest| rest.starts_with(name))),
            "{name}:\n{text}"
        );
    }
    assert!(!text.contains('\x1b'), "colours where there is no terminal");
}

#[test]
fn what_this_kernel_promises_is_found_to_work() {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) < (Some(6), Some(7)) {
        let release = release.trim();
        return left_out(&format!("what newer kernels promise (Linux {release} is older than 6.7)"));
    }
    let json: Value = serde_json::from_slice(&doctor(&["--json"]).stdout).unwrap();
    let works = |name: &str| {
        json["checks"].as_array().unwrap().iter().any(|check| check["name"] == name && check["state"] == "ok")
    };
    if works("userfaultfd") {
        assert!(works("dirty tracking"), "{json}");
        assert!(works("poison"), "{json}");
    }
    assert!(works("eviction") || !works("small frames"), "{json}");
}
