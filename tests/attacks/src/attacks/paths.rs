//! After a reboot the host opens backing files by their paths, with its own rights: of what users
//! put there meanwhile it takes nothing.

use super::descriptors::{made, opened};
use super::{KILLED, user_of};
use crate::Attack;
use crate::scene::{ATTACKER, Local, name, on_file, open};
use commonhold_object::wire::Request;
use commonhold_object::{Access, ErrorKind};
use commonhold_tests::PAGE;
use commonhold_tests::raw::Raw;
use commonhold_tests::user::as_user;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

pub(crate) const ATTACKS: &[Attack] = &[
    user_of(
        KILLED,
        "paths.lead_elsewhere",
        "another file, a link or a pipe at the path, after a reboot",
        elsewhere,
    ),
    user_of(
        KILLED,
        "paths.no_longer_allowed",
        "a file that its user may not open any more",
        no_longer_allowed,
    ),
];

fn elsewhere(scene: &Local) {
    let directory = scene.host.scratch().join("theirs");
    std::fs::create_dir(&directory).expect("a directory");
    chown(&directory, Some(ATTACKER.0), Some(ATTACKER.1)).expect("a directory of theirs");
    let secret = scene.host.scratch().file_of("secret", &[7; 4 * PAGE]);
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    let file = directory.join("file");
    let pipe = || mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let swaps: [(&str, &(dyn Fn() + Sync)); 3] = [
        ("a link", &|| std::os::unix::fs::symlink(&secret, &file).expect("a link")),
        ("a pipe", &pipe),
        ("another file", &|| std::fs::write(&file, [1; 4 * PAGE]).expect("a file")),
    ];
    for (what, swap) in swaps {
        leads_to(scene, &file, what, swap);
    }
}

/// An object whose file something else takes the place of while the machine is down.
fn leads_to(scene: &Local, file: &Path, what: &str, swap: &(dyn Fn() + Sync)) {
    as_user(ATTACKER.0, || {
        std::fs::write(file, [0; 4 * PAGE]).expect("a file");
        made(scene, "/o", on_file(0, false), &opened(file, OFlags::RDWR));
    });
    // Its inode stays taken: else the new file might have the same.
    let _before = opened(file, OFlags::RDONLY);
    as_user(ATTACKER.0, || {
        std::fs::remove_file(file).expect("the file goes");
        swap();
    });
    scene.reboots();
    as_user(ATTACKER.0, || {
        let mut raw = Raw::connect(&scene.host);
        let (answer, fds) = raw.ask_with(&open("/o", Access::Read), &[]);
        assert_eq!(answer.expect_err("the file is another").kind, ErrorKind::Lost, "{what}");
        assert!(fds.is_empty(), "{what}");
        raw.ask(&Request::Remove { name: name("/o"), of: None }, &[])
            .expect("an answer")
            .expect("it is the attacker's");
        std::fs::remove_file(file).expect("it goes");
    });
}

fn no_longer_allowed(scene: &Local) {
    let file = scene.host.scratch().file("of-root", 4 * PAGE as u64);
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("a mode");
    mode(0o666);
    as_user(ATTACKER.0, || made(scene, "/o", on_file(0, false), &opened(&file, OFlags::RDWR)));
    let opens = || {
        let mut raw = scene.raw();
        raw.ask(&open("/o", Access::ReadWrite), &[]).expect("an answer").map(drop)
    };
    scene.reboots();
    opens().expect("everybody may");
    mode(0o600);
    opens().expect("what is open stays open, as elsewhere");
    scene.reboots();
    let error = opens().expect_err("the attacker may not");
    assert!(error.message.contains("mode"), "{error}");
    assert_eq!(std::fs::metadata(&file).expect("the file").uid(), 0);
}
