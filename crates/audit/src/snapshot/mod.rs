//! What was seen at one instant: processes, what each maps, and the files behind it.
//!
//! This file is the contract: plain values, made by reading and by tests alike. The files beside it do the reading, and
//! [`take`] is where it begins.
//!
//! Sizes are bytes. What could not be read is `None`, and said in [`Snapshot::unseen`]: never a zero that looks like a
//! measurement.

mod budget;
mod census;
mod container;
mod content;
mod elf;
mod files;
mod frames;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod machine;
mod mappings;
pub(crate) mod mounts;
mod open;
mod options;
mod procdir;
mod process;
mod residency;
mod scope;
mod taking;
mod unique;
mod unseen;
mod walk;
pub(crate) mod watch;

pub use options::{Error, Scope, SnapshotOptions};
pub use taking::take;

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One look at a machine, or at the part of it that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Seconds since 1970 when reading began.
    pub taken_at: u64,
    /// How long reading took, ms.
    pub took_ms: u64,
    /// Processor time that reading took, ms.
    pub cpu_ms: u64,
    /// What was asked for: `machine`, `container ID`, `control group PATH`, `process tree PID`, `root directory PATH`.
    pub scope: String,
    /// Bytes of a base page.
    pub page_bytes: u64,
    /// Whether page frame numbers could be read: else two files are told apart by Pss alone.
    pub has_frames: bool,
    /// Processes in scope. Kernel threads and zombies, which map nothing, are not among them.
    pub processes: Vec<Process>,
    /// Every regular file that a process in scope maps, in the order of first sight. [`Mapping::file`] is an index.
    pub files: Vec<File>,
    /// The machine as a whole.
    pub machine: Machine,
    /// Bytes that end with a group, exactly: pages whose every mapping is inside it, by frame numbers and the kernel's
    /// map counts, anonymous pages too; without swap and hugetlb pages. Keys: `container ID` and `control group PATH`
    /// (as in [`Process::container`] and [`Process::cgroup`]; of each the processes in scope), and `scope` for all that
    /// was asked for. A group that could not be counted (not root, or the budget was spent) has no entry.
    pub group_unique: BTreeMap<String, u64>,
    /// What was not seen, and why.
    pub unseen: Vec<Unseen>,
}

/// A process: its pid is its only while `start_ticks` is the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Process id, as this reader sees it.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// Start time, clock ticks after boot (field 22 of stat).
    pub start_ticks: u64,
    /// `comm`.
    pub name: String,
    /// Real user.
    pub uid: u32,
    /// The executable, an index into [`Snapshot::files`]; kernel threads and what could not be read have none.
    pub program: Option<usize>,
    /// Path of its control group (v2, else of the memory controller).
    pub cgroup: String,
    /// The container it runs in: an id made of its control group and mount namespace; none on the machine itself.
    pub container: Option<String>,
    /// Page tables (VmPTE).
    pub page_table_bytes: Option<u64>,
    /// Mappings, by address.
    pub mappings: Vec<Mapping>,
}

/// One line of smaps, with what stands below it. Anonymous memory of one label and protection is one entry for the whole
/// process, from its first address to its last: its sizes are sums, `end - start` is not its size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// May be read, written, executed.
    pub read: bool,
    /// See `read`.
    pub write: bool,
    /// See `read`.
    pub execute: bool,
    /// Shared, not private (copy-on-write).
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// The file: an index into [`Snapshot::files`]. Anonymous memory has none.
    pub file: Option<usize>,
    /// What stands in place of a path, where there is no file: `[heap]`, `[stack]`, `[anon:…]`.
    pub label: String,
    /// Rss.
    pub resident: u64,
    /// Pss: each page divided by how many map it.
    pub proportional: u64,
    /// Pss_Dirty.
    pub proportional_dirty: u64,
    /// Shared_Clean.
    pub shared_clean: u64,
    /// Shared_Dirty.
    pub shared_dirty: u64,
    /// Private_Clean.
    pub private_clean: u64,
    /// Private_Dirty.
    pub private_dirty: u64,
    /// Anonymous: in a file mapping, pages that were copied on write.
    pub anonymous: u64,
    /// KSM: pages merged with equal ones.
    pub merged: u64,
    /// AnonHugePages, ShmemPmdMapped and FilePmdMapped together.
    pub huge: u64,
    /// Swap.
    pub swap: u64,
    /// SwapPss.
    pub swap_proportional: u64,
    /// Shared_Hugetlb and Private_Hugetlb together; not part of `resident`.
    pub hugetlb: u64,
}

