//! `commonhold image` as people use it. No host is needed here.

use commonhold_images::data::{Arena, Options};
use commonhold_images::ranges::Owner;
use commonhold_images::store::Store;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(TempDir::new().unwrap())
    }

    fn store(&self, name: &str) -> Store {
        Store::at(&self.0.path().join(name), Owner::Machine)
    }

    /// Publishes numbers in the store of that name.
    fn publish(&self, store: &str, version: &str, numbers: &[u64]) -> PathBuf {
        let options = Options { store: Some(self.store(store)), capacity: 1 << 24, ..Options::default() };
        let arena = Arena::with(version, options).unwrap();
        arena.root_run("numbers", &arena.run(numbers).unwrap()).unwrap();
        arena.seal().unwrap().path
    }

    fn image(&self, words: &[&str]) -> Output {
        let (verb, rest) = words.split_first().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_commonhold"));
        command.args(["image", verb, "--store"]).arg(self.0.path().join("store")).args(rest);
        command.output().unwrap()
    }

    fn says(&self, words: &[&str]) -> String {
        let output = self.image(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.says(&[words, &["--json"]].concat())).unwrap()
    }

    fn complaint(&self, words: &[&str]) -> String {
        let output = self.image(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    }
}

#[test]
fn versions_are_shown_as_a_tree_and_can_be_taken_back() {
    let place = Place::new();
    for version in ["numbers@1.0.0", "numbers@1.2.0", "numbers@1.2.1", "numbers@2.0.0"] {
        place.publish("store", version, &[1, 2, 3]);
    }
    let tree = place.says(&["versions", "numbers"]);
    let shape: Vec<String> =
        tree.lines().map(|line| line[..line.len().min(11)].trim_end().to_owned()).collect();
    let expected = [
        "numbers",
        "  1",
        "    1.0",
        "      1.0.0",
        "    1.2",
        "      1.2.0",
        "      1.2.1",
        "  2",
        "    2.0",
        "      2.0.0",
    ];
    assert_eq!(shape, expected);
    assert_eq!(place.json(&["resolve", "numbers@1"])["version"], "1.2.1");
    assert!(place.complaint(&["rollback", "numbers@1"]).contains("the newest is numbers@1.2.1"));
    let rollback = ["rollback", "numbers@1.2.1"];
    assert_eq!(place.says(&rollback), "numbers@1.2.1 is withdrawn, numbers@1.2.0 is had\n");
    assert_eq!(place.says(&rollback), "numbers@1.2.1 was withdrawn already, numbers@1.2.0 is had\n");
    assert_eq!(place.json(&rollback)["is_new"], false);
    assert_eq!(place.json(&["resolve", "numbers@1"])["version"], "1.2.0");
    assert!(place.says(&["versions", "numbers"]).contains("withdrawn"));
    assert_eq!(place.json(&["versions", "numbers"])[0]["versions"][2]["withdrawn"], true);
    assert_eq!(place.says(&["restore", "numbers@1.2.1"]), "numbers@1.2.1 is had again\n");
    assert_eq!(place.json(&["resolve", "numbers@1"])["version"], "1.2.1");
    let listed = place.json(&["list"]);
    assert_eq!((&listed[0]["newest"], &listed[0]["versions"]), (&"2.0.0".into(), &4.into()));
    assert!(place.says(&["remove", "numbers@1.0.0", "numbers@2.0.0"]).starts_with("removed 2 versions: "));
    assert_eq!(place.json(&["ranges"]).as_array().unwrap().len(), 2);
    assert!(place.complaint(&["remove", "numbers@1"]).contains("name the one to remove"));
    assert!(place.complaint(&["resolve", "letters"]).contains("there is no image letters in "));
    assert!(place.complaint(&["resolve", "le tters"]).contains("names no image"));
    assert!(place.complaint(&["versions", "letters"]).contains("see `image list`"));
}

#[test]
fn an_image_that_was_made_elsewhere_is_added_if_its_addresses_are_free() {
    let place = Place::new();
    let file = place.publish("elsewhere", "numbers@1.0.0", &[1, 2, 3]);
    let file = file.to_str().unwrap();
    let added = place.json(&["add", file]);
    assert_eq!((&added[0]["version"], &added[0]["is_new"]), (&"1.0.0".into(), &true.into()));
    assert_eq!(place.json(&["add", file])[0]["is_new"], false);
    assert_eq!(place.says(&["verify"]), "1 image as published\n");
    let shown = place.json(&["show", "numbers"]);
    assert_eq!((&shown["roots"][0]["name"], &shown["roots"][0]["bytes"]), (&"numbers".into(), &24.into()));
    assert_eq!(place.json(&["ranges"])[0]["first"], shown["base"]);
    // What is no image, and what was cut off.
    assert!(place.complaint(&["add", "/etc/passwd"]).contains("/etc/passwd: it is no image"));
    let cut = place.0.path().join("cut");
    std::fs::write(&cut, &std::fs::read(file).unwrap()[..4100]).unwrap();
    let said = place.complaint(&["add", cut.to_str().unwrap()]);
    assert!(said.contains("it has 4100 bytes") && said.contains("cut"), "{said}");
    assert!(place.complaint(&["add", "/nowhere"]).contains("/nowhere: No such file"));
    // Another one of the same addresses.
    place.publish("third", "numbers@1.0.0", &[1]);
    let third = place.store("third");
    let id = third.versions("numbers").unwrap()[0].id;
    let said = place.complaint(&["add", third.path_of(id).to_str().unwrap()]);
    assert!(said.contains("numbers@1.0.0 exists with other content"), "{said}");
}

#[test]
fn a_damaged_image_is_found() {
    let place = Place::new();
    let path = place.publish("store", "numbers@1.0.0", &[1, 2, 3]);
    place.publish("store", "other@1.0.0", &[1]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096] ^= 1;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let said = place.complaint(&["verify"]);
    assert!(said.contains("numbers@1.0.0: ") && said.contains("is not what was published"), "{said}");
}
