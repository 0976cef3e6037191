//! Frames: one memfd per object holds the memory of its pages.

use crate::memory::FileWindow;
use crate::userfaultfd::{Kind, Modes, Userfaultfd};
use commonhold_points as points;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, SeekFrom, Timespec, Timestamps};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Makes a memfd of `size_bytes`, mode 0600: a memfd is born 0777, and then anybody who holds it read-only can
/// open it again for writing.
pub fn create(label: &str, size_bytes: u64) -> io::Result<OwnedFd> {
    create_sealed(label, size_bytes, SealFlags::empty())
}

/// The same; and whoever may write to it, it keeps its size.
pub fn create_of_fixed_size(label: &str, size_bytes: u64) -> io::Result<OwnedFd> {
    create_sealed(label, size_bytes, SealFlags::GROW | SealFlags::SHRINK)
}

fn create_sealed(label: &str, size_bytes: u64, seals: SealFlags) -> io::Result<OwnedFd> {
    let flags =
        if seals.is_empty() { MemfdFlags::CLOEXEC } else { MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING };
    let fd = match rustix::fs::memfd_create(label, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(label, flags)?,
        other => other?,
    };
    rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::ftruncate(&fd, size_bytes)?;
    // Nobody who is given the descriptor may forbid writing to it. (Without NOEXEC_SEAL it is born so.)
    let sealed = rustix::fs::fcntl_add_seals(&fd, seals | SealFlags::SEAL);
    if !seals.is_empty() {
        sealed?;
    }
    Ok(fd)
}

/// Opens the same file again for reading alone: one of the host's own, or one of which it is known where it lies. Does not wait
/// until somebody gives up a lease on it.
pub fn reopen_read_only(fd: impl AsFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?)
}

/// RWF_NOAPPEND of linux/fs.h, Linux 6.9.
const NOAPPEND: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x20);

