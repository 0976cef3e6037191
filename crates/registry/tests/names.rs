//! Names: what appears when, how directories are listed, renamed and removed, and what is refused.

mod common;

use common::{create, everything, name, names, open, options, user};
use commonhold_object::{Access, ErrorKind, Name, Result, limits};
use commonhold_registry::{Entry, ObjectRecord, Prepared, Renaming};

#[test]
fn directories_appear_with_the_first_object_and_belong_to_who_used_them() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    create(&mut registry, "/lab/deep/weights", &user(7), 0o640, 1, 0).unwrap();
    for directory in ["/lab", "/lab/deep"] {
        let Entry::Directory { ownership, .. } = registry.stat(&name(directory), &user(9)).unwrap() else {
            panic!("{directory} is no directory")
        };
        assert_eq!((ownership.uid, ownership.gid, ownership.mode), (7, 7, 0o755));
    }
    let before = everything(&registry);
    drop(registry);
    assert_eq!(everything(&open(state.path())), before);
}

#[test]
fn a_listing_has_one_directory_in_order_and_goes_on_where_it_stopped() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    // `!` sorts before the slash and `0` just behind it: what lies below /d/a lies between its neighbours.
    for (nonce, text) in
        ["/d/a/1", "/d/a/2/3", "/d/a!b", "/d/a0", "/d/a!c/x", "/d/b", "/e", "/d0"].iter().enumerate()
    {
        create(&mut registry, text, &user(1), 0o600, nonce as u128, 0).unwrap();
    }
    let whole = ["/d/a/", "/d/a!b", "/d/a!c/", "/d/a0", "/d/b"];
    let (entries, more) = registry.list(&name("/d"), &user(1), None, 5).unwrap();
    assert_eq!((names(&entries), more), (whole.map(String::from).to_vec(), false));
    for limit in 1..5 {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (page, more) = registry.list(&name("/d"), &user(1), after.as_ref(), limit).unwrap();
            assert!(page.len() <= limit);
            found.extend(names(&page));
            after = found.last().map(|last| name(last.trim_end_matches('/')));
            if !more {
                break;
            }
        }
        assert_eq!(found, whole, "in pages of {limit}");
    }
    assert_eq!(names(&registry.list(&name("/"), &user(1), None, 9).unwrap().0), ["/d/", "/d0", "/e"]);
    let (entries, _) = registry.list(&name("/d"), &user(1), Some(&name("/a")), usize::MAX).unwrap();
    assert_eq!(names(&entries), whole, "`after` may lie outside the directory");
}

#[test]
fn a_directory_moves_with_all_below_it() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    let who = user(1);
    let first = create(&mut registry, "/a/x", &who, 0o600, 1, 0).unwrap();
    let second = create(&mut registry, "/a/b/y", &who, 0o600, 2, 0).unwrap();
    create(&mut registry, "/ab", &who, 0o600, 3, 0).unwrap();
    registry.set_mode(&name("/a/b"), &who, 0o750).unwrap();
    registry.rename(&name("/a"), &name("/new/place"), &who, Renaming::default(), false).unwrap();
    for registry in [registry, open_again(&state)] {
        assert_eq!(
            names(&everything(&registry).0),
            ["//", "/ab", "/new/", "/new/place/", "/new/place/b/", "/new/place/x", "/new/place/b/y"]
        );
        assert_eq!(registry.lookup(&name("/new/place/x"), &who, Access::Read).unwrap().id, first.id);
        assert_eq!(registry.lookup(&name("/new/place/b/y"), &who, Access::Read).unwrap().id, second.id);
        let Entry::Directory { ownership, .. } = registry.stat(&name("/new/place/b"), &who).unwrap() else {
            panic!()
        };
        assert_eq!(ownership.mode, 0o750);
        drop(registry);
    }
}

fn open_again(state: &tempfile::TempDir) -> commonhold_registry::Registry {
    // The file is locked while the first is open: read a copy.
    let copy = state.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(state.path().join("meta.redb"), copy.join("meta.redb")).unwrap();
    open(&copy)
}

