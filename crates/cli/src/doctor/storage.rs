//! The state directory: where it lies, and whether what is written there lasts.

use super::report::Check;
use crate::place::HostPlace;
use crate::units::format_size;
use rustix::fs::Access;
use std::path::{Path, PathBuf};

const NAME: &str = "state directory";
/// Less than this is soon full of journals and spilled pages.
const FREE_BYTES_GOOD: u64 = 1 << 30;

/// What is known of a file system by the number that the kernel gives its kind (statfs(2)).
enum Lasting {
    Yes(&'static str),
    Memory(&'static str),
    Network(&'static str),
    Unknown,
}

fn kind(magic: u64) -> Lasting {
    match magic {
        0xef53 => Lasting::Yes("ext4"),
        0x5846_5342 => Lasting::Yes("xfs"),
        0x9123_683e => Lasting::Yes("btrfs"),
        0xf2f5_2010 => Lasting::Yes("f2fs"),
        0x2fc1_2fc1 => Lasting::Yes("zfs"),
        0x794c_7630 => Lasting::Yes("overlay"),
        0x0102_1994 => Lasting::Memory("tmpfs"),
        0x8584_58f6 => Lasting::Memory("ramfs"),
        0x6969 => Lasting::Network("nfs"),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => Lasting::Network("smb"),
        0x0102_1997 => Lasting::Network("9p"),
        0x00c3_6400 => Lasting::Network("ceph"),
        0x6573_5546 => Lasting::Network("fuse"),
        _ => Lasting::Unknown,
    }
}

/// Kind and free space of the file system that the state directory is, or would be, in.
pub fn state_directory(place: &HostPlace) -> Check {
    let (directory, running) = match place.running() {
        Ok((directory, Ok(_))) => (directory, true),
        _ => match place.to_start(None) {
            Ok(directory) => (directory, false),
            Err(error) => return Check::fail(NAME, error.message, "name one with --host or COMMONHOLD_HOST"),
        },
    };
    let existing = nearest_existing(&directory);
    // A host that runs may be another user's.
    if !running && let Err(why) = can_be_written(&existing) {
        return Check::fail(
            NAME,
            format!("{} cannot be made or written: {} {why}", directory.display(), existing.display()),
            "name another with --host or COMMONHOLD_HOST",
        );
    }
    match rustix::fs::statfs(&existing) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(u64::try_from(found.f_bsize).unwrap_or(0));
            judge(&directory, found.f_type as u64, free)
        }
        Err(errno) => Check::fail(
            NAME,
            format!("{} cannot be looked at: {errno}", existing.display()),
            "name another with --host or COMMONHOLD_HOST",
        ),
    }
}

/// A directory that does not exist yet will lie in the file system of the nearest one above it that does.
fn nearest_existing(path: &Path) -> PathBuf {
    path.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/")).to_owned()
}

fn can_be_written(directory: &Path) -> Result<(), String> {
    if !directory.is_dir() {
        return Err("is no directory".to_owned());
    }
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|errno| format!("may not be written ({errno})"))
}

fn judge(directory: &Path, magic: u64, free_bytes: u64) -> Check {
    let place = directory.display();
    let free = format!("{} free", format_size(free_bytes));
    let name = match kind(magic) {
        Lasting::Yes(name) => name.to_owned(),
        Lasting::Unknown => format!("file system {magic:#x}"),
        Lasting::Memory(name) => {
            return Check::warn(
                NAME,
                format!("{place} on {name}, {free}: a reboot loses names and journals"),
                "name a directory on a disk with --host or COMMONHOLD_HOST",
            );
        }
        Lasting::Network(name) => {
            return Check::warn(
                NAME,
                format!("{place} on {name}, {free}: locks and flushes may not be what they seem there"),
                "name a directory on a local disk with --host or COMMONHOLD_HOST",
            );
        }
    };
    let found = format!("{place} on {name}, {free}");
    if free_bytes < FREE_BYTES_GOOD {
        return Check::warn(NAME, found, "make room: journals and spilled pages are kept there");
    }
    Check::ok(NAME, found)
}

#[cfg(test)]
mod tests {
    use super::super::report::State;
    use super::*;

    #[test]
    fn file_systems_are_judged() {
        let here = Path::new("/somewhere");
        for (magic, free, state) in [
            (0xef53, 1 << 40, State::Ok),
            (0xef53, 1 << 20, State::Warn),
            (0x0102_1994, 1 << 40, State::Warn),
            (0x6969, 1 << 40, State::Warn),
            (0x1234, 1 << 40, State::Ok),
        ] {
            assert_eq!(judge(here, magic, free).state, state, "{magic:#x}");
        }
        assert_eq!(can_be_written(&std::env::temp_dir()), Ok(()));
        assert!(can_be_written(Path::new("/proc/self/status")).unwrap_err().contains("no directory"));
        assert_eq!(nearest_existing(Path::new("/proc/no-such-thing/below")), Path::new("/proc"));
    }
}
