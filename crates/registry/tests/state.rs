//! The file itself: newer versions, damage, a second host, a disk that cannot take a write, a first start cut short.

mod common;

use common::{create, everything, name, open, user};
use commonhold_object::{Error, ErrorKind};
use commonhold_registry::{Quotas, Registry};
use redb::{Database, TableDefinition};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const STATE: &str = "COMMONHOLD_TEST_STATE";
const FORMAT: TableDefinition<'_, &str, u64> = TableDefinition::new("format");

/// A state with thirty objects; its file.
fn filled(state: &Path) -> PathBuf {
    let mut registry = open(state);
    for number in 0..30 {
        create(&mut registry, &format!("/d{}/{number:0>80}", number % 4), &user(1), 0o600, number, 1)
            .unwrap();
    }
    state.join("meta.redb")
}

/// The refusal of a file, which must be as it was, and alone in its directory.
fn refused(state: &Path) -> Error {
    let before = std::fs::read(state.join("meta.redb")).unwrap();
    let error = Registry::open(state, Quotas::same(u64::MAX, 100)).err().expect("the file was accepted");
    assert!(std::fs::read(state.join("meta.redb")).unwrap() == before, "the file was changed: {error}");
    assert_eq!(std::fs::read_dir(state).unwrap().count(), 1);
    assert!(error.message.contains("meta.redb") && !error.message.contains('\n'), "{error}");
    error
}

/// Sets the version, and leaves the file as a host leaves it that was killed.
fn set_version(file: &Path, version: u64, killed: bool) {
    let copy = file.with_extension("copy");
    let database = Database::create(file).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(FORMAT).unwrap().insert("version", version).unwrap();
    transaction.commit().unwrap();
    if killed {
        std::fs::copy(file, &copy).unwrap();
        drop(database);
        std::fs::rename(&copy, file).unwrap();
    }
}

#[test]
fn a_state_of_a_newer_version_is_not_touched() {
    for killed in [false, true] {
        let state = tempfile::tempdir().unwrap();
        let file = filled(state.path());
        let before = everything(&open(state.path()));
        set_version(&file, 2, killed);
        let error = refused(state.path());
        assert_eq!(error.kind, ErrorKind::Version);
        for says in [concat!("by Commonhold ", env!("CARGO_PKG_VERSION")), "version 2", "upgrade"] {
            assert!(error.message.contains(says), "{error}");
        }
        set_version(&file, 1, false);
        assert_eq!(everything(&open(state.path())), before);
    }
}

#[test]
fn what_is_no_registry_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let whole = std::fs::read(filled(state.path())).unwrap();
    for bytes in [vec![0; 1 << 20], b"names".to_vec(), vec![0xa5; 1 << 20], whole[..whole.len() / 2].to_vec()]
    {
        std::fs::write(state.path().join("meta.redb"), bytes).unwrap();
        let error = refused(state.path());
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
        assert!(error.message.contains("move it elsewhere"), "{error}");
    }
    std::fs::remove_file(state.path().join("meta.redb")).unwrap();
    let other = Database::create(state.path().join("meta.redb")).unwrap();
    drop(other);
    assert_eq!(refused(state.path()).kind, ErrorKind::Corrupt);
    let none = Registry::open(&state.path().join("none"), Quotas::same(1, 1)).err().unwrap();
    assert_eq!(none.kind, ErrorKind::Io, "{none}");
}

/// One bit flipped, anywhere that is in use: refused, or (where nothing reads it) the same state. Never another state,
/// never a panic.
#[test]
fn a_flipped_bit_is_noticed_or_harmless() {
    let state = tempfile::tempdir().unwrap();
    let file = filled(state.path());
    let whole = std::fs::read(&file).unwrap();
    let before = everything(&open(state.path()));
    let used: Vec<usize> =
        (0..whole.len()).step_by(4096).filter(|at| whole[*at..].iter().take(4096).any(|b| *b != 0)).collect();
    let (mut random, mut noticed) = (7u64, 0);
    for _ in 0..300 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let at = used[(random >> 33) as usize % used.len()] + (random >> 20) as usize % 4096;
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (random >> 13 & 7);
        std::fs::write(&file, &bytes).unwrap();
        match Registry::open(state.path(), Quotas::same(u64::MAX, 100)) {
            Ok(registry) => assert_eq!(everything(&registry), before, "byte {at}"),
            Err(error) => {
                noticed += 1;
                assert!(matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Version), "byte {at}: {error}");
                assert!(std::fs::read(&file).unwrap() == bytes, "byte {at}: the file was changed");
            }
        }
    }
    assert!(noticed > 5, "only {noticed} flips fell on something that is read");
}

