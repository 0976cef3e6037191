//! What in a library or a program is not understood, or cannot be moved: the original is used, and all else has its copy.

use crate::altered;
use crate::rig::{Rig, WHERE};
use commonhold_rebase::build::Report;
use commonhold_rebase::elf::{Elf, Kind, dynamic};
use std::fs;
use std::path::Path;

/// A library with something of each kind of relocation that is common.
const ODD: &str =
    "extern int number; int *address = &number; static int own = 4; int *self = &own; int *in_bss;
    int twice(int); int odd(void) { return twice(*self); }";

/// A rig with a library `odd`, a program that calls it, and what else both need.
fn rig(source: &str, options: &[&str], change: impl FnOnce(&Rig, &Path)) -> Rig {
    let rig = Rig::new();
    rig.library("one", "int number = 3; int twice(int n) { return 2 * n; }", &[]);
    let path = rig.library("odd", source, &[&["-lone"], options].concat());
    change(&rig, &path);
    let main = format!(
        "{WHERE}\nint odd(void); int twice(int); int main(void) {{ where(odd); printf(\"%d\\n\", odd()); }}"
    );
    rig.program("program", &main, &["-lodd", "-lone"]);
    rig
}

/// Whether the library stays as it is for this reason, while what it needs has a copy, and the program runs as ever.
fn stays(mut rig: Rig, why: &str) {
    let program = rig.path("program");
    let report = rig.set(&[&program]);
    assert!(report.unset.is_empty(), "{why}: {report:?}");
    let is_it =
        |(path, said): &&(std::path::PathBuf, String)| path.ends_with("libodd.so") && said.contains(why);
    assert!(report.unfit.iter().any(|unfit| is_it(&unfit)), "{why}: {:?}", report.unfit);
    let copies = rig.store.copies().unwrap();
    assert!(copies.iter().any(|(_, path)| path.ends_with("libone.so")), "{copies:?}");
    assert!(!copies.iter().any(|(_, path)| path.ends_with("libodd.so")), "{copies:?}");
    // `where` says "original" both ways: else the outputs differ.
    let said = rig.same(&program);
    assert!(said.starts_with("original\n"), "{said}");
}

/// Where the program header number `index` of a file lies.
fn header(index: usize) -> usize {
    64 + index * 56
}

#[test]
fn a_library_with_all_that_is_common_has_its_copy() {
    // Without anything odd the same library is a copy: what is tried below is the only reason.
    let mut rig = rig(ODD, &[], |_, _| ());
    let program = rig.path("program");
    let report = rig.set(&[&program]);
    assert!(report.unset.is_empty() && report.unfit.iter().all(|(path, _)| !path.ends_with("libodd.so")));
    assert_eq!(rig.run(&program), "copy\n8\n");
}

#[test]
fn relocations_of_other_types() {
    // The loader knows this one: it writes the size of the symbol.
    let source = format!("{ODD}\n__asm__(\".data\\n.quad number@SIZE\\n.text\");");
    stays(rig(&source, &[], |_, _| ()), "relocations of type 33 are not understood");
}

#[test]
fn a_type_that_the_loader_does_not_know_either() {
    let mut rig = rig(ODD, &[], |_, path| {
        altered::library(path, |elf, bytes| {
            let (at, relocation) = altered::named(elf, "number");
            altered::put(bytes, at + 8, u64::from(relocation.symbol) << 32 | 200);
        });
    });
    let program = rig.path("program");
    let why = unset(&rig.set(&[&program]), &program);
    assert!(why.contains("its loader does not load it: ") && why.contains("reloc type 0xc8"), "{why}");
    let stock = std::process::Command::new(&program).output().unwrap();
    let with = rig.command(&program).output().unwrap();
    assert_eq!((stock.status, &stock.stderr), (with.status, &with.stderr));
    assert!(!stock.status.success());
}

#[test]
fn copy_relocations() {
    let change = |_: &Rig, path: &Path| {
        altered::library(path, |elf, bytes| {
            let (at, relocation) = altered::named(elf, "number");
            altered::put(bytes, at + 8, u64::from(relocation.symbol) << 32 | 5);
            // The symbol is as large as that of the other library: so many bytes are copied.
            let table = elf.offset_of(elf.dynamic.value(dynamic::SYMTAB).unwrap()).unwrap();
            altered::put(bytes, table + relocation.symbol as usize * 24 + 16, 4);
        });
    };
    stays(rig(ODD, &[], change), "it has a copy relocation, which only programs may have");
}

#[test]
fn a_word_that_is_in_memory_and_not_in_the_file() {
    let change = |_: &Rig, path: &Path| {
        altered::library(path, |elf, bytes| {
            let (at, _) = altered::named(elf, "number");
            let in_bss = elf.symbols.all[altered::symbol(elf, "in_bss") as usize].value;
            assert!(elf.offset_of(in_bss).is_none());
            altered::put(bytes, at, in_bss);
        });
    };
    stays(rig(ODD, &[], change), " is not in the file");
}

/// Puts an entry behind the last of the dynamic section, where linkers leave some room.
fn add_entry(path: &Path, tag: u64) {
    altered::library(path, |elf, bytes| {
        let last = elf.dynamic.entries.last().unwrap().offset + 16;
        let segment = elf.segments.iter().find(|one| one.kind == 2).unwrap();
        assert!(last + 32 <= (segment.offset + segment.file_bytes) as usize);
        altered::put(bytes, last, tag);
        altered::put(bytes, last + 8, 1);
    });
}

