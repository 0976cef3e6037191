//! Images in C that lead into others, read by another process and by Rust.

#[path = "common/c.rs"]
mod c;

use commonhold::image::{Owner, Run, Store, Text, include_from, layout};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

layout! {
    struct Letter<'a> {
        weight: u64,
        name: Text<'a>,
    }

    struct Word<'a> {
        letters: Run<'a, &'a Letter<'a>>,
        next: Option<&'a Word<'a>>,
    }
}

fn run(program: &Path, store: &Path, word: &str) {
    // Cargo's own path leads to the library of the last `cargo build`, not to the one beside this test.
    let mut command = Command::new(program);
    command.arg(word).env("COMMONHOLD_IMAGES", store).env_remove("LD_LIBRARY_PATH");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{word}: {:?}\n{said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{said}");
}

#[test]
fn images_of_c_lead_into_others() {
    let folder = TempDir::new().unwrap();
    let store = Store::at(&folder.path().join("store"), Owner::Machine);
    let program = c::compile("imports.c", &["-std=c11", "-fsanitize=address", "-O1"]);
    run(&program, store.root(), "build");
    run(&program, store.root(), "read");
    std::fs::remove_file(program).unwrap();

    let image = include_from(std::slice::from_ref(&store), "words@1", false).unwrap();
    let word: &'static Word<'static> = image.root("word").unwrap();
    let spelled: String = word.letters.iter().map(|letter| letter.name.as_str()).collect();
    assert_eq!((spelled.as_str(), word.letters[0].weight, word.next.unwrap().letters.len()), ("bab", 11, 1));
    let imports = image.imports();
    assert_eq!(
        imports.iter().map(|one| format!("{}@{}", one.name(), one.version())).collect::<Vec<_>>(),
        ["letters@1.0.0"]
    );
    // Who asks finds the version that is there already, and it is the very same memory.
    let letters = include_from(std::slice::from_ref(&store), "letters", false).unwrap();
    let first: &'static Letter<'static> = word.letters[1];
    let within = letters.base()..letters.base() + (1 << 20);
    assert!(letters == imports[0] && within.contains(&(std::ptr::from_ref(first) as u64)));
}
