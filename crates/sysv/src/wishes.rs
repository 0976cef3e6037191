//! What `commonhold run` was asked for.

use crate::IPC_SHARE_PAGE_TABLE;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Segments and mappings from this size on get shared page tables where the program is run for that: below it tables of pages
/// take less than what is lost at the end of a huge page.
pub const LARGE_BYTES: usize = 64 << 20;

/// Names what `commonhold run` was asked for: words with commas between them.
const VARIABLE: &str = "COMMONHOLD_RUN";

/// What of a program is moved into objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// All its System V segments.
    pub system_v: bool,
    /// Those with keys for all hosts of the cluster.
    pub shared_keys: bool,
    /// What it opens by `shm_open`.
    pub posix: bool,
    /// What is large, with page tables that all share.
    pub share_page_tables: bool,
    /// What standard error was when the program began: device and inode.
    stderr: Option<(u64, u64)>,
    /// The state directory of the host that `commonhold run` found.
    pub(crate) host: Option<PathBuf>,
}

static OF_THIS_PROCESS: OnceLock<Wishes> = OnceLock::new();

impl Wishes {
    /// Those of this process.
    pub fn of_this_process() -> &'static Wishes {
        OF_THIS_PROCESS.get_or_init(Wishes::default)
    }

    /// What the environment said when the program began, which may have changed it since.
    pub(crate) fn begin(words: &str, host: &CStr) {
        let host = Some(PathBuf::from(OsStr::from_bytes(host.to_bytes()))).filter(|path| path.is_absolute());
        let wishes = Wishes { host, ..Wishes::parse(words) };
        OF_THIS_PROCESS.get_or_init(|| wishes); // a second time it is the same
    }

    fn parse(words: &str) -> Wishes {
        let mut wishes = Wishes::default();
        for word in words.split(',') {
            match word.trim() {
                "system-v" => wishes.system_v = true,
                "shared-keys" => wishes.shared_keys = true,
                "posix" => wishes.posix = true,
                "share-page-tables" => wishes.share_page_tables = true,
                other => wishes.stderr = other.strip_prefix("stderr=").and_then(numbers).or(wishes.stderr),
            }
        }
        wishes
    }

    /// The variable that says so to a program, and its value.
    pub fn variable(&self) -> (&'static str, String) {
        let mut words = Vec::new();
        words.extend(self.system_v.then(|| "system-v".to_owned()));
        words.extend(self.shared_keys.then(|| "shared-keys".to_owned()));
        words.extend(self.posix.then(|| "posix".to_owned()));
        words.extend(self.share_page_tables.then(|| "share-page-tables".to_owned()));
        words.extend(self.stderr.map(|(device, inode)| format!("stderr={device}:{inode}")));
        (VARIABLE, words.join(","))
    }

    /// The same, and that what is standard error now may be told what went wrong.
    #[must_use]
    pub fn heard_by_stderr(mut self) -> Wishes {
        self.stderr = stderr();
        self
    }

    /// Whether a new segment is to be an object.
    pub(crate) fn moves(&self, size: usize, flags: i32) -> bool {
        self.system_v || self.shares(size, flags)
    }

    /// Whether a new segment gets page tables that all share.
    pub(crate) fn shares(&self, size: usize, flags: i32) -> bool {
        flags & IPC_SHARE_PAGE_TABLE != 0 || self.share_page_tables && size >= LARGE_BYTES
    }

    /// Says on standard error what an error number cannot say: if that is what it was when the program began. A program that
    /// closed it may have a file of its own there.
    pub(crate) fn complain(&self, text: &str) {
        if self.stderr.is_some() && self.stderr == stderr() {
            let line = format!("commonhold: {}\n", text.replace('\n', " "));
            let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes()); // nobody else could be told
        }
    }
}

fn stderr() -> Option<(u64, u64)> {
    rustix::fs::fstat(rustix::stdio::stderr()).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

fn numbers(text: &str) -> Option<(u64, u64)> {
    let (device, inode) = text.split_once(':')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read() {
        let wishes =
            Wishes { system_v: true, shared_keys: true, posix: true, ..Wishes::default() }.heard_by_stderr();
        assert_eq!(Wishes::parse(&wishes.variable().1), wishes);
        assert_eq!(Wishes::parse("nonsense,,stderr=x:y"), Wishes::default());
    }

    #[test]
    fn large_ones_share_and_small_ones_stay() {
        let wishes = Wishes { share_page_tables: true, ..Wishes::default() };
        assert!(wishes.moves(LARGE_BYTES, 0) && !wishes.moves(LARGE_BYTES - 1, 0));
        assert!(Wishes::default().shares(1, IPC_SHARE_PAGE_TABLE));
    }
}
