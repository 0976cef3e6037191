//! What the `commonhold` program says: help, errors, completions, man pages. No host is needed here.

use clap::{CommandFactory, Parser};
use commonhold_cli::arguments::{Command, CommandLine, place::Place};
use std::process::Output;

fn commonhold(words: &[&str]) -> Output {
    let nowhere = std::env::temp_dir().join("commonhold-no-such-state-directory");
    std::process::Command::new(env!("CARGO_BIN_EXE_commonhold"))
        .args(words)
        .env("COMMONHOLD_HOST", nowhere)
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line on standard error, and nothing on standard output.
fn complaint(output: &Output) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(!output.status.success(), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("commonhold: "), "{said}");
    said
}

#[test]
fn the_definition_is_consistent() {
    CommandLine::command().debug_assert();
}

#[test]
fn create_is_understood() {
    let words = "commonhold create /lab/counts --size 1GiB --file ./counts.bin --create-file --sync atomic --mode 0640 \
                 --reserve no --budget 64M --on-last-death revert --freezable --controlled --fault-deadline 5s --description <u4";
    let Command::Create(create) = CommandLine::try_parse_from(words.split_whitespace()).unwrap().command
    else {
        panic!("not create");
    };
    assert_eq!((create.size, create.mode, create.reserve), (Some(1 << 30), 0o640, Some(false)));
    assert_eq!((create.budget, create.fault_deadline), (Some(64 << 20), Some(5000)));
    assert!(create.create_file && create.freezable && create.controlled);
    assert_eq!(create.description, "<u4");
}

#[test]
fn an_object_has_a_colon_where_files_are_allowed() {
    let words = ["commonhold", "cp", "./a", ":/lab/a", "--json"];
    let Command::Cp(copy) = CommandLine::try_parse_from(words).unwrap().command else { panic!("not cp") };
    assert_eq!(copy.from, Place::File("./a".into()));
    assert_eq!(copy.to, Place::Object("/lab/a".into()));
}

