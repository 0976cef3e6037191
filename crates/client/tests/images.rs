//! Images in C and in Rust, each read by the other.

#[path = "common/c.rs"]
mod c;
#[path = "../../../tests/left_out.rs"]
mod left_out;

use commonhold::image::{Arena, Options, Owner, Run, Store, Text, include_from, layout};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

layout! {
    struct Node<'a> {
        key: u64,
        left: Option<&'a Node<'a>>,
        right: Option<&'a Node<'a>>,
        word: Text<'a>,
        rare: bool,
    }

    struct Forest<'a> {
        trees: Run<'a, &'a Node<'a>>,
        corners: [f32; 3],
        season: Season,
    }

    #[derive(Debug, PartialEq, Eq)]
    enum Season: i16 { Winter = -1, Spring, Summer = 7 }
}

#[test]
fn under_thread_sanitizer_it_is_said_which_addresses_clash() {
    let folder = TempDir::new().unwrap();
    let empty = folder.path().join("empty.c");
    std::fs::write(&empty, "int main(void) { return 0; }").unwrap();
    let mut has = Command::new("cc");
    has.args(["-fsanitize=thread", "-o"]).arg(folder.path().join("empty")).arg(&empty);
    if !has.output().unwrap().status.success() {
        return left_out::not_installed(
            "a compiler with its sanitizers (gcc)",
            "images under ThreadSanitizer",
        );
    }
    let program = c::compile("images.c", &["-std=c11", "-fsanitize=thread", "-O1", "-g"]);
    let mut command = Command::new(&program);
    command.args(["build", "words@1.0.0"]).env("COMMONHOLD_IMAGES", folder.path().join("store"));
    let output = command.env_remove("LD_LIBRARY_PATH").output().unwrap();
    std::fs::remove_file(program).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("FATAL: ThreadSanitizer") {
        return left_out::left_out(&format!(
            "images under ThreadSanitizer (it does not start: {})",
            said.trim()
        ));
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("words@1.0.0 cannot be at 0x3") && said.contains(" is there; include it earlier"),
        "{said}"
    );
    assert!(said.contains("ThreadSanitizer has them all"), "{said}");
}

fn run(program: &Path, store: &Path, words: &[&str]) {
    // Cargo's own path leads to the library of the last `cargo build`, not to the one beside this test.
    let mut command = Command::new(program);
    command.args(words).env("COMMONHOLD_IMAGES", store).env_remove("LD_LIBRARY_PATH");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {:?}\n{said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{said}");
}

#[test]
fn c_and_rust_read_each_others_images() {
    let folder = TempDir::new().unwrap();
    let store = Store::at(&folder.path().join("store"), Owner::Machine);
    let program = c::compile("images.c", &["-std=c11", "-fsanitize=address", "-O1"]);
    run(&program, store.root(), &["build", "of-c@1.0.0"]);
    run(&program, store.root(), &["read", "of-c"]);
    run(&program, store.root(), &["refuse"]);
    run(&program, store.root(), &["group"]);

    let image = include_from(std::slice::from_ref(&store), "of-c@1", false).unwrap();
    let start = image.base() as *mut u8;
    let refused = commonhold::classical::inherit(start, 4096, commonhold::Inherit::Copy).unwrap_err();
    assert_eq!(refused.kind, commonhold::ErrorKind::Unsupported, "{refused}");
    let forest: &'static Forest<'static> = image.root("forest").unwrap();
    let tree: &'static Node<'static> = image.root("tree").unwrap();
    assert!(std::ptr::eq(forest.trees[0], tree) && forest.trees.len() == 2);
    assert_eq!((tree.key, tree.word.as_str(), tree.rare, forest.corners), (2, "two", false, [0.0, 0.0, 0.5]));
    assert_eq!(forest.season, Season::Winter);
    assert_eq!((tree.left.unwrap().key, tree.right.unwrap().rare), (1, true));

    let options = Options { store: Some(store.clone()), capacity: 1 << 24, ..Options::default() };
    let arena = Arena::with("of-rust@2.0.0", options).unwrap();
    let leaf = |key, word| {
        let word = arena.text(word).unwrap();
        arena.place(Node { key, left: None, right: None, word, rare: key > 2 }).unwrap()
    };
    let right = &*leaf(3, "three");
    let top = leaf(2, "two");
    top.left = Some(leaf(1, "one"));
    top.right = Some(right);
    let top = &*top;
    let trees = arena.run(&[top, right]).unwrap();
    let forest = Forest { trees, corners: [0.0, 0.0, 0.5], season: Season::Winter };
    arena.root("forest", arena.place(forest).unwrap()).unwrap();
    arena.root("tree", top).unwrap();
    arena.seal().unwrap();
    run(&program, store.root(), &["read", "of-rust"]);
    std::fs::remove_file(program).unwrap();
}
