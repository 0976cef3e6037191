//! Changes of a store that are killed before each step that can be seen by others: another process, this test program
//! started again, is traced and killed at the call.

mod common;

use common::{Made, Place, version};
use commonhold_images::format;
use commonhold_images::include::include_from;
use commonhold_images::ranges::Owner;
use commonhold_images::store::Store;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What changes names.
const CHANGES: &[i64] = &[
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_symlinkat,
    libc::SYS_unlinkat,
    libc::SYS_linkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

/// Goes on with a process that is stopped, up to its next stop. False: it has ended.
fn go_on(process: libc::pid_t, request: libc::c_uint) -> bool {
    let mut status = 0;
    // SAFETY: a child that this thread traces, stopped now; the status is written.
    unsafe {
        assert_eq!(libc::ptrace(request, process, 0_usize, 0_usize), 0);
        assert_eq!(libc::waitpid(process, &raw mut status, libc::__WALL), process);
    }
    libc::WIFSTOPPED(status)
}

/// Whether it is stopped before a call that changes names.
fn is_before_change(process: libc::pid_t) -> bool {
    // SAFETY: numbers, for which zero is one.
    let mut call: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    let bytes = size_of_val(&call);
    // SAFETY: the child is stopped, and there is room for so many bytes.
    let written = unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, process, bytes, &raw mut call) };
    assert!(written > 0, "{}", std::io::Error::last_os_error());
    // SAFETY: so the field for entries is the one that was written.
    call.op == libc::PTRACE_SYSCALL_INFO_ENTRY && CHANGES.contains(&(unsafe { call.u.entry.nr } as i64))
}

/// Lets another process make a change, and kills it before its change of names of that number. False: it had fewer.
fn killed_at(place: &Place, what: &str, number: usize) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "makes_a_change", "--ignored", "--test-threads=1", "--nocapture"]);
    command.env("IMAGES_TEST_STORE", place.store.root()).env("IMAGES_TEST_CHANGE", what);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let number_in = |line: String| line.rsplit_once("thread ")?.1.parse::<libc::pid_t>().ok();
    let process =
        said.by_ref().lines().find_map(|line| number_in(line.unwrap())).expect("it says which thread");
    // SAFETY: a thread that has asked to be traced by this one, and stops.
    unsafe {
        assert_eq!(libc::waitpid(process, std::ptr::null_mut(), libc::__WALL), process);
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD;
        assert_eq!(libc::ptrace(libc::PTRACE_SETOPTIONS, process, 0_usize, options as usize), 0);
    }
    let mut changes = 0;
    while go_on(process, libc::PTRACE_SYSCALL) {
        if is_before_change(process) {
            if changes == number {
                child.kill().unwrap();
                // SAFETY: only takes note of the end of the thread.
                unsafe { libc::waitpid(process, std::ptr::null_mut(), libc::__WALL) };
                child.wait().unwrap();
                return true;
            }
            changes += 1;
        }
    }
    assert!(child.wait().unwrap().success() && changes > 1, "{what}: this was no change");
    false
}

#[test]
#[ignore = "is run by another"]
fn makes_a_change() {
    let store = Store::at(std::env::var("IMAGES_TEST_STORE").unwrap().as_ref(), Owner::Machine);
    // SAFETY: calls that take numbers only.
    unsafe {
        assert_eq!(libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize), 0);
        println!("thread {}", libc::gettid());
        libc::raise(libc::SIGSTOP);
    }
    match std::env::var("IMAGES_TEST_CHANGE").unwrap().split_once(' ').unwrap() {
        ("rollback", name) => drop(store.rollback(name)),
        ("remove", name) => drop(store.remove(name)),
        ("publish", file) => drop(store.publish(store.draft_of(file.as_ref()).unwrap())),
        other => panic!("{other:?}"),
    }
}

/// The version that the link to the newest leads to, whose content must be there.
fn linked(place: &Place) -> Option<format::Version> {
    let target = std::fs::read_link(place.store.newest_link("words", 1)).ok()?;
    let id = format::Id::parse(target.file_name()?.to_str()?).unwrap();
    Some(place.store.open(id).expect("what is linked is there").header().version())
}

fn resolved(place: &Place) -> Option<format::Version> {
    let wanted = format::Wanted::parse("words@1").unwrap();
    place.store.resolve(&wanted).unwrap().map(|found| found.entry.version)
}

fn two_versions() -> Place {
    let place = Place::new();
    for (text, fill) in [("1.0.0", 1), ("1.1.0", 2), ("1.2.0", 3)] {
        place.publish(&Made { fill, ..Made::data("words", text) }).unwrap();
    }
    place
}

/// Kills a change at each step, looks, and then lets `retry` say whether all is well.
fn at_each_step(what: impl Fn(&Place) -> String, retry: impl Fn(&Place)) {
    for number in 0.. {
        assert!(number < 50);
        let place = two_versions();
        if !killed_at(&place, &what(&place), number) {
            break;
        }
        // Programs find a version that is there and not withdrawn.
        let all = place.store.versions("words").unwrap();
        let linked_now = linked(&place).unwrap();
        let entry = all.iter().find(|entry| entry.version == linked_now);
        assert!(entry.is_some_and(|entry| !entry.withdrawn), "step {number}: {linked_now} of {all:?}");
        retry(&place);
        // Whatever comes next mends the rest.
        place.publish(&Made::data("other", "1.0.0")).unwrap();
        assert_eq!(linked(&place), resolved(&place), "step {number}");
    }
}

#[test]
fn a_rollback_that_is_killed_withdraws_one_or_none() {
    at_each_step(
        |_| "rollback words@1.2.0".into(),
        |place| {
            place.store.rollback("words@1.2.0").unwrap();
            assert_eq!(resolved(place), Some(version("1.1.0")));
            assert_eq!(linked(place), resolved(place));
        },
    );
}

#[test]
fn a_removal_that_is_killed_leaves_the_others_to_be_found() {
    at_each_step(
        |_| "remove words@1.2.0".into(),
        |place| {
            let _ = place.store.remove("words@1.2.0");
            assert_eq!(resolved(place), Some(version("1.1.0")));
            assert_eq!(linked(place), resolved(place));
        },
    );
}

#[test]
fn a_publication_that_is_killed_can_be_made_again() {
    let file = |place: &Place| -> PathBuf { place.store.root().with_file_name("draft") };
    at_each_step(
        |place| {
            let made = Made { fill: 4, ..Made::data("words", "1.3.0") };
            std::fs::write(file(place), place.bytes(&made)).unwrap();
            format!("publish {}", file(place).display())
        },
        |place| {
            place.store.publish(place.store.draft_of(&file(place)).unwrap()).unwrap();
            assert_eq!(linked(place), Some(version("1.3.0")));
        },
    );
}

#[test]
fn a_link_whose_content_is_gone_is_passed_over() {
    let place = two_versions();
    let link = place.store.newest_link("words", 1);
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(format!("../../content/{}", format::Id([7; 32])), &link).unwrap();
    let image = include_from(std::slice::from_ref(&place.store), "words@1", false).unwrap();
    assert_eq!(image.version(), version("1.2.0"));
}
