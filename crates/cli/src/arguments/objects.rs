//! Arguments of the commands on objects.

use super::Form;
use super::place::Place;
use crate::people::{NewOwner, parse_owner};
use crate::units::{parse_duration, parse_milliseconds, parse_mode, parse_page_size, parse_size};
use clap::{ArgAction, Args, ValueEnum};
use commonhold::PageSize;
use std::path::PathBuf;
use std::time::Duration;

/// `create`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    commonhold create /lab/scratch --size 64MiB\n  \
    commonhold create /lab/counts --size 1GiB --file ./counts.bin --create-file --sync atomic")]
pub struct Create {
    /// Its name, such as /lab/counts; directories appear when first used
    pub name: String,
    /// Size, such as 4096, 512M or 1GiB; with --file, the size of the file unless given
    #[arg(long, value_parser = parse_size, allow_negative_numbers = true, required_unless_present = "file")]
    pub size: Option<u64>,
    /// The file whose bytes the object is, in place
    #[arg(long, value_name = "PATH", conflicts_with = "pager")]
    pub file: Option<PathBuf>,
    /// Make the file if it is not there, of the object's size
    #[arg(long, requires_all = ["file", "size"])]
    pub create_file: bool,
    /// Name under which a program of yours serves the object's pages
    #[arg(long, value_name = "NAME")]
    pub pager: Option<String>,
    /// What sync promises
    #[arg(long, value_enum, default_value_t = SyncMode::Plain)]
    pub sync: SyncMode,
    /// Mode bits, octal
    #[arg(long, value_parser = parse_mode, default_value = "0600")]
    pub mode: u32,
    /// Whether to take memory (with --budget, space in the host's spill file) now: yes unless --file or --pager
    #[arg(long, value_name = "yes|no", action = ArgAction::Set, value_parser = yes_or_no)]
    pub reserve: Option<bool>,
    /// Most memory for its pages, the least is 1MiB; the rest waits in its pager or the host's spill file
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true)]
    pub budget: Option<u64>,
    /// What becomes of unsynced pages when the last process that mapped it was killed
    #[arg(long, value_enum, default_value_t = OnLastDeath::Keep)]
    pub on_last_death: OnLastDeath,
    /// Who sees a write, and when: local (the processes of this host), strict (those of all hosts, at once) or explicit
    /// (those of other hosts after a sync)
    #[arg(long, value_enum, default_value_t = Coherence::Local)]
    pub coherence: Coherence,
    /// Of a strict object, what serves pages whose newest version was lost with a host
    #[arg(long, value_enum, default_value_t = OnLoss::Error)]
    pub on_loss: OnLoss,
    /// Of a strict object, who schedules its pages: forwarding, unless --freezable, --home-moves or --reader-bound needs central
    #[arg(long, value_enum)]
    pub scheduler: Option<Scheduler>,
    /// How many hosts may be lost without losing what another has read: as many keep each version, beside the one that has it
    /// newest. Of an object that is scheduled by forwarding, or with --home-moves
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub replicas: u32,
    /// Another host becomes its home when its home is lost: with --replicas, or with --file, by a path under which those hosts
    /// have the same file; and a registry in etcd
    #[arg(long)]
    pub home_moves: bool,
    /// How an address reaches its pages: with shared-tables its processes share page tables, of huge pages, or (-4k) of ordinary
    /// ones by the kernel module segshm; with wired no fault ever happens in it; all of its memory is taken now, and filled from its file or pager
    #[arg(long, value_enum, default_value_t = Translation::Paged)]
    pub translation: Translation,
    /// Give it one address in all processes, on all hosts that share it: programs may keep pointers in it
    #[arg(long)]
    pub fixed: bool,
    /// How far an object with a fixed address may grow: so many addresses are its own; its size unless given
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true, requires = "fixed")]
    pub room: Option<u64>,
    /// Its name, and with it the object, goes with its last user, or so long after
    #[arg(long, value_name = "TIME", value_parser = parse_milliseconds, num_args = 0..=1, require_equals = true,
        default_missing_value = "0s")]
    pub ephemeral: Option<u32>,
    /// Of a centrally scheduled object, how many writers may overtake readers that wait: 16 unless given; 0: any number
    #[arg(long, value_name = "N")]
    pub reader_bound: Option<u32>,
    /// Of a strict object, how long a page stays where it was granted, microseconds: half of its fault deadline at most
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 200)]
    pub hold_us: u32,
    /// Of a strict object, the unit in which pages go from host to host: a power of two from 4KiB to 2MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_page_size, allow_negative_numbers = true,
        default_value = "4KiB")]
    pub page_size: PageSize,
    /// Allow `sync --freeze`; the first write to each page then costs ten times as much
    #[arg(long)]
    pub freezable: bool,
    /// Let the host serve its faults even with --sync plain: for locks that hold pages
    #[arg(long)]
    pub controlled: bool,
    /// SIGBUS after so long in a fault, such as 5s; unless given 60s of an object that hosts share, and of others a fault waits
    /// for as long as the keeper lives
    #[arg(long, value_name = "TIME", value_parser = parse_milliseconds)]
    pub fault_deadline: Option<u32>,
    /// How long its pager may take to answer, such as 5s; 30s unless given, 1h at most
    #[arg(long, value_name = "TIME", value_parser = parse_milliseconds, requires = "pager")]
    pub pager_deadline: Option<u32>,
    /// What is in it, for programs that check it when they open: for example NumPy's <u4; at most 4096 bytes
    #[arg(long, default_value = "", hide_default_value = true)]
    pub description: String,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `--sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SyncMode {
    /// msync and fsync; the kernel may also write at any time before
    Plain,
    /// Pages reach the pager only by sync, unlock, eviction or the last unmap
    Ordered,
    /// What is stored changes only by sync, and by each sync wholly or not at all
    Atomic,
}

/// `--coherence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Coherence {
    /// The processes of this host see a write, at once
    Local,
    /// Everybody does, at once: a page has one writer or many readers, on whatever host
    Strict,
    /// The processes of this host at once, those of others after a sync
    Explicit,
}

