//! fs-verity: the file system itself checks each page of a file as it is read, and lets nobody change it.

use std::os::fd::{AsFd, AsRawFd};

/// `FS_IOC_ENABLE_VERITY`.
const ENABLE: libc::c_ulong = 0x4080_6685;
/// SHA-256.
const HASH: u32 = 1;

/// `struct fsverity_enable_arg`.
#[repr(C)]
struct Enable {
    version: u32,
    hash_algorithm: u32,
    block_bytes: u32,
    salt_bytes: u32,
    salt: u64,
    signature_bytes: u32,
    reserved_word: u32,
    signature: u64,
    reserved: [u64; 11],
}

const _: () = assert!(size_of::<Enable>() == 128);

/// Turns it on for a file that nobody has open for writing. Whether it is on: most file systems cannot.
pub fn enable(file: impl AsFd) -> bool {
    let arguments = Enable {
        version: 1,
        hash_algorithm: HASH,
        block_bytes: 4096,
        salt_bytes: 0,
        salt: 0,
        signature_bytes: 0,
        reserved_word: 0,
        signature: 0,
        reserved: [0; 11],
    };
    // SAFETY: the kernel reads a structure of this size, without salt and signature; the descriptor is open.
    unsafe { libc::ioctl(file.as_fd().as_raw_fd(), ENABLE as _, &raw const arguments) == 0 }
}

/// Whether it is on.
pub fn is_on(file: impl AsFd) -> bool {
    use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};
    statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::VERITY))
}
