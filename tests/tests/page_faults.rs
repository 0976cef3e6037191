//! `commonhold faults`: how many page faults the mappings of a program had. The programs are the
//! tests at the end of this file.

use commonhold::{CreateOptions, Host, MapOptions, Mapping, Translation};
use commonhold_tests::host::program;
use commonhold_tests::huge::HugePages;
use commonhold_tests::user::as_user;
use commonhold_tests::{MIB, TestHost, is_root, left_out};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use serde_json::Value;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Command, Output};
use std::ptr::null_mut;

const PAGE: usize = 4096;
const PAGES: usize = 300;
/// So often these are touched anew by a program whose faults have no room.
const ROUNDS: usize = 1500;

/// How large the object of a program is.
const BYTES: &str = "COMMONHOLD_TESTS_BYTES";

fn faults(host: Option<&TestHost>, bytes: Option<usize>, words: &[&str]) -> Output {
    let mut command = Command::new(program("commonhold"));
    command.envs(bytes.map(|bytes| (BYTES, bytes.to_string())));
    if let Some(host) = host {
        command.arg("--host").arg(host.state());
    }
    command.arg("faults").args(words).output().unwrap()
}

/// What a test of this file did as a program; and the exit status. None: nobody may count here.
fn of_program(on: Option<(&TestHost, usize)>, name: &str) -> Option<(Value, i32)> {
    let own = std::env::current_exe().unwrap();
    let words = ["--json", "--", own.to_str().unwrap(), "--ignored", "--exact", name, "--nocapture"];
    let (host, bytes) = on.unzip();
    let output = faults(host, bytes, &words);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("page faults cannot be counted here") {
        left_out(&said);
        return None;
    }
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert!(said.contains("1 passed"), "{said}");
    Some((answer, output.status.code().unwrap()))
}

fn of_mapping(answer: &Value, is_it: impl Fn(&Value) -> bool) -> &Value {
    let all = answer["mappings"].as_array().unwrap();
    all.iter().find(|mapping| is_it(mapping)).unwrap_or_else(|| panic!("{answer:#}"))
}

fn named<'a>(answer: &'a Value, name: &str) -> &'a Value {
    of_mapping(answer, |mapping| mapping["name"].as_str().unwrap().starts_with(name))
}

#[test]
fn each_touch_of_a_sparse_mapping_is_a_fault() {
    let Some((answer, status)) = of_program(None, "touches_a_sparse_mapping") else { return };
    // A half was populated, which is no touch.
    let faults = |pages: usize| {
        let bytes = pages * PAGE;
        of_mapping(&answer, |mapping| mapping["bytes"] == bytes && mapping["name"] == "/dev/zero (deleted)")["faults"]
            .as_u64()
            .unwrap() as usize
    };
    assert_eq!(faults(2 * PAGES), PAGES, "{answer:#}");
    assert_eq!((answer["wired"].as_str(), status), (Some("nothing-wired"), 0), "{answer:#}");
    assert_eq!((answer["lost"].as_u64(), answer["status"].as_i64()), (Some(0), Some(0)));
    if is_root("faults within system calls") {
        let read = of_mapping(&answer, |mapping| mapping["bytes"] == 3 * PAGES * PAGE);
        assert_eq!((&read["faults"], &read["in_system_calls"]), (&PAGES.into(), &PAGES.into()), "{answer:#}");
    }
}

#[test]
fn wired_memory_in_huge_pages_has_none_in_a_process_and_its_child() {
    let Some(_pool) = HugePages::more(4) else { return };
    wired_memory_has_none("/memfd:commonhold-arena", PAGES * PAGE);
}

#[test]
fn wired_memory_in_ordinary_pages_has_none_in_a_process_and_its_child() {
    // More than the machine's pool has, whoever set it; and more than an ordinary user may lock.
    if is_root("wired objects that are larger than all huge pages") {
        let pages =
            std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").unwrap();
        let bytes = (pages.trim().parse::<usize>().unwrap() + 16) * 2 * MIB as usize;
        wired_memory_has_none("/memfd:commonhold-wired", bytes);
    }
}

