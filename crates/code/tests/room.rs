//! A minor version that does not fit where its major version is: refused, and the next major version.

mod common;

use common::Place;
use commonhold_code::stub::When;
use std::fmt::Write;

const ONE: &str = "int first(void) { return 1; }";
const USER: &str = "#include <stdio.h>\nint first(void); int main(void) { printf(\"%d\\n\", first()); }";

/// Version 1.0.0 and a program that was linked to it.
fn begun(place: &Place) -> std::path::PathBuf {
    place.image("lib", "1.0.0", ONE);
    let stub = place.stub("lib@1", When::Start);
    let program = place.program("user", USER, &[&stub]);
    assert_eq!(place.run(&program), "1\n");
    program
}

/// What is said of a library as 1.2.0. It is none of the store then, and can be 2.0.0.
fn refused(place: &Place, text: &str) -> String {
    let library = place.library("large", text, &[]);
    let before = place.store.versions("lib").unwrap().len();
    let error = place.build(&place.wanted(&library, "lib", "1.2.0")).unwrap_err().to_string();
    assert_eq!(place.store.versions("lib").unwrap().len(), before);
    place.build(&place.wanted(&library, "lib", "2.0.0")).unwrap();
    assert_ne!(place.find("lib@1").header.base, place.find("lib@2").header.base);
    error
}

fn functions(count: usize) -> String {
    let mut text = "int first(void) { return 3; }\n".to_owned();
    (1..count).for_each(|n| writeln!(text, "int f{n}(void) {{ return {n}; }}").unwrap());
    text
}

#[test]
fn more_functions_than_its_major_version_has_room_for() {
    let place = Place::new();
    let program = begun(&place);
    // There is room for 2,048 at least.
    place.image("lib", "1.1.0", &functions(2000));
    assert_eq!(place.run(&program), "3\n");
    let error = refused(&place, &functions(4000));
    assert!(
        error.contains("it has 4000 functions for others, more than its major version has room for"),
        "{error}"
    );
    assert!(error.ends_with("make it the next major version") && error.lines().count() == 1, "{error}");
    assert_eq!(place.run(&program), "3\n");
}

#[test]
fn more_bytes_than_its_major_version_has_room_for() {
    let large = |mib: u32| format!("char much[{mib} << 20]; int first(void) {{ return much[5] + {mib}; }}");
    // More than it has, and more than the registry has kept free behind it.
    for (mib, has_room_for) in [(15, "has room for 16777216: "), (25, "has room for 20971520 at 0x3")] {
        let place = Place::new();
        let program = begun(&place);
        place.image("lib", "1.1.0", &large(12));
        assert_eq!(place.run(&program), "12\n");
        assert_eq!(place.find("lib@1").header.reserved, 16 << 20);
        let error = refused(&place, &large(mib));
        assert!(error.contains(has_room_for) && error.lines().count() == 1, "{error}");
        assert!(error.ends_with("make it the next major version"), "{error}");
        assert_eq!(place.run(&program), "12\n");
    }
}
