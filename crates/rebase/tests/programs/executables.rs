//! Programs that have copies of themselves: what is different for them, as docs/REBASE.md declares it, and how many fit.

use crate::rig::{MACHINE, Rig, text};
use commonhold_images::ranges::Region;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// A program by which names it goes, and whether it has a heap where heaps are: behind itself.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <unistd.h>
int call(void);
static int data;
int main(int n, char **a) {
    char comm[16];
    prctl(PR_GET_NAME, comm);
    char *heap = sbrk(256 << 20);
    int room = heap != (void *)-1 && (uintptr_t)heap > (uintptr_t)&data && (uintptr_t)heap - (uintptr_t)&data < 3ull << 30;
    if (room) { heap[0] = 1; heap[(256 << 20) - 1] = 1; }
    printf("%s %s %s %d %d\n", strrchr(a[0], '/') + 1, comm, (char *)getauxval(AT_EXECFN), (uintptr_t)&data >> 44 == 3, room);
    return call() - 1;
}
"#;

fn ready() -> (Rig, PathBuf, PathBuf) {
    let mut rig = Rig::new();
    rig.library("one", "int call(void) { return 1; }", &[]);
    let program = rig.program("program", SOURCE, &["-lone", "-pie", "-fPIE"]);
    let link = rig.path("link");
    symlink(&program, &link).unwrap();
    rig.set.insert(program.clone(), true);
    (rig, program, link)
}

#[test]
fn a_programs_copy_goes_by_its_own_name() {
    let (rig, program, link) = ready();
    let without = text(rig.command(&link).env_remove("LD_AUDIT").output().unwrap());
    assert_eq!(without, format!("link link {} 0 1\n", link.display()));
    assert!(rig.update().unset.is_empty());
    let copies = rig.store.copies().unwrap();
    let copy = &copies.iter().find(|(_, path)| path.ends_with("program")).unwrap().1;
    assert_eq!(rig.run(&link), format!("link program {} 1 1\n", copy.display()));
    // Once more without copies: by the path of the program, whatever the link was.
    let (_, library) = copies.iter().find(|(_, path)| path.ends_with("libone.so")).unwrap();
    std::fs::remove_file(library).unwrap();
    assert_eq!(rig.run(&link), format!("link program {} 0 1\n", program.display()));
}

#[test]
fn there_is_room_for_a_thousand_of_them() {
    let (rig, _, _) = ready();
    assert!(rig.update().unset.is_empty());
    let ranges = rig.store.ranges().unwrap().list().unwrap();
    let range = ranges.iter().find(|range| range.name.ends_with("/program")).unwrap();
    let addresses = Region::Homogeneous.addresses(MACHINE);
    assert!(range.bytes * 1_000 < addresses.end - addresses.start, "{range:?}");
}
