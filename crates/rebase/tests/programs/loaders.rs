//! Which loaders will do, by what they say of themselves: scripts stand for those that this machine does not have.

use commonhold_rebase::bind::Loader;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A loader that answers with these lines of the shell.
fn that_runs(lines: &str) -> (TempDir, Loader) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("loader");
    let text = folder.path().join("text");
    std::fs::write(&text, format!("#!/bin/sh\n{lines}\n")).unwrap();
    // By another process: what this one has open for writing another test's child may have too, and then it cannot run.
    let made = Command::new("install").arg("-m755").arg(&text).arg(&path).status().unwrap();
    assert!(made.success());
    (folder, Loader { path })
}

fn check(lines: &str) -> Result<String, String> {
    that_runs(lines).1.check()
}

fn glibc(line: &str) -> Result<String, String> {
    check(&format!("test \"$*\" = --version || exit 3\ncat <<'END'\n{line}\nCopyright of somebody.\nEND"))
}

#[test]
fn versions_of_glibc() {
    let says =
        |version: &str| glibc(&format!("ld.so (Debian GLIBC {version}-9) stable release version {version}."));
    for good in ["2.36", "2.37", "2.41", "2.100", "3.0"] {
        assert_eq!(says(good), Ok(good.to_owned()));
    }
    for old in ["2.35", "2.4", "1.99"] {
        let why = format!("glibc 2.36 or later on x86-64 is needed for rebasing: here it is {old}");
        assert_eq!(says(old), Err(why));
    }
    assert_eq!(glibc("ld.so (GNU libc) stable release version 2.38."), Ok("2.38".into()));
}

#[test]
fn loaders_that_say_something_else() {
    let musl = "echo 'musl libc (x86_64)\nVersion 1.2.5\nDynamic Program Loader' >&2; exit 1";
    for lines in
        [musl, "echo ld.so '(GNU libc)' development release version 2.40.9000.", "echo; echo", "exit 1"]
    {
        let (_folder, loader) = that_runs(lines);
        let why = loader.check().unwrap_err();
        let expected = format!(
            "glibc 2.36 or later on x86-64 is needed for rebasing, and what {} says of itself is not understood: ",
            loader.path.display()
        );
        assert!(why.starts_with(&expected) && why.lines().count() == 1, "{why}");
    }
    let half = glibc("ld.so (GNU libc) stable release version unknown.").unwrap_err();
    assert!(half.ends_with("not understood: ld.so (GNU libc) stable release version unknown."), "{half}");
}

#[test]
fn a_loader_that_is_not_there_or_does_not_run() {
    for path in ["/no/such/loader", "/dev/null"] {
        let why = Loader { path: Path::new(path).into() }.check().unwrap_err();
        assert!(why.contains(&format!("is needed for rebasing, and {path} does not run: ")), "{why}");
    }
}

#[test]
fn the_one_of_this_machine() {
    let said = Loader::of_machine().check().unwrap();
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), format!("glibc {said}"));
}
