//! Programs that are set, and get rights afterwards that their caller lacks: they are started as they are.

use crate::left_out::{is_root, left_out};
use crate::rig::{BY_ADDRESS, Rig, text};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

/// A program that is set, in a place where everybody may read.
fn set(rig: &mut Rig) -> PathBuf {
    set_permissions(rig.path(""), Permissions::from_mode(0o755)).unwrap();
    rig.library("one", "int call(void) { return 1; }", &[]);
    let main = format!(
        "{BY_ADDRESS}\n#include <stdlib.h>\n#include <sys/auxv.h>\nint call(void);
         int main(void) {{
             by_address(call); puts(getauxval(AT_SECURE) ? \"privileged\" : \"plain\");
             puts(getenv(\"LD_AUDIT\") ? \"told\" : \"not told\"); return call() - 1; }}"
    );
    // By its whole path: of a privileged program the loader does not ask where it lies.
    let program =
        rig.program("program", &main, &["-lone", &format!("-Wl,-rpath,{}", rig.path("").display())]);
    assert!(rig.set(&[&program]).unset.is_empty());
    assert_eq!(rig.run(&program), "copy\nplain\ntold\n");
    program
}

/// Why it cannot be set any more.
fn why_not(rig: &Rig) -> String {
    let report = rig.update();
    assert!(report.programs.is_empty(), "{report:?}");
    report.unset[0].why.to_string()
}

#[test]
fn a_program_that_has_become_setuid() {
    if !is_root("a program that gets the rights of another") {
        return;
    }
    let mut rig = Rig::new();
    let program = set(&mut rig);
    let rights = |mode| set_permissions(&program, Permissions::from_mode(mode)).unwrap();
    chown(&program, Some(65534), None).unwrap();
    rights(0o4755);
    let said = text(rig.command(&program).output().unwrap());
    if said == "original\nplain\ntold\n" {
        return left_out("a program that gets the rights of another (this file system gives nobody such)");
    }
    assert_eq!(said, "original\nprivileged\nnot told\n");
    assert!(why_not(&rig).contains("setuid"));
    // Of root, who starts it: it has no rights that its caller lacks, and none of the copies either.
    chown(&program, Some(0), None).unwrap();
    rights(0o6755);
    assert_eq!(rig.run(&program), "original\nplain\ntold\n");
    assert!(why_not(&rig).contains("setuid or setgid"));
    rights(0o755);
    assert_eq!(rig.run(&program), "original\nplain\ntold\n");
    assert!(rig.update().unset.is_empty());
    assert_eq!(rig.run(&program), "copy\nplain\ntold\n");
}

#[test]
fn a_program_whose_capabilities_came_later() {
    if !is_root("file capabilities") {
        return;
    }
    let mut rig = Rig::new();
    let program = set(&mut rig);
    // `struct vfs_cap_data`, version 2: CAP_NET_BIND_SERVICE, in force from the start.
    let capability: Vec<u8> =
        [0x0200_0001_u32, 1 << 10, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let empty = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(&program, "security.capability", &capability, empty) {
        return left_out(&format!("file capabilities (the file system has none: {error})"));
    }
    // Its inode has changed, and so its record is none: by whomever it is started.
    assert!(rig.run(&program).starts_with("original\n"));
    let mut other = rig.command("setpriv".as_ref());
    let said = text(other.args(["--reuid=65534", "--clear-groups"]).arg(&program).output().unwrap());
    assert_eq!(said, "original\nprivileged\nnot told\n");
    assert!(why_not(&rig).contains("file capabilities"));
}
