//! A host that was killed and cannot end: a thread of it waits, deep in the kernel, for what a
//! client can keep from coming. A kill does not end that wait, and the process is not gone before
//! it is over. But it does nothing any more either: no instruction of it is ever run again, and
//! what the kernel does for it yet is what it asked of that client's own memory. So it counts as
//! gone.
//!
//! So does the server of a mount. One thread of it tells the kernel that pages are not what they
//! were, and waits there for a program whose WRITE waits for this server, or for the next one:
//! which is not started before this one counts as gone.

use std::path::Path;

/// The name of a thread that tells the kernel of changes. Whatever such a thread waits for once it
/// was killed, and however that ends, nobody needs what it does yet, and nobody is harmed by it. So
/// it is not asked where it stands: it waits for the lock of a page, for which who reads a disk
/// waits at the same place.
pub const TELLS_KERNEL: &str = "tells-kernel";

/// The state field of `/proc/PID/task/TID/stat` comes first behind the name; then these.
const FLAGS: usize = 6;
const PENDING: usize = 28;
/// Of the flags: the thread is ending (PF_EXITING).
const EXITING: u64 = 4;
/// Of the pending signals: SIGKILL.
const KILLED: u64 = 1 << 8;
/// In which function of the kernel a thread stands that waits for a client.
const WAITS: [&str; 23] = [
    // For the answer of a file system in user space.
    "request_wait_answer",
    "fuse_",
    // For the lock of memory to which the client writes bytes that do not come.
    "shmem_",
    "do_truncate",
    // The same of its files, by their file systems. Who waits for a disk stands elsewhere.
    "generic_file_",
    "bch2_",
    "btrfs_",
    "exfat_",
    "ext2_",
    "ext4_",
    "f2fs_",
    "fat_",
    "jfs_",
    "nilfs_",
    "ntfs_",
    "ovl_",
    "xfs_",
    "zfs_",
    "zpl_",
    "vfat_",
    // For the lock of the client's address space.
    "mwriteprotect_range",
    "mfill_atomic",
    "userfaultfd_",
];

/// Whether no thread of that process will run any more, though it has not ended. Reads nothing that takes the process's
/// memory lock, which such a thread may hold.
pub(crate) fn runs_no_more(pid: u32) -> bool {
    let all = Path::new("/proc").join(pid.to_string()).join("task");
    // The first thread first: as a rule it runs, and then that is all.
    if !thread_runs_no_more(&all.join(pid.to_string())) {
        return false;
    }
    let Ok(mut threads) = std::fs::read_dir(all) else { return false };
    threads.all(|thread| thread.is_ok_and(|thread| thread_runs_no_more(&thread.path())))
}

fn thread_runs_no_more(thread: &Path) -> bool {
    // One that has ended meanwhile is looked at the next time: then it is not there.
    let Ok(stat) = std::fs::read_to_string(thread.join("stat")) else { return false };
    match judge(&stat) {
        Some(Judged::Ended) => true,
        Some(Judged::KilledAndWaits) if name(&stat) == Some(TELLS_KERNEL) => true,
        Some(Judged::KilledAndWaits) => {
            let place = std::fs::read_to_string(thread.join("wchan")).unwrap_or_default();
            WAITS.iter().any(|wait| place.starts_with(wait))
        }
        Some(Judged::Runs) | None => false,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Ended,
    /// In a wait that no signal ends, and when it is over the thread ends.
    KilledAndWaits,
    Runs,
}

/// The thread's name, which only its own process can give it.
fn name(stat: &str) -> Option<&str> {
    Some(stat.split_once('(')?.1.rsplit_once(')')?.0)
}

/// What a line of `stat` says.
fn judge(stat: &str) -> Option<Judged> {
    // The name is in brackets, and may hold anything: count from the last bracket.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let is_killed = number(FLAGS)? & EXITING != 0 || number(PENDING)? & KILLED != 0;
    Some(match *fields.first()? {
        "Z" | "X" => Judged::Ended,
        "D" if is_killed => Judged::KilledAndWaits,
        _ => Judged::Runs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(state: &str, flags: u64, pending: u64) -> String {
        let mut fields = vec!["0".to_owned(); 50];
        (fields[0], fields[FLAGS], fields[PENDING]) = (state.into(), flags.to_string(), pending.to_string());
        format!("7 (a) name)) {}", fields.join(" "))
    }

    #[test]
    fn only_what_was_killed_and_waits_deep_in_the_kernel_counts() {
        assert_eq!(judge(&line("Z", 0, 0)), Some(Judged::Ended));
        assert_eq!(judge(&line("D", 0, 0)), Some(Judged::Runs));
        assert_eq!(judge(&line("S", 0, KILLED)), Some(Judged::Runs));
        assert_eq!(judge(&line("D", 0, KILLED)), Some(Judged::KilledAndWaits));
        assert_eq!(judge(&line("D", EXITING, 0)), Some(Judged::KilledAndWaits));
        assert_eq!(judge("7 (short) D 1 2"), None);
        assert_eq!(name(&line("D", 0, KILLED)), Some("a) name)"));
        assert_eq!(name("7 (tells-kernel) D 1 2"), Some(TELLS_KERNEL));
        assert_eq!(name("7"), None);
        assert!(!runs_no_more(std::process::id()), "this one runs");
        assert!(!runs_no_more(0));
    }
}