#[test]
fn the_host_may_be_named_before_and_after_the_command() {
    for words in [["commonhold", "--host", "/x", "ls"], ["commonhold", "ls", "--host", "/x"]] {
        assert_eq!(CommandLine::try_parse_from(words).unwrap().host, Some("/x".into()));
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_code_2() {
    for (words, says) in [
        (vec!["craete", "/x"], "'create'"),
        (vec!["create", "/x"], "--size"),
        (vec!["create", "/x", "--size", "12q"], "1GiB"),
        (vec!["create", "/x", "--size", "1M", "--file", "f", "--pager", "/p"], "cannot be used with"),
        (vec!["create", "/x", "--file", "f", "--create-file"], "--size"),
        (vec!["create", "/x", "--size", "1M", "--sync", "never"], "plain, ordered, atomic"),
        (vec!["create", "/x", "--size", "1M", "--reserve", "maybe"], "yes or no"),
        (vec!["create", "/x", "--size", "1M", "--pager-deadline", "5s"], "--pager"),
        (vec!["chmod", "999", "/x"], "0640"),
        (vec!["chown", "no-such-user-here", "/x"], "no user"),
        (vec!["resize", "/x"], "<SIZE>"),
        (vec!["cat", "/x", "--json"], "--json"),
        (vec!["incore", "/x", "/y"], "/y"),
        (vec![], "a command is missing"),
        (vec!["host"], "usage: commonhold host"),
    ] {
        let output = commonhold(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let said = complaint(&output);
        assert!(said.contains(says), "{words:?}: {said}");
    }
}

#[test]
fn without_a_host_every_command_says_so_in_one_line() {
    for words in [
        vec!["ls"],
        vec!["stat", "/x"],
        vec!["create", "/x", "--size", "4096"],
        vec!["cat", "/x"],
        vec!["host", "stop"],
        vec!["host", "restart"],
        vec!["host", "status"],
    ] {
        let output = commonhold(&words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = complaint(&output);
        assert!(said.contains("host start"), "{words:?}: {said}");
    }
}

#[test]
fn host_status_as_json_says_that_none_runs() {
    let output = commonhold(&["host", "status", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["running"], false);
}

#[test]
fn upgrade_refuses_a_program_that_is_not_commonhold() {
    let said = complaint(&commonhold(&["host", "upgrade", "--program", "/bin/true"]));
    assert!(said.contains("not a commonhold program"), "{said}");
    let said = complaint(&commonhold(&["host", "upgrade", "--program", "/no/such/program"]));
    assert!(said.contains("/no/such/program"), "{said}");
}

#[test]
fn help_and_version_succeed() {
    let output = commonhold(&["--version"]);
    assert!(output.status.success());
    assert_eq!(out(&output), format!("commonhold {}\n", env!("CARGO_PKG_VERSION")));
    let output = commonhold(&["--help"]);
    assert!(output.status.success());
    let help = out(&output);
    for word in ["create", "map-info", "incore", "doctor", "--host"] {
        assert!(help.contains(word), "{word} is not in the help");
    }
    assert!(!help.contains("keeper process"), "the hidden commands show:\n{help}");
}

#[test]
fn every_command_but_those_that_answer_nothing_has_json() {
    fn check(command: &clap::Command, path: &str) {
        let subcommands: Vec<_> = command.get_subcommands().filter(|c| !c.is_hide_set()).collect();
        for subcommand in &subcommands {
            check(subcommand, &format!("{path} {}", subcommand.get_name()));
        }
        if subcommands.is_empty() {
            let has = command.get_arguments().any(|argument| argument.get_id() == "json");
            let passes_through =
                ["cat", "completions", "help", "man", "run", "version"].contains(&command.get_name());
            assert_eq!(has, !passes_through, "{path}");
        }
    }
    check(&CommandLine::command(), "commonhold");
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = commonhold(&["completions", shell]);
        assert!(output.status.success());
        let script = out(&output);
        assert!(script.contains("map-info") && script.contains("on-last-death"), "{shell}");
    }
}

#[test]
fn man_pages_are_written_for_every_command() {
    let page = out(&commonhold(&["man"]));
    assert!(page.contains(".TH commonhold 1") && page.contains("doctor"), "{page}");
    let directory = std::env::temp_dir().join(format!("commonhold-man-{}", std::process::id()));
    let output = commonhold(&["man", "--dir", directory.to_str().unwrap()]);
    assert!(output.status.success());
    let names: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    let create = std::fs::read_to_string(directory.join("commonhold-create.1")).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(
        names.contains(&"commonhold.1".to_owned()) && names.contains(&"commonhold-host-start.1".to_owned())
    );
    let hidden = ["commonhold-keeper.1", "commonhold-serve.1"];
    assert!(!names.iter().any(|name| hidden.contains(&name.as_str())), "{names:?}");
    assert!(create.contains("sync"), "{create}");
}

#[test]
fn a_reader_that_went_away_is_no_panic() {
    let shell = format!(
        "{} man | head -c 1 >/dev/null; {0} completions bash | true",
        env!("CARGO_BIN_EXE_commonhold")
    );
    let output = std::process::Command::new("sh").arg("-c").arg(shell).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn help_version_and_their_options_say_the_same() {
    for (verb, option) in [
        (&["help"][..], &["--help"][..]),
        (&["help", "create"], &["create", "--help"]),
        (&["help", "host", "start"], &["host", "start", "--help"]),
        (&["version"], &["--version"]),
    ] {
        let said = commonhold(verb);
        assert!(said.status.success());
        assert_eq!(out(&said), out(&commonhold(option)), "{verb:?}");
    }
    let said = complaint(&commonhold(&["help", "host", "strat"]));
    assert!(said.contains("host strat") && said.contains("commonhold help"), "{said}");
}

#[test]
fn the_state_of_the_host_is_told_by_both_names() {
    assert_eq!(complaint(&commonhold(&["status"])), complaint(&commonhold(&["host", "status"])));
}
