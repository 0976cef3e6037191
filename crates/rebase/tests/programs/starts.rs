//! What happens when a program is started: it has its copies, or it is what it would be without.

use crate::rig::{Rig, WHERE, text};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const LIBRARY: &str = "static int calls; int call(void) { return ++calls; }";

/// A program that says whether `call` comes from a copy.
fn asking(rig: &Rig) -> PathBuf {
    rig.library("one", LIBRARY, &[]);
    rig.program("program", &format!("{WHERE}\nint call(void); int main(void) {{ where(call); }}"), &["-lone"])
}

#[test]
fn with_its_record_a_program_has_copies_and_without_it_has_not() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    assert_eq!(rig.run(&program), "original\n");
    rig.set(&[&program]);
    assert_eq!(rig.run(&program), "copy\n");
    let by_another_name = rig.path("link");
    std::os::unix::fs::symlink(&program, &by_another_name).unwrap();
    assert_eq!(rig.run(&by_another_name), "copy\n");
    rig.store.remove_record(&program).unwrap();
    assert_eq!(rig.run(&program), "original\n");
}

#[test]
fn by_whatever_path_it_is_started_it_is_the_same_program() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    let (folder, name) = (program.parent().unwrap(), program.file_name().unwrap());
    let here = format!("./{}", name.to_str().unwrap());
    let by = |path: &Path| text(rig.command(path).current_dir(folder).output().unwrap());
    assert_eq!(by(Path::new(&here)), "copy\n");
    assert_eq!(by(&folder.join(".").join(name)), "copy\n");
    let twice = format!("{}//{}", folder.display(), name.to_str().unwrap());
    assert_eq!(by(Path::new(&twice)), "copy\n");
    std::os::unix::fs::symlink(folder, rig.path("folder")).unwrap();
    assert_eq!(by(&rig.path("folder").join(name)), "copy\n");
    // The kernel says the script's path was executed.
    for first in ["", " an-argument"] {
        let script = rig.path("script");
        std::fs::write(&script, format!("#!{}{first}\n", program.display())).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(by(&script), "copy\n");
    }
}

#[test]
fn variables_are_found_however_many_there_are() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    let other = rig.library("other", "int other;", &[]);
    rig.set(&[&program]);
    for count in [0, 1, 1_000, 3_000] {
        let many =
            |number| (format!("VARIABLE_{number}"), "x".repeat(if count > 1_000 { 300 } else { number }));
        let run = |preloaded: Option<&Path>| {
            let mut command = rig.command(&program);
            command.args((0..count).map(|number| number.to_string())).envs((0..count).map(many));
            text(command.envs(preloaded.map(|library| ("LD_PRELOAD", library))).output().unwrap())
        };
        assert_eq!((run(None), run(Some(&other))), ("copy\n".into(), "original\n".into()), "{count}");
    }
}

#[test]
fn a_library_that_was_replaced_is_never_mixed_with_copies() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    rig.library("one", "int call(void) { return 5; } int more;", &[]);
    assert_eq!(rig.run(&program), "original\n");
    rig.update();
    assert_eq!(rig.run(&program), "copy\n");
}

#[test]
fn variables_that_change_what_the_loader_finds_turn_it_off() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    let other = rig.library("other", "int other;", &[]);
    rig.set(&[&program]);
    let with = |name: &str, value: &str| text(rig.command(&program).env(name, value).output().unwrap());
    assert_eq!(with("LD_PRELOAD", other.to_str().unwrap()), "original\n");
    assert_eq!(with("LD_USE_LOAD_BIAS", "0"), "original\n");
    assert_eq!(with("LD_BIND_NOW", "1"), "copy\n");
    assert_eq!(with("LD_LIBRARY_PATH", "/nowhere"), "copy\n");
    let two = format!("{}:{}", other.display(), rig.store.library().display());
    assert_eq!(text(rig.command(&program).env("LD_AUDIT", two).output().unwrap()), "original\n");
}

