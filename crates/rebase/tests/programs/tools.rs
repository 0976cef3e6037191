//! Debuggers, profilers and the loader's own questions: a copy is read as what it is a copy of.

use crate::left_out::{has, left_out};
use crate::rig::{Rig, text};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that spends its time in a library.
fn spinning(rig: &mut Rig) -> PathBuf {
    let library = "int number = 3;
        int spin(int n) {
            volatile int all = 0;
            for (int i = 0; i < n; i++) all += number;
            return all;
        }";
    rig.library("one", library, &["-g", "-O0"]);
    let main = "int spin(int);
        int main(void) { int all = 0; for (int i = 0; i < 200; i++) all |= spin(1000000); return all & 0; }";
    let program = rig.program("program", main, &["-g", "-lone"]);
    assert!(rig.set(&[&program]).unset.is_empty());
    program
}

/// What gdb says to these commands, of a program that is started with the variables for copies.
fn gdb(rig: &Rig, program: &Path, commands: &[&str]) -> String {
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-ex", "set startup-with-shell off", "-ex", "set breakpoint pending on"]);
    for (name, value) in rig.store.variables() {
        command.arg("-ex").arg(format!("set environment {name} {}", value.display()));
    }
    for line in commands {
        command.args(["-ex", line]);
    }
    let output = command.arg(program).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn gdb_reads_copies_as_their_originals() {
    let mut rig = Rig::new();
    let program = spinning(&mut rig);
    if !has("gdb", "gdb", "a debugger of a program with copies") {
        return;
    }
    let commands = [
        "break spin",
        "run",
        "printf \"at %lx\\n\", (long)&spin",
        "printf \"number %d\\n\", number",
        "print n",
        "backtrace",
        "info symbol spin",
        "info sharedlibrary libone",
        "finish",
        "kill",
    ];
    let said = gdb(&rig, &program, &commands);
    if said.contains("ptrace: Operation not permitted") {
        return left_out("a debugger of a program with copies (programs may not be traced here)");
    }
    let library = rig.path("libone.so").display().to_string();
    // In the copy.
    assert!(said.contains("at 3") && said.contains("number 3"), "{said}");
    // By its lines, which are those of the source; and by the original's name.
    assert!(said.contains("$1 = 1000000"), "{said}");
    let frames = ["spin (n=1000000) at ", "libone.so.c:3", "main () at ", "program.c:2"];
    assert!(frames.iter().all(|part| said.contains(part)), "{said}");
    assert!(said.contains(&format!("spin in section .text of {library}")), "{said}");
    let line = said.lines().find(|line| line.starts_with("0x") && line.ends_with("libone.so")).unwrap();
    assert!(line.starts_with("0x00003") && line.contains("Yes") && line.ends_with(&library), "{said}");
    assert!(said.contains("Value returned is $2 = 3000000"), "{said}");
}

#[test]
fn perf_names_the_functions_of_copies() {
    let mut rig = Rig::new();
    let program = spinning(&mut rig);
    if !has("perf", "linux-perf", "a profile of a program with copies") {
        return;
    }
    let samples = rig.path("samples");
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-e", "cpu-clock:u", "-o"]).arg(&samples).arg("env");
    for (name, value) in rig.store.variables() {
        record.arg(format!("{name}={}", value.display()));
    }
    let recorded = record.arg(&program).output().unwrap();
    if !recorded.status.success() {
        let why = String::from_utf8_lossy(&recorded.stderr).lines().next().unwrap_or_default().to_owned();
        return left_out(&format!("a profile of a program with copies (perf may not record here: {why})"));
    }
    let output = Command::new("perf").args(["script", "-F", "ip,sym,dso", "-i"]).arg(&samples).output();
    let said = text(output.unwrap());
    let of_copy = |line: &&str| line.contains("/copies/") && line.contains("/libone.so");
    let (all, named) = (said.lines().filter(of_copy), |line: &&str| line.contains(" spin "));
    let (all, named) = (all.clone().count(), all.filter(named).count());
    // It is nearly all that the program does.
    assert!(named > 0 && named == all && all * 2 > said.lines().count(), "{named} of {all}: {said}");
}

#[test]
fn the_loader_names_every_library_by_its_whole_path() {
    let mut rig = Rig::new();
    rig.library("one", "int call(void) { return 1; }", &[]);
    let source = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <link.h>\n#include <stdio.h>\n#include <string.h>
         int call(void);
         static int one(struct dl_phdr_info *info, size_t bytes, void *rest) {
             return printf(\"%s\\n\", info->dlpi_name) < 0;
         }
         int main(void) {
             Dl_info info;
             if (!dladdr(call, &info) || memcmp(info.dli_fbase, \"\\177ELF\", 4)) return 1;
             printf(\"%s %s %ld\\n\", info.dli_fname, info.dli_sname, (long)((char *)call - (char *)info.dli_saddr));
             struct link_map *map;
             if (dlinfo(dlopen(\"libone.so\", RTLD_NOW | RTLD_NOLOAD), RTLD_DI_LINKMAP, &map)) return 1;
             puts(map->l_name);
             return dl_iterate_phdr(one, 0);
         }";
    let program = rig.program("program", source, &["-lone"]);
    let set = rig.set(&[&program]);
    assert!(set.unset.is_empty(), "{:?}", set.unset);
    // The same lines both ways; and in them the original's path, whole.
    let said = rig.same(&program);
    let path = rig.path("libone.so").display().to_string();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], [format!("{path} call 0"), path.clone()]);
    assert!(lines[2..].contains(&path.as_str()) && lines.iter().any(|line| line.ends_with("/libc.so.6")));
    assert!(!said.contains("/copies/"), "{said}");
}
