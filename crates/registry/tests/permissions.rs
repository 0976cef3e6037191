//! Who may do what: every class of user against every mode of a directory and of an object.

mod common;

use common::{create, everything, member, name, open, options, user};
use commonhold_object::{Access, Credentials, ErrorKind, Result};
use commonhold_registry::{Prepared, Registry, Renaming};

const OWNER: u32 = 10;
const GROUP: u32 = 50;

/// The classes of users, and how far a mode is shifted for each. Root stands for all bits.
fn classes() -> [(Credentials, Option<u32>); 4] {
    [(user(OWNER), Some(6)), (member(11, GROUP), Some(3)), (user(12), Some(0)), (user(0), None)]
}

fn bits(mode: u32, shift: Option<u32>) -> (bool, bool, bool) {
    let class = shift.map_or(7, |shift| mode >> shift & 7);
    (class & 4 != 0, class & 2 != 0, class & 1 != 0)
}

fn check<T>(result: Result<T>, allowed: bool, what: &str) {
    match (&result, allowed) {
        (Ok(_), true) => {}
        (Err(error), false) => assert_eq!(error.kind, ErrorKind::Permission, "{what}: {error}"),
        (Ok(_), false) => panic!("{what} was allowed"),
        (Err(error), true) => panic!("{what} was refused: {error}"),
    }
}

/// A directory /d of OWNER and GROUP with an object in it that anybody may use.
fn stage(mode: u32) -> (tempfile::TempDir, Registry) {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    create(&mut registry, "/d/x", &user(OWNER), 0o666, 1, 0).unwrap();
    registry.set_owner(&name("/d"), &user(0), None, Some(GROUP)).unwrap();
    registry.set_mode(&name("/d"), &user(OWNER), mode).unwrap();
    (state, registry)
}

#[test]
fn each_mode_of_a_directory() {
    for digit in 0..8 {
        let mode = digit << 6 | digit << 3 | digit;
        for skew in [mode, mode & 0o707, mode & 0o077, mode & 0o770] {
            let (_state, mut registry) = stage(skew);
            for (who, shift) in classes() {
                let (read, write, search) = bits(skew, shift);
                let what = |verb: &str| format!("mode {skew:03o}: {verb} by user {}", who.uid);
                check(registry.lookup(&name("/d/x"), &who, Access::ReadWrite), search, &what("open"));
                check(registry.stat(&name("/d/x"), &who), search, &what("stat"));
                check(registry.stat(&name("/d"), &who), true, &what("stat of the directory"));
                check(registry.list(&name("/d"), &who, None, 9), read, &what("list"));
                let changes = write && search;
                check(create(&mut registry, "/d/y", &who, 0o600, 2, 0), changes, &what("create"));
                check(
                    registry.rename(&name("/d/x"), &name("/d/z"), &who, Renaming::default(), false),
                    changes,
                    &what("rename"),
                );
                if changes {
                    registry.rename(&name("/d/z"), &name("/d/x"), &who, Renaming::default(), false).unwrap();
                    let removed = registry.remove(&name("/d/y"), &who, false).unwrap().unwrap();
                    registry.forget(removed.id).unwrap();
                } else {
                    check(registry.remove(&name("/d/x"), &who, false), false, &what("remove"));
                }
            }
        }
    }
}

#[test]
fn each_mode_of_an_object() {
    let (_state, mut registry) = stage(0o755);
    registry.set_owner(&name("/d/x"), &user(0), None, Some(GROUP)).unwrap();
    for mode in 0..0o1000 {
        registry.set_mode(&name("/d/x"), &user(OWNER), mode).unwrap();
        for (who, shift) in classes() {
            let (read, write, _) = bits(mode, shift);
            let what = format!("mode {mode:03o}, user {}", who.uid);
            check(registry.lookup(&name("/d/x"), &who, Access::Read), read, &what);
            check(registry.lookup(&name("/d/x"), &who, Access::ReadWrite), read && write, &what);
        }
    }
}

