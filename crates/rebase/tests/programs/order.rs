//! What runs before and after `main` runs in the same order, with copies and without.

use crate::rig::{Rig, text};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library that says its name whenever something of it runs by itself: functions of two priorities, and of none.
fn source(name: &str, calls: &str) -> String {
    let said = |what: &str| format!("write(1, \"{name} {what}\\n\", sizeof \"{name} {what}\");");
    let function = |kind: &str, priority: &str, place: &str| {
        format!(
            "__attribute__(({kind}{priority})) static void {kind}_{place}(void) {{ {} }}\n",
            said(&format!("{kind} {place}"))
        )
    };
    let mut source = format!("#include <unistd.h>\n{calls}\n");
    for kind in ["constructor", "destructor"] {
        // Not in the order in which they run.
        source += &function(kind, "", "last");
        source += &function(kind, "(300)", "second");
        source += &function(kind, "(200)", "first");
    }
    source
        + &format!(
            "void {name}_begin(void) {{ {} }} void {name}_end(void) {{ {} }}",
            said("init"),
            said("fini")
        )
}

/// Five libraries: `ring1` needs `ring2`, that `ring3`, and that the first; the program needs `top` and `ring2`, and
/// `top` `ring1` and `base`, which all need.
fn five(rig: &Rig) -> PathBuf {
    let library = |name: &str, calls: &str, needs: &[&str]| {
        let (first, last) = (format!("-Wl,-init,{name}_begin"), format!("-Wl,-fini,{name}_end"));
        let options = [&["-Wl,--no-as-needed", &first, &last], needs].concat();
        rig.library(name, &source(name, calls), &options);
    };
    let calls =
        |own: &str, other: &str| format!("int {other}(void); int {own}(void) {{ return {other}() + 1; }}");
    library("base", "int base(void) { return 0; }", &[]);
    // The first of the ring is made twice: the last needs it to be there.
    library("ring1", "int ring1(void) { return 0; } int to_ring1(void) { return 0; }", &[]);
    let third = "int base(void); int to_ring1(void); int ring3(void) { return base() + to_ring1() + 1; }";
    library("ring3", third, &["-lbase", "-lring1"]);
    library("ring2", &calls("ring2", "ring3"), &["-lring3", "-lbase"]);
    let first = calls("ring1", "ring2") + " int to_ring1(void) { return 1; }";
    library("ring1", &first, &["-lring2", "-lbase"]);
    library("top", &calls("top", "ring1"), &["-lring1", "-lbase"]);
    let main = format!(
        "{}\nint top(void); int ring2(void);
         static void before(void) {{ write(1, \"main before\\n\", 13); }}
         __attribute__((section(\".preinit_array\"), used)) static void (*first)(void) = before;
         int main(void) {{ write(1, \"main\\n\", 6); return top() - 5 + ring2() - 3; }}",
        source("main", "")
    );
    rig.program("program", &main, &["-Wl,--no-as-needed", "-ltop", "-lring2", "-pie", "-fPIE"])
}

/// What it says, without the zeros behind each line.
fn lines(said: &str) -> Vec<&str> {
    said.split_inclusive('\n')
        .map(|line| line.trim_matches(['\0', '\n']))
        .filter(|line| !line.is_empty())
        .collect()
}

fn check(rig: &Rig, program: &Path, copies: &[&str]) {
    let stock = text(Command::new(program).output().unwrap());
    let all = lines(&stock);
    let names = ["top", "ring1", "ring2", "ring3", "base"];
    // Each says all that it has to say, once; the sixth is the program, without what the options of the others add.
    assert_eq!(all.len(), 5 * 8 + 6 + 2, "{all:?}");
    for name in names {
        let place = |what: &str| all.iter().position(|line| *line == format!("{name} {what}")).unwrap();
        let order = ["init", "constructor first", "constructor second", "constructor last"].map(place);
        assert!(order.is_sorted() && order[3] < all.iter().position(|line| *line == "main").unwrap());
        let order = ["destructor last", "destructor second", "destructor first", "fini"].map(place);
        assert!(order.is_sorted() && order[0] > all.iter().position(|line| *line == "main").unwrap());
    }
    let there = rig.store.copies().unwrap();
    for name in copies {
        assert!(there.iter().any(|(_, path)| path.ends_with(name)), "{name}: {there:?}");
    }
    // As users start it, and with all functions looked up at the start.
    assert_eq!(lines(&rig.run(program)), all);
    assert_eq!(lines(&rig.same(program)), all);
}

const ALL: [&str; 5] = ["libtop.so", "libring1.so", "libring2.so", "libring3.so", "libbase.so"];

#[test]
fn five_libraries_with_a_cycle_begin_and_end_in_the_same_order() {
    let mut rig = Rig::new();
    let program = five(&rig);
    assert!(rig.set(&[&program]).unset.is_empty());
    check(&rig, &program, &ALL);
}

#[test]
fn so_do_they_where_the_program_is_a_copy_itself() {
    let mut rig = Rig::new();
    let program = five(&rig);
    rig.set.insert(program.clone(), true);
    assert!(rig.update().unset.is_empty());
    check(&rig, &program, &[&ALL[..], &["program"]].concat());
}

#[test]
fn so_do_they_where_one_insists_on_being_the_first_and_another_is_no_copy() {
    let mut rig = Rig::new();
    let program = five(&rig);
    // `base` is begun before all others anyway; this one would not be.
    let calls = "int ring1(void); int top(void) { return ring1() + 1; }";
    let needs = ["-Wl,--no-as-needed", "-Wl,-init,top_begin", "-Wl,-fini,top_end", "-lring1", "-lbase"];
    rig.library("top", &source("top", calls), &[&needs[..], &["-Wl,-z,initfirst"]].concat());
    let third = "int base(void); int to_ring1(void); int ring3(void) { return base() + to_ring1() + 1; }
        __asm__(\".data\\n.quad base@SIZE\\n.text\");";
    let needs = ["-Wl,--no-as-needed", "-Wl,-init,ring3_begin", "-Wl,-fini,ring3_end", "-lbase", "-lring1"];
    rig.library("ring3", &source("ring3", third), &needs);
    let report = rig.set(&[&program]);
    assert!(report.unset.is_empty() && report.unfit.iter().any(|(path, _)| path.ends_with("libring3.so")));
    check(&rig, &program, &["libtop.so", "libring1.so", "libring2.so", "libbase.so"]);
    assert_eq!(lines(&rig.run(&program))[0], "top init");
}
