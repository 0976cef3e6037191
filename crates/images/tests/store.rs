//! The store of images: what it keeps, what it refuses, and which version is had.

mod common;

use common::left_out::is_root;
use common::{Made, Place, version};
use commonhold_image::{EXECUTE, Fault, READ, RootKind};
use commonhold_images::Error;
use commonhold_images::format::{self, Id, Kind, Version};
use commonhold_images::ranges::{Arch, Owner, Ranges, Region, Wanted};
use commonhold_images::store::{RolledBack, registry_of};
use std::os::unix::fs::PermissionsExt;

fn newest(place: &Place, text: &str) -> Option<String> {
    let found = place.store.resolve(&format::Wanted::parse(text).unwrap()).unwrap();
    found.map(|found| found.entry.version.to_string())
}

#[test]
fn the_newest_version_that_begins_so_is_had() {
    let place = Place::new();
    for version in ["1.0.0", "1.2.0", "1.2.10", "1.2.9", "1.10.0", "2.0.0"] {
        place.publish(&Made::data("words", version)).unwrap();
    }
    assert_eq!(newest(&place, "words").as_deref(), Some("2.0.0"));
    assert_eq!(newest(&place, "words@1").as_deref(), Some("1.10.0"));
    assert_eq!(newest(&place, "words@1.2").as_deref(), Some("1.2.10"));
    assert_eq!(newest(&place, "words@1.2.9").as_deref(), Some("1.2.9"));
    assert_eq!(newest(&place, "words@3"), None);
    assert_eq!(newest(&place, "word"), None);
    for bad in ["", "@1", "a@", "a@1.", "a@01", "a@1.2.3.4", "../x", "a/b", ".x", "a@-1", "a@4294967296"] {
        assert!(format::Wanted::parse(bad).is_none(), "{bad}");
    }
    let versions = place.store.versions("words").unwrap();
    let versions: Vec<String> = versions.iter().map(|entry| entry.version.to_string()).collect();
    assert_eq!(versions, ["1.0.0", "1.2.0", "1.2.9", "1.2.10", "1.10.0", "2.0.0"]);
    assert_eq!(place.store.names().unwrap(), ["words"]);
}

#[test]
fn what_was_published_never_changes() {
    let place = Place::new();
    let made = Made::data("words", "1.0.0");
    let first = place.publish(&made).unwrap();
    assert!(first.is_new);
    assert_eq!(std::fs::metadata(&first.path).unwrap().permissions().mode() & 0o777, 0o444);
    let bytes = std::fs::read(&first.path).unwrap();
    assert_eq!(first.id, Id(*blake3::hash(&bytes).as_bytes()));
    assert_eq!(first.path.file_name().unwrap().to_str().unwrap(), first.id.to_string());
    // Once more the same.
    let again = place.publish(&made).unwrap();
    assert!(!again.is_new && again.id == first.id);
    // Another one of that version.
    let error = place.publish(&Made { fill: 9, ..made }).unwrap_err();
    assert!(matches!(&error, Error::Exists { name } if name == "words@1.0.0"), "{error}");
    assert_eq!(std::fs::read(&first.path).unwrap(), bytes);
    assert_eq!(place.content(), [first.id.to_string()], "nothing of the refused one is left");
}

#[test]
fn versions_of_data_have_addresses_of_their_own_and_those_of_code_have_those_of_their_major() {
    let place = Place::new();
    let reserve =
        |kind, version: &str| place.store.reserve(kind, "x", common::version(version), 100_000).unwrap();
    let first = reserve(Kind::Data, "1.0.0");
    assert_eq!(reserve(Kind::Data, "1.0.0"), first);
    let second = reserve(Kind::Data, "1.0.1");
    assert!(second.first >= first.end() || second.end() <= first.first);
    let code = reserve(Kind::Code, "1.0.0");
    assert_eq!(reserve(Kind::Code, "1.7.0"), code);
    assert_ne!(reserve(Kind::Code, "2.0.0").first, code.first);
    place.publish(&Made { kind: Kind::Code, ..Made::data("x", "1.0.0") }).unwrap();
    let error = place.store.reserve(Kind::Code, "x", version("1.8.0"), 10_000_000).unwrap_err();
    assert!(error.to_string().contains("next major version"), "{error}");
    assert_eq!(reserve(Kind::Code, "1.9.0"), code, "the refusal changed nothing");
}

