//! The heterogeneous region: images that are declared never to be in one process.

use commonhold_images::data::{Arena, Options};
use commonhold_images::include::{include_from, included};
use commonhold_images::ranges::{Owner, Region};
use commonhold_images::store::Store;
use commonhold_images::{Error, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Each store gives its first group the same addresses, and a process has them once.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A store of its own.
struct Place {
    _folder: tempfile::TempDir,
    store: Store,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::TempDir::new().unwrap();
        let store = Store::at(&folder.path().join("store"), Owner::Machine);
        store.create().unwrap();
        Place { _folder: folder, store }
    }
}

fn publish(place: &Place, name: &str, group: Option<&str>, capacity: u64) -> Result<u64> {
    let group = group.map(str::to_owned);
    let options = Options { store: Some(place.store.clone()), capacity, group, ..Options::default() };
    let arena = Arena::with(name, options)?;
    arena.root("one", arena.place(7_u64)?)?;
    let base = arena.base();
    arena.seal()?;
    Ok(base)
}

#[test]
fn images_of_a_group_have_one_address_and_only_one_of_them_comes_into_a_process() {
    let _alone = alone();
    let place = Place::new();
    let german = publish(&place, "german@1.0.0", Some("language"), 1 << 20).unwrap();
    assert!(Region::Heterogeneous.addresses(Owner::Machine).contains(&german));
    // A larger one too, and a version of the first.
    assert_eq!(publish(&place, "french@1.0.0", Some("language"), 1 << 28).unwrap(), german);
    assert_eq!(publish(&place, "german@1.1.0", Some("language"), 1 << 20).unwrap(), german);
    let other = publish(&place, "old@1.0.0", Some("spelling"), 1 << 20).unwrap();
    assert_ne!(other, german);
    let stores = [place.store.clone()];
    let image = include_from(&stores, "german@1.0", false).unwrap();
    assert_eq!(*image.root::<u64>("one").unwrap(), 7);
    include_from(&stores, "old@1", false).unwrap();
    for never in ["french@1", "german@1.1"] {
        let error = include_from(&stores, never, true).unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, Error::NoPlace { .. }), "{said}");
        assert!(said.contains("german@1.0.0 at") && said.contains("the group language"), "{said}");
    }
    assert_eq!(included().iter().filter(|image| image.base() == german).count(), 1);
    // What leads into one of its own group could never be had.
    let options = Options {
        store: Some(place.store.clone()),
        capacity: 1 << 20,
        group: Some("spelling".into()),
        imports: vec![include_from(&stores, "old@1", false).unwrap()],
    };
    assert!(Arena::with("new@1.0.0", options).is_err());
    for bad in ["", "a group", "more-than-16-bytes"] {
        assert!(matches!(publish(&place, "x@1.0.0", Some(bad), 1 << 20), Err(Error::Invalid(_))), "{bad}");
    }
}

#[test]
fn an_image_of_a_group_from_another_machine_is_added_if_its_group_is_there() {
    let _alone = alone();
    let (one, other) = (Place::new(), Place::new());
    let base = publish(&one, "a@1.0.0", Some("g"), 1 << 20).unwrap();
    publish(&one, "b@1.0.0", Some("g"), 1 << 20).unwrap();
    let add = |store: &Store, name: &str| {
        let id = one.store.versions(name).unwrap()[0].id;
        let mut draft = store.draft().unwrap();
        std::io::Write::write_all(&mut draft, &std::fs::read(one.store.path_of(id)).unwrap()).unwrap();
        store.publish(draft)
    };
    add(&other.store, "a").unwrap();
    assert_eq!(publish(&other, "c@1.0.0", Some("g"), 1 << 20).unwrap(), base);
    add(&other.store, "b").unwrap();
    // Where the group is elsewhere already it is said.
    let third = Place::new();
    let elsewhere = publish(&third, "d@1.0.0", Some("g"), 1 << 20).unwrap();
    if elsewhere != base {
        let said = add(&third.store, "a").unwrap_err().to_string();
        assert!(said.contains("the group g") && said.contains(&format!("{elsewhere:#x}")), "{said}");
    }
}