impl Mapping {
    /// Resident pages that are the file's own, not copies of them.
    pub fn from_file(&self) -> u64 {
        if self.file.is_some() { self.resident.saturating_sub(self.anonymous) } else { 0 }
    }

    /// Program text: executable, not writable, of a file.
    pub fn is_text(&self) -> bool {
        self.file.is_some() && self.execute && !self.write
    }
}

/// Which file: what tells that two names are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileKey {
    /// Device, as stat gives it (smaps may give another on overlay and btrfs mounts).
    pub device: u64,
    /// Inode.
    pub inode: u64,
}

/// A file that is mapped, or that lies in a root directory under audit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// Which it is.
    pub key: FileKey,
    /// Its path, as the first process that maps it sees it.
    pub path: PathBuf,
    /// The mount namespace (inode) in which that path was seen; 0: that of the reader.
    pub mount_namespace: u64,
    /// Its length; none: it could not be opened.
    pub size: Option<u64>,
    /// Its link was removed or replaced while it was mapped.
    pub deleted: bool,
    /// It is `deleted`, and another file has its path now.
    pub replaced: bool,
    /// What the ELF headers say; none: not an ELF file, or damaged (then `unseen` says so).
    pub elf: Option<Elf>,
    /// Hash of the whole content (BLAKE3), only where another file has the same size or build ID.
    pub content: Option<[u8; 32]>,
    /// Its pages in memory (page numbers within the file), whoever brought them in. None: not known.
    pub cached_pages: Option<RoaringBitmap>,
    /// Frame numbers of its pages that processes in scope map. None: not allowed to know.
    pub frames: Option<BTreeMap<u32, u64>>,
    /// Names of the file system's kind (`ext4`, `overlay`, `nfs4`) and whether it is one of a network.
    pub file_system: String,
    /// Whose it is; none: that could not be seen.
    #[serde(default)]
    pub rights: Option<Rights>,
}

/// Whose a file is, and who could put another in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permissions, with those for setuid and the like.
    pub mode: u16,
    /// Every directory above it belongs to its owner or to root, and nobody else may write there.
    pub apart_from_others: bool,
}

/// What matters of an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Elf {
    /// Machine (`x86_64`, `aarch64`), as `object` calls it in lower case.
    pub architecture: String,
    /// Executable by itself (ET_EXEC, or ET_DYN with an interpreter).
    pub is_program: bool,
    /// NT_GNU_BUILD_ID.
    pub build_id: Option<Vec<u8>>,
    /// DT_SONAME.
    pub soname: Option<String>,
    /// Bytes of executable segments.
    pub text_bytes: u64,
    /// Page-rounded file ranges (offset, length) that PT_GNU_RELRO makes read-only after relocation.
    pub relro: Vec<(u64, u64)>,
}

/// The machine as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// MemTotal.
    pub memory_bytes: u64,
    /// MemAvailable.
    pub available_bytes: u64,
    /// Cached + Buffers.
    pub cached_bytes: u64,
    /// PageTables.
    pub page_table_bytes: u64,
    /// SwapTotal - SwapFree.
    pub swap_used_bytes: u64,
    /// KSM: pages saved (pages_sharing) in bytes; none: the kernel has none.
    pub merged_saved_bytes: Option<u64>,
    /// Transparent huge pages: the chosen word of `enabled`.
    pub huge_pages: String,
}

/// Something that was not seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unseen {
    /// What: `process 17 (nginx)`, `/mnt/far/lib.so`.
    pub what: String,
    /// Why, in words that help: `permission denied: run as root to see other users' processes`.
    pub why: String,
}
