//! Library code, compared with what the compiler, the linker and their tools say of the same files.

use super::*;
use std::process::Command;
use tempfile::TempDir;

/// A folder in which programs and libraries are built.
struct Bench {
    folder: TempDir,
}

/// Executable sections, by the names that compilers give them.
const CODE: &[&str] = &[".text", ".plt", ".plt.got", ".plt.sec", ".init", ".fini"];

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    /// Runs a tool in the folder; its output.
    fn run(&self, command: &str) -> String {
        let mut words = command.split_whitespace();
        let output = Command::new(words.next().expect("a command"))
            .args(words)
            .current_dir(self.folder.path())
            .output()
            .expect("the compiler and binutils are installed");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Bytes of code of a file, by binutils.
    fn code(&self, name: &str) -> u64 {
        let sizes = self.run(&format!("size -A -d {name}"));
        let lines = sizes.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let code = lines.filter(|line| line.len() == 3 && CODE.iter().any(|name| line[0].starts_with(name)));
        code.map(|line| line[1].parse::<u64>().expect("a size")).sum()
    }

    /// Bytes of functions of a file, by their names, by binutils.
    fn functions(&self, file: &str, wanted: &[&str]) -> u64 {
        let names = self.run(&format!("nm -S {file}"));
        let lines = names.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let sizes = lines.filter(|line| line.len() == 4 && wanted.contains(&line[3]));
        sizes.map(|line| u64::from_str_radix(line[1], 16).expect("a size")).sum()
    }

    fn size(&self, name: &str) -> u64 {
        std::fs::metadata(self.path(name)).expect("it is there").len()
    }

    fn set(&self, programs: &[&str], archives: &[&str]) -> (LibrarySet, Vec<Unseen>) {
        let paths = |names: &[&str]| names.iter().map(|name| self.path(name)).collect::<Vec<_>>();
        let mut measurer = Measurer::new(&paths(archives), Options::default());
        let set = measurer.set("made", &paths(programs));
        (set, measurer.unseen())
    }

    /// A library of five members, of which a program that calls `fa` needs two, and that program, without libc. Functions
    /// are not aligned, so that no filling blurs the sizes.
    fn foo() -> Self {
        let bench = Self::new();
        bench.write(
            "a.c",
            "int fb(int); int far(int) __attribute__((weak)); static int helper(int x) { return x * 77 + fb(x); }\n\
             int fa(int x) { int (*volatile keep)(int) = helper; return far ? far(x) : keep(x) + fb(x + 1); }",
        );
        bench.write(
            "b.c",
            "int shared_counter = 7; int fb(int x) { while (x > 9) x -= shared_counter; return x; }",
        );
        bench.write("c.c", "int unused(int x) { return x * x * x + 3; }");
        bench.write("far.c", "int far(int x) { return x - 12345; }");
        bench.write("e.c", "int fa(int); int fe(int x) { return fa(x) + fa(-x); }");
        bench.write(
            "main.c",
            "int fa(int); static int helper(int x) { return x + 1; }\n\
             void _start(void) { int (*volatile keep)(int) = helper; for (;;) fa(keep(1)); }",
        );
        for name in ["a", "b", "c", "far", "e"] {
            bench.run(&format!(
                "cc -O1 -falign-functions=1 -fPIC -fcf-protection=none -c {name}.c -o {name}.o"
            ));
        }
        bench.run("ar rcs libfoo.a a.o b.o c.o far.o e.o");
        bench.run("cc -shared -nostdlib -o libfoo.so a.o b.o c.o far.o e.o");
        bench.link("dynamic", "");
        bench
    }

    fn link(&self, name: &str, flags: &str) {
        self.run(&format!(
            "cc -O1 -falign-functions=1 -nostdlib {flags} -o {name} main.c -L. -lfoo -Wl,-rpath,$ORIGIN"
        ));
    }
}

