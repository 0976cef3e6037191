//! How many tables map a page: what the kernel counts is the proof that tables are shared.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

/// Tables that map a page of memory, in all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables(pub u64);

/// Of how many page tables the page at this address of the calling process is an entry. Needs CAP_SYS_ADMIN; the page must have
/// been touched here.
pub fn tables_of_page(address: NonNull<u8>) -> io::Result<Tables> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let entry = number(&File::open("/proc/self/pagemap")?, address.as_ptr() as u64 / 4096)?;
    if entry & PRESENT == 0 {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the page has not been touched here"));
    }
    match entry & FRAME {
        0 => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the kernel says only to root where a page is (CAP_SYS_ADMIN)",
        )),
        frame => Ok(Tables(number(&File::open("/proc/kpagecount")?, frame)?)),
    }
}

fn number(file: &File, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at * 8)?;
    Ok(u64::from_ne_bytes(bytes))
}
