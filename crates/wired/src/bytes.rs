//! The bytes of a place. Whoever may write to an arena can punch holes into it, and a touch of those is SIGBUS where the machine
//! has no huge page left: so the kernel moves the bytes, and says EFAULT.

use commonhold_tables::{Attachment, HUGE, attach_own};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, Error};
use std::os::fd::{AsFd, AsRawFd};

/// So many bytes are mapped at a time.
const WINDOW: u64 = 64 << 20;

/// A part of an arena, mapped for the moment.
struct Window {
    attached: Attachment,
    /// Where in it the part begins.
    skip: usize,
    length: usize,
}

impl Window {
    fn of(arena: impl AsFd, offset: u64, length: u64) -> io::Result<Window> {
        let first = offset - offset % HUGE;
        let end = offset.checked_add(length).ok_or(Errno::OVERFLOW)?.next_multiple_of(HUGE);
        let attached = attach_own(arena, first, (end - first) as usize, None, true)?;
        Ok(Window { attached, skip: (offset - first) as usize, length: length as usize })
    }

    fn part(&self) -> libc::iovec {
        let base = self.attached.address().as_ptr().wrapping_add(self.skip);
        libc::iovec { iov_base: base.cast(), iov_len: self.length }
    }
}

/// Calls `each` with the offset of each window of a length, and its own length.
fn windows(length: u64, mut each: impl FnMut(u64, u64) -> io::Result<()>) -> io::Result<()> {
    (0..length).step_by(WINDOW as usize).try_for_each(|done| each(done, WINDOW.min(length - done)))
}

/// Zeroes a part of an arena.
pub fn zero(arena: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    let zeros = rustix::fs::open("/dev/zero", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    read(zeros, arena, offset, length)
}

/// Fills a part of an arena with what a file has from its position on.
pub fn read(file: impl AsFd, arena: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    let file = file.as_fd().as_raw_fd();
    windows(length, |done, length| {
        let window = Window::of(&arena, offset + done, length)?;
        // SAFETY: within the window, of which nobody has a reference. What cannot be written there is EFAULT.
        through(&window, |part| unsafe { libc::read(file, part.iov_base, part.iov_len) })
    })
}

/// Writes a part of an arena to a file, from its position on.
pub fn write(arena: impl AsFd, offset: u64, length: u64, file: impl AsFd) -> io::Result<()> {
    let file = file.as_fd().as_raw_fd();
    windows(length, |done, length| {
        let window = Window::of(&arena, offset + done, length)?;
        // SAFETY: as above.
        through(&window, |part| unsafe { libc::write(file, part.iov_base, part.iov_len) })
    })
}

/// Has the kernel move all bytes of a window, in as many steps as it takes.
fn through(window: &Window, mut step: impl FnMut(libc::iovec) -> isize) -> io::Result<()> {
    let mut part = window.part();
    while part.iov_len > 0 {
        match step(part) {
            0 => return Err(Error::from(io::ErrorKind::UnexpectedEof)),
            count if count > 0 => {
                part.iov_base = part.iov_base.wrapping_byte_add(count as usize);
                part.iov_len -= count as usize;
            }
            _ => match Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}

/// Copies from one part of an arena to another, which do not overlap, or to another arena. What a writer punched out is zero.
pub fn copy(from: impl AsFd, from_offset: u64, to: impl AsFd, to_offset: u64, length: u64) -> io::Result<()> {
    let from = from.as_fd().as_raw_fd();
    windows(length, |done, length| {
        let window = Window::of(&to, to_offset + done, length)?;
        through(&window, |part| {
            let at = from_offset + done + (length - part.iov_len as u64);
            // SAFETY: within the window, of which nobody has a reference. What cannot be written there is EFAULT.
            unsafe { libc::pread(from, part.iov_base, part.iov_len, at.cast_signed()) }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FallocateFlags;
    use std::sync::{Mutex, PoisonError};

    /// The pool is the machine's.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn bytes_are_zeroed_copied_and_stored() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(_pool) = commonhold_tables::Pool::more(4) else {
            eprintln!("left out: huge pages");
            return;
        };
        let arena = commonhold_tables::make("commonhold-test", 4 * HUGE).unwrap();
        let file = rustix::fs::memfd_create("commonhold-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let bytes: Vec<u8> = (0..HUGE as usize).map(|at| (at / 5) as u8).collect();
        rustix::io::pwrite(&file, &bytes, 0).unwrap();
        let (first, second) = (4096 * 3, 2 * HUGE + 4096);
        read(&file, &arena, first, HUGE).unwrap();
        copy(&arena, first, &arena, second, HUGE).unwrap();
        zero(&arena, first + 4096, 8192).unwrap();
        let get = |offset: u64, length: usize| {
            let mut got = vec![9; length];
            assert_eq!(rustix::io::pread(&arena, &mut got, offset).unwrap(), length);
            got
        };
        assert!(get(second, bytes.len()) == bytes);
        assert!(get(first, 4096) == bytes[..4096] && get(first + 4096, 8192) == [0; 8192]);
        assert!(get(first + 12288, 4096) == bytes[12288..16384]);
        assert_eq!(get(second - 1, 1), [0]);
        let stored = rustix::fs::memfd_create("commonhold-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        write(&arena, second, HUGE, &stored).unwrap();
        let mut got = vec![0; bytes.len()];
        rustix::io::pread(&stored, &mut got, 0).unwrap();
        assert!(got == bytes);
        assert!(read(&stored, &arena, 0, 4096).is_err(), "nothing is left in it");
        assert!(zero(&arena, 4 * HUGE, 4096).is_err(), "past its end");
    }

    #[test]
    fn what_a_writer_took_away_is_an_error() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(pool) = commonhold_tables::Pool::more(2) else {
            eprintln!("left out: huge pages");
            return;
        };
        let arena = commonhold_tables::make("commonhold-test", 2 * HUGE).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&arena, punch, HUGE, HUGE).unwrap();
        // Somebody else takes the page, and whatever the machine had before.
        let other = commonhold_tables::make("commonhold-test", pool.free().unwrap() * HUGE).unwrap();
        assert!(zero(&arena, 0, 2 * HUGE).is_err());
        assert!(copy(&arena, 0, &arena, HUGE, 4096).is_err());
        drop(other);
        zero(&arena, 0, 2 * HUGE).unwrap();
    }
}
