//! Images that root publishes and programs include: what files, registries and stores of others say
//! is looked at before it counts.

use super::copies::{below_another, no_files, secret, while_swapping};
use super::{alone, elves};
use crate::scene::ATTACKER;
use crate::scene::command::said;
use crate::{Attack, leave_out};
use commonhold_images::data::{Arena, Options};
use commonhold_images::include::include_from;
use commonhold_images::ranges::{Owner, Ranges};
use commonhold_images::store::Store;
use commonhold_record::sum;
use commonhold_tests::Scratch;
use commonhold_tests::host::program;
use commonhold_tests::stranger::Numbers;
use commonhold_tests::user::as_user;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const ATTACKS: &[Attack] = &[
    alone("images.of_no_files", "hand root's `image` pipes, devices and files of holes", of_no_files),
    alone(
        "images.hostile_libraries",
        "libraries that take for ever to read, or all memory",
        hostile_libraries,
    ),
    alone("images.damaged", "images that say what is not so, with right sums", damaged),
    alone("images.registries", "a registry of addresses that is damaged, or another's", registries),
    alone("images.changed", "change, swap and cut off images of root's while they are opened", changed),
    alone(
        "images.stores_elsewhere",
        "have root change what a link above its store leads to",
        stores_elsewhere,
    ),
    alone("images.variables", "have setuid programs include images of one's own", variables),
];

fn of_no_files() {
    let scratch = Scratch::new();
    let store = scratch.join("store");
    for path in no_files(&scratch) {
        said(&[&"image", &"add", &"--store", &store, &path]).complaint();
        let build = |option: &str, list: &Path| {
            let mut words: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"image", &"build", &"--store", &store];
            words.extend([&"--name" as &dyn AsRef<std::ffi::OsStr>, &"x", &"--version", &"1.0.0"]);
            let library = scratch.join("library");
            std::fs::write(&library, elves::plain().finish()).expect("a file");
            if option.is_empty() {
                words.push(&path);
                said(&words).complaint();
            } else {
                words.extend([&option as &dyn AsRef<std::ffi::OsStr>, &list, &library]);
                said(&words).complaint();
            }
        };
        build("", &path);
        for option in ["--table", "--exports"] {
            build(option, &path);
        }
    }
    let left = std::fs::read_dir(store.join("content")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "something of them is in the store");
}

fn hostile_libraries() {
    let scratch = Scratch::new();
    let store = scratch.join("store");
    let build = |name: &str, bytes: &[u8]| {
        let library = scratch.file_of("library", bytes);
        let words: [&dyn AsRef<std::ffi::OsStr>; 9] =
            [&"image", &"build", &"--store", &store, &"--name", &name, &"--version", &"1.0.0", &library];
        said(&words)
    };
    assert!(build("plain", &elves::plain().finish()).is_done, "what all of them are made of is an image");
    for (what, bytes) in elves::hostile() {
        let answer = build("hostile", &bytes);
        assert!(answer.is_done || answer.text.starts_with("commonhold: "), "{what}: {answer:?}");
    }
    let whole = elves::plain().finish();
    let mut chance = Numbers(3);
    for _ in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..1 + chance.below(4) {
            let at = chance.below(bytes.len() as u64 / 8) as usize * 8;
            let value =
                [0, u64::MAX, 1 << 40, 1 << 63, 4096, chance.below(1 << 16)][chance.below(6) as usize];
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        build("damaged", &bytes);
    }
}

/// Publishes numbers; the file.
fn publish(store: &Store, name: &str, numbers: &[u64]) -> PathBuf {
    let options = Options { store: Some(store.clone()), capacity: 1 << 20, ..Options::default() };
    let arena = Arena::with(name, options).expect("an arena");
    arena.root_run("numbers", &arena.run(numbers).expect("room")).expect("a root");
    arena.seal().expect("it is published").path
}

/// The first page with a right sum.
fn put_right(bytes: &mut [u8]) {
    let right = sum(&bytes[..4088]);
    bytes[4088..4096].copy_from_slice(&right.to_le_bytes());
}

/// Includes it, in a process of its own, and reads each root that it says it has.
fn include_elsewhere(store: &Store, name: &str) -> i32 {
    // SAFETY: the child includes, reads and ends by itself; this process has one thread that works.
    match unsafe { libc::fork() } {
        0 => {
            let found = include_from(std::slice::from_ref(store), name, false);
            let mut sound = true;
            if let Ok(image) = found {
                for root in image.roots().iter() {
                    let inside = image.find(root.name).map(|root| root.address + root.bytes);
                    sound &= inside.is_err() || inside.is_ok_and(|end| end <= image.base() + image.bytes());
                    let _ =
                        image.run::<u64>(root.name).map(|numbers| std::hint::black_box(numbers.iter().max()));
                }
            }
            // SAFETY: ends this process, without what only the other is to do at its end.
            unsafe { libc::_exit(if sound { 0 } else { 2 }) }
        }
        child => {
            let mut status = 0;
            // SAFETY: room for the status.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status
        }
    }
}

