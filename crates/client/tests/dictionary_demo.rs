//! `demo/dictionary.sh` with a list of words of its own: 8 processes have an eighth each.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The example's program: cargo builds it with all tests of the workspace, and not with this one alone.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let path = profile.join("examples/dictionary");
    if !path.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "commonhold", "--example", "dictionary", "--target-dir"]);
        assert!(cargo.arg(profile.parent().unwrap()).status().unwrap().success());
    }
    path
}

/// The number in front of a word.
fn number(line: &str, before: &str) -> u64 {
    let text = line.split(before).next().unwrap();
    text.rsplit(|one: char| !one.is_ascii_digit()).find(|part| !part.is_empty()).unwrap().parse().unwrap()
}

#[test]
fn each_of_eight_processes_has_an_eighth() {
    let folder = TempDir::new().unwrap();
    let list = folder.path().join("words");
    let word = |n: u64| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut words: Vec<String> = (0..50_000).map(word).collect();
    words.extend(["hold".into(), "common".into(), "hold".into()]);
    std::fs::write(&list, words.join("\n")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/dictionary.sh");
    let output = Command::new("sh").arg(script).arg(&list).env("DICTIONARY", program()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("dictionary@1.0.0: 50002 words, "), "{said}");
    assert_eq!(lines[1..4], ["hold: yes", "common: yes", "commonhold: no"]);
    let processes: Vec<&str> = lines.iter().copied().filter(|line| line.starts_with("process ")).collect();
    assert_eq!((processes.len(), lines.len()), (8, 12), "{said}");
    let image_kib = number(lines[0], " bytes").div_ceil(1024);
    let mut shares = 0;
    for line in processes {
        assert_eq!((number(line, " missing"), number(line, " KiB alone")), (0, 0), "{line}");
        let share = number(line, " KiB as its share");
        // Of a page that only some have touched it may have more than of others; of most all have.
        assert!(share * 4 < image_kib, "{share} of {image_kib} KiB: {said}");
        shares += share;
    }
    // Together no more than there is: none measured before all others had it, or after one had ended.
    assert!(shares > 0 && shares <= image_kib, "{shares} of {image_kib} KiB: {said}");
}
