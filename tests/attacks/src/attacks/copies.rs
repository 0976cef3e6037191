//! Copies of libraries that root makes: no file of another is run, read for ever or written by it,
//! and nothing of another's is in a program that has more rights than who starts it.

use super::alone;
use super::store::{compile, program_in};
use crate::scene::ATTACKER;
use crate::scene::command::{command, said};
use crate::{Attack, leave_out};
use commonhold_images::ranges::Owner;
use commonhold_rebase::elf::{Elf, dynamic};
use commonhold_rebase::store::Store;
use commonhold_tests::Scratch;
use rustix::fs::{CWD, RenameFlags};
use std::fs::Permissions;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const ATTACKS: &[Attack] = &[
    alone(
        "copies.code_at_set",
        "have root's `rebase` run what a program names in a section it hides",
        code_at_set,
    ),
    alone(
        "copies.directories",
        "swap a program of root's that lies in a directory of one's own",
        directories,
    ),
    alone(
        "copies.stores_elsewhere",
        "have root change what a link above its store leads to",
        stores_elsewhere,
    ),
    alone("copies.of_no_files", "hand root's `rebase` pipes, devices and files of holes", of_no_files),
    alone(
        "copies.variables",
        "be in setuid, setgid and capable programs by LD_AUDIT and LD_PRELOAD",
        variables,
    ),
    alone("copies.markup", "names of programs that are lines and commands to a terminal", markup),
];

/// Makes it the attacker's, with all that is in it.
fn give_away(path: &Path) {
    let given =
        Command::new("chown").arg("-hR").arg(format!("{}:{}", ATTACKER.0, ATTACKER.1)).arg(path).status();
    assert!(given.expect("chown").success());
}

/// C that leaves a file there when it runs.
fn trap(sprung: &Path) -> String {
    format!(
        "int creat(const char *, unsigned); static void spring(void) {{ creat(\"{}\", 0644); }}\n",
        sprung.display()
    )
}

/// Has the file say of its dynamic section that it is a copy without audit libraries, while the
/// loader finds the section where it is.
fn hide_audit(program: &Path) {
    let elf = Elf::open(program).expect("a program");
    let mut bytes = elf.bytes.clone();
    let place = elf.segments.iter().position(|segment| segment.kind == 2).expect("a dynamic section");
    let header = 64 + place * 56;
    let offset = bytes.len().next_multiple_of(16);
    bytes.resize(offset, 0);
    let plain =
        elf.dynamic.entries.iter().filter(|entry| ![dynamic::AUDIT, dynamic::DEPAUDIT].contains(&entry.tag));
    plain.for_each(|entry| bytes.extend([entry.tag, entry.value].map(u64::to_le_bytes).concat()));
    bytes.resize(offset + elf.segments[place].file_bytes as usize, 0);
    bytes[header + 8..header + 16].copy_from_slice(&(offset as u64).to_le_bytes());
    std::fs::write(program, bytes).expect("a program");
}

fn code_at_set() {
    let scratch = Scratch::new();
    let theirs = scratch.path().canonicalize().expect("a path").join("theirs");
    std::fs::create_dir(&theirs).expect("a directory");
    let sprung = theirs.join("sprung");
    let audit = trap(&sprung) + "unsigned la_version(unsigned version) { spring(); return version; }";
    let audit = compile(&theirs, "libaudit.so", &audit, &["-shared", "-fPIC"]);
    let named = format!("-Wl,--audit={}", audit.display());
    let program = compile(&theirs, "program", "int main(void) { return 0; }", &[&named]);
    hide_audit(&program);
    give_away(&theirs);
    // The loader obeys it, whatever the section says that others read: so nothing of this is to reach it.
    let loader = Command::new("/lib64/ld-linux-x86-64.so.2")
        .arg(&program)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .output();
    if !loader.is_ok_and(|output| output.status.success()) || std::fs::remove_file(&sprung).is_err() {
        leave_out("this loader runs nothing of programs that it lists");
    }
    let store = scratch.join("store");
    for words in [&["set"][..], &["set", "--executable"], &["check", "--"], &["run", "--"]] {
        let (verb, more) = words.split_first().expect("a verb");
        let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"rebase", verb, &"--store", &store];
        more.iter().for_each(|word| all.push(word));
        all.push(&program);
        let answer = said(&all);
        assert!(!sprung.exists(), "root ran it by {words:?}");
        assert!(!answer.is_done && answer.text.contains("root's alone"), "{words:?}: {answer:?}");
    }
}

