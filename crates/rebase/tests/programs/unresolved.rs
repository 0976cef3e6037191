//! References that nobody has a definition for: what fails, and when, is as without copies.

use crate::rig::{Rig, WHERE, text};
use std::path::Path;
use std::process::Output;

const ONE: &str = "int twice(int n) { return 2 * n; }";
/// Leaves it to the loader to find that a symbol is missing.
const UNCHECKED: &str = "-Wl,--unresolved-symbols=ignore-all,-z,lazy";

/// A program as it is, and with the variables for copies.
fn both(rig: &Rig, program: &Path, argument: Option<&str>) -> [Output; 2] {
    let mut stock = std::process::Command::new(program);
    let mut with = rig.command(program);
    [stock.args(argument).output().unwrap(), with.args(argument).output().unwrap()]
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_function_that_nobody_has_is_missed_when_it_is_called() {
    let mut rig = Rig::new();
    rig.library("one", ONE, &[]);
    let late = "int missing(void); int twice(int); int two(void) { return twice(1); }
        int maybe(int n) { return n ? missing() : 1; }";
    rig.library("late", late, &["-lone", "-Wl,-z,lazy"]);
    let main = format!(
        "{WHERE}\nint maybe(int); int two(void);
         int main(int n, char **a) {{ where(two); fflush(stdout); printf(\"%d %d\\n\", maybe(n - 1), two()); }}"
    );
    let program = rig.program("program", &main, &["-llate", "-lone", UNCHECKED]);
    // The loader says which symbol is missing, and goes on; so it is here.
    let report = rig.set(&[&program]);
    assert!(report.unset.is_empty() && report.programs.len() == 1, "{report:?}");
    let [stock, with] = both(&rig, &program, None);
    assert_eq!((text(stock).as_str(), text(with).as_str()), ("original\n1 2\n", "copy\n1 2\n"));
    let [stock, with] = both(&rig, &program, Some("call it"));
    assert!(said(&stock).contains("undefined symbol: missing"), "{}", said(&stock));
    assert_eq!((stock.status.code(), with.status.code()), (Some(127), Some(127)));
    assert_eq!((said(&stock), &with.stdout[..]), (said(&with), &b"copy\n"[..]));
}

#[test]
fn data_that_nobody_has_is_missed_at_the_start() {
    let mut rig = Rig::new();
    rig.library("one", ONE, &[]);
    rig.library("lacks", "extern int missing; int call(void) { return missing; }", &["-lone"]);
    let main = "int call(void); int main(void) { return call(); }";
    let program = rig.program("program", main, &["-llacks", "-lone", UNCHECKED]);
    rig.set(&[&program]);
    let [stock, with] = both(&rig, &program, None);
    assert!(said(&stock).contains("undefined symbol: missing"), "{}", said(&stock));
    assert_eq!((stock.status.code(), with.status.code()), (Some(127), Some(127)));
    assert_eq!(said(&stock), said(&with));
}

#[test]
fn a_version_that_a_library_does_not_have_is_missed_at_the_start() {
    let mut rig = Rig::new();
    let map = rig.path("map");
    let script = format!("-Wl,--version-script={}", map.display());
    let versions = |text: &str| std::fs::write(&map, text).unwrap();
    versions("V1 { global: one; local: *; }; V2 { global: two; } V1;");
    rig.library("one", "int one(void) { return 1; } int two(void) { return 2; }", &[&script]);
    let main = "int one(void); int two(void); int main(void) { return one() + two() - 3; }";
    let program = rig.program("program", main, &["-lone"]);
    // An older one, without the second version.
    versions("V1 { global: one; local: *; };");
    rig.library("one", "int one(void) { return 1; }", &[&script]);
    // Asked what it loads it says so and goes on, and starts nothing.
    rig.set(&[&program]);
    let [stock, with] = both(&rig, &program, None);
    assert!(said(&stock).contains("version `V2' not found"), "{}", said(&stock));
    assert_eq!((stock.status.code(), said(&stock)), (with.status.code(), said(&with)));
    assert!(!stock.status.success());
}

#[test]
fn a_program_that_ends_before_it_begins_cannot_be_compared() {
    let mut rig = Rig::new();
    rig.library("one", ONE, &[]);
    let main = "int missing(void); int twice(int); int main(int n, char **a) { return n > 5 ? missing() : twice(0); }";
    let program = rig.program("program", main, &["-lone", UNCHECKED]);
    assert!(rig.set(&[&program]).unset.is_empty());
    assert_eq!(rig.run(&program), "");
    // All functions are looked up at the start where words are compared, and one is missing.
    let name = program.as_os_str().to_owned();
    let why = commonhold_rebase::check::compare(&rig.store, &program, &name, &[]).unwrap_err().to_string();
    let expected = "cannot be compared: its loader ended it before it began (status 127): ";
    assert!(why.contains(expected) && why.contains("undefined symbol: missing"), "{why}");
    assert_eq!(why.lines().count(), 1, "{why}");
}
