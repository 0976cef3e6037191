//! What is reserved for an image that is being built: kept while somebody builds it, and freed when nobody does any
//! more.

mod common;

use common::{Made, Place, arena};
use commonhold_images::Error;
use commonhold_images::data::{Arena, Options};
use commonhold_images::ranges::Owner;
use commonhold_images::store::Store;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Another process that builds `gone@1.0.0` until it is killed.
fn builder(place: &Place) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "builds_and_waits", "--ignored", "--test-threads=1", "--nocapture"]);
    command.env("IMAGES_TEST_STORE", place.store.root()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().ends_with("builds now")), "it says when it builds");
    child
}

#[test]
#[ignore = "is run by another"]
fn builds_and_waits() {
    let store = Store::at(std::env::var("IMAGES_TEST_STORE").unwrap().as_ref(), Owner::Machine);
    let _arena = Arena::with("gone@1.0.0", Options { store: Some(store), ..Options::default() }).unwrap();
    println!("builds now");
    // Nothing comes before the end of who started this.
    let _ = std::io::stdin().read_line(&mut String::new());
    std::process::abort();
}

fn ranges(place: &Place) -> Vec<String> {
    place.store.ranges().unwrap().list().unwrap().into_iter().map(|range| range.name).collect()
}

fn markers(place: &Place) -> usize {
    std::fs::read_dir(place.store.root().join("building")).unwrap().count()
}

#[test]
fn what_a_killed_build_had_reserved_is_freed_by_the_next_change() {
    let place = Place::new();
    let mut child = builder(&place);
    let publish = |name: &str| place.publish(&Made::data(name, "1.0.0")).unwrap();
    publish("first");
    assert!(ranges(&place).contains(&"image:gone@1.0.0".into()), "somebody builds it");
    let error = place.store.remove("gone@1.0.0").unwrap_err();
    assert!(matches!(&error, Error::InUse { by, .. } if by.contains("builds it")), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ranges(&place).contains(&"image:gone@1.0.0".into()), "nobody has looked yet");
    publish("second");
    assert_eq!(ranges(&place), ["image:first@1.0.0", "image:second@1.0.0"]);
    assert_eq!(markers(&place), 0);
}

#[test]
fn another_that_builds_the_same_keeps_the_addresses_of_both() {
    let place = Place::new();
    let mut one = builder(&place);
    let mut other = builder(&place);
    one.kill().unwrap();
    one.wait().unwrap();
    place.publish(&Made::data("first", "1.0.0")).unwrap();
    assert!(ranges(&place).contains(&"image:gone@1.0.0".into()));
    other.kill().unwrap();
    other.wait().unwrap();
    // By hand, without waiting for a change.
    place.store.remove("gone@1.0.0").unwrap();
    assert_eq!(ranges(&place), ["image:first@1.0.0"]);
}

#[test]
fn a_build_that_ends_as_it_should_leaves_nothing() {
    let place = Place::new();
    drop(arena(&place, "words@1.0.0", &[]));
    assert_eq!((markers(&place), ranges(&place).len()), (0, 0));
    let arena = arena(&place, "words@1.0.0", &[]);
    arena.root("one", arena.place(1_u64).unwrap()).unwrap();
    assert_eq!(markers(&place), 1);
    arena.seal().unwrap();
    assert_eq!((markers(&place), ranges(&place).len()), (0, 1));
    assert!(place.store.building("../words", common::version("1.0.0")).is_err());
}
