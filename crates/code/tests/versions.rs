//! Minors and majors: what programs that were linked long ago find.

mod common;

use common::Place;
use commonhold_code::stub::When;
use commonhold_images::ranges::{Arch, Region, Wanted};

const ONE: &str = "int first(void) { return 1; } int second(void) { return 2; }";
/// `second` moved, and something comes in front of it by name and by address.
const TWO: &str = "int before(void) { return 0; } int other(int n) { return n * 9; } \
                   int second(void) { return 22; } int first(void) { return 11; }";
const USER: &str = "#include <stdio.h>\nint first(void); int second(void);\n\
                    int main(void) { printf(\"%d %d\\n\", first(), second()); }";

#[test]
fn a_new_minor_reaches_programs_without_linking_and_rollback_takes_it_back() {
    let place = Place::new();
    place.image("lib", "1.0.0", ONE);
    let stub = place.stub("lib@1", When::Start);
    let program = place.program("user", USER, &[&stub]);
    assert_eq!(place.run(&program), "1 2\n");
    place.image("lib", "1.1.0", TWO);
    assert_eq!(place.run(&program), "11 22\n");
    let slots = |text: &str| {
        let mut all = place.find(text).exports;
        all.sort_by_key(|(_, slot)| *slot);
        all.into_iter().map(|(name, slot)| format!("{name}={slot}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(slots("lib@1.0"), "first=0 second=1");
    assert_eq!(slots("lib@1.1"), "first=0 second=1 before=2 other=3");
    place.store.rollback("lib@1.1.0").unwrap();
    assert_eq!(place.run(&program), "1 2\n");
    // A program of the newer one says that the older lacks something; it does not call what is not there.
    place.store.restore("lib@1.1.0").unwrap();
    let stub = place.stub("lib@1", When::Start);
    let text = "int other(int); int main(void) { return other(3) != 27; }";
    let newer = place.program("newer", text, &[&stub]);
    place.run(&newer);
    place.store.rollback("lib@1.1.0").unwrap();
    let output = place.try_run(&newer);
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&output.stderr).contains("older minor version"));
    // What was withdrawn keeps its slots: nothing else gets them.
    place.image("lib", "1.2.0", "int first(void) { return 7; } int second(void) { return 8; } \
                                 int before(void) { return 0; } int other(int n) { return n; } int zero(void) { return 0; }");
    assert_eq!(slots("lib@1.2"), "first=0 second=1 before=2 other=3 zero=4");
    assert_eq!(place.run(&program), "7 8\n");
}

#[test]
fn a_minor_that_breaks_its_major_is_refused_and_a_new_major_is_not() {
    let place = Place::new();
    place.image("lib", "1.0.0", ONE);
    let library = place.library("less", "int first(void) { return 5; }", &[]);
    let error = place.build(&place.wanted(&library, "lib", "1.1.0")).unwrap_err().to_string();
    assert!(error.contains("second") && error.contains("next major version"), "{error}");
    assert_eq!(place.store.versions("lib").unwrap().len(), 1);
    place.build(&place.wanted(&library, "lib", "2.0.0")).unwrap();
    assert_ne!(place.find("lib@1").header.base, place.find("lib@2").header.base);
    // Both in one program, each by its own stub: the addresses are different. (Their functions have the same names, so
    // one stub is in a library of the program's.)
    let stub = place.stub("lib@2", When::First);
    let text = "int first(void); int of_two(void) { return first(); }";
    let two = place.library("two", text, &[&stub, "-Wl,-Bsymbolic"]);
    let stub = place.stub("lib@1", When::Start);
    let text = "#include <stdio.h>\nint first(void); int of_two(void); int main(void) { printf(\"%d %d\\n\", first(), of_two()); }";
    let program = place.program("both", text, &[&stub, two.to_str().unwrap()]);
    assert_eq!(place.run(&program), "1 5\n");
}

#[test]
fn what_programs_hand_over_stays_the_same_within_a_major() {
    let place = Place::new();
    let build = |version: &str, text: &str, table: &[&str]| {
        let library = place.library(&format!("lib{version}"), text, &[]);
        let mut wanted = place.wanted(&library, "lib", version);
        wanted.table = table.iter().map(|name| (*name).to_owned()).collect();
        place.build(&wanted)
    };
    let text = "#include <stdlib.h>\n#include <string.h>\nextern int given;\n\
                char *twice(const char *s) { char *t = malloc(2 * strlen(s) + 1 + given); strcpy(t, s); return strcat(t, s); }";
    let (made, _) =
        build("1.0.0", text, &["malloc", "strlen", "strcpy", "strcat", "given", "stpcpy", "memcpy"]).unwrap();
    assert!(made.table.iter().any(|name| name == "malloc") && made.table.iter().any(|name| name == "given"));
    let stub = place.stub("lib@1", When::Start);
    let text = "#include <stdio.h>\nchar *twice(const char *); int given = 4; int main(void) { puts(twice(\"ab\")); }";
    for how in ["-pie", "-static-pie", "-no-pie"] {
        let program = place.program(&format!("user{how}"), text, &[&stub, how]);
        assert_eq!(place.run(&program), "abab\n", "{how}");
    }
    let text = "#include <stdlib.h>\nchar *twice(const char *s) { (void)s; return calloc(1, 1); }";
    let error = build("1.1.0", text, &["calloc"]).unwrap_err().to_string();
    assert!(error.contains("calloc") && error.contains("next major version"), "{error}");
}

#[test]
fn images_of_one_group_are_never_in_one_program() {
    let place = Place::new();
    let build = |name: &str, version: &str, group: Option<&str>| {
        let text = format!("int {name}_next(void) {{ return 42; }}");
        let library = place.library(name, &text, &[]);
        let mut wanted = place.wanted(&library, name, version);
        wanted.group = group.map(str::to_owned);
        place.build(&wanted)
    };
    build("fast", "1.0.0", Some("blas")).unwrap();
    build("exact", "1.0.0", Some("blas")).unwrap();
    assert_eq!(place.find("fast@1").header.base, place.find("exact@1").header.base);
    let said = build("fast", "1.1.0", None).unwrap_err().to_string();
    assert!(said.contains("of no group") && said.contains("of the group blas"), "{said}");
    let (fast, exact) = (place.stub("fast@1", When::First), place.stub("exact@1", When::First));
    let one = "int fast_next(void); int main(void) { return fast_next(); }";
    assert_eq!(place.try_run(&place.program("one", one, &[&fast])).status.code(), Some(42));
    let both = "int fast_next(void); int exact_next(void); int main(void) { return fast_next() != 42 || exact_next(); }";
    let output = place.try_run(&place.program("both", both, &[&fast, &exact]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(127), "{said}");
    assert!(said.contains("exact@1: an image that is declared never to be in one process with it"), "{said}");
    assert!(said.contains("/content/") && said.lines().count() == 1, "{said}");
}

#[test]
fn images_of_stores_that_know_nothing_of_each_other_are_told_as_what_they_are() {
    let (place, other) = (Place::new(), Place::new());
    place.image("one", "1.0.0", "int one_f(void) { return 1; }");
    let base = place.find("one@1").header.base;
    let wanted = Wanted {
        name: "image:two@1".into(),
        arch: Arch::here(),
        region: Region::Homogeneous,
        bytes: 1 << 25,
        alignment: 4096,
        group: None,
        slide: 0,
    };
    other.store.ranges().unwrap().claim(&wanted, base).unwrap();
    other.image("two", "1.0.0", "int two_f(void) { return 2; }");
    assert_eq!(other.find("two@1").header.base, base, "else this says nothing");
    let stubs =
        [place.path(&place.stub("one@1", When::First)), other.path(&other.stub("two@1", When::First))];
    let text = "int one_f(void); int two_f(void); int main(void) { return one_f() != 1 || two_f(); }";
    let output =
        place.try_run(&place.program("both", text, &stubs.each_ref().map(|stub| stub.to_str().unwrap())));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(127), "{said}");
    assert!(
        said.contains("two@1: its addresses are in use in this process") && said.contains("/content/"),
        "{said}"
    );
    assert!(!said.contains("declared"), "{said}");
}

#[test]
fn an_image_that_would_bring_two_of_one_group_into_a_process_is_refused() {
    let place = Place::new();
    let build = |name: &str, group: Option<&str>, calls: &[&str]| {
        let own: String = calls.iter().map(|other| format!("int {other}_f(void); ")).collect();
        let sum: String = calls.iter().map(|other| format!(" + {other}_f()")).collect();
        let library = place.library(name, &format!("{own}int {name}_f(void) {{ return 1{sum}; }}"), &[]);
        let mut wanted = place.wanted(&library, name, "1.0.0");
        wanted.group = group.map(str::to_owned);
        wanted.imports = calls.iter().map(|other| place.find(&format!("{other}@1"))).collect();
        place.build(&wanted).map(drop)
    };
    build("far", Some("g"), &[]).unwrap();
    build("near", None, &["far"]).unwrap();
    build("other", Some("h"), &[]).unwrap();
    build("well", Some("i"), &["near", "other"]).unwrap();
    for (name, group, calls) in [
        ("direct", Some("g"), &["far"][..]),
        ("by-another", Some("g"), &["near"]),
        ("two", None, &["near", "twin"]),
    ] {
        if name == "two" {
            build("twin", Some("g"), &[]).unwrap();
        }
        let name = name.replace('-', "_");
        let said = build(&name, group, calls).unwrap_err().to_string();
        assert!(
            said.contains("which is of the group g as ") && said.contains("never to be in one process"),
            "{said}"
        );
        assert!(place.store.versions(&name).unwrap().is_empty());
    }
}

#[test]
fn a_slot_of_a_version_that_was_removed_is_not_given_to_another_function() {
    let place = Place::new();
    let common = "int b(void) { return 2; } int c(void) { return 3; }";
    place.image("lib", "1.0.0", common);
    place.image("lib", "1.1.0", &format!("{common} int g(void) {{ return 7; }}"));
    let stub = place.stub("lib@1", When::Start);
    let text = "#include <stdio.h>\nint g(void); int main(void) { printf(\"%d\\n\", g()); }";
    let program = place.program("user", text, &[&stub]);
    assert_eq!(place.run(&program), "7\n");
    place.store.remove("lib@1.1.0").unwrap();
    place.image("lib", "1.2.0", &format!("{common} int h(void) {{ return 8; }}"));
    let slot = |text: &str, name: &str| {
        place.find(text).exports.into_iter().find_map(|(export, slot)| (export == name).then_some(slot))
    };
    assert_eq!((slot("lib@1.2", "c"), slot("lib@1.2", "h")), (Some(1), Some(3)));
    let output = place.try_run(&program);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    // It comes back to where programs call it, whatever came in between.
    place.image(
        "lib",
        "1.3.0",
        &format!("{common} int g(void) {{ return 77; }} int h(void) {{ return 8; }}"),
    );
    assert_eq!((slot("lib@1.3", "g"), slot("lib@1.3", "h")), (Some(2), Some(3)));
    assert_eq!(place.run(&program), "77\n");
}

#[test]
fn a_major_version_that_begins_anew_is_another_to_programs_of_the_former() {
    let place = Place::new();
    // Beside it new ranges are looked for: the same addresses are found again.
    place.image("anchor", "1.0.0", ONE);
    place.image("lib", "1.0.0", "int b(void) { return 2; } int c(void) { return 3; }");
    let stub = place.stub("lib@1", When::Start);
    let text = "#include <stdio.h>\nint b(void), c(void); int main(void) { printf(\"%d %d\\n\", b(), c()); }";
    let program = place.program("user", text, &[&stub]);
    assert_eq!(place.run(&program), "2 3\n");
    let (base, lineage) = (place.find("lib@1").header.base, place.find("lib@1").header.lineage);
    place.store.remove("lib@1.0.0").unwrap();
    assert!(place.store.slots_given("lib", 1).unwrap().is_empty());
    assert_eq!(place.store.names().unwrap(), ["anchor"]);
    place.image(
        "lib",
        "1.1.0",
        "int a(void) { return 1; } int b(void) { return 2; } int c(void) { return 3; }",
    );
    let again = place.find("lib@1").header;
    assert!(again.base == base && again.lineage != lineage);
    let output = place.try_run(&program);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(127), "{said}");
    assert!(said.contains("of another image, lineage, base") && output.stdout.is_empty(), "{said}");
}

