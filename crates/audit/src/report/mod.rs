//! What an audit comes to.
//!
//! The structures here are the JSON document (`format` 1) too: names end in their units, what could not be known is
//! absent (`null`), never zero.

pub mod diff;
pub mod document;
pub mod html;
pub mod named;
pub mod samples;
pub mod table;
pub mod words;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod made;

use serde::{Deserialize, Serialize};

/// Format of the JSON document.
pub const FORMAT: u32 = 1;

/// A whole report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the program that made it.
    pub version: String,
    /// What was audited: `machine`, `container ID`, `control group PATH`, `process tree PID`, `root directory PATH`.
    pub scope: String,
    /// Host name and kernel.
    pub machine: String,
    /// Seconds since 1970.
    pub taken_at: u64,
    /// How long it took, ms.
    pub took_ms: u64,
    /// Processor time it took, ms.
    pub cpu_ms: u64,
    /// Processes that were read.
    pub processes: u64,
    /// Memory of what was audited.
    pub memory: Memory,
    /// Table 1 of the paper, for programs and for all text of files.
    pub sharing: Sharing,
    /// Libraries that exist more than once.
    pub equal_files: Vec<EqualFiles>,
    /// Pages of files that processes changed for themselves.
    pub relocation: Relocation,
    /// Page tables.
    pub page_tables: PageTables,
    /// Files that are mapped though their names are gone.
    pub deleted: Vec<Deleted>,
    /// What the kernel's own means do.
    pub kernel_means: KernelMeans,
    /// What ends with each process, container, control group: the largest first.
    pub unique: Vec<Unique>,
    /// Table 2 of the paper: only for the sets that were asked for.
    pub library_sets: Vec<LibrarySet>,
    /// What to do, the largest saving first.
    pub advice: Vec<Advice>,
    /// When sampled: each figure's mean and interval.
    pub samples: Option<Samples>,
    /// What was not seen, and why.
    pub unseen: Vec<crate::snapshot::Unseen>,
}

/// Memory of what was audited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Sum of Rss.
    pub resident_bytes: u64,
    /// Sum of Pss: what is really used, if all who map it are in scope.
    pub proportional_bytes: u64,
    /// Sum of the private pages (USS).
    pub private_bytes: u64,
    /// Anonymous memory (Pss).
    pub anonymous_bytes: u64,
    /// Memory of the machine.
    pub machine_bytes: u64,
    /// Of that available.
    pub available_bytes: u64,
}

/// Extent of sharing and memory savings ratio (Govindan 5.1, Table 1).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sharing {
    /// Texts of programs alone: the paper's own figure.
    pub programs: SharingFigure,
    /// Texts of all mapped files: programs and libraries.
    pub all_text: SharingFigure,
    /// All pages of files that are mapped without the right to write.
    pub all_read_only: SharingFigure,
}

/// The two figures of Table 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharingFigure {
    /// Segments of which some page is in memory.
    pub active: u64,
    /// Of those, in use by more than one process.
    pub shared: u64,
    /// shared / active; none: nothing is active.
    pub extent: Option<f64>,
    /// Sum over processes of resident bytes: memory without sharing.
    pub without_sharing_bytes: u64,
    /// Memory that is really used.
    pub with_sharing_bytes: u64,
    /// Memory savings ratio, without / with.
    pub savings_ratio: Option<f64>,
}

/// How sure it is that equal files waste memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Their page frames differ.
    Frames,
    /// Pss says that nobody else maps these pages: they cannot be the same frames.
    Proportional,
    /// Equal, sharing unproven: not counted as waste.
    #[default]
    Unproven,
    /// The frames are the same (two mounts of one layer): no waste.
    SameFrames,
}

/// Files of equal content with different inodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EqualFiles {
    /// Build ID or hash, hexadecimal.
    pub identity: String,
    /// `build ID` (and equal content), `content`, or `build ID, content not compared` (never counted as waste).
    pub by: String,
    /// Length of one.
    pub size_bytes: u64,
    /// Paths, the one in most use first.
    pub paths: Vec<String>,
    /// Processes that map each, in the order of `paths`.
    pub users: Vec<u64>,
    /// Resident bytes of each, in the order of `paths`; none where unknown.
    pub resident_bytes: Vec<Option<u64>>,
    /// Memory that one copy instead of these would free: pages that processes map, and page cache.
    pub saving_bytes: u64,
    /// Of that, what processes map.
    #[serde(default)]
    pub mapped_saving_bytes: u64,
    /// Disk space that one copy would free.
    pub disk_bytes: u64,
    /// How sure that is.
    pub proof: Proof,
    /// Names of the containers that use them.
    pub containers: Vec<String>,
    /// All lie on one file system, so that a hard link is possible.
    pub one_file_system: bool,
}

/// Private copies of pages of files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Relocation {
    /// Changed by the loader and read-only since (RELRO): would be shared if relocated once.
    pub relro_bytes: u64,
    /// Of writable data of files.
    pub data_bytes: u64,
    /// By library, the largest first.
    pub libraries: Vec<RelocatedLibrary>,
}

/// Relocation dirt of one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RelocatedLibrary {
    /// Its path.
    pub path: String,
    /// Processes.
    pub users: u64,
    /// See [`Relocation`].
    pub relro_bytes: u64,
    /// See [`Relocation`].
    pub data_bytes: u64,
    /// What one shared copy of the relocated pages would free.
    pub saving_bytes: u64,
}