/// Not one fault as long as nobody takes its pages away.
fn wired_memory_has_none(name: &str, bytes: usize) {
    let host = TestHost::start();
    let Some((answer, status)) = of_program(Some((&host, bytes)), "maps_a_wired_object") else { return };
    assert_eq!((answer["wired"].as_str(), status), (Some("none"), 0), "{answer:#}");
    let mapping = named(&answer, name);
    assert_eq!((&mapping["wired"], &mapping["faults"]), (&true.into(), &0.into()));

    let Some((answer, status)) = of_program(Some((&host, bytes)), "punches_a_hole") else { return };
    assert_eq!((answer["wired"].as_str(), status), (Some("faults"), 1), "{answer:#}");
    let mapping = named(&answer, name);
    assert_eq!(mapping["faults"], answer["wired_faults"], "{answer:#}");
    // By the program itself, and by the kernel for it.
    let (faults, in_calls) =
        (mapping["faults"].as_u64().unwrap(), mapping["in_system_calls"].as_u64().unwrap());
    assert!(faults > in_calls, "{answer:#}");
    assert_eq!(in_calls > 0, answer["counts_system_calls"] == true, "{answer:#}");
}

#[test]
fn an_ordinary_object_has_faults_and_no_blame() {
    let host = TestHost::start();
    let Some((answer, status)) = of_program(Some((&host, PAGES * PAGE)), "maps_an_ordinary_object") else {
        return;
    };
    let faults = named(&answer, "/memfd:commonhold-object")["faults"].as_u64().unwrap();
    // Once for each page in both processes, or for several pages at once.
    assert!((2..=2 * PAGES as u64).contains(&faults), "{answer:#}");
    assert_eq!((answer["wired"].as_str(), status), (Some("nothing-wired"), 0), "{answer:#}");
}

#[test]
fn where_faults_are_lost_nothing_is_claimed() {
    let Some((answer, status)) = of_program(None, "has_faults_while_nobody_reads") else { return };
    let (faults, lost) = (answer["faults"].as_u64().unwrap(), answer["lost"].as_u64().unwrap());
    assert!(lost > 0 && faults + lost >= (ROUNDS * PAGES) as u64, "{faults} and {lost}");
    assert_eq!(
        (answer["wired"].as_str(), status, answer["status"].as_i64()),
        (Some("not-known"), 2, Some(0))
    );
}