#[test]
fn a_dynamic_program_needs_the_members_that_a_linker_would_pull() {
    let bench = Bench::foo();
    bench.link("stripped", "-s");
    for program in ["dynamic", "stripped"] {
        let (set, unseen) = bench.set(&[program], &[]);
        assert_eq!(unseen, []);
        assert_eq!((set.programs, set.by_archive, set.by_symbols, set.uncounted), (1, 1, 0, 0));
        let library = bench.code("a.o") + bench.code("b.o");
        assert_eq!(
            set.library_code_bytes, library,
            "not c, not e, and not far, which is only weakly asked for"
        );
        assert_eq!(set.own_code_bytes, bench.code(program));
        assert_eq!(set.disk_bytes, bench.size(program) + library);
        let whole = bench.code("libfoo.so") as f64;
        let own = set.own_code_bytes as f64;
        assert_eq!(set.whole_code_fraction, Some(whole / (whole + own)));
        assert_eq!(set.whole_disk_fraction, Some(whole / (whole + bench.size(program) as f64)));
        assert_eq!(set.code_fraction, Some(library as f64 / (library as f64 + own)));
    }
}

#[test]
fn a_static_program_is_read_by_its_symbols() {
    let bench = Bench::foo();
    bench.link("static", "-static");
    let (set, _) = bench.set(&["static"], &["libfoo.a"]);
    assert_eq!((set.programs, set.by_symbols), (1, 1));
    // The archive's local helper is counted, the program's own of that name and another size is not.
    let helper = bench.functions("a.o", &["helper"]);
    let library = bench.functions("static", &["fa", "fb"]) + helper;
    assert_eq!(set.library_code_bytes, library);
    assert_eq!(set.library_code_bytes + set.own_code_bytes, bench.code("static"));
    assert_eq!(set.disk_bytes, bench.size("static"));
    assert_eq!(set.most.as_ref().expect("one").1, set.code_fraction.expect("a fraction"));
    // It holds the very members that the dynamic one was said to need.
    let (dynamic, _) = bench.set(&["dynamic"], &[]);
    assert_eq!(dynamic.library_code_bytes, library);

    bench.link("bare", "-static -s");
    let (set, _) = bench.set(&["bare"], &["libfoo.a"]);
    assert_eq!((set.programs, set.uncounted, set.code_fraction), (1, 1, None));
    assert_eq!(set.whole_code_fraction, Some(0.0));
}

#[test]
fn libc_is_what_a_static_link_really_makes_of_it() {
    let bench = Bench::new();
    bench.write(
        "main.c",
        "#include <stdio.h>\n#include <math.h>\n#include <stdlib.h>\n\
         int main(int n, char **v) { printf(\"%g\\n\", pow(atof(v[0]), n)); return 0; }",
    );
    bench.run("cc -O1 main.c -o dynamic -lm");
    bench.run("cc -O1 -static main.c -o static -lm");
    let (dynamic, _) = bench.set(&["dynamic"], &[]);
    let (complete, _) = bench.set(&["static"], &[]);
    assert_eq!((dynamic.by_archive, complete.by_symbols), (1, 1));
    let real = bench.code("static") as f64;
    let as_linked = (dynamic.library_code_bytes + dynamic.own_code_bytes) as f64;
    assert!((as_linked / real - 1.0).abs() < 0.05, "{as_linked} and really {real}");
    let by_symbols = complete.library_code_bytes as f64;
    assert!((by_symbols / dynamic.library_code_bytes as f64 - 1.0).abs() < 0.05, "{by_symbols}: {dynamic:?}");
    assert!(complete.code_fraction > Some(0.9), "{complete:?}");
}

#[test]
fn data_that_the_program_has_a_copy_of_pulls_its_member() {
    let bench = Bench::foo();
    bench.write(
        "main.c",
        "extern volatile int shared_counter; void _start(void) { for (;;) shared_counter++; }",
    );
    bench.link("copied", "-no-pie -fno-pie");
    assert!(bench.run("readelf -r copied").contains("R_X86_64_COPY") || !cfg!(target_arch = "x86_64"));
    let (set, _) = bench.set(&["copied"], &[]);
    assert_eq!(set.library_code_bytes, bench.code("b.o"));
}

