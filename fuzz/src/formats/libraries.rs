//! Shared libraries and programs, copies of them, and what stands beside copies.

use super::Format;
use commonhold_code::fuzzing as code;
use commonhold_rebase::bind::answers;
use commonhold_rebase::copy::{self, Role};
use commonhold_rebase::elf::Elf;
use commonhold_rebase::fuzzing as rebase;
use commonhold_record::{FILE_BYTES, HEADER_BYTES, MAGIC, Record};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

/// Libraries and programs, read, moved and relocated.
pub const LIBRARIES: Format = Format::new("libraries", 20_000, libraries, samples);

/// Libraries that are to become code images.
pub const COPIES: Format = Format::new("code-libraries", 20_000, code_libraries, samples).taking(96);

/// What is read at the start of every program that is set for rebasing.
pub const STARTS: Format = Format::new("starts", 4096, starts, sample_starts);

/// What stands beside a copy, and what core dumps say.
pub const NOTES: Format = Format::new("notes", 4096, rebase::notes, rebase::sample_notes);

/// What a loader says, which names of programs' files are in.
pub const LOADERS: Format = Format::new("loaders", 4096, rebase::loaders, rebase::sample_loaders);

fn libraries(bytes: &[u8]) {
    let Ok(elf) = Elf::parse(Path::new("library"), bytes.to_vec()) else { return };
    let _ = (elf.extent(), elf.sections(), elf.build_id(), elf.interpreter(), elf.soname()); // what it says
    assert!(elf.needed().all(|name| name.len() <= bytes.len()));
    for symbol in elf.symbols.all.iter().take(64) {
        let _ = elf.symbols.version_of(symbol); // none, or which
    }
    let elf = Arc::new(elf);
    let count = elf.relocations.named().count();
    assert_eq!(answers(std::slice::from_ref(&elf), 0).len(), count);
    for role in [Role::Library, Role::Program] {
        if copy::check(&elf, role).is_err() {
            continue;
        }
        let base = copy::alignment(&elf) << 12;
        let _ = copy::address_bytes(&elf, role); // how many
        if let Ok(moved) = copy::make(&elf, role, base, &vec![None; count]) {
            assert_eq!(moved.len(), bytes.len());
        }
    }
}

fn code_libraries(bytes: &[u8]) {
    let _ = code::libraries(bytes); // what it checks holds, or it is none
}

/// Small libraries, made by this machine's compiler: one by itself, and one with versions that
/// needs others. None: it has none.
fn sample_libraries() -> Vec<Vec<u8>> {
    const SOURCE: &str = "int data = 7; int *where = &data; static int (*call)(int);\
        __attribute__((weak)) int other(int); int one(int x) { return x + data; }\
        int two(int x) { return call ? call(x) : one(x) + *where; } int (*table[])(int) = {one, two};";
    const MORE: &str = "int printf(const char *, ...); int three(int x) { return printf(\"%d\", x); }";
    const VERSIONS: &str = "V1 { global: one; }; V2 { global: two; three; data; local: *; } V1;";
    const FLAGS: &str = "-shared -fPIC -O1 -fno-asynchronous-unwind-tables -s \
        -Wl,-z,noseparate-code,--build-id,-soname,liba.so,-z,max-page-size=4096";
    let directory = std::env::temp_dir().join(format!("commonhold-fuzz-library-{}", std::process::id()));
    let made = |source: &str, flags: &str| {
        std::fs::create_dir_all(&directory).ok()?;
        std::fs::write(directory.join("a.c"), source).ok()?;
        std::fs::write(directory.join("a.map"), VERSIONS).ok()?;
        let words = FLAGS.split_ascii_whitespace().chain(flags.split_ascii_whitespace());
        let mut command = Command::new("cc");
        command.current_dir(&directory).args(words).args(["-o", "a.so", "a.c"]);
        command.status().ok().filter(|status| status.success())?;
        std::fs::read(directory.join("a.so")).ok()
    };
    let alone = made(SOURCE, "-nostdlib");
    let more = made(&format!("{SOURCE}{MORE}"), "-Wl,-z,pack-relative-relocs,--version-script,a.map");
    // What was only for that.
    let _ = std::fs::remove_dir_all(&directory);
    alone.into_iter().chain(more).collect()
}

/// The same, made once.
pub fn samples() -> Vec<Vec<u8>> {
    static LIBRARIES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    LIBRARIES.get_or_init(sample_libraries).clone()
}

/// An odd first byte: length and sum are made right.
fn starts(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let mut record = rest.to_vec();
    if kind & 1 != 0 && record.len() >= HEADER_BYTES {
        let length = record.len() as u32;
        record[8..12].copy_from_slice(&length.to_le_bytes());
        let sum = commonhold_record::sum(&record[HEADER_BYTES..]);
        record[16..24].copy_from_slice(&sum.to_le_bytes());
    }
    let Some(found) = Record::new(&record) else { return };
    assert!(found.len() >= 2 && !found.is_empty());
    assert_eq!(found.files().count(), found.len(), "each file was looked at");
    for file in found.files() {
        assert!(
            file.path.len() > 1
                && file.path.ends_with(&[0])
                && !file.path[..file.path.len() - 1].contains(&0)
        );
        assert!(file.copy.is_empty() || file.copy.ends_with(&[0]));
    }
    let again = Record::accepted(&record).expect("it was accepted");
    assert_eq!(again.files().count(), found.len());
}

fn sample_starts() -> Vec<Vec<u8>> {
    let paths: [&[u8]; 3] = [b"/bin/a\0", b"/lib64/ld.so\0", b"/lib/b.so\0"];
    let copy: &[u8] = b"/copies/k/b.so\0";
    let mut strings = (HEADER_BYTES + paths.len() * FILE_BYTES) as u32;
    let (mut files, mut text) = (Vec::new(), vec![0]);
    let none = strings;
    strings += 1;
    for path in paths {
        let has_copy = path == paths[2];
        files.extend(strings.to_le_bytes());
        text.extend(path);
        strings += path.len() as u32;
        files.extend(if has_copy { strings } else { none }.to_le_bytes());
        if has_copy {
            text.extend(copy);
            strings += copy.len() as u32;
        }
        let state = [1_u64, 2, 3, 4, 5].map(u64::to_le_bytes).concat();
        files.extend(&state);
        files.extend(u64::from(has_copy).to_le_bytes());
        files.extend(if has_copy { state } else { vec![0; 40] });
    }
    let head = [&MAGIC[..], &strings.to_le_bytes(), &(paths.len() as u32).to_le_bytes(), &[0; 8]].concat();
    vec![[&[1], &head[..], &files, &text].concat()]
}