#[test]
fn refused_changes_change_nothing() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    let who = user(1);
    let part = "p".repeat(limits::NAME_PART_BYTES);
    let long = format!("/{part}/{part}/{part}");
    create(&mut registry, &format!("/a/b/{part}"), &who, 0o600, 1, 0).unwrap();
    create(&mut registry, "/x", &who, 0o600, 2, 0).unwrap();
    let before = everything(&registry);
    let renames = [
        ("/a", "/a/b/c", ErrorKind::Invalid, "into itself"),
        ("/a", "/a", ErrorKind::Invalid, "already"),
        ("/x", "/a", ErrorKind::Exists, "remove it first"),
        ("/a", "/x", ErrorKind::Exists, "remove it first"),
        ("/x", "/x/y", ErrorKind::Mismatch, "an object, not a directory"),
        ("/none", "/n", ErrorKind::NotFound, "no /none"),
        ("/a", long.as_str(), ErrorKind::Invalid, "too long"),
        ("/", "/r", ErrorKind::Invalid, "root"),
        ("/x", "/", ErrorKind::Invalid, "root"),
    ];
    for (from, to, kind, says) in renames {
        let error = registry.rename(&name(from), &name(to), &who, Renaming::default(), false).unwrap_err();
        assert_eq!(error.kind, kind, "{from} to {to}: {error}");
        assert!(error.message.contains(says), "{from} to {to}: {error}");
    }
    for (text, kind) in [
        ("/a", ErrorKind::Mismatch),
        ("/x", ErrorKind::Exists),
        ("/x/y", ErrorKind::Mismatch),
        ("/", ErrorKind::Invalid),
    ] {
        assert_eq!(create(&mut registry, text, &who, 0o600, 9, 0).unwrap_err().kind, kind, "{text}");
    }
    assert_eq!(registry.remove(&name("/a"), &who, false).unwrap_err().kind, ErrorKind::Busy);
    assert_eq!(registry.remove(&name("/"), &user(0), false).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(registry.set_mode(&name("/x"), &who, 0o1777).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(registry.lookup(&name("/a"), &who, Access::Read).unwrap_err().kind, ErrorKind::Mismatch);
    assert_eq!(everything(&registry), before);
    drop(registry);
    assert_eq!(everything(&open(state.path())), before);
}

#[test]
fn the_longest_name_is_kept() {
    let state = tempfile::tempdir().unwrap();
    let mut text = String::new();
    while text.len() + 256 <= limits::NAME_BYTES {
        text += &format!("/{}", "n".repeat(limits::NAME_PART_BYTES));
    }
    assert_eq!(text.len(), limits::NAME_BYTES);
    create(&mut open(state.path()), &text, &user(1), 0o600, 1, 0).unwrap();
    open(state.path()).lookup(&Name::new(&text).unwrap(), &user(1), Access::ReadWrite).unwrap();
}

#[test]
fn a_removed_object_keeps_its_record_until_forgotten_and_its_name_is_free() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    let who = user(1);
    let old = create(&mut registry, "/x", &who, 0o600, 1, 0).unwrap();
    let removed = registry.remove(&name("/x"), &who, false).unwrap().unwrap();
    assert_eq!((removed.id, removed.name), (old.id, None));
    let new = create(&mut registry, "/x", &who, 0o600, 2, 0).unwrap();
    assert_ne!(new.id, old.id);
    drop(registry);
    let mut registry = open(state.path());
    assert_eq!(common::ids(&registry), [old.id, new.id]);
    registry.forget(old.id).unwrap();
    registry.forget(old.id).unwrap();
    assert_eq!(common::ids(&registry), [new.id]);
    assert_eq!(registry.lookup(&name("/x"), &who, Access::Read).unwrap().id, new.id);
}