#[test]
fn the_program_s_own_status_is_told_and_given() {
    let output = faults(None, None, &["--", "sh", "-c", "echo heard; exit 7"]);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("page faults cannot be counted here") {
        return left_out(&said);
    }
    assert_eq!((output.status.code(), said.as_ref()), (Some(7), "heard\n"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("ended with status 7") && text.contains("none was mapped"), "{text}");
    let output = faults(None, None, &["--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(output.status.code(), Some(137));
    let output = faults(None, None, &["--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/program"), "{output:?}");
}

#[test]
fn who_may_not_count_is_told_what_to_do_before_the_program_begins() {
    const SETTING: &str = "/proc/sys/kernel/perf_event_paranoid";
    if !is_root("a user who may not count faults") {
        return;
    }
    let paranoid = || std::fs::read_to_string(SETTING).unwrap();
    let output = as_user(1234, || faults(None, None, &["--", "echo", "began"]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match paranoid().trim().parse::<i64>().unwrap() {
        3.. => {
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            assert!(said.contains("kernel.perf_event_paranoid=2") && !said.contains("began"), "{said}");
        }
        2 => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                text.contains("within system calls are not counted") && said == "began\n",
                "{text} {said}"
            );
        }
        _ => assert_eq!(said, "began\n"),
    }
}

/// Touches each page, in this process.
fn touch(at: *mut u8, bytes: usize) {
    // SAFETY: callers name memory that is mapped, and theirs.
    (0..bytes)
        .step_by(PAGE)
        .for_each(|byte| unsafe { at.add(byte).write_volatile(at.add(byte).read_volatile()) });
}

/// Touches all of it, here and in a child.
fn touch_here_and_in_a_child(mapping: &Mapping) {
    touch(mapping.as_ptr(), mapping.len());
    // SAFETY: the child touches memory alone, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        touch(mapping.as_ptr(), mapping.len());
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

fn map(translation: Translation) -> Mapping {
    let host = Host::connect().unwrap();
    let size_bytes = std::env::var(BYTES).unwrap().parse().unwrap();
    let options = CreateOptions { size_bytes, translation, ..CreateOptions::default() };
    let name = format!("/of-{}", std::process::id());
    let object = host.create(&name, &options, None).unwrap();
    object.map(&MapOptions::default()).unwrap()
}

fn anonymous(pages: usize, flags: MapFlags) -> *mut u8 {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a mapping where nothing is.
    let at = unsafe { mmap_anonymous(null_mut(), pages * PAGE, protection, flags) }.unwrap();
    at.cast()
}

/// Is run by [`each_touch_of_a_sparse_mapping_is_a_fault`].
#[test]
#[ignore = "a program for another test"]
fn touches_a_sparse_mapping() {
    // Shared ones are merged with no others.
    let at = anonymous(2 * PAGES, MapFlags::SHARED);
    // SAFETY: of this test's own mapping.
    unsafe { madvise(at.cast(), PAGES * PAGE, Advice::LinuxPopulateWrite) }.unwrap();
    touch(at, 2 * PAGES * PAGE);
    let read = anonymous(3 * PAGES, MapFlags::SHARED);
    // SAFETY: the kernel writes to this test's own mapping.
    let got = unsafe { libc::read(File::open("/dev/zero").unwrap().as_raw_fd(), read.cast(), PAGES * PAGE) };
    assert_eq!(got, (PAGES * PAGE) as isize);
    // SAFETY: nobody uses it any more.
    unsafe { munmap(at.cast(), 2 * PAGES * PAGE) }.unwrap();
}

/// Is run by [`where_faults_are_lost_nothing_is_claimed`].
#[test]
#[ignore = "a program for another test"]
fn has_faults_while_nobody_reads() {
    // SAFETY: changes no memory; its parent is the command that counts its faults.
    let signal = |number| unsafe { libc::kill(libc::getppid(), number) };
    assert_eq!(signal(libc::SIGSTOP), 0);
    let at = anonymous(PAGES, MapFlags::PRIVATE);
    for _ in 0..ROUNDS {
        touch(at, PAGES * PAGE);
        // SAFETY: of this test's own mapping.
        unsafe { madvise(at.cast(), PAGES * PAGE, Advice::LinuxDontNeed) }.unwrap();
    }
    assert_eq!(signal(libc::SIGCONT), 0);
}

/// Is run by [`wired_memory_has_none`].
#[test]
#[ignore = "a program for another test"]
fn maps_a_wired_object() {
    touch_here_and_in_a_child(&map(Translation::Wired));
}

/// Is run by [`wired_memory_has_none`].
#[test]
#[ignore = "a program for another test"]
fn punches_a_hole() {
    let mapping = map(Translation::Wired);
    let punch = || {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let is_it = |path: &std::path::PathBuf| {
            let name = std::fs::read_link(path).unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with("/memfd:commonhold-arena") || name.starts_with("/memfd:commonhold-wired")
        };
        let path = descriptors.map(|entry| entry.path()).find(is_it).unwrap();
        let memory = File::options().read(true).write(true).open(path).unwrap();
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&memory, flags, 0, 2 * MIB).unwrap();
    };
    punch();
    touch(mapping.as_ptr(), mapping.len());
    punch();
    // SAFETY: the kernel writes to the mapping's first page.
    let got =
        unsafe { libc::read(File::open("/dev/zero").unwrap().as_raw_fd(), mapping.as_ptr().cast(), PAGE) };
    assert_eq!(got, PAGE as isize);
}

/// Is run by [`an_ordinary_object_has_faults_and_no_blame`].
#[test]
#[ignore = "a program for another test"]
fn maps_an_ordinary_object() {
    touch_here_and_in_a_child(&map(Translation::default()));
}