#[test]
fn a_group_that_several_members_have_is_linked_once() {
    let bench = Bench::foo();
    let inline = |calls: &str, name: &str| {
        format!(
            ".text\n.globl {name}\n.type {name},@function\n{name}: .skip 40\n{calls}\n.size {name}, 40\n\
             .section .text.both,\"axG\",@progbits,both,comdat\n.weak both\n.type both,@function\nboth: .skip 1000\n\
             .size both, 1000\n.section .note.GNU-stack,\"\",@progbits\n.data\n.quad both, {}\n",
            if name == "fa" { "fb" } else { "both" }
        )
    };
    bench.write("one.s", &inline("", "fa"));
    bench.write("two.s", &inline("", "fb"));
    bench.run("cc -c one.s -o one.o");
    bench.run("cc -c two.s -o two.o");
    bench.run("ar rcs libgroup.a one.o two.o");
    std::fs::rename(bench.path("libgroup.a"), bench.path("libfoo.a")).expect("renamed");
    let (set, _) = bench.set(&["dynamic"], &["libfoo.a"]);
    assert_eq!(set.library_code_bytes, 40 + 40 + 1000);
}

#[test]
fn an_archive_without_an_index_is_read_as_a_whole() {
    let bench = Bench::foo();
    let (indexed, _) = bench.set(&["dynamic"], &[]);
    std::fs::remove_file(bench.path("libfoo.a")).expect("removed");
    bench.run("ar rcS libfoo.a a.o b.o c.o far.o e.o");
    let (set, unseen) = bench.set(&["dynamic"], &[]);
    assert_eq!(set, indexed);
    assert_eq!(unseen, []);
}

#[test]
fn damaged_and_thin_archives_count_as_none_and_are_named() {
    let bench = Bench::foo();
    let whole = std::fs::read(bench.path("libfoo.a")).expect("read");
    let cut = whole[..whole.len() - 700].to_vec();
    let mut torn = whole.clone();
    torn[66..74].fill(0xff);
    for damaged in [cut, torn, b"!<arch>\nnonsense".to_vec()] {
        std::fs::write(bench.path("libfoo.a"), &damaged).expect("written");
        let (set, unseen) = bench.set(&["dynamic"], &[]);
        assert_eq!((set.programs, set.uncounted, set.by_archive), (1, 1, 0));
        assert!(set.whole_code_fraction.is_some());
        assert!(unseen.iter().any(|one| one.what.ends_with("libfoo.a")), "{unseen:?}");
    }
    std::fs::remove_file(bench.path("libfoo.a")).expect("removed");
    bench.run("ar rcsT libfoo.a a.o b.o");
    let (set, unseen) = bench.set(&["dynamic"], &[]);
    assert_eq!(set.uncounted, 1);
    assert!(unseen[0].why.contains("thin"), "{unseen:?}");
}

#[test]
fn a_library_without_an_archive_leaves_only_the_whole_figures() {
    let bench = Bench::foo();
    std::fs::remove_file(bench.path("libfoo.a")).expect("removed");
    let (set, _) = bench.set(&["dynamic"], &[]);
    assert_eq!((set.uncounted, set.code_fraction, set.disk_fraction), (1, None, None));
    assert!(set.whole_code_fraction > Some(0.0));
    std::fs::remove_file(bench.path("libfoo.so")).expect("removed");
    let (set, _) = bench.set(&["dynamic"], &[]);
    assert_eq!((set.uncounted, set.whole_code_fraction), (1, Some(0.0)), "not even the library is there");
}

#[test]
fn what_is_no_program_is_skipped_and_names_count_once() {
    let bench = Bench::foo();
    std::fs::create_dir(bench.path("bin")).expect("a folder");
    std::fs::create_dir(bench.path("bin/folder")).expect("a folder");
    std::fs::copy(bench.path("dynamic"), bench.path("bin/program")).expect("copied");
    std::fs::copy(bench.path("libfoo.so"), bench.path("bin/libfoo.so")).expect("copied");
    std::fs::copy(bench.path("libfoo.a"), bench.path("bin/libfoo.a")).expect("copied");
    std::fs::hard_link(bench.path("bin/program"), bench.path("bin/other-name")).expect("linked");
    std::os::unix::fs::symlink("program", bench.path("bin/link")).expect("linked");
    std::os::unix::fs::symlink("nothing", bench.path("bin/dangling")).expect("linked");
    bench.write("bin/script", "#!/bin/sh\n");
    bench.write("bin/empty", "");
    bench.write("bin/torn", "\x7fELF and no more");
    bench.run("mkfifo bin/pipe");
    let (set, unseen) = bench.set(&["bin"], &[]);
    assert_eq!((set.programs, set.by_archive), (1, 1));
    // The library and its archive, the link to nothing, the script, the empty and the torn file, the pipe.
    assert_eq!(set.skipped, 7);
    let named: Vec<&str> = unseen.iter().map(|one| one.what.rsplit('/').next().unwrap_or("")).collect();
    assert_eq!(named, ["dangling", "torn"]);
}