/// Exchanges two names until it is dropped.
pub(super) fn while_swapping<T>(one: &Path, other: &Path, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _until = crate::scene::Until(&is_over);
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // What root has put there or taken away meanwhile is not swapped.
                let _ = rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

/// A program of root's, in a directory where another may put one that runs code when it is relocated.
fn directories() {
    let scratch = Scratch::new();
    let here = scratch.path().canonicalize().expect("a path");
    let (roots, theirs, sprung) = (here.join("theirs/bin"), here.join("theirs/other"), here.join("sprung"));
    for directory in [&roots, &theirs] {
        std::fs::create_dir_all(directory).expect("a directory");
    }
    program_in(&roots);
    let resolver = trap(&sprung)
        + "static int one(void) { return 1; } static void *choose(void) { spring(); return one; }\n\
           int chosen(void) __attribute__((ifunc(\"choose\"))); int main(void) { return chosen(); }";
    compile(&theirs, "program", &resolver, &["-Wl,-z,now", "-fPIC"]);
    give_away(&theirs);
    let store = here.join("store");
    let set = |program: &Path| said(&[&"rebase", &"set", &"--store", &store, &program]);
    assert!(set(&roots.join("program")).is_done, "where all above is root's it is set");
    assert!(said(&[&"rebase", &"unset", &"--store", &store, &roots.join("program")]).is_done);
    chown(here.join("theirs"), Some(ATTACKER.0), Some(ATTACKER.1)).expect("an owner");
    // What root links to from its own directory leads there as well.
    symlink(&roots, here.join("link")).expect("a link");
    let answers = while_swapping(&roots, &theirs, || {
        let programs = [roots.join("program"), here.join("link/program")];
        let all = (0..12).map(|round| set(&programs[round % 2]));
        all.collect::<Vec<_>>()
    });
    assert!(!sprung.exists(), "root ran it");
    for answer in answers {
        assert!(!answer.is_done && answer.text.contains("root's alone"), "{answer:?}");
    }
    assert!(!said(&[&"rebase", &"list", &"--store", &store]).text.contains("theirs"), "it is set");
}

/// What root alone may read, and is to stay so.
pub(super) fn secret(scratch: &Scratch) -> PathBuf {
    let secret = scratch.file_of("secret", b"secret");
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("a mode");
    secret
}

/// Has root make stores below a directory of the attacker's, who swaps what is there for links to
/// what is root's.
pub(super) fn below_another(secret: &Path, scratch: &Scratch, make: impl Fn(&Path)) {
    let theirs = scratch.join("theirs");
    std::fs::create_dir(&theirs).expect("a directory");
    chown(&theirs, Some(ATTACKER.0), Some(ATTACKER.1)).expect("an owner");
    let (link, store) = (theirs.join("link"), theirs.join("commonhold"));
    symlink(secret, &link).expect("a link");
    while_swapping(&store, &link, || {
        for _ in 0..30 {
            make(&store.join("images"));
            make(&store);
        }
    });
    let found = std::fs::metadata(secret).expect("it is there");
    assert_eq!(found.permissions().mode() & 0o7777, 0o600, "root let others read it");
    assert_eq!(std::fs::read(secret).expect("its bytes"), b"secret");
    let made = std::fs::read_dir(&theirs).expect("a directory").flatten().map(|entry| entry.path());
    assert_eq!(made.collect::<Vec<_>>(), [link], "root made something there");
}

fn stores_elsewhere() {
    let scratch = Scratch::new();
    below_another(&secret(&scratch), &scratch, |store| {
        let why = Store::open(store, Owner::Machine).expect_err("others may put another in its place");
        assert!(why.to_string().contains("root's alone"), "{why}");
    });
    let store = scratch.join("theirs/store");
    assert!(said(&[&"rebase", &"set", &"--store", &store, &"/bin/ls"]).complaint().contains("root's alone"));
    // Below a directory where everybody may make what is theirs, and nobody may touch what is not,
    // root has a store.
    Store::open(&scratch.join("own/store"), Owner::Machine).expect("a store");
}

/// What looks like a file, and has no end, no bytes or more than there is memory.
pub(super) fn no_files(scratch: &Scratch) -> Vec<PathBuf> {
    let pipe = scratch.join("pipe");
    rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o755), 0)
        .expect("a pipe");
    assert!(std::fs::metadata(&pipe).expect("a pipe").file_type().is_fifo());
    let endless = scratch.join("endless");
    symlink("/dev/zero", &endless).expect("a link");
    let directory = scratch.join("directory");
    std::fs::create_dir(&directory).expect("a directory");
    let holes = scratch.file_of("holes", &super::elves::plain().finish());
    File::options().write(true).open(&holes).and_then(|file| file.set_len(8 << 30)).expect("a length");
    std::fs::set_permissions(&holes, Permissions::from_mode(0o755)).expect("a mode");
    vec![pipe, endless, directory, holes]
}

use std::fs::File;

fn of_no_files() {
    let scratch = Scratch::new();
    let store = scratch.join("store");
    for path in no_files(&scratch) {
        for words in [["set", "--"], ["check", "--"]] {
            let answer = said(&[&"rebase", &words[0], &"--store", &store, &words[1], &path]);
            assert!(!answer.is_done, "{answer:?}");
        }
        assert!(!said(&[&"rebase", &"core", &"--store", &store, &path]).is_done);
    }
    for (what, bytes) in super::elves::hostile() {
        let program = scratch.file_of("hostile", &bytes);
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("a mode");
        let answer = said(&[&"rebase", &"set", &"--store", &store, &program]);
        assert!(!answer.is_done, "{what}: {answer:?}");
    }
}

