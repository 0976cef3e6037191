//! `commonhold rebase set` beside programs that were set before, also where those cannot be set now.

mod rebased;

use rebased::{Place, text};
use std::collections::BTreeMap;
use std::os::unix::fs::DirEntryExt;
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

/// Three programs that need one library, which calls a function of its own by name. The last has that function itself.
fn with_one_library(place: &Place) -> [PathBuf; 3] {
    let (source, library) = (place.path("one.c"), place.path("libone.so"));
    std::fs::write(&source, "int hook(void) { return 0; } int call(void) { return hook(); }").unwrap();
    cc(&["-shared", "-fPIC", "-Wl,-soname,libone.so"], &library, &source);
    [("first", ""), ("second", ""), ("third", "int hook(void) { return 3; }")].map(|(name, more)| {
        let (source, program) = (place.path(&format!("{name}.c")), place.path(name));
        std::fs::write(&source, format!("int call(void); {more} int main(void) {{ return call(); }}"))
            .unwrap();
        cc(&["-L", text(&place.path("")), "-lone", "-Wl,-rpath,$ORIGIN"], &program, &source);
        program
    })
}

/// The records of all programs: each with its place on the disk, which is another whenever it is written.
fn records(place: &Place) -> BTreeMap<PathBuf, u64> {
    let entries = std::fs::read_dir(place.path("store/programs")).unwrap();
    entries.map(|entry| entry.unwrap()).map(|entry| (entry.path(), entry.ino())).collect()
}

/// How many copies of the library some program needs.
fn copies_in_use(place: &Place) -> usize {
    place.says(&["clean"]);
    let entries = std::fs::read_dir(place.path("store/copies")).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().path().join("libone.so").exists()).count()
}

/// Starts a program with its copies; gives its exit code.
fn run(place: &Place, program: &Path) -> i32 {
    place.rebase(&["run", "--", text(program)]).status.code().unwrap()
}

#[test]
fn a_program_that_suits_those_that_are_set_changes_nothing_of_them() {
    let place = Place::new();
    let [first, second, _] = with_one_library(&place);
    place.says(&["set", text(&first)]);
    let before = records(&place);
    let said = place.says(&["set", text(&second)]);
    let after = records(&place);
    assert_eq!(after.len(), 2);
    assert!(before.iter().all(|(path, node)| after[path] == *node), "what was set is written again");
    assert!(said.contains(text(&first)) && said.contains("0 files made, 2 kept"), "{said}");
    assert_eq!(copies_in_use(&place), 1);
    assert_eq!([&first, &second].map(|program| run(&place, program)), [0, 0]);
    // Nothing was noted of copies that were made before there were notes: then all is built.
    for entry in std::fs::read_dir(place.path("store/copies")).unwrap() {
        std::fs::remove_file(entry.unwrap().path().join(".words")).unwrap();
    }
    place.says(&["unset", text(&second)]);
    place.says(&["set", text(&second)]);
    assert!(records(&place).iter().any(|(path, node)| before.get(path).is_some_and(|there| there != node)));
    assert_eq!(copies_in_use(&place), 1);
    assert_eq!(place.says(&["verify"]), "2 files as written\n");
}

#[test]
fn a_program_with_another_answer_changes_what_all_have_in_common() {
    let place = Place::new();
    let [first, second, third] = with_one_library(&place);
    place.says(&["set", text(&first), text(&second)]);
    place.says(&["set", text(&third)]);
    let current = |place: &Place| list(place).iter().filter(|(_, state)| state == "current").count();
    assert_eq!((current(&place), copies_in_use(&place)), (3, 1));
    assert_eq!([&first, &second, &third].map(|program| run(&place, program)), [0, 0, 3]);
    // A later one has what they have in common.
    place.says(&["unset", text(&second)]);
    place.says(&["set", text(&second)]);
    assert_eq!((current(&place), copies_in_use(&place)), (3, 1));
    assert_eq!(run(&place, &second), 0);
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
