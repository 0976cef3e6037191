//! Whether what is at a path is what root, and nobody else, has put there; and files that end.

use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{Error, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Of root: a directory or link on the way to a path that somebody else may exchange, and so all
/// that lies below; whose the last is who asks looks at. Whoever is not root is asked nothing. (Who
/// owns `/` is root, also where a name space calls it otherwise.)
pub fn another_above(path: &Path) -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let mut at = PathBuf::from("/");
    let root = fs::symlink_metadata(&at).map_or(0, |root| root.uid());
    let path = std::path::absolute(path).ok()?;
    let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    let (mut left, mut links): (Vec<OsString>, usize) = (parts(&path), 0);
    while let Some(part) = left.pop() {
        match Path::new(&part).components().next() {
            Some(Component::Normal(name)) => at.push(name),
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::RootDir) => at = PathBuf::from("/"),
            _ => {}
        }
        // What is not there yet nobody but root can put there, where all above is root's.
        let found = fs::symlink_metadata(&at).ok()?;
        let is_roots = [0, root].contains(&found.uid());
        if found.is_symlink() {
            links += 1;
            let target = fs::read_link(&at).ok().filter(|_| is_roots && links <= MOST_LINKS);
            let Some(target) = target else { return Some(at) };
            left.extend::<Vec<OsString>>(parts(&target));
            at.pop();
        } else if found.is_dir() && !left.is_empty() && !(is_roots && keeps_others_out(&found)) {
            return Some(at);
        }
    }
    None
}

/// Whether others than root exchange nothing of root's in a directory: where all may write each
/// keeps what is theirs.
fn keeps_others_out(directory: &Metadata) -> bool {
    const STICKY: u32 = 0o1000;
    let mode = directory.mode();
    mode & STICKY != 0 || mode & 0o002 == 0 && (mode & 0o020 == 0 || directory.gid() == 0)
}

/// What is said of one that was found.
pub fn why_not(above: &Path) -> String {
    format!("{} is not root's alone to write: others could put another in its place", above.display())
}

/// Opens an ordinary file for reading. A pipe is not waited for, and a device gives nothing for ever.
pub fn ordinary_file(path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(Error::other("it is no ordinary file")) }
}
