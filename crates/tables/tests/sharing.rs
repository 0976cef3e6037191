//! What the kernel shares, counted: faults of the second process, and tables that map a page.

#[path = "../../../tests/left_out.rs"]
mod left_out;

use commonhold_tables::{Attachment, HUGE, Pool, Segment, attach, attach_own, make, spanned, tables_of_page};
use left_out::left_out;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Two gigabytes, and a tail.
const SIZE: u64 = (2 << 30) + (512 << 20);

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// So many huge pages, for one test at a time.
fn more(pages: u64) -> Option<(Pool, MutexGuard<'static, ()>)> {
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let pool =
        Pool::more(pages).inspect_err(|error| left_out(&format!("{pages} huge pages: {error}"))).ok()?;
    Some((pool, alone))
}

/// A process that attaches the segment, touches every page, says how often it faulted, and stays until it is dropped.
struct Other(Child);

impl Other {
    fn attach(fd: &OwnedFd, how: &str) -> (Other, u64) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "other_process", "--ignored", "--nocapture", "--quiet"]);
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).unwrap();
        command.env("SEGMENT", fd.as_raw_fd().to_string()).env("HOW", how);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("faults") {
            line.clear();
            assert!(std::io::BufRead::read_line(&mut said, &mut line).unwrap() > 0, "it says nothing");
        }
        (Other(child), line.trim().rsplit(' ').next().unwrap().parse().unwrap())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn faults() -> u64 {
    // SAFETY: a number is written into a structure that is all numbers.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    usage.ru_minflt as u64
}

#[test]
#[ignore = "what another process does"]
fn other_process() {
    let Ok(fd) = std::env::var("SEGMENT") else { return };
    // SAFETY: inherited from who started this process, for as long as it runs.
    let fd = unsafe { BorrowedFd::borrow_raw(fd.parse().unwrap()) };
    let how = std::env::var("HOW").unwrap();
    let writes = how != "read";
    let attached = match how.as_str() {
        "own" => attach_own(fd, 0, SIZE as usize, None, true),
        _ => attach(fd, SIZE, None, writes),
    };
    let attached = attached.unwrap();
    let before = faults();
    let mut sum = 0u64;
    for page in 0..SIZE / 4096 {
        // SAFETY: within the segment.
        let place = unsafe { attached.address().add((page * 4096) as usize) };
        sum += u64::from(read(&attached, page * 4096));
        if writes {
            // SAFETY: within the segment, and one process at a time writes to it.
            unsafe { place.as_ptr().write_volatile(1) };
        }
    }
    println!("faults {} {}", sum % 2, faults() - before);
    let _ = std::io::stdin().read_line(&mut String::new()); // it is killed, or its starter ends
}

fn read(attached: &Attachment, at: u64) -> u8 {
    assert!(at < SIZE);
    // SAFETY: within the segment.
    unsafe { attached.address().as_ptr().add(at as usize).read_volatile() }
}

fn pages() -> u64 {
    SIZE / HUGE
}

#[test]
fn the_second_process_has_no_tables_of_its_own() {
    let Some(_pool) = more(pages()) else { return };
    let fd = make("commonhold-segment", SIZE).unwrap();
    let segment = Segment::hold(&fd, SIZE).unwrap();
    segment.fill().unwrap();
    let for_readers = std::fs::File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap().into();
    // The last page is in the gigabyte that the segment does not fill.
    let [first, last] = [0, SIZE - 4096].map(|byte| segment.place(byte).unwrap());
    let tables = |place| tables_of_page(place).expect("root may count").0;
    assert!(segment.place(SIZE).is_none());
    assert_eq!((tables(first), tables(last)), (2, 2), "the masters");
    let mut all = Vec::new();
    for how in ["write", "write", "read", "read"] {
        let fd = if how == "read" { &for_readers } else { &fd };
        let (other, faults) = Other::attach(fd, how);
        assert!(faults <= 4, "{how}: {faults} faults");
        all.push(other);
    }
    assert_eq!((tables(first), tables(last)), (2, 2), "no more than the masters");
    let second_gigabyte = segment.place((1 << 30) + HUGE).unwrap();
    let own: Vec<Other> = (0..2)
        .map(|_| {
            let (other, faults) = Other::attach(&fd, "own");
            assert!(faults >= pages(), "tables of its own: {faults} faults");
            other
        })
        .collect();
    assert_eq!([first, second_gigabyte, last].map(tables), [4; 3], "and not one for both");
    drop(own);
    drop(segment);
    let (_last, faults) = Other::attach(&fd, "write");
    assert!(
        faults <= 4,
        "the tables outlive the masters for as long as somebody is attached: {faults} faults"
    );
}

#[test]
fn own_tables_are_had_whichever_came_first() {
    let Some(_pool) = more(pages()) else { return };
    let fd = make("commonhold-segment", SIZE).unwrap();
    let (_own, faults) = Other::attach(&fd, "own");
    assert!(faults >= pages(), "{faults} faults");
    let segment = Segment::hold(&fd, SIZE).unwrap();
    segment.fill().unwrap();
    let (_other, faults) = Other::attach(&fd, "write");
    assert!(faults <= 4, "{faults} faults");
    // At an address that tables could be shared at, too.
    let at = 0x6000_0000_0000;
    let own = attach_own(&fd, 0, SIZE as usize, Some(at), true).unwrap();
    let _ = read(&own, 0); // touched, so that it is in a table
    assert_eq!(tables_of_page(own.address()).unwrap().0, 4, "both masters, the other process, and this");
    drop(segment);
}

#[test]
fn a_segment_does_not_grow_and_gives_its_pages_back() {
    let Some(_pool) = more(pages()) else { return };
    let free =
        || std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap();
    let before = free();
    let fd = make("commonhold-segment", SIZE).unwrap();
    assert!(rustix::fs::ftruncate(&fd, SIZE + HUGE).is_err());
    let attached = attach(&fd, SIZE, None, true).unwrap();
    assert_eq!(attached.length() as u64, spanned(SIZE));
    assert_eq!(rustix::fs::fstat(&fd).unwrap().st_size as u64, SIZE, "mapping past its end enlarges it not");
    let error = attach(&fd, SIZE, Some(attached.address().as_ptr() as u64), true).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert!(
        attach(&fd, SIZE, Some(0x6000_0000_1000), true).unwrap_err().to_string().contains("0x600000000000")
    );
    drop((attached, fd));
    assert_eq!(free(), before);
}

#[test]
fn a_segment_larger_than_the_pool_is_refused_when_it_is_made() {
    let Some(_pool) = more(1) else { return };
    let error = make("commonhold-segment", 1 << 40).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert!(error.to_string().contains("vm.nr_hugepages="), "{error}");
}
