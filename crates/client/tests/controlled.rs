//! Controlled objects against a pretended host that serves faults with zeroes: the order of things when
//! mapping and unmapping, fork, exit, and the return to another host.

mod common;

use common::{Do, FakeHost, is_mapped, ordered, word};
use commonhold::{Access, ErrorKind, Host, MapOptions, Mapping, Object, Protection, Sharing};
use commonhold_object::Error;
use commonhold_object::wire::{Event, Request};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const SIZE: u64 = 16 * PAGE as u64;

fn mapped(fake: &FakeHost) -> (Host, Object, Mapping) {
    let host = Host::connect_to(&fake.directory).unwrap();
    let object = host.create("/a", &ordered(SIZE), None).unwrap();
    let mapping = object.map(&MapOptions::default()).unwrap();
    (host, object, mapping)
}

/// One test at a time: a fork child brings along the mappings of all tests in the process, and memory that one
/// test unmaps another's may take.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_map(request: &Request) -> bool {
    matches!(request, Request::Map(_))
}

fn is_unmap(request: &Request) -> bool {
    matches!(request, Request::Unmap { .. })
}

#[test]
fn faults_are_served_and_unmapping_tells_the_host_first() {
    if !common::in_own_process("faults_are_served_and_unmapping_tells_the_host_first") {
        return;
    }
    let _alone = alone();
    let fake = FakeHost::start();
    let (_host, object, mapping) = mapped(&fake);
    let start = mapping.as_ptr();
    word(start, 3 * PAGE).store(5, Ordering::SeqCst);
    assert_eq!(word(start, 8 * PAGE).load(Ordering::SeqCst), 0);
    let second = object.map(&MapOptions { length: Some(PAGE as u64), ..MapOptions::default() }).unwrap();
    let with: Vec<bool> = fake
        .seen()
        .iter()
        .filter_map(|(_, r)| if let Request::Map(map) = r { Some(map.with_descriptors) } else { None })
        .collect();
    assert_eq!(with, [true, false], "descriptors come with the first mapping alone");
    drop(second);
    mapping.unmap(2 * PAGE, 4 * PAGE).unwrap();
    let told: Vec<(u64, u64)> =
        fake.seen()
            .iter()
            .filter_map(|(_, r)| {
                if let Request::Unmap { address, length } = r { Some((*address, *length)) } else { None }
            })
            .collect();
    assert_eq!(told[1], (start as u64 + 2 * PAGE as u64, 4 * PAGE as u64));
    assert!(!is_mapped(start.wrapping_add(3 * PAGE)));
    drop(mapping);
    assert_eq!(fake.count(is_unmap), 4, "what was left went in two pieces");
    assert_eq!(object.sync(0, SIZE).unwrap(), 16);
    assert!(object.lock(0, SIZE).unwrap());
    assert_eq!(object.incore(0, SIZE).unwrap().len(), 16);
}

#[test]
fn a_refused_mapping_is_not_mapped_and_a_failed_last_sync_is_told() {
    if !common::in_own_process("a_refused_mapping_is_not_mapped_and_a_failed_last_sync_is_told") {
        return;
    }
    let _alone = alone();
    let fake = FakeHost::start();
    let (_host, object, mapping) = mapped(&fake);
    let full = || Do::Answer(Err(Error::new(ErrorKind::NoSpace, "the disk is full")));
    fake.rule(move |_, request| if is_unmap(request) || is_map(request) { full() } else { Do::Usual });
    let address = mapping.as_ptr();
    let error = mapping.unmap(0, SIZE as usize).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSpace);
    assert!(!is_mapped(address), "gone all the same");
    let fixed = commonhold::MapFlags { fixed: true, ..Default::default() };
    let again = MapOptions { hint: address as usize, flags: fixed, ..MapOptions::default() };
    assert_eq!(object.map(&again).unwrap_err().message, "the disk is full");
    fake.rule(|_, _| Do::Usual);
    object.map(&again).expect("the addresses were free again");
}

#[test]
fn copies_go_through_windows() {
    let _alone = alone();
    let fake = FakeHost::start();
    let (_host, object, mapping) = mapped(&fake);
    let data: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
    object.write_at(&data, 4001).unwrap();
    let mut back = vec![0; data.len()];
    object.read_at(&mut back, 4001).unwrap();
    assert_eq!(back, data);
    assert_eq!(word(mapping.as_ptr(), 4008).load(Ordering::SeqCst).to_le_bytes(), data[7..15]);
    let reader = _host.open("/a", Access::Read).unwrap();
    reader.read_at(&mut back, 4001).unwrap();
    assert_eq!(back, data);
}