/// Writes bytes at their place, whatever flags the descriptor has: whoever shares it may set O_APPEND at any time, which would
/// lead them to the file's end.
#[cfg_attr(feature = "faults", track_caller)]
pub fn write_in_place(fd: impl AsFd, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    let fd = fd.as_fd();
    while !bytes.is_empty() {
        match points::pwrite(|| write_some(fd, bytes, offset)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Whether [`write_in_place`] also does so where O_APPEND is set (Linux 6.9).
pub fn writes_in_place_despite_append() -> bool {
    let Ok(file) = rustix::fs::memfd_create("append", MemfdFlags::CLOEXEC) else { return false };
    rustix::io::pwritev2(file, &[io::IoSlice::new(b"x")], 0, NOAPPEND).is_ok()
}

fn write_some(fd: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> rustix::io::Result<usize> {
    match rustix::io::pwritev2(fd, &[io::IoSlice::new(bytes)], offset, NOAPPEND) {
        // Who sets the flag between these two calls may write to the file, and spoils what he could overwrite.
        Err(Errno::OPNOTSUPP) if rustix::fs::fcntl_getfl(fd)?.contains(OFlags::APPEND) => Err(Errno::PERM),
        Err(Errno::OPNOTSUPP) => rustix::io::pwrite(fd, bytes, offset),
        done => done,
    }
}

/// Takes memory (or blocks) for the range now.
pub fn allocate(fd: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, offset, length)?)
}

/// Gives the frames of the range back; who touches them next faults.
#[cfg_attr(feature = "faults", track_caller)]
pub fn punch(fd: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(points::punch(|| rustix::fs::fallocate(&fd, flags, offset, length))?)
}

/// Calls `each` with every run `(offset, length)` of the file that has frames.
pub fn resident_runs(fd: impl AsFd, each: impl FnMut(u64, u64)) -> io::Result<()> {
    resident_runs_in(fd, 0..u64::MAX, each)
}

/// The same of those that begin in a part of the file, or are cut off by its beginning.
pub fn resident_runs_in(
    fd: impl AsFd,
    part: std::ops::Range<u64>,
    mut each: impl FnMut(u64, u64),
) -> io::Result<()> {
    let fd = fd.as_fd();
    let mut at = part.start;
    loop {
        let start = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
            Ok(start) if start >= part.end => return Ok(()),
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        let end = rustix::fs::seek(fd, SeekFrom::Hole(start))?;
        each(start, end - start);
        at = end;
    }
}

/// Whether memory has the page at `offset`. Takes no lock that a writer of that memory may hold, as
/// `lseek` does: a write whose bytes do not come holds it for as long as its sender likes.
pub fn has_page(memory: impl AsFd, offset: u64) -> io::Result<bool> {
    match cache_state(memory.as_fd(), offset, PAGE) {
        Ok(state) => Ok(state.cached + state.evicted > 0),
        Err(error) if is_refused(&error) => {
            let found = rustix::fs::seek(memory, SeekFrom::Data(offset));
            Ok(found.is_ok_and(|found| found == offset))
        }
        Err(error) => Err(error),
    }
}

/// Calls `each` with every run `(offset, length)` of memory that has pages, below `size_bytes`.
/// Takes no lock that a writer of that memory may hold.
pub fn runs_of_memory(memory: impl AsFd, size_bytes: u64, mut each: impl FnMut(u64, u64)) -> io::Result<()> {
    /// Pages in memory, or swapped out.
    fn count(memory: BorrowedFd<'_>, part: (u64, u64)) -> io::Result<u64> {
        cache_state(memory, part.0, part.1).map(|state| state.cached + state.evicted)
    }
    let memory = memory.as_fd();
    let whole = (0, size_bytes.next_multiple_of(PAGE));
    // Halves that are neither full nor empty are looked at in turn, the first of them first.
    let mut open = vec![whole];
    while let Some((offset, length)) = open.pop() {
        let there = match count(memory, (offset, length)) {
            Err(error) if is_refused(&error) && (offset, length) == whole => {
                return resident_runs(memory, each);
            }
            there => there?,
        };
        let pages = length / PAGE;
        if there >= pages && pages > 0 {
            each(offset, length);
        } else if there > 0 && pages > 1 {
            let half = pages.div_ceil(2) * PAGE;
            open.extend([(offset + half, length - half), (offset, half)]);
        }
    }
    Ok(())
}

/// Whether this machine does not let the question be asked: an old filter of system calls.
fn is_refused(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSYS | Errno::PERM))
}

/// Makes the page at `offset` of the memory, of zeros, unless it is there. Takes no lock that a
/// writer of that memory may hold, as `fallocate` does.
#[cfg_attr(feature = "faults", track_caller)]
pub fn make_page(memory: impl AsFd, offset: u64) -> io::Result<()> {
    FileWindow::open(memory, offset, PAGE as usize).map(drop)
}

/// Writes bytes to memory from the start of a page. A page that is not there comes into being with
/// its bytes or not at all, also where this process is killed meanwhile. Takes no lock that a
/// writer of that memory may hold, as `pwrite` does.
#[cfg_attr(feature = "faults", track_caller)]
pub fn write_unlocked(memory: impl AsFd, offset: u64, bytes: &[u8]) -> io::Result<()> {
    /// Most times in a row that a page is neither missing nor there: somebody punches it all the time.
    const VAIN_ROUNDS: u32 = 1000;
    let window = FileWindow::for_writing(memory, offset, bytes.len())?;
    let uffd = for_making_pages()?;
    let modes = Modes { missing: true, minor: false, write_protect: false };
    let start = window.as_ptr().addr() as u64;
    uffd.register(start, (bytes.len() as u64).next_multiple_of(PAGE), modes)?;
    let (mut done, mut vain) = (0, 0);
    while done < bytes.len() && vain < VAIN_ROUNDS {
        let made = make_pages(uffd, start + done as u64, &bytes[done..])?;
        let written = made + write_there(&window, done + made, bytes.get(done + made..).unwrap_or_default())?;
        vain = if written == 0 { vain + 1 } else { 0 };
        done += written;
    }
    if done < bytes.len() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
}