fn damaged() {
    let scratch = Scratch::new();
    let store = Store::at(&scratch.join("store"), Owner::Machine);
    let file = publish(&store, "numbers@1.0.0", &[7; 512]);
    let other = publish(&store, "others@1.0.0", &[9; 64]);
    let id = |path: &Path| path.file_name().expect("a name").to_str().expect("digits").to_owned();
    let raw = |path: &Path| -> Vec<u8> {
        (0..32).map(|at| u8::from_str_radix(&id(path)[2 * at..2 * at + 2], 16).expect("digits")).collect()
    };
    let whole = std::fs::read(&file).expect("an image");
    let theirs = scratch.join("theirs.img");
    let mut chance = Numbers(5);
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("a mode");
    let tried = |bytes: &mut Vec<u8>, what: &str| {
        put_right(bytes);
        std::fs::write(&theirs, &*bytes).expect("a file");
        std::fs::write(&file, &*bytes).expect("an image");
        assert_eq!(include_elsewhere(&store, "numbers@1"), 0, "{what}");
    };
    // An image that leads into itself, and two that lead into each other.
    for into in [&file, &other] {
        let mut bytes = whole.clone();
        bytes[84..88].copy_from_slice(&1_u32.to_le_bytes());
        bytes[512..640].fill(0);
        bytes[512..512 + 7].copy_from_slice(b"numbers");
        bytes[512 + 80..512 + 112].copy_from_slice(&raw(into));
        bytes.copy_within(32..48, 512 + 112);
        if *into == other {
            let mut back = std::fs::read(&other).expect("an image");
            std::fs::set_permissions(&other, Permissions::from_mode(0o644)).expect("a mode");
            back[84..88].copy_from_slice(&1_u32.to_le_bytes());
            back[512..640].fill(0);
            back[512..512 + 6].copy_from_slice(b"others");
            back[512 + 80..512 + 112].copy_from_slice(&raw(&file));
            back.copy_within(32..48, 512 + 112);
            put_right(&mut back);
            std::fs::write(&other, back).expect("an image");
        }
        tried(&mut bytes, "images that lead into each other");
        let why = include_from(std::slice::from_ref(&store), "numbers@1", false).expect_err("it has no end");
        assert!(why.to_string().contains("is not what was published"), "{why}");
    }
    for round in 0..250 {
        let mut bytes = whole.clone();
        for _ in 0..1 + chance.below(3) {
            let at = [chance.below(128), 512 + chance.below(256), chance.below(4080)]
                [chance.below(3) as usize] as usize;
            let value =
                [0, u64::MAX, 1 << 40, 1 << 63, 4096, 40, chance.below(1 << 16)][chance.below(7) as usize];
            bytes[at / 8 * 8..at / 8 * 8 + 8].copy_from_slice(&value.to_le_bytes());
        }
        tried(&mut bytes, &format!("round {round}"));
        if round % 25 == 0 {
            for verb in ["add", "show"] {
                let what: &dyn AsRef<std::ffi::OsStr> = if verb == "add" { &theirs } else { &"numbers" };
                said(&[&"image", &verb, &"--store", &store.root(), what]);
            }
            for verb in ["list", "verify", "ranges"] {
                said(&[&"image", &verb, &"--store", &store.root()]);
            }
        }
    }
    assert!(!said(&[&"image", &"verify", &"--store", &store.root()]).is_done, "what was changed is told");
}

fn registries() {
    let scratch = Scratch::new();
    let store = Store::at(&scratch.join("store"), Owner::Machine);
    publish(&store, "numbers@1.0.0", &[7; 512]);
    let file = store.root().join("ranges");
    let whole = std::fs::read(&file).expect("a registry");
    let ranges = || said(&[&"image", &"ranges", &"--store", &store.root()]);
    assert!(ranges().is_done);
    let mut chance = Numbers(7);
    for round in 0..60 {
        let mut bytes = whole.clone();
        match round % 3 {
            0 => bytes.truncate(chance.below(bytes.len() as u64) as usize),
            1 => {
                let at = chance.below(bytes.len() as u64 - 4096) as usize;
                let length = chance.below(4096) as usize;
                bytes[at..at + length].fill([0, 0xff][chance.below(2) as usize]);
            }
            _ => (0..64).for_each(|_| {
                let at = chance.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << chance.below(8);
            }),
        }
        std::fs::write(&file, bytes).expect("a registry");
        ranges();
    }
    std::fs::write(&file, &whole).expect("a registry");
    // Another's registry is not read, and what a link leads to is not made one.
    chown(&file, Some(ATTACKER.0), Some(ATTACKER.1)).expect("an owner");
    let refused = ranges();
    assert!(!refused.is_done && refused.text.contains("belongs to user"), "{refused:?}");
    std::fs::remove_file(&file).expect("it goes");
    let elsewhere = scratch.file_of("elsewhere", b"");
    symlink(&elsewhere, &file).expect("a link");
    assert!(!ranges().is_done);
    assert_eq!(std::fs::metadata(&elsewhere).expect("a file").len(), 0, "root wrote through a link");
    as_user(ATTACKER.0, || Ranges::open(&file, Owner::Machine).err()).expect("nobody else opens it");
}

