//! Programs in places that are not the usual: sandboxes, processors that are programs, sanitizers, small stacks.

use crate::left_out::{has, is_root, left_out, not_installed};
use crate::rig::{BY_ADDRESS, Rig, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn asking(rig: &Rig) -> PathBuf {
    rig.library("one", "int call(void) { return 1; }", &[]);
    let main =
        format!("{BY_ADDRESS}\nint call(void); int main(void) {{ by_address(call); return call() - 1; }}");
    // By its whole path: where `/proc` is not the loader does not know where a program lies.
    rig.program("program", &main, &["-lone", &format!("-Wl,-rpath,{}", rig.path("").display())])
}

/// Runs a line of the shell, with the variables for copies only for `$PROGRAM`.
fn shell(rig: &Rig, program: &Path, line: &str) -> Output {
    let variables = rig.store.variables();
    let set: String =
        variables.iter().map(|(name, value)| format!("{name}='{}' ", value.display())).collect();
    let line = line.replace("$PROGRAM", &format!("env {set}{}", program.display()));
    let line = line.replace("$STORE", &rig.store.root().display().to_string());
    Command::new("sh").arg("-c").arg(line).output().unwrap()
}

#[test]
fn where_the_store_is_not_the_loader_says_so_and_goes_on() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    if !is_root("a mount over the store") {
        return;
    }
    let output = shell(&rig, &program, "unshare -m sh -c \"mount -t tmpfs none $STORE && $PROGRAM\"");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot be loaded as audit interface"), "{said}");
    assert_eq!(text(output), "original\n");
}

/// Whether the kernel tells a process its auxiliary values: Linux 6.4 and later. Without, `/proc` has to be asked.
fn tells_values() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers =
        release.split(|character: char| !character.is_ascii_digit()).map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0_u32);
    (next(), next()) >= (6, 4)
}

/// A look into `/proc` takes as long as all the rest of what is decided at a start.
#[test]
fn started_by_its_own_path_it_does_not_need_proc() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    let by_link = rig.path("link");
    std::os::unix::fs::symlink(&program, &by_link).unwrap();
    if !is_root("a mount over /proc") {
        return;
    }
    let run = |program: &Path, line: &str| {
        text(shell(&rig, program, &format!("unshare -m sh -c \"mount -t tmpfs none /proc && {line}\"")))
    };
    assert_eq!(run(&program, "$PROGRAM"), if tells_values() { "copy\n" } else { "original\n" });
    assert_eq!(run(&by_link, "$PROGRAM"), "original\n");
    // It can also be started again.
    let copy =
        rig.store.copies().unwrap().into_iter().find(|(_, path)| path.ends_with("libone.so")).unwrap().1;
    let line = format!("mount --bind {} {} && $PROGRAM", rig.path("libone.so").display(), copy.display());
    assert_eq!(run(&program, &line), "original\n");
}

#[test]
fn in_a_name_space_of_users_only_records_of_whom_it_knows_count() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    let with = |options: &str| shell(&rig, &program, &format!("unshare {options} $PROGRAM"));
    // The directory of the tests is nobody's business there: what cannot be had cannot be asked.
    if !is_root("name spaces of users") {
        return;
    }
    if !with("-U").status.success() {
        return left_out("name spaces of users (this kernel gives none)");
    }
    assert_eq!(text(with("-U")), "original\n");
    assert_eq!(text(with("-U --map-root-user")), "copy\n");
}

/// Starts another program, which finds some calls to the kernel refused.
const REFUSING: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int n, char **a) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, atoi(a[1]), 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, atoi(a[2]), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = { 5, code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all)) return 1;
    execv(a[3], a + 3);
    return 1;
}
"#;

#[test]
fn where_calls_to_the_kernel_are_refused_it_starts_as_it_is() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    let refusing = rig.program("refusing", REFUSING, &[]);
    rig.set(&[&program]);
    let without = |calls: [u32; 2]| {
        let output =
            rig.command(&refusing).args(calls.map(|call| call.to_string())).arg(&program).output().unwrap();
        text(output)
    };
    let (readlink, getpid, prctl) = (89, 39, 157);
    assert_eq!(without([readlink, prctl]), "original\n");
    assert_eq!(without([prctl, prctl]), "copy\n");
    assert_eq!(without([getpid, getpid]), "copy\n");
}

