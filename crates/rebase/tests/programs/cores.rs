//! Core dumps name copies, and it is said of what they are, whatever was made anew since.

use crate::left_out::left_out;
use crate::rig::Rig;
use commonhold_rebase::state::{self, Mapped};
use commonhold_rebase::{Origin, core_dump};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A core dump of a program that is started and ends itself, if the kernel writes it where it was started.
fn by_the_kernel(rig: &Rig, program: &Path) -> Option<PathBuf> {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.contains(['/', '|']) {
        return None;
    }
    let place = rig.path("dumps");
    std::fs::create_dir_all(&place).unwrap();
    let script = format!("ulimit -c unlimited && exec {} abort", program.display());
    let mut command = rig.command("sh".as_ref());
    let output = command.arg("-c").arg(script).current_dir(&place).output().unwrap();
    assert!(!output.status.success());
    std::fs::read_dir(place).unwrap().flatten().map(|entry| entry.path()).next()
}

/// One of a program that runs, made by gdb, if that is here and may.
fn by_gdb(rig: &Rig, program: &Path) -> Option<PathBuf> {
    let mut child = rig.command(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 5]).unwrap();
    let made = rig.path("made");
    let output = Command::new("gcore")
        .arg("-o")
        .arg(&made)
        .arg(child.id().to_string())
        .env_remove("LD_AUDIT")
        .output();
    drop(child.stdin.take());
    child.wait().unwrap();
    let dump = PathBuf::from(format!("{}.{}", made.display(), child.id()));
    (output.is_ok_and(|output| output.status.success()) && dump.exists()).then_some(dump)
}

fn mapped(rig: &Rig, dump: &Path) -> Mapped {
    let files = core_dump::files(dump).unwrap();
    let all = state::originals(&rig.store, files).unwrap();
    let mut ones: Vec<Mapped> = all.into_iter().filter(|one| one.path.ends_with("libone.so")).collect();
    assert_eq!(ones.len(), 1, "{ones:?}");
    ones.remove(0)
}

fn origin(mapped: &Mapped) -> Origin {
    mapped.origin.clone().unwrap()
}

#[test]
fn a_core_dump_finds_its_originals_after_all_was_made_anew() {
    let mut rig = Rig::new();
    let source = "int call(void) { return 1; }";
    let library = rig.library("one", source, &["-Wl,--build-id"]);
    let main = "#include <stdio.h>\n#include <stdlib.h>\nint call(void);
        int main(int n, char **a) { puts(\"here\"); fflush(stdout); if (n > 1) abort(); getchar(); return call() - 1; }";
    let program = rig.program("program", main, &["-lone"]);
    assert!(rig.set(&[&program]).unset.is_empty());
    let dumps: Vec<PathBuf> =
        [by_the_kernel(&rig, &program), by_gdb(&rig, &program)].into_iter().flatten().collect();
    if dumps.is_empty() {
        left_out("core dumps of a program with copies (neither the kernel nor gdb writes one here)");
        return;
    }
    let fresh: Vec<Mapped> = dumps.iter().map(|dump| mapped(&rig, dump)).collect();
    for one in &fresh {
        let origin = origin(one);
        assert_eq!(
            (&origin.path, origin.base, one.exists, one.is_another),
            (&library, one.first, true, false)
        );
        assert!(origin.build_id.is_some_and(|id| id.len() >= 32));
    }
    // New addresses; then a new library; then the old copies go.
    state::renew(&rig.store).unwrap();
    rig.update();
    for (dump, before) in dumps.iter().zip(&fresh) {
        assert_eq!(&mapped(&rig, dump), before);
    }
    rig.library("one", "int call(void) { return 1; } int more;", &["-Wl,--build-id"]);
    rig.update();
    for (dump, before) in dumps.iter().zip(&fresh) {
        assert_eq!(mapped(&rig, dump), Mapped { is_another: true, ..before.clone() });
    }
    assert!(state::clean(&rig.store).unwrap() > 0);
    for (dump, before) in dumps.iter().zip(&fresh) {
        assert_eq!(mapped(&rig, dump), Mapped { is_another: true, exists: false, ..before.clone() });
    }
    // What the program is started with by now is another copy.
    let now =
        rig.store.copies().unwrap().into_iter().find(|(_, path)| path.ends_with("libone.so")).unwrap().1;
    assert!(fresh.iter().all(|one| one.path != now));
}