/// As a host does that was killed, and cannot end: the next one has the directory's lock, and is not kept out.
#[test]
fn who_has_it_open_and_does_nothing_any_more_keeps_nobody_out() {
    let state = tempfile::tempdir().unwrap();
    drop(open(state.path()));
    let file = std::fs::File::options().read(true).write(true).open(state.path().join("meta.redb")).unwrap();
    file.lock().unwrap();
    open(state.path());
}

/// A name that takes much room.
fn long(number: u128) -> String {
    format!("/{0:d>250}/{0:d>250}/{1:0>250}", "", number)
}

/// Started with a limit on the size of files: creates until a write fails, goes on reading, has the limit lifted, and
/// goes on creating.
#[test]
#[ignore = "started by the test below"]
fn child_whose_writes_fail() {
    let state = PathBuf::from(std::env::var(STATE).unwrap());
    let mut registry = open(&state);
    let mut number = 0;
    let error = loop {
        number += 1;
        if let Err(error) = create(&mut registry, &long(number), &user(1), 0o600, number, 9) {
            break error;
        }
    };
    assert_eq!(error.kind, ErrorKind::Io, "{error}");
    let made = number as u64 - 1;
    let before = everything(&registry);
    assert_eq!((before.1.len() as u64, registry.usage(1)), (made, (made, made * 9)));
    for _ in 0..3 {
        create(&mut registry, "/again", &user(1), 0o600, 0, 9).unwrap_err();
        assert!(everything(&registry) == before, "a refused creation changed something");
    }
    let us = std::process::id().to_string();
    assert!(Command::new("prlimit").args(["--pid", &us, "--fsize=unlimited"]).status().unwrap().success());
    create(&mut registry, "/again", &user(1), 0o600, 0, 9).unwrap();
    registry.remove(&name(&long(1)), &user(1), false).unwrap();
    let after = everything(&registry);
    drop(registry);
    assert!(everything(&open(&state)) == after);
    println!("\nfailed at {number}");
}

fn child(test: &str, state: &Path) -> Command {
    let mut command = Command::new("sh");
    let program = std::env::current_exe().unwrap();
    // The size limit of `ulimit -f` counts in 512 or 1024 bytes; the signal that goes with it is ignored.
    let script = r#"trap "" XFSZ; [ "$2" != child_whose_writes_fail ] || ulimit -S -f 3000; exec "$1" "$2" --exact --ignored --nocapture"#;
    command.args(["-c", script, "sh"]).arg(program).arg(test).env(STATE, state).stdout(Stdio::piped());
    command
}

#[test]
fn after_a_failed_write_nothing_has_changed_and_the_retry_succeeds() {
    let state = tempfile::tempdir().unwrap();
    let output = child("child_whose_writes_fail", state.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("failed at"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
#[ignore = "started by the test below"]
fn child_that_begins() {
    open(Path::new(&std::env::var(STATE).unwrap()));
    println!("\nbegun");
}

#[test]
fn a_first_start_that_was_killed_leaves_nothing_in_the_way() {
    let (mut before, mut after) = (0, 0);
    for round in 0..40 {
        let state = tempfile::tempdir().unwrap();
        let mut started = child("child_that_begins", state.path()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(round * 500));
        let _ = started.kill();
        started.wait().unwrap();
        *(if state.path().join("meta.redb").exists() { &mut after } else { &mut before }) += 1;
        let mut registry = open(state.path());
        create(&mut registry, "/x", &user(1), 0o600, 1, 0).unwrap();
        assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 1, "something was left behind");
    }
    assert!(before > 0, "no kill came before the end ({after} after it)");
}
