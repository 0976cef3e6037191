//! Data images: built with ordinary pointers, sealed, and included in other processes. What concerns the addresses of a
//! process is tried in processes of its own: this test program, started again.

mod common;

use common::left_out::left_out;
use common::{Made, Place, arena};
use commonhold_images::Error;
use commonhold_images::data::{Arena, Field, Options, Run, Scalar, Text};
use commonhold_images::include::{Image, include_from, included};
use commonhold_images::layout;
use commonhold_images::ranges::Owner;
use commonhold_images::store::Store;
use std::process::Command;

layout! {
    /// A tree of words.
    #[derive(Debug)]
    pub struct Node<'a> {
        key: u64,
        left: Option<&'a Node<'a>>,
        right: Option<&'a Node<'a>>,
        word: Text<'a>,
        /// Behind it are seven bytes of padding.
        rare: bool,
    }

    struct Shelf<'a> {
        trees: Run<'a, &'a Node<'a>>,
        corners: [Point<'a>; 2],
    }

    struct Point<'a> {
        x: f32,
        on: Option<&'a Node<'a>>,
    }
}

fn stores(place: &Place) -> Vec<Store> {
    vec![place.store.clone()]
}

fn leaf<'a>(arena: &'a Arena, key: u64, word: &str) -> &'a mut Node<'a> {
    let word = arena.text(word).unwrap();
    arena.place(Node { key, left: None, right: None, word, rare: key > 2 }).unwrap()
}

fn publish_words(place: &Place, text: &str) {
    let arena = arena(place, text, &[]);
    let left = leaf(&arena, 1, "one");
    let right = leaf(&arena, 3, "three");
    let top = leaf(&arena, 2, "zwei, два");
    top.left = Some(left);
    top.right = Some(right);
    arena.root("tree", top).unwrap();
    arena.root_run("squares", &arena.run(&[1_u32, 4, 9]).unwrap()).unwrap();
    arena.root_run::<u8>("nothing", &[]).unwrap();
    arena.seal().unwrap();
}

