//! Golden files: what is written in each version of a format, as `golden/NAME.VERSION` of the crate that writes it. They are
//! text, so that a change of one can be read: places and bytes in hexadecimal digits, 32 bytes a line, without lines of
//! zeros; the last line has the length.

use std::fmt::Write;
use std::path::PathBuf;

/// These bytes are written as that now: they must be those of the golden file, which is given to be read. With
/// `COMMONHOLD_GOLDEN=write` the file is written first.
#[allow(dead_code)]
pub fn check(crate_directory: &str, name: &str, version: u64, written: &[u8]) -> Vec<u8> {
    let path = path(crate_directory, name, version);
    if std::env::var_os("COMMONHOLD_GOLDEN").is_some_and(|what| what == "write") {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder of golden files");
        std::fs::write(&path, text(written)).expect("a golden file");
    }
    let kept = read(crate_directory, name, version);
    assert!(
        kept == written,
        "what is written as {name} is not what {} has: the format has changed. Give it the next version, which \
         docs/FORMATS.md says where to find, see that the one before is read or refused in words, and write the new file with \
         COMMONHOLD_GOLDEN=write. It has become:\n{}",
        path.display(),
        text(written)
    );
    kept
}

/// What the golden file of a version has.
pub fn read(crate_directory: &str, name: &str, version: u64) -> Vec<u8> {
    let path = path(crate_directory, name, version);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}. A new format, or version: write it with COMMONHOLD_GOLDEN=write", path.display())
    });
    bytes(&text)
}

/// Several messages as one sample, each behind its length.
#[allow(dead_code)]
pub fn together(all: &[Vec<u8>]) -> Vec<u8> {
    all.iter().flat_map(|one| [&(one.len() as u32).to_le_bytes(), &one[..]].concat()).collect()
}

/// And each by itself again.
#[allow(dead_code)]
pub fn apart(mut all: &[u8]) -> Vec<Vec<u8>> {
    let mut each = Vec::new();
    while let Some((length, rest)) = all.split_first_chunk() {
        let (one, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        each.push(one.to_vec());
        all = rest;
    }
    each
}

fn path(crate_directory: &str, name: &str, version: u64) -> PathBuf {
    PathBuf::from(crate_directory).join("golden").join(format!("{name}.{version}"))
}

fn text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (line, part) in bytes.chunks(32).enumerate().filter(|(_, part)| part.iter().any(|byte| *byte != 0)) {
        write!(text, "{:06x} ", line * 32).expect("text takes all");
        for byte in part {
            write!(text, "{byte:02x}").expect("text takes all");
        }
        text.push('\n');
    }
    writeln!(text, "{:06x}", bytes.len()).expect("text takes all");
    text
}

fn bytes(text: &str) -> Vec<u8> {
    let number = |digits: &str| usize::from_str_radix(digits, 16).expect("hexadecimal digits");
    let length = number(text.lines().next_back().expect("a length"));
    let mut bytes = vec![0; length];
    for (at, part) in text.lines().filter_map(|line| line.split_once(' ')) {
        for (place, byte) in (number(at)..).zip(part.as_bytes().chunks(2)) {
            bytes[place] = number(std::str::from_utf8(byte).expect("digits")) as u8;
        }
    }
    bytes
}