/// Makes pages of a window, up to the first that is there; behind the bytes the last one is zeros.
/// Gives the bytes of those.
#[cfg_attr(feature = "faults", track_caller)]
fn make_pages(uffd: &Userfaultfd, start: u64, bytes: &[u8]) -> io::Result<usize> {
    let (whole, tail) = bytes.split_at(bytes.len() - bytes.len() % PAGE as usize);
    let mut made = 0;
    let mut last = [0; PAGE as usize];
    last[..tail.len()].copy_from_slice(tail);
    for part in [whole, if tail.is_empty() { &[] } else { &last }].into_iter().filter(|part| !part.is_empty())
    {
        let progress = uffd.copy(start + made as u64, part, false);
        made += progress.done as usize;
        match progress.stopped_by {
            None => {}
            Some(Errno::EXIST) => break,
            Some(errno) => return Err(errno.into()),
        }
    }
    Ok(made)
}

/// Writes to pages of a window, up to the first that is not there. Gives the bytes written.
#[cfg_attr(feature = "faults", track_caller)]
fn write_there(window: &FileWindow, at: usize, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return Ok(0);
    }
    assert!(at + bytes.len() <= window.len());
    let from = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let address = window.as_ptr().cast_mut().wrapping_add(at);
    let to = libc::iovec { iov_base: address.cast(), iov_len: bytes.len() };
    // SAFETY: reads `bytes`, and writes as many to the window, which has them and is writable; both
    // outlive the call. Where the memory has shrunk the kernel says so, and nothing is touched.
    let written = unsafe { libc::process_vm_writev(libc::getpid(), &from, 1, &to, 1, 0) };
    match usize::try_from(written) {
        Ok(written) => Ok(written),
        Err(_) => match Errno::from_io_error(&io::Error::last_os_error()) {
            Some(Errno::FAULT) => Ok(0),
            other => Err(other.unwrap_or(Errno::IO).into()),
        },
    }
}

/// By which [`write_unlocked`] makes pages of windows. Nobody reads it: who touches a page of them
/// that is not there gets an error.
fn for_making_pages() -> io::Result<&'static Userfaultfd> {
    static UFFD: OnceLock<Userfaultfd> = OnceLock::new();
    match UFFD.get() {
        Some(uffd) => Ok(uffd),
        None => {
            let (uffd, _) = Userfaultfd::create(Kind::InThread, None)?;
            Ok(UFFD.get_or_init(|| uffd))
        }
    }
}

/// Bytes of memory that the file's frames take.
pub fn resident_bytes(fd: impl AsFd) -> io::Result<u64> {
    Ok(u64::try_from(rustix::fs::fstat(fd)?.st_blocks).unwrap_or(0) * 512)
}

/// When the file was last modified, in nanoseconds since 1970.
pub fn modified_ns(fd: impl AsFd) -> io::Result<u64> {
    let stat = rustix::fs::fstat(fd)?;
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    Ok(seconds.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as u64))
}

/// Gives the file another such time, and keeps the one of its last access.
pub fn set_modified(fd: impl AsFd, modified_ns: u64) -> io::Result<()> {
    let (tv_sec, tv_nsec) = ((modified_ns / 1_000_000_000) as i64, (modified_ns % 1_000_000_000) as i64);
    let kept = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = Timestamps { last_access: kept, last_modification: Timespec { tv_sec, tv_nsec } };
    Ok(rustix::fs::futimens(fd, &times)?)
}

/// A pipe that can hold references to `pages` frames.
pub fn frame_pipe(pages: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    rustix::pipe::fcntl_setpipe_size(&write, pages * 4096)?;
    Ok((read, write))
}