/// Runs one test of this file in a process of its own, with these variables.
fn alone(test: &str, shell: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let script = format!("{shell} exec \"$0\" --exact {test} --nocapture --ignored --test-threads=1");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(std::env::current_exe().unwrap()).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn given(name: &str) -> String {
    std::env::var(name).unwrap()
}

fn given_store() -> Vec<Store> {
    vec![Store::at(given("IMAGES_TEST_STORE").as_ref(), Owner::Machine)]
}

#[test]
fn what_was_built_is_read_by_another_process_at_the_same_addresses() {
    let place = Place::new();
    publish_words(&place, "words@1.0.0");
    let (done, said) =
        alone("reads_the_words", "", &[("IMAGES_TEST_STORE", place.store.root().to_str().unwrap())]);
    assert!(done, "{said}");
}

#[test]
#[ignore = "is run by another"]
fn reads_the_words() {
    let words = include_from(&given_store(), "words@1", false).unwrap();
    let tree: &'static Node<'static> = words.root("tree").unwrap();
    assert_eq!((tree.key, tree.word.as_str(), tree.rare), (2, "zwei, два", false));
    let (left, right) = (tree.left.unwrap(), tree.right.unwrap());
    assert_eq!((left.key, &*left.word, right.key, &*right.word, right.rare), (1, "one", 3, "three", true));
    assert!(left.left.is_none() && right.right.is_none());
    assert_eq!(words.run::<u32>("squares").unwrap(), [1, 4, 9]);
    assert!(words.run::<u8>("nothing").unwrap().is_empty());
    let inside = |at: *const Node<'_>| (words.base()..words.base() + words.bytes()).contains(&(at as u64));
    assert!(inside(tree) && inside(left) && inside(right));
    // Twice is once.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let again = include_from(&given_store(), "words@1.0", false).unwrap();
    assert!(again == words && std::ptr::eq(again.root::<Node<'_>>("tree").unwrap(), tree));
    let lines = |maps: &str| maps.lines().filter(|line| line.contains("/content/")).count();
    assert_eq!(lines(&maps), 1);
    assert_eq!(lines(&std::fs::read_to_string("/proc/self/maps").unwrap()), 1);
    // The wrong type, and no root.
    for error in [words.root::<u64>("tree").err(), words.run::<i32>("squares").err()] {
        assert!(matches!(&error, Some(Error::Mismatch(_))), "{error:?}");
    }
    let error = words.root::<u32>("squares").unwrap_err().to_string();
    assert!(error.contains("run of 3"), "{error}");
    let error = words.root::<u64>("three").unwrap_err().to_string();
    assert!(error.contains("no root \"three\"; it has nothing, squares, tree"), "{error}");
}

#[test]
fn threads_that_include_at_once_get_one_image() {
    let place = Place::new();
    publish_words(&place, "once@1.0.0");
    let stores = stores(&place);
    let all: Vec<Image> = std::thread::scope(|scope| {
        let one = || include_from(&stores, "once", false).unwrap();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(included().iter().filter(|image| image.name() == "once").count(), 1);
    let error = place.store.remove("once@1.0.0").unwrap_err().to_string();
    assert!(error.contains("once@1.0.0 stays") && error.contains(&std::process::id().to_string()), "{error}");
}

#[test]
fn a_pointer_that_leads_out_is_refused_with_the_way_to_it() {
    let place = Place::new();
    let outside = Node { key: 0, left: None, right: None, word: "never placed".into(), rare: false };
    let mut arena = arena(&place, "bad@1.0.0", &[]);
    {
        let fine = &*leaf(&arena, 1, "one");
        let deep = leaf(&arena, 2, "two");
        deep.right = Some(leaf(&arena, 3, "three"));
        let bad = leaf(&arena, 4, "four");
        bad.word = outside.word;
        deep.left = Some(bad);
        let trees = arena.run(&[fine, fine, deep]).unwrap();
        let corner = Point { x: 0.5, on: Some(fine) };
        let shelf = arena.place(Shelf { trees, corners: [corner, corner] }).unwrap();
        arena.root("shelf", shelf).unwrap();
    }
    let error = arena.try_seal().unwrap_err();
    let Error::LeadsOut { path, why } = &error else { panic!("{error}") };
    assert_eq!(path, "root \"shelf\" -> trees[2] -> left -> word");
    assert!(why.contains("leads out of the arena") && why.contains("it is in /"), "{why}");
    assert!(place.store.names().unwrap().is_empty() && place.content().is_empty());
    drop(arena);
    assert!(place.store.ranges().unwrap().list().unwrap().is_empty(), "its addresses went back");
}

#[test]
fn nested_fields_and_the_stack_are_named_too() {
    let place = Place::new();
    let on_the_stack = Node { key: 0, left: None, right: None, word: Text::EMPTY, rare: false };
    let arena = arena(&place, "bad@1.0.0", &[]);
    let corners = [Point { x: 0.0, on: None }, Point { x: 0.0, on: Some(&on_the_stack) }];
    arena.root("shelf", arena.place(Shelf { trees: Run::EMPTY, corners }).unwrap()).unwrap();
    let error = arena.seal().unwrap_err().to_string();
    assert!(error.starts_with("root \"shelf\" -> corners[1].on: 0x"), "{error}");
}

#[test]
fn what_types_do_not_allow_is_refused_before_anybody_reads_it() {
    let place = Place::new();
    let sealed = |build: &dyn Fn(&Arena) -> u64, scalar: Scalar, pointer: bool| {
        let arena = arena(&place, "raw@1.0.0", &[]);
        let at = build(&arena);
        let of = arena.types(|types| {
            let scalar = types.scalar(scalar, if scalar == Scalar::Char { 4 } else { 1 }).unwrap();
            let inner = if pointer { types.pointer(scalar, false) } else { scalar };
            let of = types.open("raw", 8, 8);
            types.describe(of, vec![Field { name: "field".into(), offset: 0, of: inner }]).unwrap();
            of
        });
        arena.root_at("raw", at, 1, of).unwrap();
        arena.seal().map(drop).map_err(|error| error.to_string())
    };
    let write = |value: u64| move |arena: &Arena| std::ptr::from_mut(arena.place(value).unwrap()) as u64;
    let error = sealed(&write(2), Scalar::Bool, false).unwrap_err();
    assert_eq!(error, "root \"raw\" -> field: 2 is neither true nor false");
    for (number, said) in [(0xd800, "0xd800"), (0x11_0000, "0x110000")] {
        let error = sealed(&write(number), Scalar::Char, false).unwrap_err();
        assert_eq!(error, format!("root \"raw\" -> field: {said} is no character of Unicode"));
    }
    let error = sealed(&write(0), Scalar::Bool, true).unwrap_err();
    assert_eq!(error, "root \"raw\" -> field: it is null, and its type says that it never is");
    let text = |arena: &Arena| {
        let letter = std::ptr::from_mut(arena.place(0xff_u64).unwrap()) as u64;
        write(letter)(arena)
    };
    let error = sealed(&text, Scalar::Utf8, true).unwrap_err();
    assert!(error.contains("field: it is text, and not UTF-8"), "{error}");
    let beyond = |arena: &Arena| write(arena.base() + arena.used() + 7)(arena);
    assert!(sealed(&beyond, Scalar::Unsigned, true).is_ok(), "the last byte");
    place.store.remove("raw@1.0.0").unwrap();
    let beyond = |arena: &Arena| write(arena.base() + arena.used() + 8)(arena);
    assert!(sealed(&beyond, Scalar::Unsigned, true).is_err(), "behind it");
}

#[test]
fn equal_structures_are_equal_bytes_whatever_was_in_the_padding() {
    let place = Place::new();
    // So that both are at the same addresses.
    publish_words(&place, "neighbour@1.0.0");
    let build = |dirt: u8| {
        let arena = arena(&place, "same@1.0.0", &[]);
        let node = std::ptr::from_mut(leaf(&arena, 7, "seven"));
        // SAFETY: the last seven bytes of the structure are padding, in memory of the arena.
        unsafe { node.cast::<u8>().add(size_of::<Node<'_>>() - 7).write_bytes(dirt, 7) };
        // SAFETY: it was placed above, and nobody else uses it.
        arena.root("node", unsafe { &*node }).unwrap();
        let published = arena.seal().unwrap();
        place.store.remove("same@1.0.0").unwrap();
        published.id
    };
    assert_eq!(size_of::<Node<'_>>(), 48);
    assert_eq!(build(0), build(0x55));
}

#[test]
fn images_lead_into_others_and_bring_them_along() {
    let place = Place::new();
    publish_words(&place, "base@1.0.0");
    let base = include_from(&stores(&place), "base", false).unwrap();
    let tree: &Node<'static> = base.root("tree").unwrap();
    let unused = {
        publish_words(&place, "unused@1.0.0");
        include_from(&stores(&place), "unused", false).unwrap()
    };
    let arena = arena(&place, "top@1.0.0", &[base, unused]);
    let top = leaf(&arena, 9, "nine");
    top.left = Some(tree);
    arena.root("tree", top).unwrap();
    arena.seal().unwrap();
    // A newer base does not matter to what leads into the older one.
    publish_words(&place, "base@1.1.0");
    let (done, said) =
        alone("reads_through", "", &[("IMAGES_TEST_STORE", place.store.root().to_str().unwrap())]);
    assert!(done, "{said}");
    place.store.rollback("base@1.1.0").unwrap();
    let error = place.store.remove("base@1.0.0").unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
}

#[test]
#[ignore = "is run by another"]
fn reads_through() {
    let top = include_from(&given_store(), "top", false).unwrap();
    let imports: Vec<String> =
        top.imports().iter().map(|one| format!("{}@{}", one.name(), one.version())).collect();
    assert_eq!(imports, ["base@1.0.0"], "only what it leads into");
    let tree: &Node<'static> = top.root("tree").unwrap();
    assert_eq!(tree.left.unwrap().right.unwrap().word.as_str(), "three");
    // This process goes over to the newer one, beside the older.
    assert_eq!(include_from(&given_store(), "base", false).unwrap(), top.imports()[0]);
    let newer = include_from(&given_store(), "base", true).unwrap();
    assert_eq!(newer.version().to_string(), "1.1.0");
    assert_eq!(newer.root::<Node<'_>>("tree").unwrap().key, 2);
    assert_ne!(newer.base(), top.imports()[0].base());
}

#[test]
fn an_import_that_is_in_no_store_is_told() {
    let place = Place::new();
    let base = place.publish(&Made::data("base", "1.0.0")).unwrap();
    place.publish(&Made { imports: vec![base.id], ..Made::data("top", "1.0.0") }).unwrap();
    std::fs::remove_file(&base.path).unwrap();
    let error = include_from(&stores(&place), "top", false).unwrap_err().to_string();
    assert!(error.contains("top@1.0.0 leads into base@1.0.0") && error.contains("is in no store"), "{error}");
    assert!(included().iter().all(|image| image.name() != "top"));
}

#[test]
fn addresses_that_are_taken_are_told_at_the_start_and_late() {
    let place = Place::new();
    publish_words(&place, "taken@1.0.0");
    let store = place.store.root().to_str().unwrap();
    let (done, said) = alone("finds_its_place_taken", "", &[("IMAGES_TEST_STORE", store)]);
    assert!(done, "{said}");
}

#[test]
#[ignore = "is run by another"]
fn finds_its_place_taken() {
    let stores = given_store();
    let id = stores[0].versions("taken").unwrap()[0].id;
    let base = stores[0].open(id).unwrap().header().base();
    let flags = rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::FIXED_NOREPLACE;
    // SAFETY: where nothing is.
    let page =
        unsafe { rustix::mm::mmap_anonymous(base as *mut _, 4096, rustix::mm::ProtFlags::READ, flags) };
    let page = page.unwrap();
    for _ in 0..2 {
        let error = include_from(&stores, "taken", false).unwrap_err();
        assert!(matches!(error, Error::NoPlace { first, .. } if first == base), "{error}");
        assert!(error.to_string().contains("memory without a name is there"), "{error}");
    }
    // SAFETY: mapped above.
    unsafe { rustix::mm::munmap(page, 4096) }.unwrap();
    include_from(&stores, "taken", false).unwrap();
}

#[test]
fn a_limit_on_addresses_is_told() {
    let place = Place::new();
    let arena = arena(&place, "large@1.0.0", &[]);
    arena.take(40 << 20, 8).unwrap();
    arena.root("one", arena.place(1_u64).unwrap()).unwrap();
    arena.seal().unwrap();
    let store = place.store.root().to_str().unwrap();
    let limit = "ulimit -v $((20 * 1024 + $(awk '/VmSize/ {print $2}' /proc/self/status)));";
    let (done, said) = alone("is_limited", limit, &[("IMAGES_TEST_STORE", store)]);
    assert!(done, "{said}");
}

#[test]
#[ignore = "is run by another"]
fn is_limited() {
    let error = include_from(&given_store(), "large", false).unwrap_err().to_string();
    assert!(error.contains("ulimit -v"), "{error}");
    assert!(included().is_empty());
}

#[test]
fn an_image_that_is_damaged_or_shorter_than_it_was_is_not_included() {
    let place = Place::new();
    for (name, damage) in [("short", 0), ("long", 1), ("dirty", 2)] {
        publish_words(&place, &format!("{name}@1.0.0"));
        let id = place.store.versions(name).unwrap()[0].id;
        let path = place.store.path_of(id);
        let mut bytes = std::fs::read(&path).unwrap();
        match damage {
            0 => bytes.truncate(bytes.len() - 1),
            1 => bytes.push(0),
            _ => bytes[200] ^= 1,
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let error = include_from(&stores(&place), name, false).unwrap_err();
        assert!(matches!(error, Error::Unfit { .. }), "{error}");
    }
}

#[test]
fn an_arena_that_loses_frees_no_range_of_another() {
    let place = Place::new();
    let ranges = || place.store.ranges().unwrap().list().unwrap();
    // Of this process: the second has no memory, and the first keeps its range.
    let first = arena(&place, "words@1.0.0", &[]);
    let options = Options { store: Some(place.store.clone()), capacity: 1 << 26, ..Options::default() };
    let error = Arena::with("words@1.0.0", options).err().unwrap();
    assert!(
        matches!(&error, Error::InUse { by, .. } if by.contains("another arena of this process")),
        "{error}"
    );
    assert_eq!(ranges()[0].first, first.base());
    // Another process has published meanwhile, the same range of the registry.
    let (done, said) =
        alone("publishes_at_once", "", &[("IMAGES_TEST_STORE", place.store.root().to_str().unwrap())]);
    assert!(done && said.contains("1 passed"), "{said}");
    first.root("one", first.place(1_u64).unwrap()).unwrap();
    let base = first.base();
    assert!(matches!(first.seal(), Err(Error::Exists { .. })));
    assert_eq!(ranges()[0].first, base);
    let third = arena(&place, "third@1.0.0", &[]);
    assert_ne!(third.base(), base);
    drop(third);
    assert_eq!(ranges().len(), 1, "what nobody published goes back");
}

#[test]
#[ignore = "is run by another"]
fn publishes_at_once() {
    let options = Options { store: Some(given_store().remove(0)), capacity: 1 << 26, ..Options::default() };
    let arena = Arena::with("words@1.0.0", options).unwrap();
    arena.root("two", arena.place(2_u64).unwrap()).unwrap();
    arena.seal().unwrap();
}

#[test]
fn a_full_store_keeps_what_it_had() {
    // A file system of 2 MiB, in a name space of its own.
    let folder = tempfile::TempDir::new().unwrap();
    let store = folder.path().join("store");
    std::fs::create_dir(&store).unwrap();
    let mount = format!("mount -t tmpfs -o size=2m,mode=755 none {0} &&", store.display());
    let variables = [("IMAGES_TEST_STORE", store.to_str().unwrap())];
    let script = format!(
        "unshare -m --map-root-user --user sh -c '{mount} exec \"$0\" --exact fills_the_store \
                          --nocapture --ignored --test-threads=1' \"$0\"; exit;"
    );
    let (done, said) = alone("fills_the_store", &script, &variables);
    if said.contains("unshare") && said.contains("Operation not permitted") {
        return left_out("a store on a file system of its own (no mounts in a name space here)");
    }
    assert!(done && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "is run by another"]
fn fills_the_store() {
    let store = given_store().remove(0);
    let options =
        || Options { store: Some(store.clone()), capacity: 1 << 26, group: None, imports: Vec::new() };
    // The registry takes 1.5 MiB.
    let arena = Arena::with("small@1.0.0", options()).unwrap();
    arena.root("one", arena.place(1_u64).unwrap()).unwrap();
    arena.seal().unwrap();
    let arena = Arena::with("large@1.0.0", options()).unwrap();
    let at = arena.take(1 << 21, 8).unwrap();
    // SAFETY: memory of the arena.
    unsafe { (at as *mut u8).write_bytes(1, 1 << 21) };
    arena.root("one", arena.place(1_u64).unwrap()).unwrap();
    let error = arena.seal().unwrap_err().to_string();
    assert!(error.contains("No space left"), "{error}");
    assert_eq!(store.names().unwrap(), ["small"]);
    let files = std::fs::read_dir(store.root().join("content")).unwrap().count();
    assert_eq!(files, 1, "nothing of it is left");
    assert_eq!(*include_from(&[store], "small", false).unwrap().root::<u64>("one").unwrap(), 1);
}

#[test]
fn a_store_that_is_read_only_and_noexec_is_read() {
    let place = Place::new();
    publish_words(&place, "words@1.0.0");
    let root = place.store.root().to_str().unwrap();
    let mount = format!("mount --bind {root} {root} && mount -o remount,bind,ro,noexec {root} &&");
    let script = format!(
        "unshare -m --map-root-user --user sh -c '{mount} exec \"$0\" --exact reads_only \
                          --nocapture --ignored --test-threads=1' \"$0\"; exit;"
    );
    let (done, said) = alone("reads_only", &script, &[("IMAGES_TEST_STORE", root)]);
    if said.contains("unshare") && said.contains("Operation not permitted") {
        return left_out("a store on a file system of its own (no mounts in a name space here)");
    }
    assert!(done && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "is run by another"]
fn reads_only() {
    let store = given_store().remove(0);
    let words = include_from(std::slice::from_ref(&store), "words", false).unwrap();
    assert_eq!(words.root::<Node<'_>>("tree").unwrap().key, 2);
    let options = Options { store: Some(store), ..Options::default() };
    let error = Arena::with("more@1.0.0", options).err().unwrap().to_string();
    assert!(error.to_lowercase().contains("read-only file system"), "{error}");
}

layout! {
    struct Letter { letter: char, is_vowel: bool, count: u32 }
}

#[test]
fn characters_are_fields() {
    let place = Place::new();
    let arena = arena(&place, "letters@1.0.0", &[]);
    let all = ['a', '\u{10ffff}', '\0'].map(|letter| Letter { letter, is_vowel: letter == 'a', count: 1 });
    arena.root_run("letters", &arena.run(&all).unwrap()).unwrap();
    arena.seal().unwrap();
    let image = include_from(&stores(&place), "letters", false).unwrap();
    let read: &[Letter] = image.run("letters").unwrap();
    assert_eq!(read.iter().map(|one| one.letter).collect::<String>(), "a\u{10ffff}\0");
    assert!(read[0].is_vowel && read[2].count == 1);
    // A number of as many bytes is another type: any number would be read as a character.
    layout! {
        #[derive(Debug)]
        struct Number { letter: u32, is_vowel: bool, count: u32 }
    }
    assert!(matches!(image.run::<Number>("letters"), Err(Error::Mismatch(_))));
    let _ = Number { letter: 0, is_vowel: false, count: 0 };
}
