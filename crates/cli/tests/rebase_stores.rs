//! Stores that are full, that cannot be written, from which nothing may be executed; and other audit libraries.

#[path = "../../../tests/left_out.rs"]
mod left_out;
mod rebased;

use left_out::left_out;
use rebased::{Place, text};
use std::path::Path;
use std::process::{Command, Output};

/// Runs lines of the shell in a name space of mounts of their own, with the store on a file system in memory. `$REBASE VERB`
/// is the command, `$WITH PROGRAM` starts a program with the variables for copies. None without the right to do that.
fn with_a_mount(place: &Place, options: &str, lines: &str) -> Option<Output> {
    let store = place.path("store");
    std::fs::create_dir_all(&store).unwrap();
    let script = format!(
        "set -e
         mount -t tmpfs -o mode=755,{options} none {store}
         rebase() {{ verb=$1; shift; {command} rebase $verb --store {store} \"$@\"; }}
         with() {{ LD_AUDIT={store}/\\$LIB/libcommonhold_start.so GLIBC_TUNABLES=glibc.rtld.optional_static_tls=8192 \"$@\"; }}
         {lines}",
        store = store.display(),
        command = env!("CARGO_BIN_EXE_commonhold"),
    );
    let may = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success());
    if !may {
        left_out("a store on a file system of its own (mounts need root)");
        return None;
    }
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).env_remove("LD_AUDIT").output();
    Some(output.unwrap())
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn another(place: &Place, program: &Path) -> String {
    let other = place.path("other");
    std::fs::copy(program, &other).unwrap();
    text(&other).to_owned()
}

#[test]
fn a_store_that_is_full_says_so_and_changes_nothing() {
    let place = Place::new();
    let program = place.program();
    let lines = format!(
        "rebase set {p} && echo it is set >&2 || echo status $?
         with {p}
         rebase list",
        p = text(&program)
    );
    let Some(output) = with_a_mount(&place, "size=512k", &lines) else { return };
    let (out, errors) = said(&output);
    assert_eq!((out.as_str(), output.status.code()), ("status 1\n- 1 none\n", Some(0)), "{errors}");
    assert!(errors.contains("No space left on device") && errors.lines().count() == 1, "{errors}");
    // What was set before stays as it was: there is room for one copy of the C library, and not for a second.
    let lines = format!(
        "rebase set {p} >/dev/null
         rebase renew >/dev/null || echo status $?
         with {p}
         rebase list --json",
        p = text(&program)
    );
    let Some(output) = with_a_mount(&place, "size=3m", &lines) else { return };
    let (out, errors) = said(&output);
    assert!(out.starts_with("status 1\n- 1 copies\n") && out.contains("\"current\""), "{out} {errors}");
    assert!(errors.contains("No space left on device") && errors.lines().count() == 1, "{errors}");
}

#[test]
fn a_store_that_cannot_be_written_is_used_and_not_changed() {
    let place = Place::new();
    let program = place.program();
    let lines = format!(
        "rebase set {p} >/dev/null
         mount -o remount,ro {store}
         rebase run -- {p}
         with {p}
         rebase list >/dev/null
         rebase set {other} || echo status $?",
        p = text(&program),
        other = another(&place, &program),
        store = place.path("store").display(),
    );
    let Some(output) = with_a_mount(&place, "size=16m", &lines) else { return };
    let (out, errors) = said(&output);
    assert_eq!(out, "- 1 copies\n- 1 copies\nstatus 1\n", "{errors}");
    assert!(errors.contains("Read-only file system") && errors.lines().count() == 1, "{errors}");
}

#[test]
fn a_store_from_which_nothing_may_be_executed_is_refused() {
    let place = Place::new();
    let program = place.program();
    let lines = format!("rebase set {p} || echo status $?", p = text(&program));
    let Some(output) = with_a_mount(&place, "noexec,size=16m", &lines) else { return };
    let (out, errors) = said(&output);
    assert_eq!(out, "status 1\n", "{errors}");
    assert!(errors.contains("mounted noexec") && errors.lines().count() == 1, "{errors}");
    // Later: the loader cannot have the audit library, says so, and goes on.
    let lines = format!(
        "rebase set {p} >/dev/null
         mount -o remount,noexec {store}
         with {p}",
        p = text(&program),
        store = place.path("store").display(),
    );
    let Some(output) = with_a_mount(&place, "size=16m", &lines) else { return };
    let (out, errors) = said(&output);
    assert_eq!(out, "- 1 none\n", "{errors}");
    assert!(errors.contains("cannot be loaded as audit interface"), "{errors}");
}

#[test]
fn another_audit_library_is_said_and_kept() {
    let place = Place::new();
    let program = place.program();
    place.says(&["set", text(&program)]);
    for words in [&["env"][..], &["run", "--", text(&program)]] {
        let (verb, rest) = words.split_first().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_commonhold"));
        command.args(["rebase", verb, "--store"]).arg(place.path("store")).args(rest);
        // Both of this program are glibc's: it is asked for its own start too, and there is no such library.
        let output = command.env("LD_AUDIT", "/no/such/library.so").output().unwrap();
        let (_, errors) = said(&output);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains("LD_AUDIT is /no/such/library.so already"), "{errors}");
    }
}

#[test]
fn a_damaged_copy_is_named_and_update_makes_it_anew() {
    let place = Place::new();
    let program = place.program();
    place.says(&["set", text(&program)]);
    let copies = std::fs::read_dir(place.path("store/copies")).unwrap().flatten();
    let copy = copies.map(|entry| entry.path().join("libc.so.6")).find(|path| path.exists()).unwrap();
    std::fs::remove_file(&copy).unwrap();
    std::fs::write(&copy, b"something else").unwrap();
    assert!(place.complaint(&["verify"]).contains("run `commonhold rebase update`"));
    assert_eq!(place.json(&["update"])["copies_made"], 1);
    place.says(&["verify"]);
    assert_eq!(place.says(&["run", "--", text(&program)]), "- 1 copies\n");
}
