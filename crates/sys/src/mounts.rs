//! The mounts that this process sees.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// All of them, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Vec<Mount>);

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    id: u64,
    device: u64,
    /// Where.
    pub directory: PathBuf,
    /// The type of its file system.
    pub file_system: String,
    /// What that says it is of.
    pub source: String,
}

impl Mounts {
    /// As they are now.
    pub fn read() -> io::Result<Mounts> {
        Ok(Mounts::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    /// Those of these lines.
    pub fn parse(text: &[u8]) -> Mounts {
        Mounts(text.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect())
    }

    /// What is mounted at that directory: the last of all.
    pub fn at(&self, directory: &Path) -> Option<&Mount> {
        self.0.iter().rfind(|mount| mount.directory == directory)
    }

    /// Whether there is a mount of that number.
    pub fn has(&self, mount: u64) -> bool {
        self.0.iter().any(|known| known.id == mount)
    }

    /// The type of the file system of a file: by its mount, else by its device, which one file system alone has.
    pub fn file_system(&self, mount: u64, device: u64) -> Option<&str> {
        let by_mount = self.0.iter().find(|known| known.id == mount);
        let found = by_mount.or_else(|| self.0.iter().find(|known| known.device == device));
        found.map(|known| known.file_system.as_str())
    }
}

impl Mount {
    /// The number of its device among those of its kind: that of a FUSE connection, too.
    pub fn minor(&self) -> u32 {
        rustix::fs::minor(self.device)
    }

    /// A line such as `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
    fn parse(line: &[u8]) -> Option<Mount> {
        // A path has no space in it here, and may be no UTF-8.
        let mut fields = line.split(|byte| *byte == b' ');
        let text = |field: &[u8]| std::str::from_utf8(field).ok().map(str::to_owned);
        let (id, device) = (text(fields.next()?)?.parse().ok()?, text(fields.nth(1)?)?);
        let (major, minor) = device.split_once(':')?;
        let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        let directory = PathBuf::from(OsString::from_vec(unescaped(fields.nth(1)?)));
        let mut fields = fields.skip_while(|field| *field != b"-");
        let file_system = text(fields.nth(1)?)?;
        let source = fields.next().map(unescaped).unwrap_or_default();
        let source = String::from_utf8_lossy(&source).into_owned();
        Some(Mount { id, device, directory, file_system, source })
    }
}

/// Spaces, tabs, newlines and backslashes are written `\040` and the like.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *byte == b'\\') {
            Some(escaped) => {
                plain.push(escaped);
                rest = &after[3..];
            }
            None => {
                plain.push(*byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo() {
        let line =
            br"36 35 98:1 /mnt1 /mnt/a\040b rw,noatime master:1 shared:2 - fuse.commonhold /var/lib\134x rw";
        let expected = Mount {
            id: 36,
            device: rustix::fs::makedev(98, 1),
            directory: "/mnt/a b".into(),
            file_system: "fuse.commonhold".into(),
            source: r"/var/lib\x".into(),
        };
        let found = Mount::parse(line).unwrap();
        assert_eq!(found.minor(), 1);
        assert_eq!(found, expected);
        for odd in ["", "36", "36 35", "36 35 98 /", "x 35 98:1 / / rw - ext4 a b", "36 35 98:1 / / rw"] {
            assert_eq!(Mount::parse(odd.as_bytes()), None, "{odd}");
        }
    }
}
