//! Which file systems there are, and which of them may keep a reader waiting.

use std::collections::HashMap;
use std::path::Path;

/// File systems that answer from this machine alone. Anything else is asked in a thread that can be left behind.
const LOCAL: &[&str] = &[
    "bcachefs",
    "btrfs",
    "cramfs",
    "devtmpfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hfsplus",
    "hugetlbfs",
    "iso9660",
    "jfs",
    "minix",
    "ntfs3",
    "overlay",
    "proc",
    "ramfs",
    "reiserfs",
    "romfs",
    "rootfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "udf",
    "vfat",
    "xfs",
    "zfs",
];

/// Whether a file system of this kind answers from this machine alone.
pub fn is_local(kind: &str) -> bool {
    LOCAL.contains(&kind)
}

/// Whether stat tells another device than smaps does: subvolumes and layers have devices of their own.
pub fn has_several_devices(kind: &str) -> bool {
    matches!(kind, "overlay" | "btrfs" | "bcachefs")
}

/// The mounts of one namespace: the kind of each device.
#[derive(Debug, Default)]
pub struct Mounts {
    kinds: HashMap<u64, String>,
    /// Of each mount: where it is, its options and those of its file system, and its kind.
    points: Vec<(String, String, String)>,
}

impl Mounts {
    /// Reads the text of mountinfo; what cannot be understood is passed over.
    pub fn parse(text: &[u8]) -> Self {
        let mut mounts = Mounts::default();
        for line in String::from_utf8_lossy(text).lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let before: Vec<&str> = before.split(' ').collect();
            let mut after = after.split(' ');
            let (Some(device), Some(point), Some(kind)) = (before.get(2), before.get(4), after.next()) else {
                continue;
            };
            let Some((major, minor)) = device.split_once(':') else { continue };
            let (Ok(major), Ok(minor)) = (major.parse(), minor.parse()) else { continue };
            mounts.kinds.insert(rustix::fs::makedev(major, minor), kind.to_owned());
            let options = format!("{},{}", before.get(5).unwrap_or(&""), after.nth(1).unwrap_or(""));
            mounts.points.push(((*point).to_owned(), options, kind.to_owned()));
        }
        mounts
    }

    /// The kind of file system on a device.
    pub fn kind(&self, device: u64) -> Option<&str> {
        self.kinds.get(&device).map(String::as_str)
    }

    /// Where the file system is mounted that has this path, if it is one that may keep a reader waiting. Nothing is
    /// asked of it: links are not followed.
    pub fn far(&self, path: &Path) -> Option<&Path> {
        let above = self.points.iter().filter(|(point, ..)| path.starts_with(point));
        // Of several mounts at one place the last is seen.
        let (point, _, kind) = above.max_by_key(|(point, ..)| point.len())?;
        (!is_local(kind)).then_some(Path::new(point))
    }

    /// How a procfs at `path` hides processes from others, if it does.
    pub fn hidepid(&self, path: &str) -> Option<&str> {
        let (_, options, _) = self.points.iter().rev().find(|(point, ..)| point == path)?;
        let how = options.split(',').find_map(|option| option.strip_prefix("hidepid="))?;
        (!matches!(how, "0" | "off")).then_some(how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        23 22 0:21 / /proc rw,nosuid - proc proc rw,hidepid=invisible\n\
        damaged line\n\
        30 22 0:40 / /mnt/far rw master:2 propagate_from:3 - nfs4 server:/x rw,vers=4.2\n";

    #[test]
    fn kinds_by_device_and_hidepid() {
        let mounts = Mounts::parse(TEXT);
        assert_eq!(mounts.kind(rustix::fs::makedev(254, 0)), Some("ext4"));
        assert_eq!(mounts.kind(rustix::fs::makedev(0, 40)), Some("nfs4"));
        assert_eq!(mounts.kind(rustix::fs::makedev(9, 9)), None);
        assert_eq!(mounts.hidepid("/proc"), Some("invisible"));
        assert_eq!(mounts.hidepid("/"), None);
        assert_eq!(mounts.far(Path::new("/mnt/far/bin/tool")), Some(Path::new("/mnt/far")));
        assert_eq!(mounts.far(Path::new("/mnt/farther")), None);
    }

    #[test]
    fn only_known_local_kinds_are_trusted() {
        assert!(is_local("ext4") && is_local("tmpfs"));
        assert!(!is_local("nfs4") && !is_local("fuse.sshfs") && !is_local("9p") && !is_local(""));
    }
}