#[test]
fn a_repeated_request_has_succeeded() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    let who = user(1);
    let first = create(&mut registry, "/x", &who, 0o600, 5, 0).unwrap();
    assert_eq!(create(&mut registry, "/x", &who, 0o600, 5, 0).unwrap(), first);
    assert_eq!(create(&mut registry, "/x", &user(2), 0o600, 5, 0).unwrap_err().kind, ErrorKind::Exists);
    registry.rename(&name("/x"), &name("/y"), &who, Renaming::default(), false).unwrap();
    registry.rename(&name("/x"), &name("/y"), &who, Renaming::default(), true).unwrap();
    assert_eq!(
        registry.rename(&name("/x"), &name("/y"), &who, Renaming::default(), false).unwrap_err().kind,
        ErrorKind::NotFound
    );
    registry.remove(&name("/y"), &who, false).unwrap().unwrap();
    assert_eq!(registry.remove(&name("/y"), &who, true).unwrap(), None);
    assert_eq!(registry.remove(&name("/y"), &who, false).unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn what_was_only_prepared_leaves_nothing() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    let before = everything(&registry);
    for abandon in [true, false] {
        let prepared =
            registry.prepare_create(&name("/a/b"), &user(1), options(0o600), None, 1, 4096).unwrap();
        let Prepared::New(object) = prepared else { panic!() };
        assert_eq!(registry.usage(1), (1, 4096));
        if abandon {
            registry.abandon_create(object);
            assert_eq!(registry.usage(1), (0, 0));
        }
    }
    drop(registry);
    let registry = open(state.path());
    assert_eq!(everything(&registry), before);
    assert_eq!(registry.usage(1), (0, 0));
}

#[test]
fn directories_are_made_and_stay() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    let (who, other) = (user(5), user(6));
    registry.make_directory(&name("/d"), &who, 0o755, false).unwrap();
    assert!(registry.make_directory(&name("/no/e"), &who, 0o700, false).is_err());
    registry.make_directory(&name("/d/e"), &who, 0o700, false).unwrap();
    let Entry::Directory { ownership, .. } = registry.stat(&name("/d/e"), &who).unwrap() else {
        panic!("/d/e")
    };
    assert_eq!((ownership.uid, ownership.mode), (5, 0o700));
    let refused = |result: Result<()>| result.unwrap_err().kind;
    assert_eq!(refused(registry.make_directory(&name("/d/e"), &who, 0o700, false)), ErrorKind::Exists);
    registry.make_directory(&name("/d/e"), &who, 0o700, true).unwrap();
    assert_eq!(refused(registry.make_directory(&name("/d/e"), &other, 0o700, true)), ErrorKind::Exists);
    assert_eq!(refused(registry.make_directory(&name("/d/f"), &other, 0o700, false)), ErrorKind::Permission);
    assert_eq!(refused(registry.make_directory(&name("/x"), &who, 0o1777, false)), ErrorKind::Invalid);
}

#[test]
fn a_name_is_replaced_at_once() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    let over = Renaming { replace: true, of: None };
    let (who, other) = (user(5), user(6));
    let [a, b] = ["/a", "/b"].map(|text| create(&mut registry, text, &who, 0o600, 1, 0).unwrap().id);
    let changed = registry.rename(&name("/a"), &name("/b"), &who, over, false).unwrap();
    let named: Vec<_> = changed.iter().map(|record| (record.id, record.name.clone())).collect();
    assert_eq!(named, [(b, None), (a, Some(name("/b")))]);
    assert_eq!(registry.lookup(&name("/b"), &who, Access::Read).unwrap().id, a);
    // Repeated, for who did not hear of it.
    assert!(registry.rename(&name("/a"), &name("/b"), &who, over, true).unwrap().is_empty());
    assert!(registry.rename(&name("/b"), &name("/b"), &who, over, false).unwrap().is_empty());
    let refused = |result: Result<Vec<ObjectRecord>>| result.unwrap_err().kind;
    create(&mut registry, "/c", &other, 0o600, 2, 0).unwrap();
    assert_eq!(
        refused(registry.rename(&name("/c"), &name("/b"), &other, over, false)),
        ErrorKind::Permission
    );
    registry.make_directory(&name("/d"), &who, 0o755, false).unwrap();
    assert_eq!(refused(registry.rename(&name("/b"), &name("/d"), &who, over, false)), ErrorKind::Mismatch);
    assert_eq!(refused(registry.rename(&name("/d"), &name("/b"), &who, over, false)), ErrorKind::Mismatch);
    registry.make_directory(&name("/full"), &who, 0o755, false).unwrap();
    registry.make_directory(&name("/full/in"), &who, 0o755, false).unwrap();
    assert_eq!(refused(registry.rename(&name("/d"), &name("/full"), &who, over, false)), ErrorKind::Busy);
    registry.rename(&name("/d"), &name("/full/in"), &who, over, false).unwrap();
    assert!(registry.stat(&name("/d"), &who).is_err());
}