#[test]
fn a_version_of_another_lineage_is_not_added() {
    let place = Place::new();
    place.image("anchor", "1.0.0", ONE);
    let old = std::fs::read(place.image("lib", "1.0.0", ONE).path).unwrap();
    let file = place.path("old.img");
    std::fs::write(&file, old).unwrap();
    let base = place.find("lib@1").header.base;
    place.store.remove("lib@1.0.0").unwrap();
    place.image("lib", "1.1.0", ONE);
    assert_eq!(place.find("lib@1").header.base, base);
    // Name, addresses, slots: all are the same.
    let published = place.store.draft_of(&file).and_then(|draft| place.store.publish(draft));
    let said = published.unwrap_err().to_string();
    assert!(said.contains("lib@1.1.0") && said.contains("of another lineage"), "{said}");
    assert_eq!(place.store.versions("lib").unwrap().len(), 1);
}

#[test]
fn a_table_of_other_functions_is_refused_though_it_is_as_long() {
    let place = Place::new();
    let library = place.library("lib", "int given(void); int twice(void) { return 2 * given(); }", &[]);
    let mut wanted = place.wanted(&library, "lib", "1.0.0");
    wanted.table = ["given".to_owned()].into();
    let published = place.build(&wanted).unwrap().1;
    let stub = place.stub("lib@1", When::First);
    let text = "int twice(void); int given(void) { return 21; } int main(void) { return twice(); }";
    let program = place.program("user", text, &[&stub]);
    assert_eq!(place.try_run(&program).status.code(), Some(42));
    let mut header = place.find("lib@1").header;
    header.table_sum = commonhold_code::format::table_sum(b"other\n");
    header.sum = header.right_sum();
    let mut bytes = std::fs::read(&published.path).unwrap();
    let at = commonhold_code::format::HEADER_AT as usize;
    bytes[at..at + header.bytes().len()].copy_from_slice(header.bytes());
    std::fs::remove_file(&published.path).unwrap();
    std::fs::write(&published.path, bytes).unwrap();
    let output = place.try_run(&program);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(127), "{said}");
    assert!(said.contains("does not hand over"), "{said}");
}