#[test]
fn modes_are_changed_by_the_owner_and_owners_by_root() {
    let (_state, mut registry) = stage(0o777);
    let group = member(OWNER, 60);
    for target in ["/d", "/d/x"].map(name) {
        let before = everything(&registry);
        for stranger in [member(11, GROUP), user(12)] {
            check(registry.set_mode(&target, &stranger, 0o777), false, "chmod by a stranger");
            check(registry.set_owner(&target, &stranger, Some(stranger.uid), None), false, "taking");
            check(
                registry.set_owner(&target, &stranger, None, Some(stranger.gid)),
                false,
                "chgrp by a stranger",
            );
        }
        check(registry.set_owner(&target, &group, Some(11), None), false, "giving away");
        check(registry.set_owner(&target, &group, None, Some(61)), false, "a group that is not his");
        assert_eq!(everything(&registry), before);
        check(registry.set_owner(&target, &group, None, Some(60)), true, "a group of his");
        check(registry.set_owner(&target, &user(0), Some(12), Some(61)), true, "root");
        check(registry.set_mode(&target, &user(OWNER), 0o777), false, "the owner of before");
        check(registry.set_mode(&target, &user(12), 0o777), true, "the owner of now");
    }
}

#[test]
fn the_root_directory_is_sticky() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    create(&mut registry, "/mine", &user(1), 0o666, 1, 0).unwrap();
    create(&mut registry, "/dir/x", &user(1), 0o666, 2, 0).unwrap();
    registry.set_owner(&name("/"), &user(0), Some(5), Some(5)).unwrap();
    registry.set_mode(&name("/dir"), &user(1), 0o777).unwrap();
    for top in ["/mine", "/dir"] {
        check(
            registry.rename(&name(top), &name("/other"), &user(2), Renaming::default(), false),
            false,
            "rename at the top by a stranger",
        );
        check(registry.remove(&name(top), &user(2), false), false, "remove at the top by a stranger");
    }
    check(registry.remove(&name("/dir/x"), &user(2), false), true, "remove lower down");
    check(
        registry.rename(&name("/mine"), &name("/dir/m"), &user(5), Renaming::default(), false),
        true,
        "the owner of the root",
    );
    check(
        registry.rename(&name("/dir"), &name("/e"), &user(1), Renaming::default(), false),
        true,
        "the owner of the entry",
    );
}

#[test]
fn a_closed_directory_tells_nothing_of_what_is_in_it() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    create(&mut registry, "/s/there", &user(1), 0o666, 1, 0).unwrap();
    create(&mut registry, "/mine", &user(2), 0o666, 2, 0).unwrap();
    registry.set_mode(&name("/s"), &user(1), 0o700).unwrap();
    let stranger = user(2);
    let mut answers = Vec::new();
    for text in ["/s/there", "/s/not"] {
        let target = name(text);
        let mut said = Vec::new();
        for repeated in [false, true] {
            said.push(registry.remove(&target, &stranger, repeated).map(drop));
            said.push(
                registry.rename(&target, &name("/free"), &stranger, Renaming::default(), repeated).map(drop),
            );
            said.push(
                registry.rename(&name("/mine"), &target, &stranger, Renaming::default(), repeated).map(drop),
            );
            said.push(
                registry
                    .rename(&name("/nothing"), &target, &stranger, Renaming::default(), repeated)
                    .map(drop),
            );
        }
        said.push(registry.stat(&target, &stranger).map(drop));
        said.push(registry.lookup(&target, &stranger, Access::Read).map(drop));
        said.push(create(&mut registry, text, &stranger, 0o600, 1, 0).map(drop));
        said.push(registry.set_mode(&target, &stranger, 0o600).map(drop));
        answers.push(said);
    }
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0].iter().all(|answer| answer.as_ref().is_err_and(|e| e.kind == ErrorKind::Permission)));
}

#[test]
fn rights_are_asked_again_when_a_creation_is_committed() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    create(&mut registry, "/p/q/t", &user(1), 0o600, 1, 0).unwrap();
    registry.set_mode(&name("/p/q"), &user(1), 0o777).unwrap();
    let prepare = |registry: &mut Registry, text: &str, nonce| match registry
        .prepare_create(&name(text), &user(2), options(0o600), None, nonce, 0)
        .unwrap()
    {
        Prepared::New(object) => object,
        Prepared::Exists(_) => panic!("{text} exists"),
    };
    let closed = prepare(&mut registry, "/p/q/closed", 2);
    registry.set_mode(&name("/p/q"), &user(1), 0o755).unwrap();
    check(registry.commit_create(closed), false, "commit into a directory that was closed");
    registry.set_mode(&name("/p/q"), &user(1), 0o777).unwrap();
    let gone = prepare(&mut registry, "/p/q/gone", 3);
    registry.remove(&name("/p/q/t"), &user(1), false).unwrap();
    registry.remove(&name("/p/q"), &user(1), false).unwrap();
    let before = everything(&registry);
    check(
        registry.commit_create(gone),
        false,
        "commit that would make /p/q again, in a directory of another user",
    );
    assert_eq!(everything(&registry), before);
    assert_eq!(registry.usage(2), (0, 0));
}