/// Another user has no way to bytes of root's store; and whatever is swapped into its place, what
/// is opened is root's.
fn changed() {
    let scratch = Scratch::new();
    let store = Store::at(&scratch.join("store"), Owner::Machine);
    let file = publish(&store, "numbers@1.0.0", &[7; 4096]);
    let names = store.root().join("names/numbers");
    as_user(ATTACKER.0, || {
        File::open(&file).expect("everybody may read");
        File::options().write(true).open(&file).expect_err("nobody else writes");
        std::fs::rename(&file, file.with_file_name("other")).expect_err("nor renames");
        std::fs::remove_file(names.join("1")).expect_err("nor removes");
        symlink("/etc/passwd", names.join("2")).expect_err("nor adds");
        std::fs::set_permissions(&file, Permissions::from_mode(0o666)).expect_err("nor lets in");
    });
    let whole = std::fs::read(&file).expect("an image");
    let id = commonhold_images::format::Id::parse(
        file.file_name().and_then(|name| name.to_str()).expect("a name"),
    );
    let id = id.expect("a hash");
    // The same name and version and sums, with other numbers, and one that is cut off.
    let theirs = file.with_file_name("theirs");
    let mut bytes = whole.clone();
    bytes[8192..].fill(8);
    for length in [bytes.len(), 4096, 8192] {
        std::fs::write(&theirs, &bytes[..length]).expect("a file");
        chown(&theirs, Some(ATTACKER.0), Some(ATTACKER.1)).expect("an owner");
        let (mut had, mut refused) = (0, 0);
        while_swapping(&file, &theirs, || {
            while (had < 50 || refused < 50) && had + refused < 100_000 {
                match store.open(id) {
                    Ok(image) => {
                        let mut read = vec![0; whole.len()];
                        image.file.read_exact_at(&mut read, 0).expect("it is whole");
                        assert!(read == whole, "the attacker's bytes are included");
                        had += 1;
                    }
                    Err(why) => {
                        assert!(why.to_string().contains("belongs to user"), "{why}");
                        refused += 1;
                    }
                }
            }
        });
        assert!(had >= 50 && refused >= 50, "{had} had and {refused} refused: nothing was raced for");
        let found = std::fs::read(&file).expect("an image");
        if found != whole {
            std::fs::rename(&theirs, &file).expect("it comes back");
        }
    }
}

fn stores_elsewhere() {
    let scratch = Scratch::new();
    below_another(&secret(&scratch), &scratch, |root| {
        let store = Store::at(root, Owner::Machine);
        let why = store.draft().err().expect("others may put another in its place").to_string();
        assert!(why.contains("root's alone"), "{why}");
    });
    let store = scratch.join("theirs/commonhold/images");
    said(&[&"image", &"ranges", &"--store", &store]).complaint();
    Store::at(&scratch.join("own/store"), Owner::Machine).create().expect("a store");
}

fn variables() {
    let scratch = Scratch::new();
    let theirs = scratch.join("theirs");
    std::fs::create_dir(&theirs).expect("a directory");
    chown(&theirs, Some(ATTACKER.0), Some(ATTACKER.1)).expect("an owner");
    let data = theirs.join("data");
    let root = data.join("commonhold/images");
    as_user(ATTACKER.0, || publish(&Store::at(&root, Owner::User), "trap@1.0.0", &[7; 512]));
    let rights = scratch.join("rights");
    assert!(
        Command::new("cp")
            .arg(program("commonhold-tests-rights"))
            .arg(&rights)
            .status()
            .expect("cp")
            .success()
    );
    let says = |mode: u32, named: bool| {
        std::fs::set_permissions(&rights, Permissions::from_mode(mode)).expect("a mode");
        let mut command = Command::new(&rights);
        command.uid(ATTACKER.0).gid(ATTACKER.1).env_clear().env("HOME", &theirs).env("XDG_DATA_HOME", &data);
        if named {
            command.env("COMMONHOLD_IMAGES", &root);
        }
        String::from_utf8_lossy(&command.output().expect("it runs").stdout).into_owned()
    };
    for named in [false, true] {
        let plain = says(0o755, named);
        assert!(
            plain.contains("includes trap@1.0.0"),
            "without such rights the caller's store counts: {plain}"
        );
        for mode in [0o4755, 0o2755] {
            let says = says(mode, named);
            if says.starts_with("rights false") {
                leave_out("this file system has no setuid programs");
            }
            assert!(
                says.contains("includes nothing: there is no image trap@1 in /var/lib/commonhold/images;"),
                "{says}"
            );
        }
    }
    // Root itself takes nothing of another's store either, whoever names it.
    let why = include_from(&[Store::at(&root, Owner::User)], "trap@1", false).expect_err("it is another's");
    assert!(why.to_string().contains("belongs to user"), "{why}");
}