#[test]
fn damaged_programs_never_do_worse_than_being_skipped() {
    let bench = Bench::foo();
    let whole = std::fs::read(bench.path("dynamic")).expect("read");
    let mut measurer = Measurer::new(&[], Options::default());
    for cut in (0..whole.len()).step_by(97) {
        std::fs::write(bench.path("cut"), &whole[..cut]).expect("written");
        let set = measurer.set("cut", &[bench.path("cut")]);
        assert_eq!(set.programs + set.skipped, 1);
    }
    // Every byte of the headers and tables, one after the other, made as large as it can be.
    for place in (0..whole.len()).step_by(29) {
        let mut bytes = whole.clone();
        bytes[place] = 0xff;
        std::fs::write(bench.path("torn"), &bytes).expect("written");
        let set = measurer.set("torn", &[bench.path("torn")]);
        assert_eq!(set.programs + set.skipped, 1);
        assert!(set.own_code_bytes <= whole.len() as u64, "byte {place}: {set:?}");
    }
}

#[test]
fn a_program_without_section_headers_is_not_said_to_need_nothing() {
    let bench = Bench::foo();
    let mut bytes = std::fs::read(bench.path("dynamic")).expect("read");
    // e_shoff, e_shnum and e_shstrndx of a 64-bit header.
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    std::fs::write(bench.path("bare"), bytes).expect("written");
    let (set, _) = bench.set(&["bare"], &[]);
    assert_eq!((set.programs, set.by_archive, set.uncounted), (1, 0, 1));
    assert_eq!(set.code_fraction, None);
}

#[test]
fn a_program_for_another_machine_does_not_take_this_ones_libraries() {
    let bench = Bench::foo();
    let mut bytes = std::fs::read(bench.path("dynamic")).expect("read");
    let foreign: u16 = if cfg!(target_arch = "x86_64") { 183 } else { 62 };
    bytes[18..20].copy_from_slice(&foreign.to_le_bytes());
    std::fs::write(bench.path("foreign"), bytes).expect("written");
    let (set, _) = bench.set(&["foreign"], &["libfoo.a"]);
    assert_eq!((set.programs, set.uncounted), (1, 1));
    assert_eq!(set.whole_code_fraction, Some(0.0));
}

#[test]
fn another_root_has_libraries_of_its_own() {
    let bench = Bench::foo();
    for folder in ["root", "root/bin", "root/usr", "root/usr/lib"] {
        std::fs::create_dir(bench.path(folder)).expect("a folder");
    }
    bench.run("cc -O1 -nostdlib -o root/bin/program main.c -L. -lfoo");
    std::os::unix::fs::symlink("/usr/lib/real.so", bench.path("root/usr/lib/libfoo.so")).expect("linked");
    std::fs::rename(bench.path("libfoo.so"), bench.path("root/usr/lib/real.so")).expect("moved");
    std::fs::rename(bench.path("libfoo.a"), bench.path("root/usr/lib/libfoo.a")).expect("moved");
    let options = Options { root: bench.path("root"), ..Options::default() };
    let set = measure("root", &[bench.path("root/bin")], &[], options);
    assert_eq!((set.programs, set.by_archive), (1, 1));
    assert!(set.whole_code_fraction > Some(0.0));
    let set = measure("machine", &[bench.path("root/bin")], &[], Options::default());
    assert_eq!(set.uncounted, 1, "this machine has no such library");
}

#[test]
fn what_there_is_no_time_for_is_named() {
    let bench = Bench::foo();
    let options = Options { goes_on: Box::new(|| false), ..Options::default() };
    let mut measurer = Measurer::new(&[], options);
    let set = measurer.set("late", &[bench.path("dynamic")]);
    assert_eq!(set, LibrarySet { name: "late".to_owned(), ..LibrarySet::default() });
    assert!(measurer.unseen()[0].what.contains("1 files of the set late"));
}