#[test]
fn readers_and_private_mappings_never_map_shared_memory_writable() {
    let _alone = alone();
    let fake = FakeHost::start();
    let (host, _object, mapping) = mapped(&fake);
    word(mapping.as_ptr(), 0).store(3, Ordering::SeqCst);
    let reader = host.open("/a", Access::Read).unwrap();
    let seen = reader.map(&MapOptions { protection: Protection::Read, ..MapOptions::default() }).unwrap();
    assert_eq!(word(seen.as_ptr(), 0).load(Ordering::SeqCst), 3);
    let own = reader.map(&MapOptions { sharing: Sharing::Private, ..MapOptions::default() }).unwrap();
    word(own.as_ptr(), 0).fetch_add(1, Ordering::SeqCst);
    assert_eq!(word(own.as_ptr(), 0).load(Ordering::SeqCst), 4);
    assert_eq!(word(mapping.as_ptr(), 0).load(Ordering::SeqCst), 3);
}

/// Runs in a fork child, and gives what it returned.
fn in_child(run: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs only `run`, which allocates and makes system calls, and ends without unwinding.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or(99);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 1000 + libc::WTERMSIG(status) }
}

#[test]
fn a_fork_child_sees_the_same_object_in_a_session_of_its_own() {
    let _alone = alone();
    let fake = FakeHost::start();
    let (_host, object, mapping) = mapped(&fake);
    word(mapping.as_ptr(), 0).store(7, Ordering::SeqCst);
    let own = object.map(&MapOptions { sharing: Sharing::Private, ..MapOptions::default() }).unwrap();
    mapping.unmap(4 * PAGE, PAGE).unwrap();
    let before = fake.seen().len();
    let code = in_child(|| {
        if word(mapping.as_ptr(), 0).load(Ordering::SeqCst) != 7 {
            return 1;
        }
        word(mapping.as_ptr(), 8 * PAGE).store(8, Ordering::SeqCst);
        if is_mapped(own.as_ptr()) {
            return 2;
        }
        if object.sync(0, SIZE) != Ok(16) {
            return 3;
        }
        let Ok(more) = object.map(&MapOptions::default()) else { return 4 };
        if word(more.as_ptr(), 8 * PAGE).load(Ordering::SeqCst) != 8 {
            return 5;
        }
        if mapping.unmap(0, PAGE).is_err() {
            return 6;
        }
        0
    });
    assert_eq!(code, 0);
    assert_eq!(word(mapping.as_ptr(), 8 * PAGE).load(Ordering::SeqCst), 8);
    assert_eq!(word(mapping.as_ptr(), 0).load(Ordering::SeqCst), 7, "the child unmapped its own");
    let child: Vec<Request> = fake.seen().into_iter().skip(before).map(|(_, r)| r).collect();
    assert!(matches!(child[0], Request::Hello { .. }));
    assert!(child.iter().any(|r| matches!(r, Request::Reattach { object: id, .. } if *id == object.id())));
    assert_eq!(child.iter().filter(|r| is_map(r)).count(), 3, "two pieces of the parent's, one new");
    assert!(object.sync(0, SIZE).is_ok(), "the parent's conversation goes on");
}

#[test]
fn a_child_without_a_host_has_no_mapping_rather_than_zeroes() {
    let _alone = alone();
    let mut fake = FakeHost::start();
    let (_host, _object, mapping) = mapped(&fake);
    word(mapping.as_ptr(), 0).store(7, Ordering::SeqCst);
    fake.die();
    let code = in_child(|| i32::from(is_mapped(mapping.as_ptr())));
    fake.listen();
    assert_eq!(code, 0);
}

#[test]
fn many_threads_may_work_while_others_fork() {
    let _alone = alone();
    let fake = FakeHost::start();
    let (host, object, mapping) = mapped(&fake);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(host.open("/a", Access::Read).unwrap());
                    object.sync(0, SIZE).unwrap();
                    drop(
                        object
                            .map(&MapOptions { length: Some(PAGE as u64), ..MapOptions::default() })
                            .unwrap(),
                    );
                }
            });
        }
        for _ in 0..20 {
            let code = in_child(|| i32::from(object.sync(0, SIZE) != Ok(16)));
            assert_eq!(code, 0);
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(mapping);
}