#[test]
fn another_library_that_comes_first_in_the_search_is_taken_as_ever() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    let elsewhere = rig.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::copy(rig.path("libone.so"), elsewhere.join("libone.so")).unwrap();
    // RUNPATH comes behind this variable.
    let output = rig.command(&program).env("LD_LIBRARY_PATH", &elsewhere).output().unwrap();
    assert_eq!(text(output), "original\n");
}

#[test]
fn children_are_decided_afresh() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    let parent =
        rig.program("parent", "#include <stdlib.h>\nint main(int n, char **a) { return system(a[1]); }", &[]);
    rig.set(&[&program]);
    let output = rig.command(&parent).arg(&program).output().unwrap();
    assert_eq!(text(output), "copy\n");
}

/// A program with a segment of its own where the copy of the library should lie.
fn in_the_way(rig: &Rig) -> PathBuf {
    let copies = rig.store.copies().unwrap();
    let (_, copy) = copies.iter().find(|(_, path)| path.ends_with("libone.so")).unwrap();
    let base = commonhold_rebase::elf::Elf::open(copy).unwrap().extent().0;
    let there = format!("-Wl,--section-start=.taken={base:#x}");
    let source = format!(
        "{WHERE}\n__asm__(\".section .taken, \\\"aw\\\"\\n.quad 1\\n.previous\");
        int call(void); int main(int n, char **a) {{ where(call); puts(a[1]); return 0; }}"
    );
    rig.program("in_the_way", &source, &["-lone", "-no-pie", &there])
}

#[test]
fn a_program_that_has_the_range_itself_is_not_set() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    let program = in_the_way(&rig);
    let report = rig.set(&[&program]);
    let why = report.unset.iter().find(|unset| unset.path == program).unwrap().why.to_string();
    assert!(why.contains("libone.so does not come to its address"), "{why}");
    let output = rig.command(&program).arg("an argument").output().unwrap();
    assert_eq!(text(output), "original\nan argument\n");
}

