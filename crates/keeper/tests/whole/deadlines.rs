//! Fault deadlines while no host serves: what the keeper ends, what it lets wait, and who is told.

use crate::driver::{Driver, kill_and_wait};
use crate::left_out::left_out;
use commonhold_sys::memory::{self, Wish};
use commonhold_sys::userfaultfd::{Kind, Modes, Userfaultfd};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

const PAGE: u64 = 4096;
/// The first pages of the memory have a deadline, the others none.
const HURRIED: u64 = 1200;
const PAGES: u64 = HURRIED + 4;
const UFFD: &str = "session/1/uffd/0";
const DEADLINE: &str = "session/1/deadline/0";
const ENDED: &str = "session/1/ended/0";

/// Memory of this process whose faults a host would serve.
struct Memory {
    uffd: Userfaultfd,
    start: u64,
    _frames: OwnedFd,
}

impl Memory {
    /// None: only the kernel's own accesses can fail without ending the process, and here they are not noticed.
    fn with_kernel_faults() -> Option<Memory> {
        let (uffd, kernel_faults) = Userfaultfd::create(Kind::Asynchronous, None).unwrap();
        if !kernel_faults {
            left_out("the kernel's own accesses are not noticed for this user");
            return None;
        }
        let frames = commonhold_sys::frames::create("deadline test", PAGES * PAGE).unwrap();
        let wish = Wish {
            hint: std::ptr::null_mut(),
            fixed: false,
            write: true,
            private: false,
            not_inherited: true,
            controlled: true,
        };
        let start = memory::map(&frames, 0, (PAGES * PAGE) as usize, wish).unwrap().as_ptr() as u64;
        let modes = Modes { missing: true, minor: true, write_protect: true };
        uffd.register(start, PAGES * PAGE, modes).unwrap();
        Some(Memory { uffd, start, _frames: frames })
    }

    fn address(&self, page: u64) -> u64 {
        self.start + page * PAGE
    }

    /// Touches a page in a thread of its own. The receiver hears whether it could be had.
    fn touch(&self, page: u64) -> Receiver<bool> {
        let (say, heard) = channel();
        let address = self.address(page);
        std::thread::spawn(move || {
            let pointer = std::ptr::NonNull::new(address as *mut u8).unwrap();
            let _ = say.send(memory::populate_read(pointer, PAGE as usize).is_ok());
        });
        heard
    }

    /// Answers the faults of these pages, as a host would, until all of them came.
    fn serve(&self, pages: &[u64], driver: &Driver) {
        let mut left: Vec<u64> = pages.iter().map(|page| self.address(*page)).collect();
        driver.wait("the faults", || {
            let mut faults = Vec::new();
            self.uffd.read_faults(&mut faults).unwrap();
            for fault in faults {
                let _ = self.uffd.copy(fault.address, &[1; PAGE as usize], true);
                left.retain(|address| *address != fault.address);
            }
            left.is_empty().then_some(())
        });
    }
}

/// A host that has promised this process a deadline for the first pages.
fn promised(memory: &Memory, deadline_ms: u64) -> Driver {
    let driver = Driver::start();
    driver.try_ask_with(&format!("take {UFFD}"), &[memory.uffd.as_fd()]).unwrap();
    let (start, length) = (memory.start, HURRIED * PAGE);
    driver.ask(&format!("deadline {DEADLINE} {start} {length} {deadline_ms} {UFFD}"));
    driver
}

fn fails(touch: &Receiver<bool>) -> bool {
    !touch.recv_timeout(Duration::from_secs(60)).expect("the wait ends")
}

fn waits(touch: &Receiver<bool>) -> bool {
    touch.recv_timeout(Duration::from_millis(300)) == Err(RecvTimeoutError::Timeout)
}

#[test]
fn late_faults_end_and_the_next_host_is_told() {
    let Some(memory) = Memory::with_kernel_faults() else { return };
    let driver = promised(&memory, 100);
    // Its message was read by a host that answers nothing any more.
    let (read_before, elsewhere) = (memory.touch(0), memory.touch(HURRIED));
    let mut faults = Vec::new();
    driver.wait("the first fault", || {
        memory.uffd.read_faults(&mut faults).unwrap();
        faults.iter().any(|fault| fault.address == memory.start).then_some(())
    });
    std::fs::write(driver.state().join("die"), "").unwrap();
    kill_and_wait(driver.status().host);
    assert!(fails(&read_before) && fails(&memory.touch(2)) && fails(&memory.touch(1)));
    assert!(waits(&elsewhere), "no deadline was promised there");
    std::fs::remove_file(driver.state().join("die")).unwrap();
    assert_eq!(driver.ask_any(&format!("ended {ENDED}")), format!("{:?}", [(memory.start, 3 * PAGE)]));
    memory.serve(&[HURRIED], &driver);
    assert!(!fails(&elsewhere));
    // With a host that serves nothing is ended, and what was healed is forgotten.
    driver.ask(&format!("forget {ENDED}"));
    let later = memory.touch(3);
    assert!(waits(&later));
    memory.serve(&[3], &driver);
    assert!(!fails(&later));
    driver.kill_host();
    assert_eq!(driver.ask_any(&format!("ended {ENDED}")), "[]");
}

/// More than the keeper remembers at once: the messages of the others wait in the kernel until there is room.
#[test]
fn any_number_of_late_faults_ends() {
    let Some(memory) = Memory::with_kernel_faults() else { return };
    let driver = promised(&memory, 20);
    std::fs::write(driver.state().join("die"), "").unwrap();
    kill_and_wait(driver.status().host);
    let touches: Vec<Receiver<bool>> = (0..HURRIED).map(|page| memory.touch(page)).collect();
    assert!(touches.iter().all(fails));
    std::fs::remove_file(driver.state().join("die")).unwrap();
    let expected = format!("{:?}", [(memory.start, HURRIED * PAGE)]);
    assert_eq!(driver.ask_any(&format!("ended {ENDED}")), expected);
    let lines = driver.log().matches("pages given SIGBUS").count();
    assert!(lines < 120, "the log is not filled: {lines} lines");
}

#[test]
fn faults_are_ended_while_a_host_starts_and_nothing_read_meanwhile_is_lost() {
    let Some(memory) = Memory::with_kernel_faults() else { return };
    let driver = promised(&memory, 100);
    std::fs::write(driver.state().join("slow"), "").unwrap();
    kill_and_wait(driver.status().host);
    driver.wait("a host that has what was kept", || driver.state().join("is-slow").exists().then_some(()));
    let elsewhere = memory.touch(HURRIED + 1);
    assert!(fails(&memory.touch(1)));
    assert!(waits(&elsewhere));
    std::fs::remove_file(driver.state().join("slow")).unwrap();
    // What was ended after the host had received all that was kept is told when it serves.
    let expected = format!("{:?}", [(memory.address(1), PAGE)]);
    driver.wait("word of it", || (driver.ask(&format!("ended {ENDED}")) == expected).then_some(()));
    memory.serve(&[HURRIED + 1], &driver);
    assert!(!fails(&elsewhere));
}