#[test]
fn everything_is_brought_to_the_next_host_even_while_all_threads_sleep_in_faults() {
    let _alone = alone();
    let mut fake = FakeHost::start();
    let (_host, object, mapping) = mapped(&fake);
    word(mapping.as_ptr(), 0).store(7, Ordering::SeqCst);
    mapping.unmap(4 * PAGE, PAGE).unwrap();
    let before = fake.seen().len();
    fake.die();
    // No thread of the program says anything: the library's own thread notices.
    std::thread::sleep(Duration::from_millis(300));
    fake.listen();
    fake.wait_for(3, is_map);
    let asked: Vec<Request> = fake.seen().into_iter().skip(before).map(|(_, r)| r).collect();
    assert!(matches!(asked[0], Request::Hello { .. }), "{asked:?}");
    assert!(matches!(asked[1], Request::Return { .. }), "{asked:?}");
    assert!(matches!(asked[2], Request::Reattach { .. }), "{asked:?}");
    let maps: Vec<_> =
        asked.iter().filter_map(|r| if let Request::Map(map) = r { Some(map) } else { None }).collect();
    assert_eq!(maps.len(), 2, "the mapping was split");
    assert!(maps[0].with_descriptors && !maps[1].with_descriptors);
    assert_ne!(maps[0].mapping, maps[1].mapping);
    assert_eq!(maps[1].offset, 5 * PAGE as u64);
    word(mapping.as_ptr(), 9 * PAGE).store(1, Ordering::SeqCst);
    assert_eq!(object.sync(0, SIZE).unwrap(), 16);
}

#[test]
fn that_a_host_was_stopped_is_said_once_where_threads_may_wait_for_it() {
    if !common::in_own_process("that_a_host_was_stopped_is_said_once_where_threads_may_wait_for_it") {
        return;
    }
    let said = common::Complaints::hear();
    let mut fake = FakeHost::start();
    let (_host, _object, mapping) = mapped(&fake);
    word(mapping.as_ptr(), 0).store(7, Ordering::SeqCst);
    fake.stop();
    said.wait_for(1);
    // Time for two more attempts.
    std::thread::sleep(Duration::from_millis(2500));
    fake.listen();
    said.wait_for(2);
    let said = said.all();
    assert!(said[0].contains("was stopped: start it again with"), "{said:?}");
    assert!(said[0].contains("its threads wait"), "{said:?}");
    assert!(said[1].contains("has taken this process back"), "{said:?}");
    assert_eq!(said.len(), 2, "{said:?}");
    word(mapping.as_ptr(), 3 * PAGE).store(5, Ordering::SeqCst);
    assert_eq!(word(mapping.as_ptr(), 0).load(Ordering::SeqCst), 7);
}

#[test]
fn dropping_what_a_stopped_host_served_is_quick_and_silent() {
    if !common::in_own_process("dropping_what_a_stopped_host_served_is_quick_and_silent") {
        return;
    }
    let said = common::Complaints::hear();
    let mut fake = FakeHost::start();
    let (host, object, mapping) = mapped(&fake);
    let more: Vec<_> = (0..5).map(|_| object.map(&MapOptions::default()).unwrap()).collect();
    word(mapping.as_ptr(), 0).store(7, Ordering::SeqCst);
    let address = mapping.as_ptr();
    fake.stop();
    said.wait_for(1);
    let begun = std::time::Instant::now();
    let error = more[0].unmap(0, PAGE).unwrap_err();
    assert!(error.message.contains("was stopped"), "an explicit call is told: {error}");
    drop((more, mapping, object, host));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(!is_mapped(address));
    assert_eq!(said.all().len(), 1, "{:?}", said.all());
}

