//! The tests' own sources: kinds of tests that say less than they seem to are found here, and
//! limits of time are kept.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What begins a test that ends at once where it has nothing to try: these say so, or run the rest
/// in another process.
const SAY_WHY: &[&str] =
    &["is_root(", "has(", "breaks_connections(", "in_own_process(", "became_nobody(", "(STOPPED)"];

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All sources of tests: whole files below a folder `tests`, or called `tests.rs`. Not of the
/// attacks, which are programs.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    ["bench", "crates", "demo", "pagers", "python", "tests"]
        .iter()
        .for_each(|top| below(&checkout().join(top), &mut found));
    let is_test = |path: &&PathBuf| {
        let text = path.strip_prefix(checkout()).unwrap().to_string_lossy().into_owned();
        let own = ["tests/tests/sources.rs", "tests/left_out.rs"].contains(&text.as_str());
        !own && !text.starts_with("tests/attacks/src")
            && (text.contains("tests/") || text.ends_with("tests.rs"))
    };
    found.iter().filter(is_test).cloned().collect()
}

fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() && path.file_name().is_some_and(|name| name != "target" && name != "node_modules") {
            below(&path, found);
        } else if kind.is_file() && path.extension().is_some_and(|end| end == "rs" || end == "py") {
            found.push(path);
        }
    }
}

/// What is wrong with that source, by line.
fn complaints(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut complain =
        |number: usize, line: &str, why: &str| all.push(format!("{}: {why}: {line}", number + 1));
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    for (number, line) in lines.iter().enumerate() {
        let says = line.contains("println!(") && (line.contains("\"skipped") || line.contains("\"left out"));
        if says {
            complain(number, line, "who runs the tests is not told; use `left_out`");
        }
        let assertion = line.contains("assert");
        let always = ["assert!(true", "|| true", " or True", "else True", "assert True"];
        if assertion && always.iter().any(|always| line.contains(always)) {
            complain(number, line, "this is always so");
        }
        let block = line.strip_prefix("    if ").filter(|rest| rest.ends_with('{'));
        let only_returns = lines.get(number + 1).is_some_and(|next| next.trim() == "return;");
        if block.is_some_and(|condition| only_returns && !SAY_WHY.iter().any(|say| condition.contains(say))) {
            complain(number, line, "the test ends here and nobody is told; use `left_out`");
        }
    }
    all
}

#[test]
fn no_test_passes_without_saying_what_it_left_out() {
    let sources = sources();
    assert!(sources.len() > 200, "{}", sources.len());
    let all: Vec<String> = sources
        .iter()
        .flat_map(|path| {
            let found = complaints(&std::fs::read_to_string(path).unwrap());
            found.into_iter().map(move |what| format!("{}:{what}", path.display()))
        })
        .collect();
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn each_kind_is_found() {
    for bad in [
        "eprintln!(\"skipped: no etcd\");",
        "println!(\"left out: needs root\");",
        "    assert!(true, \"it works\");",
        "    assert!(x == 1 || true);",
        "    assert len(x) == 1 if x.base is not None else True",
        "    if !can_mount() {\n        return;\n    }",
    ] {
        assert_eq!(complaints(bad).len(), 1, "{bad}");
    }
    let good = "    if !is_root(\"a mount\") {\n        return;\n    }\n    assert!(x == 1);\n";
    assert!(complaints(good).is_empty());
}

/// Begins its limit and never ends, when the test below asks for it.
#[test]
#[ignore = "it never ends: another test starts it, with a limit"]
fn it_waits_for_ever() {
    commonhold_tests::limit::begin();
    while std::env::var_os("COMMONHOLD_TESTS_LIMIT_S").is_some() {
        std::thread::park();
    }
}

#[test]
fn a_test_that_never_ends_is_ended_and_named() {
    let own = std::env::current_exe().unwrap();
    let mut test = Command::new(own);
    let output = test
        .args(["--ignored", "--exact", "it_waits_for_ever"])
        .env("COMMONHOLD_TESTS_LIMIT_S", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("it_waits_for_ever"), "{:?}: {said}", output.status);
}

/// Where signals are ignored, as under nohup, tests and what they start get the default ones.
#[test]
fn what_tests_start_does_not_ignore_signals() {
    commonhold_tests::limit::begin();
    let output = Command::new("grep").args(["SigIgn", "/proc/self/status"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let ignored = u64::from_str_radix(said.split_whitespace().last().unwrap(), 16).unwrap();
    // SIGHUP, SIGINT, SIGQUIT and SIGTERM, counted from bit 0.
    assert_eq!(ignored & 0b100_0000_0000_0111, 0, "{said}");
}
