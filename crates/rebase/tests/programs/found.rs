//! Faults that are put in: whoever looks for such must find them.

use crate::altered;
use crate::rig::{Rig, WHERE};
use commonhold_rebase::bind::{Answer, Loaded, Loader, answers, compare};
use commonhold_rebase::check::Difference;
use commonhold_rebase::elf::{Elf, Kind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A program that has a word by symbol in a library (`address`), and one without (`self`), and prints neither.
fn with_words(rig: &mut Rig) -> PathBuf {
    rig.library("one", "int numbers[2] = { 3, 4 };", &[]);
    rig.library(
        "two",
        "extern int numbers[]; int *address = numbers; static int own[2] = { 5, 6 }; int *self = own;
         int call(void) { return own[0]; }",
        &["-lone"],
    );
    let main = "#include <stdio.h>\nint call(void); int main(void) { printf(\"%d\\n\", call()); }";
    let program = rig.program("program", main, &["-ltwo"]);
    rig.set(&[&program]);
    assert_eq!(rig.same(&program), "5\n");
    program
}

/// What the comparison of all words finds, where the program says the same.
fn differences(rig: &Rig, program: &Path) -> Vec<Difference> {
    let comparison = rig.compare(program);
    assert_eq!(comparison.stock.output, comparison.rebased.output);
    assert_eq!((comparison.stock.status, comparison.rebased.status), (0, 0));
    assert!(!comparison.same() && comparison.rebased.copies > 0);
    comparison.differences
}

/// Moves a word of the copy of `libtwo.so`, which lies at this address of the original, by four bytes.
fn move_word(rig: &Rig, original: &Elf, address: u64) {
    let at = original.offset_of(address).unwrap();
    altered::copy(rig, "libtwo.so", |copy, bytes| {
        let word = u64::from_le_bytes(copy.bytes[at..at + 8].try_into().unwrap());
        altered::put(bytes, at, word + 4);
    });
}

#[test]
fn a_word_of_a_copy_that_is_bound_otherwise_is_found_by_its_symbol() {
    let mut rig = Rig::new();
    let program = with_words(&mut rig);
    let original = Elf::open(&rig.path("libtwo.so")).unwrap();
    let (_, relocation) = altered::named(&original, "numbers");
    move_word(&rig, &original, relocation.address);
    let one = Elf::open(&rig.path("libone.so")).unwrap();
    let numbers = one.symbols.all[altered::symbol(&one, "numbers") as usize].value;
    let place = |offset: u64| format!("{}+{offset:#x}", rig.path("libone.so").display());
    let expected = Difference {
        file: rig.path("libtwo.so"),
        address: relocation.address,
        symbol: Some("numbers".into()),
        says: (place(numbers), place(numbers + 4)),
    };
    assert_eq!(differences(&rig, &program), [expected]);
}

#[test]
fn a_word_of_a_copy_that_leads_elsewhere_in_its_own_file_is_found() {
    let mut rig = Rig::new();
    let program = with_words(&mut rig);
    let original = Elf::open(&rig.path("libtwo.so")).unwrap();
    let word = original.symbols.all[altered::symbol(&original, "self") as usize].value;
    let by_itself = original.relocations.table.iter().filter(|one| one.kind == Kind::Relative);
    let mut by_itself = by_itself.map(|one| one.address).chain(original.relocations.relative.iter().copied());
    assert!(by_itself.any(|address| address == word));
    move_word(&rig, &original, word);
    let found = differences(&rig, &program);
    let [one] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&one.file, one.address, &one.symbol), (&rig.path("libtwo.so"), word, &None));
    assert!(one.says.0 != one.says.1 && one.says.1.starts_with(rig.path("libtwo.so").to_str().unwrap()));
}

#[test]
fn another_output_and_another_status_are_found() {
    let mut rig = Rig::new();
    rig.library("one", "int call(void) { return 1; }", &[]);
    let says = format!("{WHERE}\nint call(void); int main(void) {{ where(call); }}");
    let ends =
        "#include <stdint.h>\nint call(void); int main(void) { return (uintptr_t)call >> 44 == 3 ? 9 : 4; }";
    let (says, ends) = (rig.program("says", &says, &["-lone"]), rig.program("ends", ends, &["-lone"]));
    rig.set(&[&says, &ends]);
    let says = rig.compare(&says);
    assert_eq!((&says.stock.output[..], &says.rebased.output[..]), (&b"original\n"[..], &b"copy\n"[..]));
    let ends = rig.compare(&ends);
    assert_eq!((ends.stock.status, ends.rebased.status), (4 << 8, 9 << 8));
    for comparison in [says, ends] {
        assert!(comparison.differences.is_empty() && !comparison.same());
    }
}

/// What the loader says of a program in which `libtwo.so` calls what `libone.so` has; and the program's files.
fn asked() -> (Rig, Vec<Arc<Elf>>, Loaded, usize) {
    let rig = Rig::new();
    rig.library("one", "int twice(int n) { return 2 * n; } int thrice(int n) { return 3 * n; }", &[]);
    rig.library("two", "int twice(int); int call(void) { return twice(4); }", &["-lone"]);
    let program = rig.program("program", "int call(void); int main(void) { return call() - 8; }", &["-ltwo"]);
    let scratch = tempfile::tempdir().unwrap();
    let loader = Loader::of_machine();
    let said = loader.ask(&program, &rig.store.variables(), scratch.path()).unwrap();
    let real = |path: &PathBuf| path.canonicalize().unwrap();
    let objects = said.objects.iter().map(|path| Arc::new(Elf::open(&real(path)).unwrap())).collect();
    let place = said.objects.iter().position(|path| *path == loader.path).unwrap();
    (rig, objects, said, place)
}

