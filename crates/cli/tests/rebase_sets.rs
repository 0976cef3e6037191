//! `commonhold rebase set` beside programs that were set before and cannot be now.

mod rebased;

use rebased::{Place, text};
use std::path::{Path, PathBuf};
use std::process::Command;

fn cc(arguments: &[&str], output: &Path, source: &Path) {
    assert!(Command::new("cc").arg("-o").arg(output).arg(source).args(arguments).status().unwrap().success());
}

/// A program that needs a library beside it, and that library.
fn with_a_library(place: &Place) -> (PathBuf, PathBuf) {
    let (source, library) = (place.path("one.c"), place.path("libone.so"));
    std::fs::write(&source, "int call(void) { return 0; }").unwrap();
    cc(&["-shared", "-fPIC", "-Wl,-soname,libone.so"], &library, &source);
    let (source, program) = (place.path("user.c"), place.path("user"));
    std::fs::write(&source, "int call(void); int main(void) { return call(); }").unwrap();
    cc(&["-L", text(&place.path("")), "-lone", "-Wl,-rpath,$ORIGIN"], &program, &source);
    (program, library)
}

/// The programs that are set, and how each stands.
fn list(place: &Place) -> Vec<(String, String)> {
    let said = place.json(&["list"]);
    let word = |one: &serde_json::Value, name: &str| one[name].as_str().unwrap().to_owned();
    said.as_array().unwrap().iter().map(|one| (word(one, "program"), word(one, "state"))).collect()
}

#[test]
fn a_program_that_cannot_be_set_for_the_moment_stays_among_them() {
    let place = Place::new();
    let (program, library) = with_a_library(&place);
    let other = place.program();
    place.says(&["set", text(&program)]);
    let away = place.path("away");
    std::fs::rename(&library, &away).unwrap();
    // As in the middle of an upgrade: of the one it is said, the other is set.
    let why = place.complaint(&["set", text(&other)]);
    assert!(why.contains("libone.so is not found"), "{why}");
    let names = [text(&other).to_owned(), text(&program).to_owned()];
    assert_eq!(list(&place).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
    std::fs::rename(&away, &library).unwrap();
    place.says(&["update"]);
    assert_eq!(list(&place), names.map(|name| (name, "current".to_owned())));
    // Asked for something else that cannot be: as it was.
    std::fs::rename(&library, &away).unwrap();
    place.complaint(&["set", "--executable", text(&program)]);
    std::fs::rename(&away, &library).unwrap();
    place.says(&["update"]);
    let all = place.json(&["list"]);
    let one = all.as_array().unwrap().iter().find(|one| one["program"] == text(&program)).unwrap();
    assert_eq!((&one["state"], &one["executable"]), (&"current".into(), &false.into()));
    // What was never set does not become so by being asked for.
    std::fs::rename(&library, &away).unwrap();
    place.says(&["unset", text(&program)]);
    place.complaint(&["set", text(&program)]);
    assert_eq!(list(&place).len(), 1);
}
