//! Who can put something else in the place of a file: before it is run, or what it says is done.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// Only who made an entry may take it away.
const STICKY: u32 = 0o1000;

/// Who beside root and these users can write a file, or put another in its place: the file and each directory above it
/// are looked at. `None`: nobody can.
pub fn who_else_writes(path: &Path, trusted: &[u32]) -> io::Result<Option<String>> {
    let whole = path.canonicalize()?;
    if let Some(who) = writer(&std::fs::metadata(&whole)?, trusted) {
        return Ok(Some(who));
    }
    for place in whole.ancestors().skip(1) {
        let found = std::fs::metadata(place)?;
        // From a sticky one only its owner, and the owner of what lies there, take it away.
        let is_sticky = found.mode() & STICKY != 0;
        let who = owner(&found, trusted).or_else(|| others(&found, trusted).filter(|_| !is_sticky));
        if let Some(who) = who {
            return Ok(Some(format!("{who}, who can write in {},", place.display())));
        }
    }
    Ok(None)
}

/// Who beside root and these users can write a file, or in a directory.
pub fn writer(found: &Metadata, trusted: &[u32]) -> Option<String> {
    owner(found, trusted).or_else(|| others(found, trusted))
}

fn owner(found: &Metadata, trusted: &[u32]) -> Option<String> {
    let is_trusted = found.uid() == 0 || trusted.contains(&found.uid());
    (!is_trusted).then(|| format!("user {}", found.uid()))
}

fn others(found: &Metadata, trusted: &[u32]) -> Option<String> {
    // A user's own group has the user's number.
    let is_own_group = found.gid() != 0 && trusted.contains(&found.gid());
    match found.mode() {
        mode if mode & OTHERS_WRITE != 0 => Some("everybody".to_owned()),
        mode if mode & GROUP_WRITES != 0 && !is_own_group => Some(format!("group {}", found.gid())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn who_can_write_a_file_or_beside_it_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let (inner, file) = (directory.path().join("inner"), directory.path().join("inner/file"));
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(&file, "").unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let own = rustix::process::geteuid().as_raw();
        let who = || who_else_writes(&file, &[own]).unwrap();
        mode(&inner, 0o755);
        mode(&file, 0o644);
        assert_eq!(who(), None);
        mode(&file, 0o666);
        assert_eq!(who().unwrap(), "everybody");
        mode(&file, 0o644);
        mode(&inner, 0o777);
        assert!(who().unwrap().starts_with("everybody, who can write in "));
        // As in /tmp: the file is not theirs, and they cannot take it away.
        mode(&inner, 0o1777);
        assert_eq!(who(), None);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(65_533), Some(65_533)).unwrap();
            assert_eq!(who().unwrap(), "user 65533");
            mode(&file, 0o664);
            assert_eq!(who_else_writes(&file, &[own, 65_533]).unwrap(), None, "a group of its own");
            std::os::unix::fs::chown(&file, Some(65_533), Some(65_532)).unwrap();
            assert_eq!(who_else_writes(&file, &[own, 65_533]).unwrap().unwrap(), "group 65532");
            std::os::unix::fs::chown(&inner, Some(65_532), None).unwrap();
            mode(&file, 0o644);
            assert!(who_else_writes(&file, &[own, 65_533]).unwrap().unwrap().starts_with("user 65532, who"));
        }
    }
}
