//! `commonhold rebase check` where a copy is not what it should be: it says which word, and fails.

mod rebased;

use rebased::{Place, text};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library with a word that leads into itself, and a program that does not say what it leads to.
fn made(place: &Place) -> PathBuf {
    let source = place.path("one.c");
    fs::write(&source, "static long own[2] = { 5, 6 }; long *lead = own; int call(void) { return own[0]; }")
        .unwrap();
    let library = place.path("libone.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-s", "-Wl,-soname,libone.so", "-o"]).arg(&library).arg(&source);
    assert!(cc.status().unwrap().success());
    let source = place.path("user.c");
    fs::write(&source, "#include <stdio.h>\nint call(void); int main(void) { printf(\"%d\\n\", call()); }")
        .unwrap();
    let program = place.path("user");
    let mut cc = Command::new("cc");
    cc.arg("-o")
        .arg(&program)
        .arg(&source)
        .arg("-L")
        .arg(place.path(""))
        .args(["-lone", "-Wl,-rpath,$ORIGIN"]);
    assert!(cc.status().unwrap().success());
    program
}

/// Moves by eight bytes whatever word of the copy leads to where the two numbers are.
fn move_a_word(place: &Place) {
    let copies = fs::read_dir(place.path("store/copies")).unwrap().flatten();
    let path = copies.map(|entry| entry.path().join("libone.so")).find(|path| path.exists()).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let numbers: Vec<u8> = [5_u64, 6].iter().flat_map(|word| word.to_le_bytes()).collect();
    let at = bytes.windows(16).position(|part| part == numbers).unwrap();
    // The distance between offsets and addresses of data is a number of pages: the word is the one that ends alike.
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let leads = |place: &usize| {
        let value = word(&bytes, *place);
        value >> 44 == 3 && value % 4096 == at as u64 % 4096
    };
    let places: Vec<usize> = (0..bytes.len() - 8).step_by(8).filter(leads).collect();
    let near = places.iter().copied().filter(|place| place.abs_diff(at) < 4096).collect::<Vec<_>>();
    let [place_of_word] = near[..] else { panic!("{places:?} {at:#x}") };
    let moved = word(&bytes, place_of_word) + 8;
    bytes[place_of_word..place_of_word + 8].copy_from_slice(&moved.to_le_bytes());
    for (path, bytes) in [
        (path.with_file_name(".sum"), blake3::hash(&bytes).to_hex().as_bytes().to_vec()),
        (path.clone(), bytes),
    ] {
        let rights = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, rights).unwrap();
    }
}

fn check(place: &Place, program: &Path) -> (Option<i32>, Value, String) {
    let json = place.rebase(&["check", "--json", "--", text(program)]);
    let table = place.rebase(&["check", "--", text(program)]);
    assert_eq!(json.status, table.status);
    let said = serde_json::from_slice(&json.stdout).unwrap();
    (json.status.code(), said, String::from_utf8(table.stdout).unwrap())
}

#[test]
fn a_word_that_leads_elsewhere_is_named_and_is_a_failure() {
    let place = Place::new();
    let program = made(&place);
    place.says(&["set", text(&program)]);
    let (status, said, table) = check(&place, &program);
    assert_eq!((status, &said["same"]), (Some(0), &Value::from(true)), "{said}");
    assert!(table.contains(" words that the loader writes, 0 different"), "{table}");
    move_a_word(&place);
    // The program has that copy, and says the same.
    assert_eq!(place.json(&["update"])["copies_made"], 0);
    let (status, said, table) = check(&place, &program);
    assert_eq!(status, Some(1), "{said}");
    let is = |name: &str| said[name].as_bool().unwrap();
    assert!(!is("same") && is("output_is_the_same"), "{said}");
    let [difference] = &said["differences"].as_array().unwrap()[..] else { panic!("{said}") };
    let difference = difference.as_str().unwrap();
    let library = place.path("libone.so").display().to_string();
    let parts: Vec<&str> = difference.split([':', ',']).map(str::trim).collect();
    let [word, without, with] = parts[..] else { panic!("{difference}") };
    let number = |text: &str, end: &str| {
        let digits = text.strip_prefix(&format!("{library}+0x")).unwrap().strip_suffix(end).unwrap();
        u64::from_str_radix(digits, 16).unwrap()
    };
    assert_eq!(number(with, " with"), number(without, " without") + 8, "{difference}");
    assert!(number(word, "") > 0 && table.contains(difference), "{table}");
    assert!(table.contains(", 1 different") && table.contains("output: the same"), "{table}");
}