#[test]
fn an_answer_of_the_loader_that_is_not_the_one_worked_out_is_found() {
    let (_rig, objects, mut said, loader) = asked();
    let all: Vec<_> = (0..objects.len()).map(|from| answers(&objects, from)).collect();
    compare(&objects, &all, &said, loader).unwrap();
    let why = |said: &Loaded| compare(&objects, &all, said, loader).unwrap_err().to_string();
    let place = |name: &str| objects.iter().position(|object| object.path.ends_with(name)).unwrap();
    let (one, two) = (place("libone.so"), place("libtwo.so"));
    let answer = Answer { from: two, to: one, name: b"twice".to_vec(), version: None };
    // One that it does not give.
    assert!(said.answers.remove(&answer), "{:?}", said.answers);
    let missing = why(&said);
    assert!(missing.contains("and its loader does not say so"), "{missing}");
    assert!(missing.contains("here twice of ") && missing.contains("libtwo.so in "), "{missing}");
    // Another in its place: of another file, of another name, of another version.
    for other in [
        Answer { to: two, ..answer.clone() },
        Answer { name: b"thrice".to_vec(), ..answer.clone() },
        Answer { version: Some(b"V1".to_vec()), ..answer.clone() },
    ] {
        said.answers.insert(other.clone());
        let changed = why(&said);
        assert!(changed.contains("its loader finds t") && changed.contains("something else"), "{changed}");
        said.answers.remove(&other);
    }
    // One too many.
    said.answers.insert(answer);
    compare(&objects, &all, &said, loader).unwrap();
    said.answers.insert(Answer { from: one, to: two, name: b"call".to_vec(), version: None });
    let added = why(&said);
    assert!(added.contains("its loader finds call of ") && added.contains("something else"), "{added}");
}

#[test]
fn what_was_worked_out_otherwise_than_the_loader_says_is_found() {
    let (_rig, objects, said, loader) = asked();
    let all: Vec<_> = (0..objects.len()).map(|from| answers(&objects, from)).collect();
    let two = objects.iter().position(|object| object.path.ends_with("libtwo.so")).unwrap();
    let at = objects[two].relocations.named().position(|one| objects[two].name(one.symbol) == b"twice");
    let at = at.unwrap();
    let found = all[two][at].unwrap();
    for other in [None, Some(commonhold_rebase::bind::Found { object: two, ..found })] {
        let mut all = all.clone();
        all[two][at] = other;
        let why = compare(&objects, &all, &said, loader).unwrap_err().to_string();
        assert!(why.contains("its loader finds twice of ") && why.contains("libone.so"), "{why}");
    }
}

#[test]
fn a_program_whose_copies_find_something_else_is_not_set() {
    let mut rig = Rig::new();
    let one = "int twice(int n) { return 2 * n; } int thrice(int n) { return 3 * n; }
        int four_times(int n) { return twice(twice(n)); }";
    rig.library("one", one, &[]);
    let main =
        "#include <stdio.h>\nint four_times(int); int main(void) { printf(\"%d\\n\", four_times(5)); }";
    let plain = rig.program("plain", main, &["-lone"]);
    // One that has its own: so that the reference is left to the loader in the copy that both have.
    let other = rig.program("other", &format!("int twice(int n) {{ return n + 1; }}\n{main}"), &["-lone"]);
    assert!(rig.set(&[&plain, &other]).unset.is_empty());
    let report = altered::copy(&rig, "libone.so", |copy, bytes| {
        let (at, relocation) = altered::named(copy, "twice");
        let info = u64::from(altered::symbol(copy, "thrice")) << 32 | u64::from(relocation.raw);
        altered::put(bytes, at + 8, info);
    });
    assert!(report.programs.is_empty(), "{report:?}");
    for program in [&plain, &other] {
        let why = &report.unset.iter().find(|unset| unset.path == *program).unwrap().why.to_string();
        assert!(
            why.contains("started with its copies, ") && why.contains("libone.so finds thrice in "),
            "{why}"
        );
        assert!(why.ends_with("libone.so, and not without"), "{why}");
    }
    // They run, and as they are.
    assert_eq!((rig.run(&plain), rig.run(&other)), ("20\n".into(), "7\n".into()));
}

#[test]
fn what_was_just_written_to_a_file_is_not_a_programs_own_memory() {
    let mut rig = Rig::new();
    let path = rig.path("written");
    let main = format!(
        "#include <fcntl.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <unistd.h>
         enum {{ BYTES = 8 << 20 }};
         static char own[2 << 20];
         int main(void) {{
             int file = open(\"{}\", O_RDWR | O_CREAT | O_TRUNC, 0644);
             for (int i = 0; i < BYTES / (2 << 20); i++) if (write(file, own, sizeof own) != sizeof own) return 1;
             memset(own, 1, sizeof own);
             char *all = mmap(0, BYTES, PROT_READ, MAP_PRIVATE, file, 0), sum = 0;
             for (int i = 0; i < BYTES; i += 4096) sum += all[i];
             return sum;
         }}",
        path.display()
    );
    let program = rig.program("program", &main, &[]);
    rig.set(&[&program]);
    let comparison = rig.compare(&program);
    assert!(comparison.same(), "{comparison:#?}");
    for outcome in [comparison.stock, comparison.rebased] {
        // What it has changed itself is: two of the ten MiB.
        assert!((2048..8192).contains(&outcome.private_kib), "{outcome:?}");
        assert!(outcome.relocated_kib < outcome.private_kib, "{outcome:?}");
    }
}
