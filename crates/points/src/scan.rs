//! What the sources call, and where they have points: read as text, without comments, strings and tests.
//!
//! A call of a kind that this file knows has a point if it stands within the parentheses of a point's function. Places of
//! points are named as [`Location`](std::panic::Location) names them: by the line of the call, and, of what wraps a call in
//! `crates/sys` or `crates/peers`, by the line that calls the wrapper.

use std::io;
use std::path::{Path, PathBuf};

/// Where calls of these kinds are looked for.
pub const FOLDERS: [&str; 8] = [
    "crates/client/src",
    "crates/host/src",
    "crates/journal/src",
    "crates/keeper/src",
    "crates/peers/src",
    "crates/registry/src",
    "crates/sys/src",
    "pagers/src",
];

/// Functions of points.
const POINTS: [&str; 15] = [
    "protect",
    "punch",
    "copy",
    "continue_",
    "poison",
    "pwrite",
    "fsync",
    "page_in",
    "page_out",
    "mmap",
    "thread",
    "send",
    "receive",
    "send_far",
    "receive_far",
];

/// Calls that must have a point.
const CALLS: [&str; 20] = [
    ".spawn_scoped(",
    "UFFDIO_COPY,",
    "UFFDIO_WRITEPROTECT,",
    "PUNCH_HOLE",
    ".write_all_at(",
    "pwrite(",
    "pwritev2(",
    "pwritev(",
    ".sync_all(",
    ".sync_data(",
    "fdatasync(",
    "fsync(",
    "msync(",
    "mm::mmap(",
    "mmap_anonymous(",
    ".spawn(",
    "thread::spawn(",
    "sendmsg(",
    "recvmsg(",
    "recv(socket",
];

/// What reads like such a call: file, part of the line, and why it needs no point.
const NO_CALLS: [(&str, &str, &str); 8] = [
    ("crates/client/src/start.rs", ".spawn()", "a process"),
    ("crates/keeper/src/config.rs", "self.spawn(", "a process"),
    ("crates/keeper/src/config.rs", "command.spawn()", "a process"),
    ("crates/sys/src/frames.rs", "pwritev2(file, ", "asks the kernel what it can, with memory of its own"),
    ("crates/sys/src/frames.rs", "match rustix::io::pwritev2(fd", "its caller's point is around it"),
    ("crates/sys/src/frames.rs", "=> rustix::io::pwrite(fd", "its caller's point is around it"),
    ("crates/sys/src/frames.rs", "let flags", "a number"),
    ("crates/sys/src/userfaultfd.rs", "const ", "a number"),
];

/// What wraps a call, and names its caller: calls of these are places of points.
const WRAPPERS: [&str; 22] = [
    "uffd.protect(",
    "uffd.unprotect(",
    "uffd.drop_markers(",
    "uffd.copy(",
    "uffd.copy_raw(",
    "uffd.continue_(",
    "uffd.poison(",
    "frames::punch(",
    "frames::make_page(",
    "frames::write_in_place(",
    "frames::write_unlocked(",
    "memory::map(",
    "memory::reserve(",
    "memory::store(",
    "memory::replace_with_nothing(",
    "FileWindow::open(",
    "Shared::map(",
    "Pin::new(",
    "socket::send(",
    "socket::receive(",
    "socket::receive_and_tell(",
    "socket::receive_what_fits(",
];

/// What a scan found.
#[derive(Debug, Default)]
pub struct Scan {
    /// Places of points: file and line.
    pub points: Vec<String>,
    /// Calls without a point.
    pub bare: Vec<String>,
}

/// Reads all sources below `root`.
pub fn scan(root: &Path) -> io::Result<Scan> {
    let mut found = Scan::default();
    for folder in FOLDERS {
        for file in sources(&root.join(folder))? {
            let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            look(&name, &plain(&std::fs::read_to_string(&file)?), &mut found);
        }
    }
    Ok(found)
}

