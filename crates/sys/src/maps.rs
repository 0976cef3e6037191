//! Which mappings of a file another process has: /proc/PID/maps.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMapping {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Whether the process may write.
    pub writable: bool,
    /// Whether others see what it writes.
    pub shared: bool,
}

/// A file to look for.
#[derive(Clone, Debug)]
pub struct MappedFile {
    device: u64,
    inode: u64,
    /// Some file systems (btrfs, overlay) show another device in maps than in stat: then the path must agree.
    path: String,
}

impl MappedFile {
    /// The file of a descriptor.
    pub fn of(fd: impl AsFd) -> io::Result<MappedFile> {
        let fd = fd.as_fd();
        let stat = rustix::fs::fstat(fd)?;
        let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        Ok(MappedFile { device: stat.st_dev, inode: stat.st_ino, path: path.to_string_lossy().into_owned() })
    }

    /// The mappings that process `pid` has of it.
    pub fn mappings_in(&self, pid: u32) -> io::Result<Vec<FileMapping>> {
        Ok(self.mappings_among(&std::fs::read(format!("/proc/{pid}/maps"))?))
    }

    /// Those among these lines.
    pub fn mappings_among(&self, text: &[u8]) -> Vec<FileMapping> {
        // Paths may be no UTF-8; what comes before them always is.
        let lines = text.split(|byte| *byte == b'\n').map(String::from_utf8_lossy);
        lines.filter_map(|line| self.parse(&line)).collect()
    }

    /// A line such as `7f1c0000-7f1c2000 rw-s 00001000 00:01 1027   /memfd:x (deleted)`.
    fn parse(&self, line: &str) -> Option<FileMapping> {
        let mut fields = line.split_ascii_whitespace();
        let (range, rights, offset) = (fields.next()?, fields.next()?, fields.next()?);
        let (device, inode) = (fields.next()?, fields.next()?);
        if inode.parse() != Ok(self.inode) || !(self.is_on(device)? || line.ends_with(&self.path)) {
            return None;
        }
        let (start, end) = range.split_once('-')?;
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        let (start, end) = (hex(start)?, hex(end)?);
        let rights = rights.as_bytes();
        Some(FileMapping {
            address: start,
            length: end.checked_sub(start)?,
            offset: hex(offset)?,
            writable: rights.get(1) == Some(&b'w'),
            shared: rights.get(3) == Some(&b's'),
        })
    }

    fn is_on(&self, device: &str) -> Option<bool> {
        let (major, minor) = device.split_once(':')?;
        let number = |digits| u32::from_str_radix(digits, 16).ok();
        Some(rustix::fs::makedev(number(major)?, number(minor)?) == self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames;
    use crate::memory::{self, Wish};

    #[test]
    fn own_mappings_are_found() {
        let fd = frames::create("maps-test", 8192).unwrap();
        let writable = Wish {
            hint: std::ptr::null_mut(),
            fixed: false,
            write: true,
            private: false,
            not_inherited: false,
            controlled: false,
        };
        let find = || MappedFile::of(&fd).unwrap().mappings_in(std::process::id()).unwrap();
        assert_eq!(find(), []);
        let address = memory::map(&fd, 4096, 4096, writable).unwrap();
        let address = address.as_ptr() as u64;
        let expected = FileMapping { address, length: 4096, offset: 4096, writable: true, shared: true };
        assert_eq!(find(), [expected]);
    }

    #[test]
    fn lines_of_other_files_and_odd_ones_are_left_out() {
        let line = "7f10-7f12 r--p 00001000 08:01 77    /a b/c\u{fffd}";
        let file = |minor, inode, path: &str| MappedFile {
            device: rustix::fs::makedev(8, minor),
            inode,
            path: path.into(),
        };
        let found = file(1, 77, "/elsewhere").parse(line).unwrap();
        assert_eq!((found.address, found.length, found.offset), (0x7f10, 2, 0x1000));
        assert!(!found.writable && !found.shared);
        assert_eq!(file(1, 78, "/a b/c\u{fffd}").parse(line), None);
        assert_eq!(file(2, 77, "/elsewhere").parse(line), None);
        assert_eq!(file(2, 77, "/a b/c\u{fffd}").parse(line), Some(found), "the path agrees");
        assert_eq!(file(1, 77, "/x").parse("7f10-7f12 r--p 0 00:00 0"), None);
        assert_eq!(file(1, 77, "/x").parse(""), None);
    }
}
