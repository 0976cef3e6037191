//! fs-verity: where a file system has it, the kernel itself refuses to change a file, and to give out bytes of it that are
//! not those that were sealed.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Duration;

/// `struct fsverity_enable_arg` of `<linux/fsverity.h>`, without salt and signature.
#[repr(C)]
struct Enable {
    version: u32,
    hash_algorithm: u32,
    block_bytes: u32,
    salt_bytes: u32,
    salt: u64,
    signature_bytes: u32,
    reserved: u32,
    signature: u64,
    more: [u64; 11],
}

/// `FS_IOC_ENABLE_VERITY`: `_IOW('f', 133, struct fsverity_enable_arg)`.
const ENABLE: u64 = 1 << 30 | (size_of::<Enable>() as u64) << 16 | (b'f' as u64) << 8 | 133;
const SHA256: u32 = 1;

/// How often a file that somebody writes is tried again, a millisecond later each time.
const TRIES: u32 = 100;

/// Seals a file that the caller may write, and that nobody has open to write. An error where the file system has no such
/// thing. A process that another thread just began has what was open here until it is another program: that is waited for.
pub fn seal(file: impl AsFd) -> Result<()> {
    let enable = Enable {
        version: 1,
        hash_algorithm: SHA256,
        block_bytes: 4096,
        salt_bytes: 0,
        salt: 0,
        signature_bytes: 0,
        reserved: 0,
        signature: 0,
        more: [0; 11],
    };
    let mut tries = 0;
    loop {
        // SAFETY: the call reads the structure, which is as the kernel's header has it.
        if unsafe { libc::ioctl(file.as_fd().as_raw_fd(), ENABLE as _, &raw const enable) } == 0 {
            return Ok(());
        }
        let error = Error::last_os_error();
        if tries == TRIES || error.raw_os_error() != Some(libc::ETXTBSY) {
            return Err(error);
        }
        tries += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether files in a directory can be sealed: tries it with one that is gone then.
pub fn probe(directory: &Path) -> Result<()> {
    use std::io::Write;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(b"sealed")?;
    let path = file.into_temp_path();
    seal(File::open(&path)?)
}

/// Whether a file is sealed.
pub fn is_sealed(file: impl AsFd) -> bool {
    use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};
    statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::VERITY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_the_kernels() {
        assert_eq!((size_of::<Enable>(), ENABLE), (128, 0x4080_6685));
    }

    #[test]
    fn a_file_is_sealed_or_the_file_system_says_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"before").unwrap();
        let sealed = seal(File::open(&path).unwrap());
        assert_eq!(is_sealed(File::open(&path).unwrap()), sealed.is_ok());
        match sealed {
            Ok(()) => assert!(File::options().write(true).open(&path).is_err()),
            Err(error) => {
                let without = [libc::EOPNOTSUPP, libc::ENOTTY, libc::EINVAL, libc::ENOSYS];
                assert!(error.raw_os_error().is_some_and(|code| without.contains(&code)), "{error}");
                std::fs::write(&path, b"after").unwrap();
            }
        }
        assert_eq!(probe(folder.path()).is_ok(), is_sealed(File::open(&path).unwrap()));
    }
}