#[test]
fn sanitizers_that_have_the_addresses_are_refused_and_others_work() {
    let mut rig = Rig::new();
    rig.library("one", "int call(void) { return 1; }", &[]);
    let main =
        format!("{BY_ADDRESS}\nint call(void); int main(void) {{ by_address(call); return call() - 1; }}");
    for (name, symbol) in [("ThreadSanitizer", "__tsan_init"), ("MemorySanitizer", "__msan_init")] {
        // As where the sanitizer's own code is part of the program.
        let source = format!("void {symbol}(void) {{}}\n{main}");
        let program = rig.program(name, &source, &["-lone"]);
        let report = rig.set(&[&program]);
        let why = report.unset.iter().find(|unset| unset.path == program).unwrap().why.to_string();
        assert!(why.contains(name) && why.contains("0x3000_0000_0000 to 0x4000_0000_0000"), "{why}");
    }
    for (option, name) in
        [("-fsanitize=thread", "ThreadSanitizer"), ("-fsanitize=address", "AddressSanitizer")]
    {
        let Some(program) = rig.try_program(name, &main, &["-lone", option]) else {
            not_installed("a compiler with its sanitizers (gcc)", option);
            continue;
        };
        let report = rig.set(&[&program]);
        let why = report.unset.iter().find(|unset| unset.path == program).map(|unset| unset.why.to_string());
        match option {
            "-fsanitize=thread" => assert!(why.unwrap().contains(name)),
            _ => assert_eq!((why, rig.run(&program)), (None, "copy\n".to_owned())),
        }
    }
}

#[test]
fn under_valgrind_a_program_is_as_it_is_and_stays_there() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    let log = rig.path("log");
    let mut command = rig.command("valgrind".as_ref());
    command.arg(format!("--log-file={}", log.display())).arg("--run-libc-freeres=no").arg(&program);
    if !has("valgrind", "valgrind", "a program with copies under valgrind") {
        return;
    }
    let output = command.output().unwrap();
    assert_eq!(text(output), "original\n");
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("ERROR SUMMARY: 0 errors"), "{log}");
}

#[test]
fn programs_of_32_bits_start_without_a_word() {
    let rig = Rig::new();
    let main = "#include <stdio.h>\nint main(void) { puts(\"here\"); }";
    let Some(program) = rig.try_program("program", main, &["-m32"]) else {
        return not_installed("gcc-multilib", "programs of 32 bits");
    };
    let Ok(output) = rig.command(&program).output() else {
        return left_out("programs of 32 bits (they do not run here)");
    };
    assert_eq!(
        (String::from_utf8_lossy(&output.stderr).as_ref(), text(output.clone()).as_str()),
        ("", "here\n")
    );
}

#[test]
fn threads_of_the_smallest_stack_start() {
    let mut rig = Rig::new();
    let source = "#include <limits.h>\n#include <pthread.h>\n#include <stdio.h>\n#include <string.h>\n#include <unistd.h>
        static void *go(void *a) { return a; }
        int main(void) {
            pthread_attr_t with; pthread_t thread; pthread_attr_init(&with);
            pthread_attr_setstacksize(&with, sysconf(_SC_THREAD_STACK_MIN));
            puts(strerror(pthread_create(&thread, &with, go, 0)));
        }";
    let program = rig.program("program", source, &["-pthread"]);
    let stock = text(Command::new(&program).output().unwrap());
    assert_eq!(rig.run(&program), stock); // not set
    rig.set(&[&program]);
    assert_eq!(rig.run(&program), stock);
}

#[test]
fn what_takes_the_range_of_a_library_that_comes_late_changes_nothing() {
    let mut rig = Rig::new();
    let late = rig.library("late", "int late(void) { return 7; }", &[]);
    let user = rig.program("user", "int late(void); int main(void) { return late() - 7; }", &["-llate"]);
    rig.set(&[&user]);
    let copies = rig.store.copies().unwrap();
    let (_, copy) = copies.iter().find(|(_, path)| path.ends_with("liblate.so")).unwrap();
    let base = commonhold_rebase::elf::Elf::open(copy).unwrap().extent().0;
    let source = format!(
        "#define _GNU_SOURCE\n{BY_ADDRESS}\n#include <dlfcn.h>\n#include <sys/mman.h>
         int main(int n, char **a) {{
             char *first = (char *){base:#x};
             if (mmap(first, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != first) return 1;
             first[5] = 9;
             int (*late)(void) = dlsym(dlopen(a[1], RTLD_NOW), \"late\");
             by_address(late); by_address(puts);
             return first[5] - 9 + late() - 7; }}"
    );
    let program = rig.program("program", &source, &[]);
    rig.set(&[&program]);
    assert_eq!(text(rig.command(&program).arg(&late).output().unwrap()), "original\ncopy\n");
}