/// `--scheduler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scheduler {
    /// The host on which the object was created
    Central,
    /// All hosts that use it: requests go from host to host, to whoever had the page last
    Forwarding,
}

/// `--translation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Translation {
    /// By page tables of each process's own
    Paged,
    /// By page tables that all processes share, of huge pages
    SharedTables,
    /// The same of pages of 4 KiB: needs the kernel module segshm
    #[value(name = "shared-tables-4k")]
    SharedTables4K,
    /// By pages that are there when it is mapped, so that no fault ever happens
    Wired,
}

/// `--on-loss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnLoss {
    /// Nothing: touching them is an error
    Error,
    /// The newest version that the object's home has
    Revert,
}

/// `--on-last-death`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnLastDeath {
    /// They stay in memory for the next process, which may keep them or revert
    Keep,
    /// They are dropped at once
    Revert,
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("write yes or no".to_owned()),
    }
}

/// `snapshot`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    commonhold snapshot /lab/counts /lab/counts@monday\n  \
    commonhold cp :/lab/counts@monday :/lab/counts      # and back\n  \
    commonhold snapshot /lab/db /lab/db@monday --file ./monday.bin")]
pub struct Snapshot {
    /// Name of the object: a freezable one, or a snapshot; with --file a direct one on a file
    pub name: String,
    /// Name of the snapshot
    pub snapshot: String,
    /// The snapshot may be written; the object does not see that
    #[arg(long)]
    pub writable: bool,
    /// Copy all pages soon, not only those that are written or touched
    #[arg(long)]
    pub whole: bool,
    /// Make this file a clone of the object's file, on the same XFS, Btrfs or bcachefs, and the snapshot of it
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    /// Mode bits of the snapshot, octal
    #[arg(long, value_parser = parse_mode, default_value = "0600")]
    pub mode: u32,
    /// Of a part of the object.
    #[command(flatten)]
    pub part: Part,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `resize`.
#[derive(Debug, Args)]
pub struct Resize {
    /// Name of the object
    pub name: String,
    /// New size, such as 4096, 512M or 1GiB
    #[arg(value_parser = parse_size, allow_negative_numbers = true)]
    pub size: u64,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `tag`.
#[derive(Debug, Args)]
pub struct Tag {
    /// Name of the object
    pub name: String,
    /// What is there: bytes, int8 to int128, offset, float16, bfloat16, float32, float64, a record such as
    /// "{24: 0 int32, 8 float64*2}", or # and the hash of a record that the object has
    #[arg(value_name = "TYPE")]
    pub tag: String,
    /// From this byte on, of a page
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size, allow_negative_numbers = true)]
    pub offset: u64,
    /// So many bytes, of whole pages; to the end unless given
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true)]
    pub length: Option<u64>,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `ls`.
