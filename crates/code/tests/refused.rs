//! Libraries that cannot be images: each is refused with its reason, and nothing is published.

mod common;
#[path = "../../../tests/left_out.rs"]
mod left_out;

use common::Place;

/// The library is refused, and the reason has these words in it.
fn refused(place: &Place, library: &std::path::Path, words: &str) {
    let error = match place.build(&place.wanted(library, "bad", "1.0.0")) {
        Ok(_) => panic!("{library:?} is not refused"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(words), "{error}");
    assert!(error.lines().count() == 1, "{error}");
    assert!(place.store.versions("bad").unwrap().is_empty());
}

#[test]
fn what_only_a_loader_can_do_is_refused() {
    let place = Place::new();
    for (name, text, more, words) in [
        ("tls", "static __thread int n; int f(void) { return ++n; }", &[][..], "thread-local"),
        ("tlsuse", "extern __thread int n; int f(void) { return ++n; }", &[], "thread-local"),
        (
            "ifunc",
            "static int one(void) { return 1; } static void *pick(void) { return one; }\n\
             int f(void) __attribute__((ifunc(\"pick\")));",
            &[],
            "IFUNC",
        ),
        ("undefined", "int g(void); int f(void) { return g(); }", &[], "g, which is in none of the images"),
        ("variable", "extern int v; int f(void) { return v; }", &[], "v, which is in none of the images"),
        (
            "end",
            "int f(void) { return 1; } int ended; __attribute__((destructor)) static void d(void) { ended = 1; }",
            &[],
            "destructor",
        ),
        (
            "guarded",
            "int f(void) { return 1; } char begun; int ended;\n\
             __attribute__((destructor)) static void d(void) { if (begun) ended = 1; }",
            &[],
            "destructor",
        ),
        (
            "old",
            "int f(void) { return 1; } int ended; void d(void) { ended = 1; }",
            &["-Wl,-fini=d"],
            "destructor",
        ),
        (
            "nothing",
            "static int f(void) { return 1; } int v; int *p = &v; int (*q)(void) = f;",
            &[],
            "no function",
        ),
    ] {
        let library = place.library(name, text, more);
        refused(&place, &library, words);
    }
}

#[test]
fn text_relocations_and_exceptions_are_refused() {
    let place = Place::new();
    let code = ".globl f\n.type f, @function\nf:\n movabs $v, %rax\n ret\n.data\nv: .quad 1\n.section .note.GNU-stack,\"\"\n";
    place.write("text.s", code);
    place.gcc(&["-shared", "-nostdlib", "-Wl,-z,notext", "-o", "libtext.so", "text.s"]);
    refused(&place, &place.path("libtext.so"), "text is relocated");
    place.write("throw.cc", "extern \"C\" int f(int n) { if (n) throw n; return 0; }\n");
    if !left_out::has("g++", "g++", "a library that throws exceptions") {
        return;
    }
    place.gcc(&["-x", "c++", "-O2", "-fPIC", "-shared", "-o", "libthrow.so", "throw.cc"]);
    refused(&place, &place.path("libthrow.so"), "exceptions");
}

#[test]
fn files_that_are_no_such_libraries_are_refused() {
    let place = Place::new();
    let library = place.library("good", "int f(void) { return 1; }", &[]);
    let bytes = std::fs::read(&library).unwrap();
    let other = place.path("other.so");
    // Another processor (aarch64).
    let mut changed = bytes.clone();
    changed[18] = 183;
    std::fs::write(&other, changed).unwrap();
    refused(&place, &other, "another processor");
    std::fs::write(&other, &bytes[..bytes.len() / 3]).unwrap();
    refused(&place, &other, "damaged");
    std::fs::write(&other, "no library at all").unwrap();
    refused(&place, &other, "damaged");
    std::fs::remove_file(&other).unwrap();
    refused(&place, &other, "No such file");
    let program = place.program("program", "int main(void) { return 0; }", &["-pie"]);
    refused(&place, &program, "it is a program");
    let program = place.program("fixed", "int main(void) { return 0; }", &["-no-pie"]);
    refused(&place, &program, "fixed addresses");
    // Its headers, with one byte changed: an image or a reason, never a crash.
    for at in (16..700).step_by(19) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x41;
        std::fs::write(&other, changed).unwrap();
        let _ = place.build(&place.wanted(&other, &format!("changed{at}"), "1.0.0"));
    }
}

#[test]
fn a_library_that_is_refused_keeps_no_addresses() {
    let place = Place::new();
    let library = place.library("asks", "int foreign(void); int f(void) { return foreign(); }", &[]);
    refused(&place, &library, "foreign");
    place.image("lib", "1.0.0", "int g(void) { return 1; }");
    let ranges = place.store.ranges().unwrap().list().unwrap();
    assert_eq!(ranges.iter().map(|range| &*range.name).collect::<Vec<_>>(), ["image:lib@1"]);
}

#[test]
fn exports_that_cannot_be_are_refused() {
    let place = Place::new();
    let library =
        place.library("some", "int v = 3; int f(void) { return v; } int g(void) { return 2; }", &[]);
    let mut wanted = place.wanted(&library, "some", "1.0.0");
    for (name, words) in [("v", "v is data"), ("h", "no such function")] {
        wanted.exports = Some([name.to_owned()].into());
        let error = place.build(&wanted).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    wanted.exports = Some(["g".to_owned()].into());
    let (made, _) = place.build(&wanted).unwrap();
    let names: Vec<&str> = made.exports.functions.iter().map(|export| export.name.as_str()).collect();
    assert_eq!(names, ["g"]);
}
