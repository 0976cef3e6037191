//! What compiled programs rely on, compared with a list of it: `abi.txt` has the functions of the library, each with its
//! version, and the sizes and offsets of what the headers define. When a change is meant, this writes the list anew:
//!
//! ```text
//! COMMONHOLD_ABI=write cargo test -p commonhold --test abi
//! ```

#[path = "common/c.rs"]
mod c;

use c::{compile, library_directory};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEADERS: [&str; 5] =
    ["commonhold.h", "commonhold_sync.h", "commonhold_heap.h", "commonhold_image.h", "commonhold-shm.h"];

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include")
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("it can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The functions that the version script names, each with its version.
fn versions() -> BTreeMap<String, String> {
    let script = std::fs::read_to_string(include().join("commonhold.map")).expect("the version script");
    let (mut node, mut found) = (String::new(), BTreeMap::new());
    for line in script.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(" {") {
            name.clone_into(&mut node);
        } else if let Some(name) = line.strip_suffix(';').filter(|name| name.starts_with("ch_")) {
            assert!(found.insert(name.to_owned(), node.clone()).is_none(), "{name} has two versions");
        }
    }
    found
}

/// The functions that the library has: without versions, which it gets when it is installed (`packaging/link.sh`).
fn exported() -> Vec<String> {
    let library = library_directory().join("libcommonhold.so");
    let symbols = output(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let names = symbols.lines().filter_map(|line| line.rsplit(' ').next()).map(str::to_owned);
    names.filter(|name| name.starts_with("ch_")).collect()
}

/// A header without comments.
fn code(header: &str) -> String {
    let text = std::fs::read_to_string(include().join(header)).expect("a header");
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    first + &parts.filter_map(|part| part.split_once("*/")).map(|(_, after)| after).collect::<String>()
}

/// The structures of the headers that are no secret, each with the number of its fields.
fn structures() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for header in HEADERS {
        for part in code(header).split("struct ch_").skip(1) {
            let Some((name, body)) = part.split_once('{') else { continue };
            let Some((fields, _)) = body.split_once('}') else { continue };
            if name.trim().chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                found.insert(format!("ch_{}", name.trim()), fields.matches(';').count());
            }
        }
    }
    found
}

/// What `layout.c` prints of structures, when it knows all of them.
fn layouts() -> Vec<String> {
    let program = compile("layout.c", &["-std=c11", "-O1"]);
    let printed = output(&mut Command::new(&program));
    std::fs::remove_file(program).expect("it was there");
    for (name, fields) in structures() {
        let field = format!("{name}.");
        assert!(printed.contains(&format!("sizeof {name} ")), "layout.c says nothing of {name}");
        let known = printed.lines().filter(|line| line.starts_with(&field)).count();
        assert_eq!(known, fields, "layout.c does not know the fields of {name}");
    }
    let all = printed.lines().filter(|line| line.starts_with("sizeof ") || line.contains('.'));
    all.filter(|line| !line.starts_with("version ")).map(str::to_owned).collect()
}

#[test]
fn the_interface_is_what_compiled_programs_know() {
    let versions = versions();
    let mut now: Vec<String> = Vec::new();
    for name in exported() {
        let version = versions.get(&name).unwrap_or_else(|| panic!("include/commonhold.map lacks {name}"));
        now.push(format!("{name}@@{version}"));
    }
    assert_eq!(now.len(), versions.len(), "include/commonhold.map names what the library has not");
    now.sort();
    now.extend(layouts());
    let now = now.join("\n") + "\n";
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/abi.txt");
    if std::env::var_os("COMMONHOLD_ABI").is_some_and(|wish| wish == "write") {
        std::fs::write(&list, &now).expect("the list can be written");
    }
    let before = std::fs::read_to_string(&list).unwrap_or_default();
    let gone: Vec<&str> = before.lines().filter(|line| !now.lines().any(|it| it == *line)).collect();
    let new: Vec<&str> = now.lines().filter(|line| !before.lines().any(|it| it == *line)).collect();
    assert!(gone.is_empty(), "compiled programs rely on what is not so any more: {gone:#?}");
    assert!(new.is_empty(), "this is not in {}: {new:#?}", list.display());
    assert_eq!(before, now, "the order is another");
}

#[test]
fn the_name_by_which_programs_find_the_library_is_that_of_its_major_version() {
    let library = library_directory().join("libcommonhold.so");
    let dynamic = output(Command::new("readelf").arg("-dW").arg(&library));
    let name = format!("libcommonhold.so.{}", env!("CARGO_PKG_VERSION_MAJOR"));
    assert!(dynamic.contains(&format!("soname: [{name}]")), "{dynamic}");
    let beside = library.with_file_name(&name).canonicalize().expect("a link beside the library");
    assert_eq!(beside, library.canonicalize().expect("it is there"));
}
