//! Files that are something else between a look and the next.

use super::{KILLED, user, user_of};
use crate::Attack;
use crate::scene::{ATTACKER, Local};
use rustix::fs::{CWD, RenameFlags};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const ATTACKS: &[Attack] = &[
    user_of(
        KILLED,
        "races.after_a_reboot",
        "swap a file for a link to root's while a host looks for it after a reboot",
        reboot,
    ),
    user("races.at_creation", "swap files and links by rename while objects of them are made", creation),
];

const MINE: u8 = b'm';
const SECRET: u8 = b's';

/// Exchanges two names again and again, until it is dropped.
struct Swapping(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Swapping {
    fn start(one: &Path, other: &Path) -> Swapping {
        let over = Arc::new(AtomicBool::new(false));
        let (is_over, one, other) = (over.clone(), one.to_owned(), other.to_owned());
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE)
                    .expect("both are there");
                std::thread::sleep(std::time::Duration::from_micros(300));
            }
        });
        Swapping(over, Some(thread))
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().map(std::thread::JoinHandle::join);
    }
}

/// A file of the attacker, and a link to one that only root may read, in a directory of the attacker.
fn files(scene: &Local) -> [std::path::PathBuf; 2] {
    let directory = scene.host.scratch().join("theirs");
    std::fs::create_dir(&directory).expect("a directory");
    let secret = scene.host.scratch().join("secret");
    std::fs::write(&secret, [SECRET; 65_536]).expect("a file");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    let (mine, link) = (directory.join("mine"), directory.join("link"));
    std::fs::write(&mine, [MINE; 65_536]).expect("a file");
    symlink(&secret, &link).expect("a link");
    for path in [&directory, &mine] {
        chown(path, Some(ATTACKER.0), Some(ATTACKER.1)).expect("it is the attacker's");
    }
    [mine, link]
}

/// What the attacker reads there, if anything: nothing but their own.
fn reads_nothing_else(scene: &Local, named: &str) -> bool {
    let worker = scene.attacker();
    let read = worker.ask(&format!("open o {named} r")).and_then(|_| worker.ask("read-at o 0 16"));
    if let Ok(bytes) = &read {
        assert_eq!(*bytes, format!("{MINE:02x}").repeat(16), "the attacker reads it");
    }
    read.is_ok()
}

fn reboot(scene: &Local) {
    let [mine, link] = files(scene);
    let worker = scene.attacker();
    worker.ok(&format!("create o /race file={} controlled", mine.display()));
    worker.ok("close o");
    drop(worker);
    let swapping = Swapping::start(&mine, &link);
    for _ in 0..8 {
        scene.reboots();
        reads_nothing_else(scene, "/race");
    }
    drop(swapping);
    if std::fs::symlink_metadata(&mine).expect("a name").is_symlink() {
        rustix::fs::renameat_with(CWD, &mine, CWD, &link, RenameFlags::EXCHANGE).expect("both are there");
    }
    scene.reboots();
    assert!(reads_nothing_else(scene, "/race"), "who has their file again has the object again");
}

fn creation(scene: &Local) {
    let [mine, link] = files(scene);
    let swapping = Swapping::start(&mine, &link);
    let worker = scene.attacker();
    let mut made = 0;
    for number in 0..60 {
        let kind = ["controlled", ""][number % 2];
        if worker.ask(&format!("create o /race{number} file={} {kind}", mine.display())).is_ok() {
            made += 1;
            assert!(reads_nothing_else(scene, &format!("/race{number}")), "a good file");
            worker.ok("close o");
            worker.ok(&format!("remove /race{number}"));
        }
    }
    drop(swapping);
    assert!(made > 0 && made < 60, "{made} of 60: nothing was raced for");
}
