//! Programs that are built with sanitizers, as far as there are compilers for them: refused, or as they are.

use crate::left_out::{left_out, not_installed};
use crate::rig::{BY_ADDRESS, Rig, text};
use std::path::PathBuf;
use std::process::Command;

const ONE: &str = "int call(void) { return 1; }";

fn main_source() -> String {
    format!("{BY_ADDRESS}\nint call(void); int main(void) {{ by_address(call); return call() - 1; }}")
}

/// Why a program is not set, if it is not.
fn why_not(rig: &mut Rig, program: &PathBuf) -> Option<String> {
    let report = rig.set(&[program]);
    report.unset.iter().find(|unset| unset.path == *program).map(|unset| unset.why.to_string())
}

#[test]
fn a_program_with_the_code_of_data_flow_sanitizer_is_refused() {
    let mut rig = Rig::new();
    rig.library("one", ONE, &[]);
    // As where the sanitizer's own code is part of the program.
    let source = format!("void dfsan_set_label(void) {{}}\n{}", main_source());
    let program = rig.program("flow", &source, &["-lone"]);
    let why = why_not(&mut rig, &program).unwrap();
    assert!(
        why.contains("DataFlowSanitizer") && why.contains("0x3000_0000_0000 to 0x4000_0000_0000"),
        "{why}"
    );
}

#[test]
fn what_clang_builds_with_its_sanitizers_is_refused() {
    let mut rig = Rig::new();
    let source = rig.path("main.c");
    // One of them has other names for all functions: nothing of another library is called.
    std::fs::write(&source, "int main(void) { return 0; }").unwrap();
    for (option, name) in
        [("memory", "MemorySanitizer"), ("thread", "ThreadSanitizer"), ("dataflow", "DataFlowSanitizer")]
    {
        let program = rig.path(option);
        let mut clang = Command::new("clang");
        clang.arg(format!("-fsanitize={option}")).arg(&source).arg("-o").arg(&program);
        if !clang.output().is_ok_and(|made| made.status.success()) {
            // It is large: nothing installs it for this.
            left_out(&format!("programs built with {name} (there is no clang with it)"));
            continue;
        }
        let why = why_not(&mut rig, &program).unwrap();
        assert!(why.contains(name), "{why}");
    }
}

#[test]
fn what_does_not_start_with_any_audit_library_is_not_set() {
    let mut rig = Rig::new();
    rig.library("one", ONE, &[]);
    let Some(program) = rig.try_program("leak", &main_source(), &["-lone", "-fsanitize=leak"]) else {
        return not_installed("a compiler with its sanitizers (gcc)", "-fsanitize=leak");
    };
    // As a library it has more thread-local storage than the loader has room for then.
    let Some(why) = why_not(&mut rig, &program) else {
        assert_eq!(rig.run(&program), "copy\n");
        return;
    };
    assert!(why.contains("its loader does not load it: ") && why.contains("static TLS block"), "{why}");
    let with = rig.command(&program).output().unwrap();
    assert!(String::from_utf8_lossy(&with.stderr).contains("static TLS block"), "{with:?}");
    let mut without = Command::new(&program);
    without.env_remove("LD_AUDIT").env("LSAN_OPTIONS", "detect_leaks=0");
    assert_eq!(text(without.output().unwrap()), "original\n");
}