/// Changes the record of a program as if its copies belonged to other addresses than they have.
fn displace(rig: &Rig, program: &Path, by: impl Fn(u64) -> u64) {
    use commonhold_record::{FILE_BYTES, HEADER_BYTES, Record, sum};
    let path = rig.store.record(program);
    let mut bytes = std::fs::read(&path).unwrap();
    let files = Record::new(&bytes).unwrap().len();
    for index in 0..files {
        let at = HEADER_BYTES + index * FILE_BYTES + 48;
        let dynamic = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        if dynamic != 0 {
            bytes[at..at + 8].copy_from_slice(&by(dynamic).to_le_bytes());
        }
    }
    let whole = sum(&bytes[HEADER_BYTES..]);
    bytes[16..24].copy_from_slice(&whole.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn where_the_range_is_taken_the_program_starts_without() {
    let mut rig = Rig::new();
    rig.library("one", LIBRARY, &[]);
    let source = format!(
        "{WHERE}\n#include <stdlib.h>\nint call(void);
         int main(int n, char **a) {{
             where(call); puts(a[1]); puts(getenv(\"A_VARIABLE\")); puts(getenv(\"GLIBC_TUNABLES\"));
             puts(getenv(\"COMMONHOLD_REBASE_WITHOUT\") ? \"again\" : \"once\"); }}"
    );
    let program = rig.program("program", &source, &["-lone"]);
    rig.set(&[&program]);
    // The loader of glibc before 2.39 writes zeros between these.
    let tunables = "glibc.rtld.optional_static_tls=8192:glibc.malloc.arena_max=2";
    let run = || {
        let mut command = rig.command(&program);
        let output =
            command.arg("an argument").env("A_VARIABLE", "x").env("GLIBC_TUNABLES", tunables).output();
        text(output.unwrap()).replace(&format!("{tunables}\n"), "tunables\n")
    };
    assert_eq!(run(), "copy\nan argument\nx\ntunables\nonce\n");
    // A copy comes elsewhere, as where something is in its place: seen when it was mapped, and all begins anew.
    displace(&rig, &program, |dynamic| dynamic ^ 0x1_0000);
    assert_eq!(run(), "original\nan argument\nx\ntunables\nagain\n");
    // Addresses that cannot be had at all: seen before anything is mapped.
    displace(&rig, &program, |dynamic| dynamic | 0x8000_0000_0000);
    assert_eq!(run(), "original\nan argument\nx\ntunables\nonce\n");
}

#[test]
fn what_is_opened_later_is_the_same_library_under_its_own_name() {
    let mut rig = Rig::new();
    rig.library("one", LIBRARY, &[]);
    let late = rig.library("late", "int late(void) { return 1; }", &[]);
    let source = format!(
        "#define _GNU_SOURCE\n{WHERE}\n#include <dlfcn.h>\nint call(void);
         int main(int n, char **a) {{
             call();
             int (*again)(void) = dlsym(dlopen(a[1], RTLD_NOW), \"call\");
             printf(\"%d %d\\n\", again == call, again());
             Dl_info info; dladdr(call, &info); puts(strrchr(info.dli_fname, '/'));
             where(dlsym(dlopen(a[2], RTLD_NOW), \"late\"));
             puts(dlopen(\"libone.so\", RTLD_NOW | RTLD_NOLOAD) ? \"loaded\" : \"not\");
         }}"
    );
    let program = rig.program("program", &source, &["-lone"]);
    rig.set(&[&program]);
    // By another path than the loader has.
    let link = rig.path("another");
    std::os::unix::fs::symlink(rig.path("libone.so"), &link).unwrap();
    let output = rig.command(&program).arg(&link).arg(&late).output().unwrap();
    assert_eq!(text(output), "1 2\n/libone.so\noriginal\nloaded\n");
}

#[test]
fn a_program_may_be_a_copy_itself() {
    let mut rig = Rig::new();
    rig.library("one", LIBRARY, &[]);
    let source = format!("{WHERE}\nint call(void); static int *self = (int *)&self;
        int main(int n, char **a) {{ where(call); where(main); where(&self); puts(a[0]); return *(int **)self != self; }}");
    let program = rig.program("program", &source, &["-lone", "-pie", "-fPIE"]);
    rig.set.insert(program.clone(), true);
    let report = rig.update();
    assert!(report.unset.is_empty(), "{report:?}");
    let said = text(rig.command(&program).output().unwrap());
    assert_eq!(said, format!("copy\ncopy\ncopy\n{}\n", program.display()));
}

#[test]
fn a_record_that_others_may_write_is_none() {
    use std::os::unix::fs::PermissionsExt;
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    let record = rig.store.record(&program);
    std::fs::set_permissions(&record, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(rig.run(&program), "original\n");
    std::fs::set_permissions(&record, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(rig.run(&program), "copy\n");
}

#[test]
fn a_damaged_record_is_none() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    let record = rig.store.record(&program);
    let whole = std::fs::read(&record).unwrap();
    for length in [0, 1, 15, 16, 24, 60, whole.len() - 1] {
        std::fs::write(&record, &whole[..length]).unwrap();
        assert_eq!(rig.run(&program), "original\n", "{length} bytes");
    }
    for at in (0..whole.len()).step_by(13) {
        let mut other = whole.clone();
        other[at] ^= 0xff;
        std::fs::write(&record, &other).unwrap();
        assert_eq!(rig.run(&program), "original\n", "byte {at}");
    }
}

#[test]
fn with_little_address_space_it_starts_all_the_same() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    let script = format!("ulimit -v 65536; exec {}", program.display());
    let output = rig.command("sh".as_ref()).arg("-c").arg(script).output().unwrap();
    assert_eq!(text(output), "copy\n");
}

#[test]
fn another_name_space_has_libraries_of_its_own() {
    let mut rig = Rig::new();
    let one = rig.library("one", LIBRARY, &[]);
    let source = format!(
        "#define _GNU_SOURCE\n{WHERE}\n#include <dlfcn.h>\nint call(void);
         int main(int n, char **a) {{
             call(); call();
             int (*other)(void) = dlsym(dlmopen(LM_ID_NEWLM, a[1], RTLD_NOW), \"call\");
             where(call); where(other);
             printf(\"%d %d\\n\", other(), call());
         }}"
    );
    let program = rig.program("program", &source, &["-lone"]);
    rig.set(&[&program]);
    let output = rig.command(&program).arg(&one).output().unwrap();
    assert_eq!(text(output), "copy\noriginal\n1 3\n");
}

#[test]
fn what_a_constructor_opens_is_late_and_happens_once() {
    let mut rig = Rig::new();
    let late = rig.library("late", "int late;", &[]);
    let source = format!(
        "#include <stdio.h>\n#include <dlfcn.h>\nint call(void) {{ return 1; }}
         __attribute__((constructor)) static void begin(void) {{ puts(\"begin\"); fflush(stdout); dlopen(\"{}\", RTLD_NOW); }}",
        late.display()
    );
    rig.library("opens", &source, &[]);
    let program = rig.program(
        "program",
        &format!("{WHERE}\nint call(void); int main(void) {{ where(call); }}"),
        &["-lopens"],
    );
    rig.set(&[&program]);
    assert_eq!(rig.run(&program), "begin\ncopy\n");
}

#[test]
fn a_copy_that_is_gone_or_a_library_that_does_not_come_is_no_loss() {
    let mut rig = Rig::new();
    let program = asking(&rig);
    rig.set(&[&program]);
    let (key, _) =
        rig.store.copies().unwrap().into_iter().find(|(_, path)| path.ends_with("libone.so")).unwrap();
    rig.store.remove(&[key].into()).unwrap();
    assert_eq!(rig.run(&program), "original\n");
}

#[test]
fn a_program_that_is_a_copy_runs_where_its_libraries_have_none() {
    let mut rig = Rig::new();
    rig.library("one", LIBRARY, &[]);
    let source = format!(
        "{WHERE}\n#include <unistd.h>\nint call(void);
         int main(int n, char **a) {{
             where(call); where(main); fflush(stdout);
             if (n == 2) {{ char *variables[] = {{ 0 }}, *words[] = {{ a[0], 0 }}; execve(a[1], words, variables); }}
         }}"
    );
    let program = rig.program("program", &source, &["-lone", "-pie", "-fPIE"]);
    rig.set.insert(program.clone(), true);
    let report = rig.update();
    assert!(report.unset.is_empty(), "{report:?}");
    let output = rig.command(&program).arg("/proc/self/exe").output().unwrap();
    assert_eq!(text(output), "copy\ncopy\noriginal\ncopy\n");
    // Another library comes first: all of it is as it was.
    let elsewhere = rig.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::copy(rig.path("libone.so"), elsewhere.join("libone.so")).unwrap();
    let output = rig.command(&program).env("LD_LIBRARY_PATH", &elsewhere).output().unwrap();
    assert_eq!(text(output), "original\noriginal\n");
}

#[test]
fn a_file_that_gets_another_link_is_still_the_same_library() {
    let mut rig = Rig::new();
    let one = rig.library("one", LIBRARY, &[]);
    let source = "#include <stdio.h>\n#include <dlfcn.h>\n#include <unistd.h>\nint call(void);
         int main(int n, char **a) {
             link(a[1], a[2]);
             printf(\"%d\\n\", dlsym(dlopen(a[2], RTLD_NOW), \"call\") == (void *)call);
         }";
    let program = rig.program("program", source, &["-lone"]);
    rig.set(&[&program]);
    let output = rig.command(&program).arg(&one).arg(rig.path("alias.so")).output().unwrap();
    assert_eq!(text(output), "1\n");
}

#[test]
fn programs_with_much_thread_local_storage_start_set_or_not() {
    let mut rig = Rig::new();
    rig.library(
        "storage",
        "__thread char storage[8192] __attribute__((tls_model(\"initial-exec\"))); int call(void) { return !storage[1]; }",
        &[],
    );
    let main = format!("{WHERE}\nint call(void); int main(void) {{ where(call); return !call(); }}");
    let program = rig.program("program", &main, &["-lstorage"]);
    assert_eq!(rig.run(&program), "original\n");
    rig.set(&[&program]);
    assert_eq!(rig.run(&program), "copy\n");
    assert!(rig.compare(&program).differences.is_empty());
}
