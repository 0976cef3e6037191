//! A test that cannot be tried here says so: on its own output, and in the file that `COMMONHOLD_TESTS_LEFT_OUT` names, which
//! `./run test` prints at the end. Part of several crates' tests, each of which uses some of it.
#![allow(dead_code)]

use std::io::Write;

/// This cannot be tried on this machine, or by this user; nothing that could be installed helps.
pub fn left_out(what: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let line = format!("{test}: {}", what.replace('\n', "; "));
    eprintln!("left out: {line}");
    let Some(path) = std::env::var_os("COMMONHOLD_TESTS_LEFT_OUT") else { return };
    let file = std::fs::File::options().create(true).append(true).open(&path);
    // One call, so that lines of several tests do not mix.
    file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
        .unwrap_or_else(|error| panic!("{} cannot be written: {error}", path.display()));
}

/// This needs what can be installed. With `COMMONHOLD_TESTS_STRICT=1` it has to be.
pub fn not_installed(package: &str, what: &str) {
    let strict = std::env::var_os("COMMONHOLD_TESTS_STRICT").is_some_and(|value| value == "1");
    assert!(
        !strict,
        "{what} cannot be tried: {package} is not installed, and COMMONHOLD_TESTS_STRICT is set"
    );
    left_out(&format!("{what} ({package} is not installed)"));
}

/// Whether this is root; what is left out where it is not is said.
pub fn is_root(what: &str) -> bool {
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !root {
        left_out(&format!("{what} (needs root)"));
    }
    root
}

/// Whether a program can be started at all; what is left out where it cannot is said.
pub fn has(program: &str, package: &str, what: &str) -> bool {
    let has = std::process::Command::new(program).arg("--version").output().is_ok();
    if !has {
        not_installed(package, what);
    }
    has
}