#[test]
fn a_version_that_breaks_its_major_is_refused() {
    let place = Place::new();
    let root = |name: &str, layout| (name.to_owned(), RootKind::Data, 0, layout);
    let made = |version: &str, roots: &[(String, RootKind, u32, u64)]| Made {
        roots: roots.to_vec(),
        ..Made::data("words", version)
    };
    place.publish(&made("1.0.0", &[root("list", 5), root("tree", 6)])).unwrap();
    place.publish(&made("1.2.0", &[root("list", 5), root("more", 1), root("tree", 6)])).unwrap();
    for (version, roots, says) in [
        ("1.3.0", vec![root("list", 5), root("tree", 6)], "\"more\" is not there any more"),
        ("1.3.0", vec![root("list", 5), root("more", 2), root("tree", 6)], "\"more\" has another layout"),
        ("1.1.0", vec![root("list", 5)], "\"tree\" is not there any more"),
        // What comes later lacks it.
        ("1.1.0", vec![root("list", 5), root("tree", 6), root("xtra", 1)], "\"xtra\" is not there any more"),
    ] {
        let error = place.publish(&made(version, &roots)).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Incompatible { next: 2, .. }), "{text}");
        assert!(text.contains(says), "{text}");
    }
    place.publish(&made("2.0.0", &[root("other", 1)])).unwrap();
    place.publish(&made("1.1.0", &[root("list", 5), root("tree", 6)])).unwrap();
}