/// Puts references to the frames of the range into a pipe: not copies, the very frames. They outlive a punch,
/// so whatever was written to them until the last page table entry went can still be read from the pipe.
/// Gives the bytes referred to.
pub fn reference_into_pipe(
    frames: impl AsFd,
    offset: u64,
    length: usize,
    pipe: impl AsFd,
) -> io::Result<usize> {
    let mut offset = offset;
    let mut left = length;
    while left > 0 {
        match rustix::pipe::splice(
            frames.as_fd(),
            Some(&mut offset),
            pipe.as_fd(),
            None,
            left,
            SpliceFlags::NONBLOCK,
        ) {
            Ok(0) => break,
            Ok(n) => left -= n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(length - left)
}

/// Takes every frame of the file out of every page table; what is in it stays, in other frames. What is written until the
/// last page table entry goes is not lost: the pipe holds those very frames meanwhile.
pub fn take_from_page_tables(frames: impl AsFd) -> io::Result<()> {
    take_part_from_page_tables(frames, 0..u64::MAX)
}

/// The same of those bytes of the file alone.
pub fn take_part_from_page_tables(frames: impl AsFd, part: std::ops::Range<u64>) -> io::Result<()> {
    /// Frames at a time: what a pipe may hold without privilege.
    const PART: usize = 256;
    let frames = frames.as_fd();
    let (read, write) = frame_pipe(PART)?;
    let mut buffer = vec![0; PART * 4096];
    let mut runs = Vec::new();
    resident_runs_in(frames, part.clone(), |offset, length| runs.push((offset, length)))?;
    for (mut at, length) in runs {
        let end = (at + length).min(part.end);
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let held = reference_into_pipe(frames, at, want, &write)?;
            if held == 0 {
                return Err(io::Error::new(io::ErrorKind::WriteZero, "a pipe takes no frames"));
            }
            punch(frames, at, held as u64)?;
            let mut taken = 0;
            while taken < held {
                taken += rustix::io::read(&read, &mut buffer[taken..held])?;
            }
            let mut put = 0;
            while put < held {
                put += points::pwrite(|| rustix::io::pwrite(frames, &buffer[put..held], at + put as u64))?;
            }
            at += held as u64;
        }
    }
    Ok(())
}

/// Puts references to all that is in one pipe into another too; the first keeps them.
pub fn duplicate_pipe(from: impl AsFd, to: impl AsFd, length: usize) -> io::Result<usize> {
    Ok(rustix::pipe::tee(from, to, length, SpliceFlags::NONBLOCK)?)
}

/// State of a file's pages in the page cache (cachestat(2), Linux 6.5).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheState {
    /// Pages in memory.
    pub cached: u64,
    /// Pages in memory that are newer than the disk.
    pub dirty: u64,
    /// Pages being written.
    pub writeback: u64,
    /// Pages that were in memory.
    pub evicted: u64,
    /// Pages that were in memory a short while ago.
    pub recently_evicted: u64,
}

