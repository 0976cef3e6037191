//! Files and programs that are not rebased, and what is said of them.

use crate::left_out::{is_root, left_out};
use crate::rig::Rig;
use commonhold_rebase::copy::{self, Role};
use commonhold_rebase::elf::Elf;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const MAIN: &str = "#include <stdio.h>\nint call(void); int main(void) { printf(\"%d\\n\", call()); }";

fn why_not(rig: &mut Rig, program: &Path) -> String {
    let report = rig.set(&[program]);
    assert!(report.programs.iter().all(|(path, _)| path != program), "{report:?}");
    report.unset.iter().find(|unset| unset.path == program).unwrap().why.to_string()
}

#[test]
fn programs_that_cannot_be_set() {
    let mut rig = Rig::new();
    rig.library("one", "int call(void) { return 1; }", &[]);
    let privileged = rig.program("privileged", MAIN, &["-lone"]);
    std::fs::set_permissions(&privileged, std::fs::Permissions::from_mode(0o4755)).unwrap();
    assert!(why_not(&mut rig, &privileged).contains("setuid"));
    let fixed = rig.program("static", "int main(void) { return 0; }", &["-static"]);
    assert!(why_not(&mut rig, &fixed).contains("linked statically"));
    let script = rig.path("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(why_not(&mut rig, &script).contains("no program of this machine"));
    let foreign = rig.program("foreign", MAIN, &["-lone", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    assert!(why_not(&mut rig, &foreign).contains("only glibc's"));
    let audited = rig.program("audited", MAIN, &["-lone", "-Wl,--audit=libone.so"]);
    assert!(why_not(&mut rig, &audited).contains("DT_AUDIT"));
    let secret = rig.library("secret", "int call(void) { return 1; }", &[]);
    let with_secret = rig.program("with_secret", MAIN, &["-lsecret"]);
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(why_not(&mut rig, &with_secret).contains("may not be read by everybody"));
    if is_root("a library that others may write, for what root sets") {
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(why_not(&mut rig, &with_secret).contains("is not root's alone to write"));
    }
    let lacking = rig.program("lacking", MAIN, &["-lone"]);
    std::fs::rename(rig.path("libone.so"), rig.path("gone.so")).unwrap();
    assert!(why_not(&mut rig, &lacking).contains("libone.so is not found"));
}

#[test]
fn a_library_with_text_relocations_is_used_as_it_is() {
    let mut rig = Rig::new();
    rig.library("text", "__asm__(\".text\\n.globl call\\ncall: mov number@GOTPCREL(%rip), %rax\\n mov (%rax), %eax\\n ret\\n.quad call\");
        int number = 4;", &["-Wl,-z,notext"]);
    let program = rig.program("program", MAIN, &["-ltext"]);
    let report = rig.set(&[&program]);
    assert!(
        report.unfit.iter().any(|(path, why)| path.ends_with("libtext.so") && why.contains("DT_TEXTREL")),
        "{report:?}"
    );
    assert_eq!(rig.same(&program), "4\n");
}

/// Whatever is done to the bytes of a library, the answer is an error or a copy, never a panic.
#[test]
fn damaged_files_are_refused() {
    let rig = Rig::new();
    let path =
        rig.library("one", "int data = 3; int *pointer = &data; int call(void) { return *pointer; }", &[]);
    let whole = std::fs::read(&path).unwrap();
    for length in (0..whole.len()).step_by(97) {
        let _ = Elf::parse(&path, whole[..length].to_vec()).map(|elf| try_copy(&elf));
    }
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let mut sound = 0;
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=random() % 3 {
            // Mostly where headers and tables are.
            let end = if random() % 2 == 0 { 0x600 } else { bytes.len() };
            let at = random() % end;
            bytes[at] = random() as u8;
        }
        sound += usize::from(Elf::parse(&path, bytes).is_ok_and(|elf| try_copy(&elf)));
    }
    assert!(sound > 100, "{sound}"); // the damage is not always where it matters
}

fn try_copy(elf: &Elf) -> bool {
    let none = vec![None; elf.relocations.named().count()];
    copy::make(elf, Role::Library, 0x3000_0000_0000, &none).is_ok()
}

#[test]
fn a_file_of_another_processor_is_no_library() {
    let rig = Rig::new();
    let path = rig.library("one", "int call(void) { return 1; }", &[]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[18] = 183; // aarch64
    let why = Elf::parse(&path, bytes).err().unwrap().to_string();
    assert!(why.contains("another processor"), "{why}");
}

#[test]
fn programs_with_libraries_that_are_no_libraries_are_not_set() {
    let mut rig = Rig::new();
    let path = rig.library("one", "int call(void) { return 1; }", &[]);
    let program = rig.program("program", MAIN, &["-lone"]);
    let whole = std::fs::read(&path).unwrap();
    let mut foreign = whole.clone();
    foreign[18] = 183; // aarch64
    let mut of_32_bits = whole.clone();
    of_32_bits[4] = 1;
    for (bytes, says) in [
        (&whole[..2000], "its loader does not load it: it ends with signal"),
        (&whole[..40], "file too short"),
        (b"no library at all", "file too short"),
        (&foreign, "libone.so"),
        (&of_32_bits, "libone.so is not found"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let why = why_not(&mut rig, &program);
        assert!(why.contains(says) && why.lines().count() == 1, "{says}: {why}");
    }
    std::fs::write(&path, &whole).unwrap();
    assert!(rig.set(&[&program]).unset.is_empty());
}

#[test]
fn a_program_with_file_capabilities_is_not_set() {
    let mut rig = Rig::new();
    rig.library("one", "int call(void) { return 1; }", &[]);
    let program = rig.program("program", MAIN, &["-lone"]);
    // `struct vfs_cap_data`, version 2: CAP_NET_BIND_SERVICE.
    let capability: Vec<u8> =
        [0x0200_0001_u32, 1 << 10, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let set =
        rustix::fs::setxattr(&program, "security.capability", &capability, rustix::fs::XattrFlags::empty());
    if !is_root("file capabilities") {
        return;
    }
    if let Err(error) = set {
        return left_out(&format!("file capabilities (the file system has none: {error})"));
    }
    assert!(why_not(&mut rig, &program).contains("file capabilities"));
}
