//! Images that cannot be included: the program says why, in one line, and calls nothing that is not there.

mod common;
#[path = "../../../tests/left_out.rs"]
mod left_out;

use common::Place;
use commonhold_code::stub::When;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const LIBRARY: &str = "static int n = 41; int next(void) { return ++n; }";
const USER: &str = "#include <stdio.h>\nint next(void); int commonhold_image_include(const char *);\n\
    const char *commonhold_image_error(int);\n\
    int main(void) { int why = commonhold_image_include(\"lib@1\");\n\
    if (why) { puts(commonhold_image_error(why)); return 3; } printf(\"%d\\n\", next()); }";

/// The program says this when it asks, and ends with the same line when it does not.
fn fails(place: &Place, asks: &Path, calls: &Path, words: &str) {
    let output = place.try_run(asks);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains(words) && said.lines().count() == 1, "{said}");
    let output = place.try_run(calls);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(127), "{said}");
    assert!(said.contains(words) && said.contains("lib@1") && said.lines().count() == 1, "{said}");
}

#[test]
fn what_is_wrong_with_the_file_is_said() {
    let place = Place::new();
    let published = place.image("lib", "1.0.0", LIBRARY);
    let stub = place.stub("lib@1", When::First);
    let asks = place.program("asks", USER, &[&stub]);
    let calls = place.program("calls", "int next(void); int main(void) { return next() != 42; }", &[&stub]);
    assert_eq!(place.run(&asks), "42\n");
    place.run(&calls);
    let whole = std::fs::read(&published.path).unwrap();
    let link = place.store.newest_link("lib", 1);
    // In the place of the content: only there do links lead.
    let target = format!("content/{}", "0".repeat(64));
    let other = place.store.root().join(&target);
    let lead = || {
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(format!("../../{target}"), &link).unwrap();
    };
    let put = |bytes: &[u8]| {
        let _ = std::fs::remove_file(&other);
        std::fs::write(&other, bytes).unwrap();
        std::fs::set_permissions(&other, Permissions::from_mode(0o444)).unwrap();
    };
    std::fs::remove_file(&link).unwrap();
    fails(&place, &asks, &calls, "the store has no such image");
    lead();
    fails(&place, &asks, &calls, "the store has no such image");
    for length in [0, 100, 5000, whole.len() / 2, whole.len() - 1] {
        put(&whole[..length]);
        fails(&place, &asks, &calls, "damaged or truncated");
    }
    // Each word of the header, changed.
    for at in (4096..4096 + 416).step_by(8) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        put(&bytes);
        let output = place.try_run(&asks);
        assert_eq!(output.status.code(), Some(3), "byte {at}");
    }
    put(&whole);
    place.run(&calls);
    std::fs::set_permissions(&other, Permissions::from_mode(0o646)).unwrap();
    fails(&place, &asks, &calls, "others may write it");
    std::fs::remove_file(&other).unwrap();
    std::fs::create_dir(&other).unwrap();
    fails(&place, &asks, &calls, "damaged");
    // Another image under this name.
    std::fs::remove_dir(&other).unwrap();
    let another = place.image("another", "1.0.0", LIBRARY);
    lead();
    put(&std::fs::read(&another.path).unwrap());
    fails(&place, &asks, &calls, "is of another image");
}

#[test]
fn addresses_that_are_in_use_at_the_start_or_late_are_left_alone() {
    let place = Place::new();
    place.image("lib", "1.0.0", LIBRARY);
    let base = place.find("lib@1").header.base;
    let taking = |attribute: &str, call: &str| {
        format!(
            "#include <stdio.h>\n#include <string.h>\n#include <sys/mman.h>\n\
             int next(void); int commonhold_image_include(const char *); const char *commonhold_image_error(int);\n\
             {attribute} static void take(void) {{ char *p = mmap((void *){base:#x}, 8192, PROT_READ | PROT_WRITE,\n\
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0); strcpy(p, \"mine\"); }}\n\
             int main(void) {{ {call} }}"
        )
    };
    let late = "take(); int why = commonhold_image_include(\"lib@1\");\n\
        puts(why ? commonhold_image_error(why) : \"included\"); return strcmp((char *)BASE, \"mine\");";
    let late = late.replace("BASE", &format!("{base:#x}"));
    let stub = place.stub("lib@1", When::First);
    let program = place.program("late", &taking("", &late), &[&stub]);
    assert!(place.run(&program).contains("in use in this process"));
    // Before all others on the list: whoever takes the addresses before that.
    let stub = place.stub("lib@1", When::Start);
    let early = "__attribute__((constructor(1)))";
    std::fs::write(place.path("order.txt"), "").unwrap();
    let text = taking(early, "return next();").replace("constructor(1)", "section(\".text\")")
        + "\n__attribute__((section(\".preinit_array\"))) void (*first)(void) = take;";
    let program = place.program("early", &text, &[&stub]);
    let output = place.try_run(&program);
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&output.stderr).contains("in use in this process"));
}

#[test]
fn a_debugger_stops_in_the_image() {
    let place = Place::new();
    if !left_out::has("gdb", "gdb", "a debugger in an image") {
        return;
    }
    let library = place.library("lib", LIBRARY, &["-g"]);
    let (made, _) = place.build(&place.wanted(&library, "lib", "1.0.0")).unwrap();
    let stub = place.stub("lib@1", When::Start);
    let program = place.program("user", USER, &[&stub]);
    let symbols = format!("add-symbol-file {} -o {:#x}", library.display(), made.base + made.library_at);
    // Before main the image is not there yet, and gdb can put no breakpoint into it.
    let commands =
        ["break main", "run", &symbols, "break lib.c:1", "continue", "print n", "backtrace 1", "kill"];
    let mut gdb = std::process::Command::new("gdb");
    gdb.args(["-nx", "-batch"]);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    let output = gdb.arg(&program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if said.contains("ptrace") || String::from_utf8_lossy(&output.stderr).contains("ptrace") {
        return left_out::left_out("a debugger in an image (programs may not be traced here)");
    }
    assert!(said.contains("Breakpoint 2, next ()") && said.contains("$1 = 41"), "{said}");
}