/// A program that prints its own memory, and with which rights beside its caller's.
fn with_rights(scratch: &Scratch, what: &str) -> PathBuf {
    let path = scratch.join(what);
    assert!(Command::new("cp").arg("/bin/cat").arg(&path).status().expect("cp").success());
    let (owner, group, mode) = match what {
        "setuid" => (0, 0, 0o4755),
        "setgid" => (ATTACKER.0, 0, 0o2755),
        _ => (0, 0, 0o755),
    };
    chown(&path, Some(owner), Some(group)).expect("an owner");
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
    if what == "capable" {
        // Revision 2, effective: to bind low ports.
        let capability = [0x0200_0001_u32, 1 << 10, 0, 0, 0].map(u32::to_le_bytes).concat();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, "security.capability", &capability, flags)
            .unwrap_or_else(|why| leave_out(format!("no file capabilities here: {why}")));
    }
    path
}

fn variables() {
    let scratch = Scratch::new();
    let theirs = scratch.path().canonicalize().expect("a path").join("theirs");
    std::fs::create_dir(&theirs).expect("a directory");
    let sprung = theirs.join("sprung");
    let library = trap(&sprung)
        + "__attribute__((constructor)) static void begin(void) { spring(); }\n\
           unsigned la_version(unsigned version) { spring(); return version; }";
    let library = compile(&theirs, "libtrap.so", &library, &["-shared", "-fPIC"]);
    give_away(&theirs);
    // A store of the attacker's, in which the program is set: its records say so.
    let plain = with_rights(&scratch, "plain");
    let store = theirs.join("data/commonhold/rebase");
    let made =
        command(&[&"rebase", &"set", &"--store", &store, &plain]).uid(ATTACKER.0).gid(ATTACKER.1).output();
    let made = made.expect("it runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let audit = store.join("libcommonhold_start.so");
    let maps = |program: &Path, audit: &Path| {
        let mut command = Command::new(program);
        command.arg("/proc/self/maps").uid(ATTACKER.0).gid(ATTACKER.1).env_clear();
        command.env("HOME", &theirs).env("XDG_DATA_HOME", theirs.join("data"));
        command.env("LD_AUDIT", audit).env("LD_PRELOAD", &library).env("COMMONHOLD_IMAGES", &theirs);
        let output = command.output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let _ = std::fs::remove_file(&sprung);
    assert!(maps(&plain, &audit).contains("libtrap.so") && sprung.exists(), "without such rights they count");
    std::fs::remove_file(&sprung).expect("it was there");
    let own = theirs.display().to_string();
    for what in ["setuid", "setgid", "capable"] {
        let program = with_rights(&scratch, what);
        for audit in [&audit, &library] {
            let maps = maps(&program, audit);
            assert!(maps.contains("[stack]") || maps.is_empty(), "{what}: {maps}");
            assert!(!maps.contains(&own) && !sprung.exists(), "{what}: {maps}");
        }
        let set = said(&[&"rebase", &"set", &"--store", &scratch.join("store"), &program]);
        assert!(!set.is_done, "{what}: {set:?}");
    }
    // A program that is set, and gets such rights later, under the record that there is.
    std::fs::set_permissions(&plain, Permissions::from_mode(0o4755)).expect("a mode");
    let maps = maps(&plain, &audit);
    assert!(!maps.contains(&own) && !sprung.exists(), "{maps}");
}

fn markup() {
    let scratch = Scratch::new();
    let here = scratch.path().canonicalize().expect("a path");
    let store = here.join("store");
    let names = [
        "red\u{1b}[31m",
        "two\nlines",
        "bidi\u{202e}\u{2066}x",
        "c1\u{9b}2J",
        "$(id)`id`;'\"",
        "<b>\u{2028}",
    ];
    for (number, name) in names.iter().enumerate() {
        let directory = here.join(format!("{number}{name}"));
        std::fs::create_dir(&directory).expect("a directory");
        let program = program_in(&directory).with_file_name(name);
        std::fs::rename(directory.join("program"), &program).expect("a name");
        let mut text = String::new();
        for verb in ["set", "check"] {
            text += &said(&[&"rebase", &verb, &"--store", &store, &"--", &program]).text;
        }
        chown(directory.join("libouter.so"), Some(ATTACKER.0), None).expect("an owner");
        text += &said(&[&"rebase", &"update", &"--store", &store]).text;
        text += &said(&[&"rebase", &"set", &"--store", &store, &program.join("none")]).text;
        for verb in ["list", "verify", "env"] {
            text += &said(&[&"rebase", &verb, &"--store", &store]).text;
            let json = said(&[&"rebase", &verb, &"--store", &store, &"--json"]).text;
            serde_json::from_str::<serde_json::Value>(&json)
                .unwrap_or_else(|why| panic!("{verb}: {why}: {json}"));
            text += &json;
        }
        assert!(text.contains(&number.to_string()) && super::markup::is_plain(&text), "{name:?}: {text:?}");
        for line in text.lines() {
            assert!(!line.starts_with("lines"), "{name:?}: {text:?}");
        }
    }
}
