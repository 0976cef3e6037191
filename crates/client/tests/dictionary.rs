//! The example `dictionary`, on words that are made here: 8 processes use it at once, and share all of it.

#[path = "../examples/dictionary/words.rs"]
mod words;

use commonhold::image::{Owner, Store, include_from};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use words::{Dictionary, publish, words_of};

/// Words that are not sorted, some twice, some the beginning of others, some not of ASCII.
fn text() -> String {
    let number = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = |n| format!("{:x}", number(n) >> (20 + n % 40));
    let made: Vec<String> = (1..20_000).map(word).chain(["größe".into(), "groß".into()]).collect();
    made.join("\n")
}

#[test]
fn eight_processes_use_one_dictionary() {
    let folder = TempDir::new().unwrap();
    let store = Store::at(&folder.path().join("store"), Owner::Machine);
    publish(&store, "dictionary@1.0.0", &words_of(&text())).unwrap();
    let start = |_| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "looks_up_every_word", "--ignored", "--nocapture"]);
        command
            .env("IMAGES_TEST_STORE", store.root())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..8).map(start).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}

#[test]
#[ignore = "is run by another"]
fn looks_up_every_word() {
    let store = Store::at(std::env::var("IMAGES_TEST_STORE").unwrap().as_ref(), Owner::Machine);
    let image = include_from(&[store], "dictionary@1", false).unwrap();
    let dictionary = Dictionary::of(image).unwrap();
    let text = text();
    let words = words_of(&text);
    assert_eq!(dictionary.count, words.len() as u64);
    assert!(text.lines().all(|word| dictionary.has(word)));
    for other in ["", "g", "gro", "größer", "xyzzy", "00000000000000000000"] {
        assert!(!dictionary.has(other), "{other}");
    }
    // All of its memory is the file's: nothing of it is this process's own.
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let id = image.id().to_string();
    let mut own = maps.lines().skip_while(|line| !line.ends_with(&id)).take(25);
    let dirty = own.find(|line| line.starts_with("Private_Dirty:")).unwrap();
    assert_eq!(dirty.split_ascii_whitespace().nth(1), Some("0"));
}
