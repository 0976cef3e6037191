//! What `commonhold audit` advises: root may follow it, so no file of another takes the place of root's.

use super::markup::is_plain;
use super::store::compile;
use super::{alone, elves};
use crate::scene::ATTACKER;
use crate::scene::command::said;
use crate::{Attack, leave_out};
use commonhold_audit::report::{Report, words::clean};
use commonhold_object::misleads;
use commonhold_tests::host::program;
use commonhold_tests::{Scratch, wait};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use tempfile::TempDir;

pub(crate) const ATTACKS: &[Attack] = &[
    alone(
        "audit.advice_to_root",
        "have root be advised to put a file of one's own in the place of the system's",
        advice_to_root,
    ),
    alone(
        "audit.headers_without_end",
        "map a file whose headers take all time and memory",
        headers_without_end,
    ),
    alone(
        "audit.markup",
        "names of processes, files and libraries that are pages, lines and commands",
        markup,
    ),
];

/// A process that runs that program until this is dropped.
struct Running(Child);

impl Running {
    fn of(program: &Path) -> Running {
        Running(Command::new(program).arg("3600").spawn().expect("it starts"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has not ended by itself.
        self.0.kill().and_then(|()| self.0.wait()).expect("it ends");
    }
}

/// A copy of a program, in a directory of its own.
fn copy_in(scratch: &TempDir, directory: &str) -> PathBuf {
    let directory = scratch.path().join(directory);
    std::fs::create_dir(&directory).expect("a directory");
    let path = directory.join("sleep");
    let copied = Command::new("cp").arg("/bin/sleep").arg(&path).status();
    assert!(copied.expect("cp").success());
    // Not the bytes of what others run by chance.
    let mut file = File::options().append(true).open(&path).expect("the copy");
    file.write_all(b"of this attack").expect("its end");
    path
}

/// What is to be done about equal files of which one lies there.
fn advice(directory: &Path) -> Vec<String> {
    let mut command = Command::new(program("commonhold-tests-host"));
    let output = command.args(["audit", "--json", "--all"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = Report::from_json(&output.stdout).expect("a report");
    let named = directory.display().to_string();
    let lines = report.advice.into_iter().flat_map(|advice| advice.how);
    lines.filter(|line| line.contains(&named)).collect()
}

/// Whether a file is to take another's place, or to be replaced. The same program may run elsewhere
/// on this machine.
fn is_linked(file: &Path) -> bool {
    let lines = advice(file.parent().expect("its directory"));
    lines.iter().any(|line| ["ln -f ", "hardlink ", "mount "].iter().any(|tool| line.contains(tool)))
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

/// What is otherwise of one of the files.
type Change<'a> = (&'a str, &'a dyn Fn(&Path));

fn advice_to_root() {
    // Nobody else may write above it, as is so of programs of the system.
    let scratch = tempfile::tempdir_in("/var/lib").expect("a directory of root's");
    let files = [copy_in(&scratch, "system"), copy_in(&scratch, "theirs")];
    let _running = files.each_ref().map(|file| Running::of(file));
    // What is the same in all is linked: else nothing is tried here.
    if !files.iter().all(|file| is_linked(file)) {
        leave_out(format!("nothing is advised where all is root's: {:?}", advice(scratch.path())));
    }
    let changes: [Change<'_>; 5] = [
        ("another owner", &|file| chown(file, Some(ATTACKER.0), None).expect("an owner")),
        ("another group", &|file| chown(file, None, Some(ATTACKER.1)).expect("a group")),
        ("another mode", &|file| mode(file, 0o4755)),
        ("a directory that others may write", &|file| mode(file.parent().expect("its directory"), 0o777)),
        ("another's directory", &|file| {
            chown(file.parent().expect("its directory"), Some(ATTACKER.0), None).expect("an owner");
        }),
    ];
    for (what, change) in changes {
        // The file that is kept, and the one that goes.
        for file in &files {
            change(file);
            assert!(!is_linked(file), "{what}: {:?}", advice(scratch.path()));
            chown(file, Some(0), Some(0)).expect("an owner");
            mode(file, 0o755);
            let directory = file.parent().expect("its directory");
            chown(directory, Some(0), Some(0)).expect("an owner");
            mode(directory, 0o755);
        }
    }
    assert!(files.iter().all(|file| is_linked(file)), "what is the same again is linked again");
}

/// A file that says of itself that it has very many long notes, and is hardly on the disk.
fn headers_without_end() {
    const NOTES: usize = 60_000;
    const MIB: u64 = 1 << 20;
    let scratch = Scratch::new();
    let mut bytes = elves::Library::of(NOTES).finish();
    for (index, header) in bytes[64..64 + NOTES * 56].chunks_exact_mut(56).enumerate().take(NOTES - 2) {
        let (at, length) = (8 * MIB, 15 * MIB + 8 * index as u64);
        header[..4].copy_from_slice(&4_u32.to_le_bytes());
        header[8..].copy_from_slice(&[at, 0, 0, length, length, 4].map(u64::to_le_bytes).concat());
    }
    let path = scratch.file_of("notes", &bytes);
    let file = File::options().read(true).write(true).open(path).expect("a file");
    file.set_len(32 * MIB).expect("a length");
    // SAFETY: a new mapping of a file, wherever the kernel likes, which nobody uses.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    let own = std::process::id().to_string();
    assert!(said(&[&"audit", &"--pid", &own, &"--all"]).is_done);
}

fn markup() {
    let scratch = Scratch::new();
    let names =
        ["<script>x", "\u{1b}[2J\u{9b}31m", "two\nlines", "b\u{202e}\u{2066}\u{2028}i", "<td>\"'&#60;"];
    for name in names {
        let directory = scratch.path().join(format!("{name}.d"));
        std::fs::create_dir(&directory).expect("a directory");
        let soname = format!("-Wl,-soname,{name}.so");
        let library = compile(&directory, "library.so", "int value;", &["-shared", "-fPIC", &soname]);
        let [path, preloaded] = [directory.join(name), directory.join(format!("{name}.so"))];
        assert!(Command::new("cp").arg("/bin/sleep").arg(&path).status().expect("cp").success());
        std::fs::rename(library, &preloaded).expect("a name");
        // What LD_PRELOAD says ends at a space or colon, and no name has one.
        let child = Command::new(&path).arg("3600").env("LD_PRELOAD", &preloaded).spawn().expect("it starts");
        let running = Running(child);
        let (pid, page) = (running.0.id().to_string(), scratch.path().join("page.html"));
        let maps = || std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        wait::until("it has the library", || maps().contains(".so\n").then_some(()));
        let text = said(&[&"audit", &"--pid", &pid, &"--all", &"--html", &page]);
        assert!(text.is_done && is_plain(&text.text), "{name:?}: {text:?}");
        assert!(!text.text.lines().any(|line| line.starts_with("lines")), "{name:?}: {text:?}");
        let json = said(&[&"audit", &"--pid", &pid, &"--json"]);
        assert!(is_plain(&json.text), "{name:?}: {json:?}");
        Report::from_json(json.text.as_bytes()).expect("a report");
        let page = std::fs::read_to_string(&page).expect("a page");
        assert!(is_plain(&page) && page.contains("default-src 'none'"), "{name:?}: {page}");
        assert!(
            !page.contains("<script") && page.matches("</table>").count() == page.matches("<table").count()
        );
        let named = [&text.text, &page].map(|text| text.contains(".d"));
        assert_eq!(named, [true; 2], "nothing of it is shown: {text:?}");
    }
    // The audit stands alone, so it has a list of letters of its own: it is the one that all others have.
    let all = (0..=u32::from(char::MAX)).filter_map(char::from_u32);
    let differs = |letter: &char| (clean(&letter.to_string()) != letter.to_string()) != misleads(*letter);
    assert_eq!(all.filter(differs).collect::<Vec<_>>(), []);
}