/// Counts the pages of `offset .. offset + length` by state.
pub fn cache_state(fd: impl AsFd, offset: u64, length: u64) -> io::Result<CacheState> {
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [offset, length];
    let mut state = CacheState::default();
    // SAFETY: `range` is the kernel's struct cachestat_range (two u64) and `state` its struct cachestat (five
    // u64); both outlive the call.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, fd.as_fd().as_raw_fd(), range.as_ptr(), &mut state as *mut CacheState, 0)
    };
    if result == 0 { Ok(state) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_at_their_place_whatever_flags_the_descriptor_has() {
        let fd = create("in place", 8192).unwrap();
        rustix::fs::fcntl_setfl(&fd, OFlags::APPEND).unwrap();
        let done = write_in_place(&fd, b"page", 4096);
        assert_eq!(done.is_ok(), writes_in_place_despite_append());
        assert_eq!(rustix::fs::fstat(&fd).unwrap().st_size, 8192);
        rustix::fs::fcntl_setfl(&fd, OFlags::empty()).unwrap();
        write_in_place(&fd, b"page", 4096).unwrap();
        let mut bytes = [0; 4];
        rustix::io::pread(&fd, &mut bytes, 4096).unwrap();
        assert_eq!(&bytes, b"page");
    }

    #[test]
    fn pages_of_memory_are_told_made_and_written() {
        const PAGES: u64 = 1000;
        let fd = create("unlocked", PAGES * PAGE).unwrap();
        let there = [0, 1, 2, 500, 501, 777, 999];
        there.iter().for_each(|page| write_unlocked(&fd, page * PAGE, &[7; PAGE as usize]).unwrap());
        let mut runs = Vec::new();
        runs_of_memory(&fd, PAGES * PAGE, |offset, length| runs.push((offset / PAGE, length / PAGE)))
            .unwrap();
        let pages: Vec<u64> = runs.iter().flat_map(|(first, count)| *first..first + count).collect();
        assert_eq!(pages, there);
        assert!((0..PAGES).all(|page| has_page(&fd, page * PAGE).unwrap() == there.contains(&page)));
        make_page(&fd, 3 * PAGE).unwrap();
        make_page(&fd, 2 * PAGE).unwrap();
        let mut bytes = [1; 2 * PAGE as usize];
        rustix::io::pread(&fd, &mut bytes, 2 * PAGE).unwrap();
        assert!(bytes[..PAGE as usize] == [7; PAGE as usize] && bytes[PAGE as usize..] == [0; PAGE as usize]);
        // Past its end: an error, and no signal.
        rustix::fs::ftruncate(&fd, PAGE).unwrap();
        assert!(make_page(&fd, 9 * PAGE).is_err());
        assert!(write_unlocked(&fd, 9 * PAGE, &[1; PAGE as usize]).is_err());
    }

    #[test]
    fn pages_come_into_being_whole_and_those_that_are_there_are_written_over() {
        const PAGES: u64 = 4000;
        let fd = create("whole", PAGES * PAGE).unwrap();
        // Every fifth is there, and the last ones end within a page.
        (0..PAGES).step_by(5).for_each(|page| write_unlocked(&fd, page * PAGE, &[1; PAGE as usize]).unwrap());
        let bytes = vec![7; (3 * PAGE) as usize + 9];
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    for page in 0..PAGES {
                        let mut first = [0; 1];
                        if has_page(&fd, page * PAGE).unwrap() {
                            rustix::io::pread(&fd, &mut first, page * PAGE).unwrap();
                            assert_ne!(first, [0], "page {page} is there without its bytes");
                        }
                    }
                }
            });
            (0..PAGES).step_by(4).for_each(|page| write_unlocked(&fd, page * PAGE, &bytes).unwrap());
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut all = vec![0; (PAGES * PAGE) as usize];
        rustix::io::pread(&fd, &mut all, 0).unwrap();
        for (page, bytes) in all.chunks(PAGE as usize).enumerate() {
            let behind = if page % 5 == 0 { 1 } else { 0 };
            let written = if page % 4 == 3 { 9 } else { bytes.len() };
            assert!(bytes[..written].iter().all(|byte| *byte == 7), "{page}");
            assert!(bytes[written..].iter().all(|byte| *byte == behind), "{page}");
        }
    }

    #[test]
    fn frames_leave_page_tables_with_what_is_in_them() {
        const PAGES: usize = 700;
        let fd = create("frames test", (PAGES * 4096) as u64).unwrap();
        let page = |number: usize| [number as u8 ^ (number >> 8) as u8; 4096];
        // With a hole in the middle.
        let there = || (0..PAGES).filter(|number| !(300..320).contains(number));
        for number in there() {
            assert_eq!(rustix::io::pwrite(&fd, &page(number), (number * 4096) as u64).unwrap(), 4096);
        }
        let before = resident_bytes(&fd).unwrap();
        take_from_page_tables(&fd).unwrap();
        assert_eq!(resident_bytes(&fd).unwrap(), before);
        let mut bytes = [0; 4096];
        for number in there() {
            rustix::io::pread(&fd, &mut bytes, (number * 4096) as u64).unwrap();
            assert_eq!(bytes, page(number), "{number}");
        }
    }
}