#[derive(Debug, Args)]
pub struct List {
    /// Directories and objects
    #[arg(default_value = "/", value_name = "NAME")]
    pub names: Vec<String>,
    /// Mode, owner, group, size, pager, coherence, sync and number of mappings too
    #[arg(short, long)]
    pub long: bool,
    /// Directories below it as well
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// A command on several names.
#[derive(Debug, Args)]
pub struct Names {
    /// Names of objects or directories
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// A command on one object.
#[derive(Debug, Args)]
pub struct OneName {
    /// Name of the object
    pub name: String,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// A part of an object; all of it unless given.
#[derive(Clone, Copy, Debug, Args)]
pub struct Part {
    /// First byte, such as 4096 or 1GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true, default_value = "0")]
    pub offset: u64,
    /// Number of bytes; to the end unless given
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true)]
    pub length: Option<u64>,
}

/// `cat`.
#[derive(Debug, Args)]
pub struct Cat {
    /// Name of the object
    pub name: String,
    /// Which part.
    #[command(flatten)]
    pub part: Part,
}

/// `cp`.
#[derive(Debug, Args)]
#[command(after_help = "An object is written with a colon before its name, a file as always:\n  \
    commonhold cp ./weights.bin :/lab/weights    into an object\n  \
    commonhold cp :/lab/weights ./weights.bin    out of one\n  \
    commonhold cp :/lab/weights :/lab/copy       from one to another\n\n\
    An object that is not there is created, anonymous and of the source's size. One that is there keeps its size:\n\
    what is too large for it is refused, what is smaller leaves the rest as it is. An object with a file or a\n\
    pager is synced at the end: of an atomic one the whole copy is stored, or nothing. A file that is there is\n\
    overwritten; stretches of zeros become holes. When a copy fails or is interrupted, what it made is taken away,\n\
    and in a controlled object that was there before, what was copied stays in memory, unsynced.")]
pub struct Copy {
    /// A file, an object written as :/lab/weights, or - for standard input
    pub from: Place,
    /// A file, or an object written as :/lab/weights
    pub to: Place,
    /// Do not sync the object that was written; a controlled one is stored all the same if nobody else maps it
    #[arg(long)]
    pub no_sync: bool,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `rm`.
#[derive(Debug, Args)]
pub struct Remove {
    /// Names of objects or directories
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Directories too, with all that is in them
    #[arg(short, long)]
    pub recursive: bool,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `mv`.
#[derive(Debug, Args)]
pub struct Rename {
    /// Present name of an object or a directory
    pub from: String,
    /// New name; must be free
    pub to: String,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `chmod`.
#[derive(Debug, Args)]
pub struct SetMode {
    /// New mode bits, octal, such as 0640
    #[arg(value_parser = parse_mode)]
    pub mode: u32,
    /// Names of objects or directories
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `chown`.
#[derive(Debug, Args)]
pub struct SetOwner {
    /// New owner, group or both: names or numbers
    #[arg(value_name = "USER[:GROUP]", value_parser = parse_owner)]
    pub owner: NewOwner,
    /// Names of objects or directories
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `sync`.
#[derive(Debug, Args)]
pub struct Sync {
    /// Name of the object
    pub name: String,
    /// Which part.
    #[command(flatten)]
    pub part: Part,
    /// Hold every writer for one instant: objects created with --freezable
    #[arg(long)]
    pub freeze: bool,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `incore`.
#[derive(Debug, Args)]
pub struct Incore {
    /// Name of the object
    pub name: String,
    /// Which part.
    #[command(flatten)]
    pub part: Part,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `wait`.
#[derive(Debug, Args)]
#[command(
    after_help = "Plain stores wake nobody: whoever changes the data notifies, or (with --coherence explicit) syncs on another \
    host.\nExample:\n  commonhold wait /lab/counts --offset 4096 --length 8 --timeout 10s && commonhold cat /lab/counts"
)]
pub struct Wait {
    /// Name of the object
    pub name: String,
    /// Which part.
    #[command(flatten)]
    pub part: Part,
    /// Fail if nobody has notified within that time, such as 10s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `notify`.
#[derive(Debug, Args)]
pub struct Notify {
    /// Name of the object
    pub name: String,
    /// Which part.
    #[command(flatten)]
    pub part: Part,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}