#[test]
fn what_the_next_host_refuses_raises_sigbus_and_never_shows_zeroes() {
    if !common::in_own_process("what_the_next_host_refuses_raises_sigbus_and_never_shows_zeroes") {
        return;
    }
    let _alone = alone();
    let mut fake = FakeHost::start();
    let (_host, _object, mapping) = mapped(&fake);
    word(mapping.as_ptr(), 0).store(7, Ordering::SeqCst);
    fake.die();
    let lost = || Do::Answer(Err(Error::new(ErrorKind::Lost, "no such object any more")));
    fake.rule(move |_, request| if is_map(request) { lost() } else { Do::Usual });
    fake.listen();
    fake.wait_for(2, is_map);
    let deadline = Instant::now() + Duration::from_secs(5);
    while is_mapped(mapping.as_ptr()) {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    let address = mapping.as_ptr();
    let code = in_child(|| i32::try_from(word(address, 0).load(Ordering::SeqCst)).unwrap());
    assert!(code == 1000 + libc::SIGBUS || code == 1000 + libc::SIGSEGV, "{code}");
    drop(mapping);
    assert!(!is_mapped(address));
}

#[test]
fn what_the_next_host_has_no_room_for_yet_is_brought_again() {
    let _alone = alone();
    for is_refused in [is_map, |r: &Request| matches!(r, Request::Reattach { .. })] {
        let mut fake = FakeHost::start();
        let (_host, object, mapping) = mapped(&fake);
        word(mapping.as_ptr(), 0).store(7, Ordering::SeqCst);
        fake.die();
        let mut left = 1;
        let full = || Do::Answer(Err(Error::new(ErrorKind::NoSpace, "no memory")));
        fake.rule(move |_, request| match is_refused(request) && left > 0 {
            true => {
                left -= 1;
                full()
            }
            false => Do::Usual,
        });
        let before = fake.count(is_refused);
        fake.listen();
        fake.wait_for(before + 2, is_refused);
        let deadline = Instant::now() + Duration::from_secs(20);
        while object.sync(0, SIZE).is_err() {
            assert!(Instant::now() < deadline, "the process is not taken back");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(is_mapped(mapping.as_ptr()));
        assert_eq!(word(mapping.as_ptr(), 0).load(Ordering::SeqCst), 7);
    }
}

#[test]
fn a_healed_range_is_asked_for_anew() {
    let _alone = alone();
    let fake = FakeHost::start();
    let (_host, _object, mapping) = mapped(&fake);
    word(mapping.as_ptr(), 0).store(7, Ordering::SeqCst);
    let resident = || {
        let mut states = [0u8];
        // SAFETY: one page of a live mapping, and one byte for it.
        let result = unsafe { libc::mincore(mapping.as_ptr().cast(), PAGE, states.as_mut_ptr()) };
        assert_eq!(result, 0);
        present(mapping.as_ptr())
    };
    assert!(resident());
    fake.tell(Event::Heal { address: mapping.as_ptr() as u64, length: PAGE as u64 });
    let deadline = Instant::now() + Duration::from_secs(5);
    while resident() {
        assert!(Instant::now() < deadline, "the entry is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(word(mapping.as_ptr(), 0).load(Ordering::SeqCst), 7, "the frame was kept");
}

/// Whether this process has a page table entry for the address.
fn present(address: *const u8) -> bool {
    use std::os::unix::fs::FileExt;
    let mut entry = [0; 8];
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    pagemap.read_exact_at(&mut entry, address as u64 / PAGE as u64 * 8).unwrap();
    u64::from_ne_bytes(entry) >> 63 == 1
}

const CHILD: &str = "COMMONHOLD_TEST_CHILD";

/// Run by the tests below, in a process of its own.
#[test]
fn a_program_that_exits() {
    let Ok(how) = std::env::var(CHILD) else { return };
    let host = Host::connect().unwrap();
    let object = host.open("/a", Access::ReadWrite).unwrap();
    let mapping = object.map(&MapOptions::default()).unwrap();
    word(mapping.as_ptr(), 0).store(11, Ordering::SeqCst);
    if how == "busy" {
        let address = mapping.as_ptr() as usize;
        for _ in 0..3 {
            std::thread::spawn(move || {
                loop {
                    word(address as *mut u8, 0).fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::mem::forget((host, object, mapping));
    std::process::exit(23);
}

#[test]
fn exit_without_unmapping_is_an_orderly_unmap_even_with_busy_threads() {
    let _alone = alone();
    for how in ["quiet", "busy"] {
        let fake = FakeHost::start();
        let host = Host::connect_to(&fake.directory).unwrap();
        host.create("/a", &ordered(SIZE), None).unwrap();
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "a_program_that_exits", "--nocapture"]);
        let status = program.env(CHILD, how).env("COMMONHOLD_HOST", &fake.directory).output().unwrap();
        assert_eq!(
            status.status.code(),
            Some(23),
            "{how}: {:?} {}",
            status,
            String::from_utf8_lossy(&status.stderr)
        );
        assert_eq!(fake.count(is_unmap), 1, "{how}");
        let seen = fake.frames_of("/a", |frames| {
            let mut bytes = [0; 8];
            rustix::io::pread(frames, &mut bytes, 0).unwrap();
            u64::from_ne_bytes(bytes)
        });
        assert!(seen >= 11, "{how}: {seen}");
    }
}