#[test]
fn code_keeps_its_entries_where_programs_were_linked_to_them() {
    let place = Place::new();
    let function = |name: &str, slot| (name.to_owned(), RootKind::Function, slot, 0);
    let made = |version: &str, roots: &[(String, RootKind, u32, u64)]| Made {
        kind: Kind::Code,
        roots: roots.to_vec(),
        ..Made::data("lib", version)
    };
    place.publish(&made("1.0.0", &[function("a", 0), function("b", 1)])).unwrap();
    for (roots, says) in [
        (vec![function("a", 0), function("b", 2)], "moved from entry 1"),
        (vec![function("a", 0)], "\"b\" is not there"),
        (vec![("a".into(), RootKind::Variable, 0, 0), function("b", 1)], "was a Function and is a Variable"),
    ] {
        let error = place.publish(&made("1.1.0", &roots)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    place.publish(&made("1.1.0", &[function("a", 0), function("b", 1), function("c", 2)])).unwrap();
    let error = place.publish(&Made { roots: vec![], ..Made::data("lib", "1.2.0") }).unwrap_err().to_string();
    assert!(error.contains("one is data and one is code"), "{error}");
}

#[test]
fn a_version_can_be_taken_back_and_is_there_for_who_names_it() {
    let place = Place::new();
    for version in ["1.0.0", "1.1.0", "2.0.0"] {
        place.publish(&Made::data("words", version)).unwrap();
    }
    let error = place.store.rollback("words@1").unwrap_err();
    assert!(error.to_string().ends_with("the newest is words@1.1.0"), "{error}");
    assert_eq!(newest(&place, "words@1").as_deref(), Some("1.1.0"), "which one is not guessed");
    let rolled_back = |is_new| {
        let one = place.store.rollback("words@1.1.0").unwrap();
        assert_eq!(one, RolledBack { withdrawn: version("1.1.0"), had: Some(version("1.0.0")), is_new });
    };
    rolled_back(true);
    // Who does not know whether it was done asks again.
    rolled_back(false);
    assert_eq!(newest(&place, "words@1").as_deref(), Some("1.0.0"));
    assert_eq!(newest(&place, "words@1.1"), None);
    assert_eq!(newest(&place, "words@1.1.0").as_deref(), Some("1.1.0"));
    assert!(matches!(place.store.rollback("words@1.0.0"), Err(Error::Missing(_))), "there is none but 1.0.0");
    assert!(matches!(place.store.rollback("words@2.0.0"), Err(Error::Missing(_))), "there is none but 2.0.0");
    assert!(
        matches!(place.store.rollback("words@1.3.0"), Err(Error::Missing(_))),
        "there is no such version"
    );
    assert_eq!(place.store.restore("words@1.1.0").unwrap(), version("1.1.0"));
    assert_eq!(newest(&place, "words@1").as_deref(), Some("1.1.0"));
}

#[test]
fn what_is_damaged_is_mended_by_publishing_it_again() {
    let place = Place::new();
    let good = place.bytes(&Made::data("words", "1.0.0"));
    let published = place.publish_bytes(&good).unwrap();
    for at in [200, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::remove_file(&published.path).unwrap();
        std::fs::write(&published.path, bad).unwrap();
        let again = place.publish_bytes(&good).unwrap();
        assert!(!again.is_new && again.id == published.id);
        assert_eq!(std::fs::read(&published.path).unwrap(), good, "byte {at}");
        assert!(matches!(place.store.verify().unwrap(), (wrong, 1) if wrong.is_empty()));
    }
    // One that nobody can open.
    std::fs::remove_file(&published.path).unwrap();
    place.publish_bytes(&good).unwrap();
    assert_eq!(std::fs::read(&published.path).unwrap(), good);
}

#[test]
fn damaged_code_that_is_removed_gives_back_its_addresses() {
    let place = Place::new();
    let published = place.publish(&Made { kind: Kind::Code, ..Made::data("lib", "1.0.0") }).unwrap();
    std::fs::remove_file(&published.path).unwrap();
    std::fs::write(&published.path, b"no image").unwrap();
    place.store.remove("lib@1.0.0").unwrap();
    assert!(place.store.ranges().unwrap().list().unwrap().is_empty());
}

#[test]
fn what_was_reserved_and_never_used_can_be_freed() {
    let place = Place::new();
    let ranges = || place.store.ranges().unwrap().list().unwrap().len();
    let reserve = |kind, name, bytes| place.store.reserve(kind, name, version("1.0.0"), bytes).unwrap();
    // Of who was killed before it published.
    reserve(Kind::Data, "gone", 1 << 30);
    reserve(Kind::Code, "gone", 1 << 20);
    assert_eq!(ranges(), 2);
    assert_eq!(place.store.remove("gone@1.0.0").unwrap(), 0);
    assert_eq!(ranges(), 0);
    assert!(matches!(place.store.remove("gone@1.0.0"), Err(Error::Missing(_))));
    // A library that was refused does not decide how large another may be.
    reserve(Kind::Code, "lib", 1 << 20);
    assert!(reserve(Kind::Code, "lib", 1 << 24).bytes >= 1 << 24);
    assert_eq!(ranges(), 1);
    // What has a version stays.
    place.publish(&Made { kind: Kind::Code, ..Made::data("lib", "1.0.0") }).unwrap();
    assert!(matches!(place.store.remove("lib@1.1.0"), Err(Error::Missing(_))));
    assert_eq!(ranges(), 1);
}

#[test]
fn what_is_withdrawn_counts_when_it_comes_back_and_for_code() {
    let place = Place::new();
    let made = |name: &str, version: &str, kind, roots: &[(&str, u32)]| {
        let root_kind = if kind == Kind::Code { RootKind::Function } else { RootKind::Data };
        let one = |(name, slot): &(&str, u32)| ((*name).to_owned(), root_kind, *slot, 0);
        Made { kind, roots: roots.iter().map(one).collect(), ..Made::data(name, version) }
    };
    let data = |version: &str, roots: &[(&str, u32)]| made("words", version, Kind::Data, roots);
    place.publish(&data("1.0.0", &[("x", 0)])).unwrap();
    place.publish(&data("1.1.0", &[("g", 0), ("x", 0)])).unwrap();
    place.store.rollback("words@1.1.0").unwrap();
    place.publish(&data("1.2.0", &[("x", 0)])).unwrap();
    let error = place.store.restore("words@1.1.0").unwrap_err();
    assert!(matches!(error, Error::Incompatible { .. }), "{error}");
    assert!(error.to_string().contains("\"g\" is not there any more"), "{error}");
    assert_eq!(newest(&place, "words@1.1"), None, "it stays withdrawn");
    // A function that programs know by its slot.
    let code = |version: &str, roots: &[(&str, u32)]| made("lib", version, Kind::Code, roots);
    place.publish(&code("1.0.0", &[("b", 0), ("c", 1)])).unwrap();
    place.publish(&code("1.1.0", &[("b", 0), ("c", 1), ("g", 2)])).unwrap();
    place.store.rollback("lib@1.1.0").unwrap();
    let error = place.publish(&code("1.2.0", &[("b", 0), ("c", 1), ("h", 2)])).unwrap_err().to_string();
    assert!(error.contains("slot 2 of \"h\" is that of \"g\""), "{error}");
    place.publish(&code("1.2.0", &[("b", 0), ("c", 1), ("h", 3)])).unwrap();
}

#[test]
fn what_is_removed_gives_back_its_addresses_and_what_others_lead_into_stays() {
    let place = Place::new();
    let base = place.publish(&Made::data("base", "1.0.0")).unwrap();
    place.publish(&Made { imports: vec![base.id], ..Made::data("user", "1.0.0") }).unwrap();
    let error = place.store.remove("base@1.0.0").unwrap_err().to_string();
    assert!(error.contains("user@1.0.0 leads into it"), "{error}");
    assert!(matches!(place.store.remove("base@1"), Err(Error::Invalid(_))));
    assert!(place.store.remove("user@1.0.0").unwrap() > 0);
    assert!(place.store.remove("base@1.0.0").unwrap() > 0);
    assert!(place.content().is_empty() && place.store.names().unwrap().is_empty());
    assert!(place.store.ranges().unwrap().list().unwrap().is_empty());
    assert!(matches!(place.store.remove("base@1.0.0"), Err(Error::Missing(_))));
}

#[test]
fn an_image_whose_import_is_not_there_is_refused() {
    let place = Place::new();
    let base = place.publish(&Made::data("base", "1.0.0")).unwrap();
    let made = Made { imports: vec![base.id], ..Made::data("user", "1.0.0") };
    let bytes = place.bytes(&made);
    place.store.remove("base@1.0.0").unwrap();
    let error = place.publish_bytes(&bytes).unwrap_err().to_string();
    assert!(error.contains("leads into base@1.0.0") && error.contains("publish that one first"), "{error}");
}

#[test]
fn damaged_truncated_and_foreign_images_are_refused_with_the_reason() {
    let place = Place::new();
    let good = place.bytes(&Made::data("words", "1.0.0"));
    let fault = |bytes: &[u8]| match place.publish_bytes(bytes) {
        Err(Error::Unfit { fault, .. }) => fault,
        other => panic!("{other:?}"),
    };
    assert_eq!(fault(&good[..5000]), Fault::Length { written: good.len() as u64, found: 5000 });
    assert_eq!(fault(&good[..2000]), Fault::Damaged);
    assert_eq!(fault(b""), Fault::Foreign);
    assert_eq!(fault(&[0x7f; 9000]), Fault::Foreign);
    for at in (8..4096).step_by(97) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let fault = fault(&bad);
        assert!(matches!(fault, Fault::Damaged | Fault::Format(_)), "{at}: {fault}");
    }
    let mut other = Made::data("words", "1.0.0");
    other.architecture = if other.architecture == 62 { 183 } else { 62 };
    assert!(matches!(fault(&place.bytes(&other)), Fault::Architecture(_)));
    let mut later = good.clone();
    later[8] = 2;
    assert_eq!(fault(&later), Fault::Format(2));
    assert!(place.store.names().unwrap().is_empty() && place.content().is_empty());
}

#[test]
fn content_that_was_changed_is_found_by_its_hash() {
    let place = Place::new();
    let published = place.publish(&Made::data("words", "1.0.0")).unwrap();
    place.publish(&Made::data("other", "1.0.0")).unwrap();
    assert!(matches!(place.store.verify().unwrap(), (wrong, 2) if wrong.is_empty()));
    let mut bytes = std::fs::read(&published.path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    // Where there is fs-verity, nobody changes it in place.
    std::fs::remove_file(&published.path).unwrap();
    std::fs::write(&published.path, bytes).unwrap();
    let (wrong, _) = place.store.verify().unwrap();
    assert_eq!(wrong.len(), 1);
    assert!(matches!(&wrong[0], (name, Error::Damaged { .. }) if name == "words@1.0.0"), "{wrong:?}");
}

#[test]
fn what_others_could_have_written_is_not_used() {
    let place = Place::new();
    let published = place.publish(&Made::data("words", "1.0.0")).unwrap();
    let wanted = format::Wanted::parse("words").unwrap();
    let root = place.store.root();
    let set = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    for (path, mode, before) in [
        (published.path.clone(), 0o464, 0o444),
        (root.join("content"), 0o777, 0o755),
        (root.to_owned(), 0o775, 0o755),
    ] {
        set(&path, mode);
        let error = place.store.open(published.id).err().unwrap();
        assert!(matches!(error, Error::Untrusted { .. }), "{}: {error}", path.display());
        set(&path, before);
    }
    set(&root.join("names/words"), 0o757);
    assert!(matches!(place.store.resolve(&wanted), Err(Error::Untrusted { .. })));
    set(&root.join("names/words"), 0o755);
    // A link that leads out of the store, whatever is there.
    let link = root.join("names/words/1.0.0");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&published.path, &link).unwrap();
    assert!(matches!(place.store.resolve(&wanted), Err(Error::Untrusted { .. })));
    // Only root can give a file away.
    if is_root("a file of another user") {
        std::os::unix::fs::chown(&published.path, Some(65534), None).unwrap();
        let error = place.store.open(published.id).err().unwrap().to_string();
        assert!(error.contains("belongs to user 65534"), "{error}");
    }
    // A link or a pipe in the place of content.
    std::fs::remove_file(&published.path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &published.path).unwrap();
    assert!(place.store.open(published.id).is_err());
    std::fs::remove_file(&published.path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &published.path, 0o444.into()).unwrap();
    assert!(matches!(place.store.open(published.id), Err(Error::Untrusted { .. })));
}

#[test]
fn addresses_that_another_image_has_are_refused_with_whose_they_are() {
    let place = Place::new();
    let first = place.publish(&Made::data("one", "1.0.0")).unwrap();
    let base = place.store.open(first.id).unwrap().header().base();
    let error = place.publish(&Made { base: Some(base), ..Made::data("two", "1.0.0") }).unwrap_err();
    assert!(matches!(&error, Error::Taken { holder, .. } if holder == "image:one@1.0.0"), "{error}");
    // Nobody has these: an image that was made elsewhere brings its addresses with it.
    place.publish(&Made { base: Some(base + (1 << 32)), ..Made::data("two", "1.0.0") }).unwrap();
}

#[test]
fn what_a_crash_left_is_removed_by_the_next_change() {
    let place = Place::new();
    let published = place.publish(&Made::data("words", "1.0.0")).unwrap();
    // As if the machine had stopped between the two steps of a publication.
    std::fs::remove_file(place.store.root().join("names/words/1.0.0")).unwrap();
    std::fs::write(place.store.root().join("content/.making-now"), b"another process writes this").unwrap();
    assert!(place.store.versions("words").unwrap().is_empty());
    place.publish(&Made::data("other", "1.0.0")).unwrap();
    assert!(!published.path.exists());
    assert!(place.store.root().join("content/.making-now").exists());
}

#[test]
fn others_cannot_hold_the_locks_of_a_store() {
    let place = Place::new();
    place.publish(&Made::data("words", "1.0.0")).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for path in [place.store.root().join("lock"), registry_of(place.store.root()).unwrap()] {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        // Of a store that an earlier Commonhold made.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        place.publish(&Made::data("other", "1.0.0")).unwrap();
        place.store.remove("other@1.0.0").unwrap();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn nothing_is_made_through_what_another_put_in_the_place_of_the_lock() {
    let place = Place::new();
    place.publish(&Made::data("words", "1.0.0")).unwrap();
    let (lock, elsewhere) = (place.store.root().join("lock"), place.store.root().with_file_name("elsewhere"));
    std::fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &lock).unwrap();
    for refused in [
        place.store.rollback("words@1.0.0").is_err(),
        place.store.restore("words@1.0.0").is_err(),
        place.store.remove("words@1.0.0").is_err(),
    ] {
        assert!(refused && !elsewhere.exists());
    }
    // A pipe, at which nobody waits.
    std::fs::remove_file(&lock).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &lock, 0o600.into()).unwrap();
    assert!(place.store.remove("words@1.0.0").is_err());
    // A store that others may write: before anything is made there.
    std::fs::remove_file(&lock).unwrap();
    std::fs::set_permissions(place.store.root(), PermissionsExt::from_mode(0o777)).unwrap();
    assert!(matches!(place.store.remove("words@1.0.0"), Err(Error::Untrusted { .. })));
    assert!(!lock.exists());
}

#[test]
fn a_header_that_makes_no_sense_is_not_encoded() {
    let place = Place::new();
    let mut made = Made::data("words", "1.0.0");
    made.protection = READ | EXECUTE;
    assert!(matches!(place.try_bytes(&made), Err(Fault::Unsound(_))), "data is not run");
    made = Made { base: Some(0x1234), ..Made::data("words", "1.0.0") };
    assert!(matches!(place.try_bytes(&made), Err(Fault::Unsound(_))));
    assert_eq!(Version::parse("1.2"), None);
}

#[test]
fn the_newest_of_each_major_version_has_a_link() {
    let place = Place::new();
    let leads_to = |major: u32| {
        let target = std::fs::read_link(place.store.newest_link("words", major)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    };
    let ids: Vec<String> = [("1.0.0", 1), ("1.2.0", 2), ("2.0.0", 3)]
        .map(|(version, fill)| {
            place.publish(&Made { fill, ..Made::data("words", version) }).unwrap().id.to_string()
        })
        .into();
    assert_eq!((leads_to(1), leads_to(2)), (Some(ids[1].clone()), Some(ids[2].clone())));
    // An older one that comes late is not the newest.
    place.publish(&Made { fill: 4, ..Made::data("words", "1.1.0") }).unwrap();
    assert_eq!(leads_to(1), Some(ids[1].clone()));
    place.store.remove("words@1.1.0").unwrap();
    place.store.rollback("words@1.2.0").unwrap();
    assert_eq!(leads_to(1), Some(ids[0].clone()));
    place.store.restore("words@1.2.0").unwrap();
    assert_eq!(leads_to(1), Some(ids[1].clone()));
    place.store.remove("words@2.0.0").unwrap();
    assert_eq!(leads_to(2), None);
    assert_eq!(newest(&place, "words").as_deref(), Some("1.2.0"));
}

#[test]
fn rebase_and_images_share_one_registry_in_the_usual_places() {
    let folder = tempfile::TempDir::new().unwrap();
    let home = folder.path().join("commonhold");
    let (images, rebase) = (home.join("images"), home.join("rebase"));
    std::fs::create_dir_all(&rebase).unwrap();
    // Of before there were images.
    std::fs::write(rebase.join("ranges"), b"").unwrap();
    assert_eq!(registry_of(&images).unwrap(), home.join("ranges"));
    assert!(home.join("ranges").exists() && !rebase.join("ranges").exists());
    assert_eq!(registry_of(&rebase).unwrap(), home.join("ranges"));
    // What somebody else has chosen is alone.
    for other in [folder.path().join("images"), home.join("other")] {
        assert_eq!(registry_of(&other).unwrap(), other.join("ranges"));
    }
    let wanted = |name: &str| Wanted {
        name: name.into(),
        arch: Arch::here(),
        region: Region::Homogeneous,
        bytes: 1 << 20,
        alignment: 4096,
        group: None,
        slide: 0,
    };
    std::fs::remove_file(home.join("ranges")).unwrap();
    let ranges = Ranges::open(&registry_of(&rebase).unwrap(), Owner::User).unwrap();
    let taken = ranges.assign(&wanted("rebase:/lib/x")).unwrap();
    drop(ranges);
    let other = Ranges::open(&registry_of(&images).unwrap(), Owner::User).unwrap();
    assert!(matches!(other.claim(&wanted("image:x@1"), taken.first), Err(Error::Taken { .. })));
}