#[test]
fn dynamic_entries_of_other_kinds() {
    let odd = rig(ODD, &[], |_, path| add_entry(path, 0x6000_0123));
    stays(odd, "what its dynamic entry 0x60000123 means is not known");
}

#[test]
fn an_audit_library_of_a_library() {
    // The loader looks at that of the program alone.
    let odd = rig(ODD, &[], |_, _| ());
    add_entry(&odd.path("libodd.so"), dynamic::AUDIT);
    stays(odd, "it has a DT entry of the kind audit");
}

#[test]
fn filters() {
    let filters = |option: &str| {
        let option = option.to_owned();
        rig(ODD, &[&option, "-Wl,-rpath,$ORIGIN"], |_, _| ())
    };
    stays(filters("-Wl,-F,libone.so"), "it has a DT entry of the kind filter");
    stays(filters("-Wl,-f,libone.so"), "it has a DT entry of the kind auxiliary filter");
}

#[test]
fn alignments_that_nothing_has() {
    for alignment in [0x3000, 2 << 30] {
        let change = |_: &Rig, path: &Path| {
            altered::library(path, |elf, bytes| {
                let first = elf.segments.iter().position(|one| one.kind == 1).unwrap();
                assert_eq!((elf.segments[first].address, elf.segments[first].offset), (0, 0));
                altered::put(bytes, header(first) + 48, alignment);
            });
        };
        stays(rig(ODD, &[], change), "it asks for an alignment that nothing has");
    }
}

#[test]
fn addresses_that_are_fixed() {
    stays(rig(ODD, &["-Wl,-Ttext-segment=0x70000000"], |_, _| ()), "its addresses are fixed already");
}

#[test]
fn programs_whose_addresses_are_fixed_have_no_copy_themselves() {
    let mut rig = Rig::new();
    rig.library("one", "int call(void) { return 1; }", &[]);
    let main = format!("{WHERE}\nint call(void); int main(void) {{ where(call); where(main); }}");
    let program = rig.program("program", &main, &["-lone", "-no-pie"]);
    rig.set.insert(program.clone(), true);
    let why = unset(&rig.update(), &program);
    assert!(why.contains("its addresses are fixed already"), "{why}");
    assert_eq!(rig.run(&program), "original\noriginal\n");
    // Without that its libraries have copies.
    rig.set.insert(program.clone(), false);
    assert!(rig.update().unset.is_empty());
    assert_eq!(rig.run(&program), "copy\noriginal\n");
}

#[test]
fn libraries_that_are_needed_by_their_path() {
    let mut rig = Rig::new();
    let path = rig.path("libone.so");
    rig.library("one", "int call(void) { return 1; }", &[&format!("-Wl,-soname,{}", path.display())]);
    let main = format!("{WHERE}\nint call(void); int main(void) {{ where(call); }}");
    let program = rig.program("program", &main, &["-lone"]);
    assert!(Elf::open(&program).unwrap().needed().any(|name| name == path.to_str().unwrap().as_bytes()));
    let why = unset(&rig.set(&[&program]), &program);
    assert!(why.ends_with(&format!("{} needs a library by its path", program.display())), "{why}");
    assert_eq!(rig.run(&program), "original\n");
}

#[test]
fn a_program_that_would_find_other_libraries_where_its_copy_lies() {
    let mut rig = Rig::new();
    let library = rig.library("one", "int call(void) { return 1; }", &[]);
    let (first, second) = (rig.path("first"), rig.path("second"));
    fs::create_dir(&first).unwrap();
    fs::create_dir(&second).unwrap();
    let main = format!("{WHERE}\nint call(void); int main(void) {{ where(call); where(main); }}");
    let name = rig.path("").file_name().unwrap().to_str().unwrap().to_owned();
    let from_above = format!("-Wl,-rpath,$ORIGIN/../{name}/first");
    let fallback = format!("-Wl,-rpath,{}", second.display());
    let program = rig.program("program", &main, &["-lone", "-pie", "-fPIE", &from_above, &fallback]);
    fs::copy(&library, second.join("libone.so")).unwrap();
    fs::rename(&library, first.join("libone.so")).unwrap();
    rig.set.insert(program.clone(), true);
    let why = unset(&rig.update(), &program);
    assert!(why.ends_with("its copy would be given other libraries than itself"), "{why}");
    assert_eq!(rig.run(&program), "original\noriginal\n");
    rig.set.insert(program.clone(), false);
    assert!(rig.update().unset.is_empty());
    assert_eq!(rig.run(&program), "copy\noriginal\n");
}

/// Why a program was not set.
fn unset(report: &Report, program: &Path) -> String {
    assert!(report.programs.iter().all(|(path, _)| path != program), "{report:?}");
    report.unset.iter().find(|unset| unset.path == program).unwrap().why.to_string()
}

#[test]
fn each_kind_is_read_as_what_it_is() {
    let rig = rig(ODD, &[], |_, _| ());
    let elf = Elf::open(&rig.path("libodd.so")).unwrap();
    let (_, number) = altered::named(&elf, "number");
    assert_eq!(
        (number.kind, Kind::from(33), Kind::from(200)),
        (Kind::Address, Kind::Other(33), Kind::Other(200))
    );
}
