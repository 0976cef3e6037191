//! `commonhold rebase` as people use it. No host is needed here.

mod rebased;

use rebased::{Place, text};
use serde_json::Value;
use std::process::Command;

#[test]
fn a_program_is_set_started_checked_and_unset() {
    let place = Place::new();
    let program = place.program();
    let set = place.json(&["set", text(&program)]);
    assert_eq!(
        (set["programs"][0]["program"].as_str(), set["not_set"][0].is_null()),
        (Some(text(&program)), true)
    );
    assert!(set["copies_made"].as_u64().unwrap() >= 1);
    let list = place.json(&["list"]);
    assert_eq!((&list[0]["state"], &list[0]["executable"]), (&Value::from("current"), &Value::from(false)));
    let variable = place.json(&["env"])["LD_AUDIT"].as_str().unwrap().to_owned();
    assert!(
        place.says(&["env"]).starts_with(&format!("export LD_AUDIT='{variable}'\nexport GLIBC_TUNABLES="))
    );
    let output = Command::new(&program).env("LD_AUDIT", &variable).output().unwrap();
    assert_eq!(output.stdout, b"- 1 copies\n");
    assert_eq!(place.json(&["verify"])["damaged"].as_array().unwrap().len(), 0);
    place.json(&["unset", text(&program)]);
    let output = Command::new(&program).env("LD_AUDIT", &variable).output().unwrap();
    assert_eq!(output.stdout, b"- 1 none\n");
    assert!(place.json(&["clean"])["removed"].as_u64().unwrap() >= 1);
    assert_eq!(place.json(&["clean"])["removed"].as_u64(), Some(0));
    assert_eq!(place.complaint(&["unset", text(&program)]).matches("is not set for rebasing").count(), 1);
}

#[test]
fn run_starts_a_program_with_its_arguments_and_gives_its_status() {
    let place = Place::new();
    let program = place.program();
    assert_eq!(place.says(&["run", "--", text(&program), "--json"]), "--json 2 copies\n");
    let output = place.rebase(&["run", "--", text(&program), "a", "b"]);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(7), &b"a 3 copies\n"[..]));
    // It is set from then on.
    assert_eq!(place.json(&["list"]).as_array().unwrap().len(), 1);
}

#[test]
fn check_says_what_is_the_same_and_fails_where_it_is_not() {
    let place = Place::new();
    let program = place.program();
    // It prints whether it has copies: that is a difference.
    let output = place.rebase(&["check", "--json", "--", text(&program)]);
    let check: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!((&check["same"], &check["output_is_the_same"]), (&Value::from(false), &Value::from(false)));
    assert_eq!(check["differences"].as_array().unwrap().len(), 0);
    let ls = place.says(&["check", "--", "ls", "-d", "/"]);
    assert!(ls.contains("output: the same") && ls.contains(", 0 different"), "{ls}");
}

#[test]
fn renew_draws_new_addresses_and_the_program_still_runs() {
    let place = Place::new();
    let program = place.program();
    place.says(&["set", text(&program)]);
    let renewed = place.json(&["renew"]);
    assert!(renewed["copies_made"].as_u64().unwrap() >= 1, "{renewed}");
    assert_eq!(place.says(&["run", "--", text(&program)]), "- 1 copies\n");
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let place = Place::new();
    assert!(place.complaint(&["set", "/no/such/program"]).contains("there is no program"));
    assert!(place.complaint(&["run", "--", "no-such-program-anywhere"]).contains("there is no program"));
    let script = place.path("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    std::os::unix::fs::PermissionsExt::set_mode(
        &mut std::fs::metadata(&script).unwrap().permissions(),
        0o755,
    );
    assert!(place.complaint(&["set", text(&script)]).contains("script"));
    assert!(place.complaint(&["core", text(&script)]).contains("damaged or no program"));
    let nothing = place.json(&["list"]);
    assert_eq!(nothing.as_array().unwrap().len(), 0);
}

#[test]
fn what_others_may_write_in_a_store_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let program = place.program();
    place.says(&["set", text(&program)]);
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let copies = std::fs::read_dir(place.path("store/copies")).unwrap().flatten();
    let copy = copies.map(|entry| entry.path().join("libc.so.6")).find(|path| path.exists()).unwrap();
    mode(&copy, 0o666);
    assert_eq!(place.json(&["list"])[0]["changed"].as_str(), Some(text(&copy)));
    assert!(place.complaint(&["verify"]).contains("or others can write it"));
    assert_eq!(place.json(&["set", text(&program)])["copies_made"], 1);
    place.says(&["verify"]);
    mode(&place.path("store/lib"), 0o777);
    for words in [&["env"][..], &["verify"], &["set", text(&program)]] {
        assert!(place.complaint(words).contains("store/lib cannot be used: others may write there"));
    }
}

#[test]
fn core_names_originals_after_renew_and_clean() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.contains(['/', '|']) {
        eprintln!(
            "left out, because the kernel does not write core dumps where programs are started: {pattern}"
        );
        return;
    }
    let place = Place::new();
    let (source, program) = (place.path("ends.c"), place.path("ends"));
    std::fs::write(&source, "#include <stdlib.h>\nint main(void) { abort(); }").unwrap();
    assert!(Command::new("cc").arg("-o").arg(&program).arg(&source).status().unwrap().success());
    place.says(&["set", text(&program)]);
    let dumps = place.path("dumps");
    std::fs::create_dir(&dumps).unwrap();
    let script = format!("ulimit -c unlimited && exec {}", text(&program));
    let mut command = Command::new("sh");
    for (name, value) in place.json(&["env"]).as_object().unwrap() {
        command.env(name, value.as_str().unwrap());
    }
    command.arg("-c").arg(script).current_dir(&dumps).status().unwrap();
    let dump = std::fs::read_dir(&dumps).unwrap().flatten().next().unwrap().path();
    let libc = || {
        let files = place.json(&["core", text(&dump)]);
        let files = files.as_array().unwrap().clone();
        files.into_iter().find(|file| file["file"].as_str().unwrap().ends_with("/libc.so.6")).unwrap()
    };
    let before = libc();
    assert!(before["file"].as_str().unwrap().starts_with(text(&place.path("store/copies"))));
    assert!(before["original"].as_str().unwrap().ends_with("/libc.so.6"), "{before}");
    assert_eq!((&before["base"], before["exists"].as_bool()), (&before["address"], Some(true)));
    place.says(&["renew"]);
    assert_eq!(libc(), before);
    place.says(&["clean"]);
    let mut gone = before.clone();
    gone["exists"] = Value::from(false);
    assert_eq!(libc(), gone);
    let line = place.says(&["core", text(&dump)]);
    assert!(
        line.lines().any(|line| line.contains("copy of ") && line.ends_with("the copy is gone")),
        "{line}"
    );
}
