//! Which definition a reference finds is the same with copies, however odd the program.

use crate::rig::Rig;
use commonhold_rebase::elf::{Elf, Kind};

const ONE: &str = "int counter = 3; int *where_counter(void) { return &counter; }
int twice(int n) { return 2 * n; } int four_times(int n) { return twice(twice(n)); }";

#[test]
fn a_library_is_bound_to_itself_and_to_what_it_needs() {
    let mut rig = Rig::new();
    rig.library("one", ONE, &[]);
    rig.library(
        "two",
        "int twice(int); extern int counter; int *address = &counter;
        int add(int n) { return twice(n) + *address; }",
        &["-lone"],
    );
    let program = rig.program(
        "program",
        "#include <stdio.h>\nint add(int); int four_times(int); int main(void) { printf(\"%d %d\\n\", add(4), four_times(5)); }",
        &["-ltwo", "-lone"],
    );
    let report = rig.set(&[&program]);
    assert!(report.unset.is_empty(), "{report:?}");
    assert_eq!(rig.same(&program), "11 20\n");
    assert_eq!(rig.run(&program), "11 20\n");
    // All of it was done: nothing by name is left of the second library but what the compiler's own code asks for weakly.
    let (_, copy) =
        rig.store.copies().unwrap().into_iter().find(|(_, path)| path.ends_with("libtwo.so")).unwrap();
    let left = Elf::open(&copy).unwrap();
    let names: Vec<&[u8]> = left.relocations.named().map(|one| left.name(one.symbol)).collect();
    assert!(!names.contains(&&b"twice"[..]) && !names.contains(&&b"counter"[..]), "{names:?}");
    assert!(
        left.relocations.named().all(|one| one.kind != Kind::Relative)
            && left.relocations.relative.is_empty()
    );
}

#[test]
fn a_program_that_defines_what_a_library_calls_is_asked_and_others_are_not() {
    let mut rig = Rig::new();
    rig.library("one", ONE, &[]);
    let main =
        "#include <stdio.h>\nint four_times(int); int main(void) { printf(\"%d\\n\", four_times(5)); }";
    let plain = rig.program("plain", main, &["-lone"]);
    let other = rig.program("other", &format!("int twice(int n) {{ return n + 1; }}\n{main}"), &["-lone"]);
    rig.set(&[&plain, &other]);
    assert_eq!((rig.same(&plain), rig.same(&other)), ("20\n".into(), "7\n".into()));
    // One copy for both: that one reference is left to the loader.
    let copies = rig.store.copies().unwrap();
    assert_eq!(copies.iter().filter(|(_, path)| path.ends_with("libone.so")).count(), 1, "{copies:?}");
}

#[test]
fn a_program_that_answers_much_otherwise_has_a_copy_of_its_own_at_the_same_address() {
    let mut rig = Rig::new();
    let functions =
        |body: &str| (0..200).map(|n| format!("int f{n}(void) {{ return {body}; }}\n")).collect::<String>();
    let calls: String = (0..200).map(|n| format!("+ f{n}()")).collect();
    rig.library("many", &format!("{} int all(void) {{ return 0 {calls}; }}", functions("1")), &["-O0"]);
    let main = "#include <stdio.h>\nint all(void); int main(void) { printf(\"%d\\n\", all()); }";
    let plain = rig.program("plain", main, &["-lmany"]);
    let other = rig.program("other", &format!("{}\n{main}", functions("2")), &["-lmany"]);
    rig.set(&[&plain, &other]);
    assert_eq!((rig.same(&plain), rig.same(&other)), ("200\n".into(), "400\n".into()));
    let copies = rig.store.copies().unwrap();
    let of_many: Vec<_> = copies.iter().filter(|(_, path)| path.ends_with("libmany.so")).collect();
    assert_eq!(of_many.len(), 2);
    let bases: Vec<u64> = of_many.iter().map(|(_, path)| Elf::open(path).unwrap().extent().0).collect();
    assert_eq!(bases[0], bases[1]);
}