fn sources(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            all.extend(sources(&path)?);
        } else if name.ends_with(".rs") && name != "tests.rs" && name != "fuzzing.rs" {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

fn look(name: &str, text: &str, found: &mut Scan) {
    let place = |at: usize| format!("{name}:{}", text[..at].matches('\n').count() + 1);
    let mut within = Vec::new();
    for point in POINTS {
        for (at, call) in text.match_indices(&format!("points::{point}(")) {
            found.points.push(place(at));
            within.push(at..closing(text, at + call.len() - 1));
        }
    }
    for call in CALLS {
        let is_call = |at: usize| {
            let before = text[..at].chars().next_back().unwrap_or(' ');
            let begins = call.starts_with('.') || !(before.is_alphanumeric() || before == '_');
            begins && !text[..at].ends_with("fn ") && !text[..at].ends_with("points::")
        };
        let is_elsewhere = |at: usize| {
            let line = &text[text[..at].rfind('\n').map_or(0, |newline| newline + 1)..];
            let line = line.lines().next().unwrap_or_default();
            // A child process is no thread, and a number or a closure that a point is given further down is no call.
            NO_CALLS.iter().any(|(file, part, _)| *file == name && line.contains(part))
        };
        for (at, _) in text.match_indices(call).filter(|(at, _)| is_call(*at) && !is_elsewhere(*at)) {
            if !within.iter().any(|part| part.contains(&at)) && !is_given(text, at) {
                found.bare.push(format!("{} {}", place(at), call.trim_matches(['.', '(', ','])));
            }
        }
    }
    let wraps = name == "crates/sys/src/frames.rs" || name == "crates/sys/src/socket.rs";
    for wrapper in WRAPPERS.iter().filter(|_| !wraps) {
        let method = wrapper.rfind('.').map_or(0, |dot| dot + 1);
        found.points.extend(text.match_indices(wrapper).map(|(at, _)| place(at + method)));
    }
}

/// Whether the call stands in a closure with a name, as `let map = || …;`, that a point is given in the same function.
fn is_given(text: &str, at: usize) -> bool {
    let start = text[..at].rfind("\n}\n").unwrap_or(0);
    let Some(bound) = text[start..at].rfind("let ").map(|found| start + found) else { return false };
    let statement = &text[bound + 4..at];
    let Some((closure, rest)) = statement.split_once('=') else { return false };
    let (closure, rest) = (closure.trim(), rest.trim_start());
    let is_closure = rest.starts_with("||") || rest.starts_with("move ||");
    let end = text[at..].find("\n}\n").map_or(text.len(), |found| at + found);
    let is_passed = |point: &str| text[at..end].contains(&format!("points::{point}({closure})"));
    is_closure && !statement.contains(";\n    }") && POINTS.iter().any(|point| is_passed(point))
}

/// The place of the parenthesis that closes the one at `open`.
fn closing(text: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 1 => return at,
            b')' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// The text with its comments, the insides of its strings, and its tests made blanks; lines stay.
fn plain(text: &str) -> String {
    let text = match text.find("#[cfg(test)]\nmod ") {
        Some(at) => &text[..at],
        None => text,
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if next == '"' {
            string_length(rest)
        } else if rest.starts_with("'\"'") {
            3
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        };
        out.extend(rest[..skipped].chars().map(|found| if found == '\n' { '\n' } else { ' ' }));
        rest = &rest[skipped..];
    }
    out
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str) -> Scan {
        let mut found = Scan::default();
        look("x.rs", &plain(text), &mut found);
        found
    }

    #[test]
    fn calls_within_points_have_them_and_others_do_not() {
        let good = "fn f() {\n    points::pwrite(|| file.write_all_at(bytes, 0))?;\n}\n";
        assert_eq!(scanned(good).points, ["x.rs:2"]);
        assert!(scanned(good).bare.is_empty());
        let bad = "fn f() {\n    points::fsync(|| other())?;\n    file.write_all_at(bytes, 0)?; // \"\n}\n";
        assert_eq!(scanned(bad).bare, ["x.rs:3 write_all_at"]);
        let given =
            "fn f() {\n    let map = || unsafe { rustix::mm::mmap(1) };\n    points::mmap(map)?;\n}\n";
        assert!(scanned(given).bare.is_empty());
        let not_given = "fn f() {\n    let map = || unsafe { rustix::mm::mmap(1) };\n    map()?;\n}\n";
        assert_eq!(scanned(not_given).bare, ["x.rs:2 mm::mmap"]);
        let not_code = "// file.sync_all()\nconst A: &str = \".sync_all()\";\n#[cfg(test)]\nmod tests { file.sync_all(); }";
        assert!(scanned(not_code).bare.is_empty());
        assert_eq!(
            scanned("fn f() {\n    a.uffd\n        .protect(1);\n    b.uffd.poison(2);\n}\n").points,
            ["x.rs:4"]
        );
    }

    /// Where all sources are. In a crate by itself there is nothing to look through.
    fn checkout() -> Option<&'static Path> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
        let is_there = root.join("crates/points/src/scan.rs").is_file();
        if !is_there {
            eprintln!("skipped: the crate is by itself, without the sources that this looks through");
        }
        is_there.then_some(root)
    }

    #[test]
    fn mutants_have_a_line_each() {
        let Some(root) = checkout() else { return };
        let list = std::fs::read_to_string(root.join("tests/mutants")).unwrap();
        let lines = list.lines().filter(|line| !line.starts_with('#'));
        let mut listed: Vec<String> =
            lines.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
        let mut asked = Vec::new();
        let folders = FOLDERS.iter().copied().chain(["crates/coherence/src"]);
        for file in folders.flat_map(|folder| sources(&root.join(folder)).unwrap()) {
            let text = std::fs::read_to_string(file).unwrap();
            let parts = text.split("points::mutant(\"").skip(1);
            asked.extend(parts.filter_map(|part| part.split('"').next()).map(str::to_owned));
        }
        listed.sort();
        asked.sort();
        assert_eq!(listed, asked);
        assert_eq!(listed.len(), 20);
    }

    #[test]
    fn every_call_in_the_sources_has_a_point() {
        let Some(root) = checkout() else { return };
        let found = scan(root).unwrap();
        assert!(found.points.len() > 100, "{:?}", found.points);
        assert_eq!(found.bare, [""; 0]);
    }
}
