//! Whose a store is, and so which addresses its images have.

mod common;

use common::Place;
use common::left_out::{is_root, left_out};
use commonhold_images::Error;
use commonhold_images::format::Kind;
use commonhold_images::ranges::{Owner, Region};
use commonhold_images::store::{Store, users_directory};
use std::path::Path;
use std::process::Command;

/// Copies this program. Another process does: a child of another test that has not come to its exec yet would have the file open
/// for writing, and no program is started then (ETXTBSY).
fn copy_to(program: &Path) {
    assert!(
        Command::new("cp").arg(std::env::current_exe().unwrap()).arg(program).status().unwrap().success()
    );
}

#[test]
fn a_registry_with_ranges_of_both_owners_is_used_as_either() {
    let place = Place::new();
    let user = Store::at(place.store.root(), Owner::User);
    let reserve = |store: &Store, name| {
        let range = store.reserve(Kind::Data, name, common::version("1.0.0"), 1 << 20).unwrap();
        assert!(Region::Homogeneous.addresses(store.owner()).contains(&range.first), "{range:?}");
    };
    // The machine's are below, so a user's are looked at last, and the machine's first.
    reserve(&place.store, "machines");
    reserve(&user, "users");
    reserve(&place.store, "another");
    place.store.remove("machines@1.0.0").unwrap();
    place.store.remove("another@1.0.0").unwrap();
    reserve(&place.store, "late");
}

#[test]
fn the_users_own_store_is_that_however_it_is_named() {
    let home = tempfile::TempDir::new().unwrap();
    let own = home.path().join(".local/share/commonhold/images");
    std::fs::create_dir_all(&own).unwrap();
    std::os::unix::fs::symlink(&own, home.path().join("link")).unwrap();
    std::fs::set_permissions(home.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let shell =
        format!("unset XDG_DATA_HOME COMMONHOLD_IMAGES; HOME={0}; export HOME; exec", home.path().display());
    // Root's own store is the machine's.
    let user = if rustix::process::geteuid().is_root() { "setpriv --reuid 65534 --clear-groups" } else { "" };
    let program = home.path().join("program");
    copy_to(&program);
    let script =
        format!("{shell} {user} {} --exact names_stores --ignored --test-threads=1", program.display());
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn programs_with_rights_that_their_caller_lacks_build_nothing_where_the_caller_says() {
    if !is_root("a program with the rights of another") {
        return;
    }
    let folder = tempfile::TempDir::new().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(folder.path(), mode(0o755)).unwrap();
    let program = folder.path().join("program");
    copy_to(&program);
    std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
    std::fs::set_permissions(&program, mode(0o4755)).unwrap();
    let mut command = Command::new(&program);
    command.args(["--exact", "has_no_store", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("HOME", folder.path()).env("XDG_DATA_HOME", folder.path());
    let output = command.env("COMMONHOLD_IMAGES", folder.path().join("images")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "is run by another"]
fn has_no_store() {
    if rustix::process::geteuid().is_root() {
        return left_out("a program with the rights of another (this file system gives nobody such)");
    }
    assert!(users_directory().is_none() && matches!(Store::own(), Err(Error::Invalid(_))));
    // Nor does it include what the caller says.
    let roots: Vec<_> = Store::search().iter().map(|store| store.root().to_owned()).collect();
    assert_eq!(roots, [Store::of_machine().root()]);
}

#[test]
#[ignore = "is run by another"]
fn names_stores() {
    let home = std::path::PathBuf::from(std::env::var_os("HOME").unwrap());
    let own = Store::own().unwrap();
    assert_eq!((own.owner(), own.root()), (Owner::User, &*home.join(".local/share/commonhold/images")));
    assert_eq!(Store::named(own.root()).owner(), Owner::User);
    assert_eq!(Store::named(&home.join("link")).owner(), Owner::User);
    assert_eq!(Store::named(&home).owner(), Owner::Machine);
}