#[test]
fn data_that_a_program_has_a_copy_of_is_the_programs() {
    let mut rig = Rig::new();
    rig.library("one", ONE, &[]);
    let program = rig.program(
        "program",
        "#include <stdio.h>\nextern int counter; int *where_counter(void);
         int main(void) { counter = 9; printf(\"%d %d\\n\", *where_counter(), where_counter() == &counter); }",
        &["-lone", "-no-pie"],
    );
    rig.set(&[&program]);
    assert_eq!(rig.same(&program), "9 1\n");
}

#[test]
fn versions_are_told_apart() {
    let mut rig = Rig::new();
    let map = rig.path("map");
    std::fs::write(&map, "V1 { global: number; local: *; }; V2 { global: number; } V1;").unwrap();
    let source = "__asm__(\".symver old, number@V1\"); __asm__(\".symver new, number@@V2\");
        int old(void) { return 1; } int new(void) { return 2; }";
    let script = format!("-Wl,--version-script={}", map.display());
    rig.library("versioned", source, &[&script]);
    rig.library(
        "asks",
        "__asm__(\".symver first, number@V1\"); int first(void); int number(void);
         int (*pointer)(void) = first; int both(void) { return 10 * pointer() + number(); }",
        &["-lversioned"],
    );
    let program = rig.program(
        "program",
        "#include <stdio.h>\nint both(void); int main(void) { printf(\"%d\\n\", both()); }",
        &["-lasks", "-lversioned"],
    );
    rig.set(&[&program]);
    assert_eq!(rig.same(&program), "12\n");
}

#[test]
fn what_only_the_loader_can_do_is_left_to_it() {
    let mut rig = Rig::new();
    rig.library(
        "special",
        "#include <stdio.h>
         static int seven(void) { return 7; } static int (*choose(void))(void) { return seven; }
         int chosen(void) __attribute__((ifunc(\"choose\")));
         __thread int own = 5; int *where_own(void) { return &own; }
         int absent(void) __attribute__((weak));
         int ask(void) { return chosen() * 100 + own * 10 + (absent ? 1 : 0); }
         __attribute__((constructor)) static void begin(void) { puts(\"begin\"); }
         __attribute__((destructor)) static void end(void) { puts(\"end\"); }",
        &[],
    );
    let program = rig.program(
        "program",
        "#include <stdio.h>\nint ask(void); int main(void) { printf(\"%d\\n\", ask()); }",
        &["-lspecial"],
    );
    rig.set(&[&program]);
    assert_eq!(rig.same(&program), "begin\n750\nend\n");
}

#[test]
fn protected_symbols_are_a_librarys_own_but_for_the_entry_of_a_fixed_program() {
    let mut rig = Rig::new();
    rig.library(
        "guarded",
        "__attribute__((visibility(\"protected\"))) int number(void) { return 4; }
         int (*pointer)(void) = number; int ask(void) { return pointer(); }",
        &[],
    );
    let main = "#include <stdio.h>\nint ask(void); int main(void) { printf(\"%d\\n\", ask()); }";
    let plain = rig.program("plain", main, &["-lguarded"]);
    let other = rig.program("other", &format!("int number(void) {{ return 5; }}\n{main}"), &["-lguarded"]);
    rig.set(&[&plain, &other]);
    assert_eq!((rig.same(&plain), rig.same(&other)), ("4\n".into(), "4\n".into()));
}

#[test]
fn a_program_that_exports_nothing_is_a_program() {
    let mut rig = Rig::new();
    let path = rig.program(
        "program",
        "#include <stdio.h>\nint main(void) { puts(\"here\"); }",
        &["-no-pie", "-Wl,--no-export-dynamic"],
    );
    let report = rig.set(&[&path]);
    assert!(report.unset.is_empty(), "{report:?}");
    assert_eq!(rig.same(&path), "here\n");
}

#[test]
fn which_of_several_unique_symbols_is_taken_is_the_loaders_business() {
    let mut rig = Rig::new();
    let unique = |value: u32| {
        format!(
            "__asm__(\".data\\n.globl shared\\n.type shared, @gnu_unique_object\\n.size shared, 4\\nshared: .long {value}\\n.text\");
             extern int shared;"
        )
    };
    let one = format!("{} int one(void) {{ return shared++; }}", unique(10));
    let two = format!("{} int two(void) {{ return shared++; }}", unique(20));
    rig.library("uone", &one, &[]);
    // Its own first, which is relocated first: it is the one of all.
    rig.library("utwo", &two, &["-Wl,-Bsymbolic"]);
    let main = "#include <stdio.h>\nint one(void); int two(void); int main(void) { printf(\"%d \", one()); printf(\"%d\\n\", two()); }";
    let program = rig.program("program", main, &["-luone", "-lutwo"]);
    let report = rig.set(&[&program]);
    assert!(report.unset.is_empty(), "{report:?}");
    let said = rig.same(&program);
    assert_eq!(rig.run(&program), said);
}
