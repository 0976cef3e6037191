//! System calls between descriptors and memory that other processes share.

use crate::failure::{Result, failed};
use crate::view::View;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Fills the view from a file, from an offset on.
pub fn fill_from_file(file: impl AsFd, offset: u64, view: View<'_>) -> Result<()> {
    all(view, |at, pointer, length| {
        // SAFETY: so many bytes of the view lie there, to which no reference points.
        unsafe {
            libc::pread(
                file.as_fd().as_raw_fd(),
                pointer.cast(),
                length,
                (offset as usize + at) as libc::off_t,
            )
        }
    })
}

/// Writes all of the view to a file, from an offset on.
pub fn pour_to_file(file: impl AsFd, offset: u64, view: View<'_>) -> Result<()> {
    all(view, |at, pointer, length| {
        // SAFETY: as above.
        unsafe {
            libc::pwrite(
                file.as_fd().as_raw_fd(),
                pointer.cast_const().cast(),
                length,
                (offset as usize + at) as libc::off_t,
            )
        }
    })
}

/// Fills the view with what comes from a socket or a device.
pub fn fill_from(from: impl AsFd, view: View<'_>) -> Result<()> {
    all(view, |_, pointer, length| {
        // SAFETY: as above.
        unsafe { libc::read(from.as_fd().as_raw_fd(), pointer.cast(), length) }
    })
}

/// Writes all of the view to a socket or a device.
pub fn pour_to(to: impl AsFd, view: View<'_>) -> Result<()> {
    all(view, |_, pointer, length| {
        // SAFETY: as above.
        unsafe { libc::write(to.as_fd().as_raw_fd(), pointer.cast_const().cast(), length) }
    })
}

/// Calls for what is left until all is done: the call gets how much was done, an address, a length.
fn all(view: View<'_>, mut call: impl FnMut(usize, *mut u8, usize) -> isize) -> Result<()> {
    let mut done = 0;
    while done < view.len() {
        let got = call(done, view.part(done, view.len() - done).as_mut_ptr(), view.len() - done);
        match usize::try_from(got) {
            Ok(0) => return failed(format!("it ended after {done} of {} bytes", view.len())),
            Ok(bytes) => done += bytes,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error.into()),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{PAGE, RawMapping, memory_file};

    #[test]
    fn what_is_poured_fills_again() {
        let (file, one) = (memory_file(2 * PAGE).unwrap(), RawMapping::anonymous(PAGE).unwrap());
        one.view().write_pages();
        pour_to_file(&file, PAGE as u64, one.view()).unwrap();
        let (other, third) = (RawMapping::anonymous(PAGE).unwrap(), RawMapping::anonymous(PAGE).unwrap());
        fill_from_file(&file, PAGE as u64, other.view()).unwrap();
        assert_eq!(other.view().sum_words(), 1);
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        pour_to(&here, other.view()).unwrap();
        fill_from(&there, third.view()).unwrap();
        assert_eq!(third.view().sum_words(), 1);
        assert!(fill_from_file(&file, 2 * PAGE as u64, third.view()).is_err());
    }
}