/// Page tables, and what sharing them would save.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageTables {
    /// Of the processes in scope.
    pub total_bytes: u64,
    /// Of the whole machine.
    pub machine_bytes: u64,
    /// What one set of tables for each shared segment would free.
    pub saving_bytes: u64,
    /// The segments where that is most.
    pub segments: Vec<SharedSegment>,
}

/// A shared segment that several processes map with tables of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharedSegment {
    /// Its path or label.
    pub path: String,
    /// Processes.
    pub users: u64,
    /// Largest mapping of it.
    pub size_bytes: u64,
    /// Tables for it, all processes together (estimated from resident pages).
    pub table_bytes: u64,
    /// What sharing would free.
    pub saving_bytes: u64,
}

/// A file that is mapped though its name is gone or belongs to another file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Deleted {
    /// The path that it had.
    pub path: String,
    /// Processes, `name (pid)`.
    pub users: Vec<String>,
    /// Memory that ends with the last user.
    pub resident_bytes: u64,
    /// Another file has the path now: the users run an old version.
    pub replaced: bool,
}

/// What KSM, swap and huge pages change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelMeans {
    /// Mapped pages that KSM merged (Rss).
    pub merged_bytes: u64,
    /// What KSM saves on the whole machine; none: not running.
    pub merged_saving_bytes: Option<u64>,
    /// Swapped out (SwapPss).
    pub swapped_bytes: u64,
    /// In huge pages.
    pub huge_bytes: u64,
    /// In hugetlb pages.
    pub hugetlb_bytes: u64,
    /// Text of files in huge pages, where sharing is by 2 MiB.
    pub huge_text_bytes: u64,
}

/// What ends with a process, a container or a control group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unique {
    /// `process`, `container`, `control group`; `scope`: all that was asked for.
    pub kind: String,
    /// Which.
    pub name: String,
    /// Processes.
    pub processes: u64,
    /// Pages that nobody else maps.
    pub unique_bytes: u64,
    /// Swap that surely is nobody else's, at least.
    pub swap_bytes: u64,
    /// Its share (Pss).
    pub proportional_bytes: u64,
    /// Sum of Rss.
    pub resident_bytes: u64,
    /// Counted by page frames; else `unique_bytes` is a lower bound for several processes.
    pub exact: bool,
}

/// Library code in a set of programs (Govindan 5.2, Table 2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LibrarySet {
    /// Its name, such as `/usr/bin`.
    pub name: String,
    /// Programs in it.
    pub programs: u64,
    /// Of those, counted by their own symbol tables.
    pub by_symbols: u64,
    /// Of those, counted by the members of archives that their undefined symbols pull in.
    pub by_archive: u64,
    /// Of those, neither: only the whole-library figures hold for them.
    pub uncounted: u64,
    /// Files of the set that are no programs: scripts, libraries, damaged and unreadable files. Not in `programs`.
    pub skipped: u64,
    /// Library code / all code, over the counted programs.
    pub code_fraction: Option<f64>,
    /// Library code / disk space, over the counted programs.
    pub disk_fraction: Option<f64>,
    /// The same with each library counted whole.
    pub whole_code_fraction: Option<f64>,
    /// See `whole_code_fraction`.
    pub whole_disk_fraction: Option<f64>,
    /// Sums behind them.
    pub library_code_bytes: u64,
    /// See `library_code_bytes`.
    pub own_code_bytes: u64,
    /// See `library_code_bytes`: disk space of the programs, with the library code in them.
    pub disk_bytes: u64,
    /// Largest code fraction of one program, and which.
    pub most: Option<(String, f64)>,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// One line: `ten equal copies of libpython3.11.so.1.0`.
    pub what: String,
    /// What it would free, bytes of memory.
    pub saving_bytes: u64,
    /// Of that, what processes map; the rest is page cache. None: it is no advice on files.
    #[serde(default)]
    pub mapped_bytes: Option<u64>,
    /// How sure: `measured`, `estimated`, or `at most` (only if the copies need not differ; listed last).
    pub certainty: String,
    /// How to get it: commands or steps, each a line.
    pub how: Vec<String>,
    /// What must be restarted or heeded.
    pub care: String,
}

/// Figures over several samples. What has no mean (lists, advice) is of the last sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// How many.
    pub count: u64,
    /// From the first to the last, seconds.
    pub span_s: u64,
    /// From one to the next, as asked for, ms.
    pub every_ms: u64,
    /// Samples that took longer than that: the next came late.
    pub overruns: u64,
    /// Ended by a signal before the time that was asked for was over.
    pub ended_early: bool,
    /// Each figure: its name, mean, and 95 % interval (Student's t; batch means where samples lean on each other).
    pub figures: Vec<SampledFigure>,
}

/// A figure over several samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampledFigure {
    /// `programs.extent`, `programs.savings_ratio`, …
    pub name: String,
    /// Samples that had it.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Lower end of the 95 % interval; none: one sample has no interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Values that the interval was made of: the samples, or fewer batches of them.
    pub batches: u64,
    /// Even the batches lean on each other: the true interval is wider than this one.
    pub dependent: bool,
    /// Least and greatest sample.
    pub min: f64,
    /// See `min`.
    pub max: f64,
}
