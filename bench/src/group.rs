//! A control group of a row's own, whose processes may have so much memory: of the first version of control groups or of the
//! second, whichever the machine has for memory.

use crate::failure::{Doing, Result, failed, skipped};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the kernel may take until a group whose processes have ended can be removed.
const GOES_WITHIN: Duration = Duration::from_secs(10);

/// The group; it goes when this does.
#[derive(Debug)]
pub struct Group {
    place: PathBuf,
    /// Names of the files that limit memory and tell how much is used.
    limit: &'static str,
    usage: &'static str,
}

impl Group {
    /// Makes one without a limit.
    pub fn new() -> Result<Group> {
        let name = format!("commonhold-bench-{}", std::process::id());
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let first = own.lines().find_map(|line| line.split_once(":memory:")).map(|(_, path)| path);
        let kinds = [
            first.map(|path| {
                (format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes", "memory.usage_in_bytes")
            }),
            Some(("/sys/fs/cgroup".to_owned(), "memory.max", "memory.current")),
        ];
        for (above, limit, usage) in kinds.into_iter().flatten() {
            let place = Path::new(&above).join(&name);
            if fs::create_dir(&place).is_err() {
                continue;
            }
            let this = Group { place, limit, usage };
            if this.place.join(limit).exists() {
                return Ok(this);
            }
        }
        skipped("a control group for memory cannot be made here (as root, with the memory controller)")
    }

    /// The file to which a process writes its number to belong to it.
    pub fn members(&self) -> PathBuf {
        self.place.join("cgroup.procs")
    }

    /// Limits its memory.
    pub fn limit(&self, bytes: u64) -> Result<()> {
        fs::write(self.place.join(self.limit), bytes.to_string())
            .doing(format!("limiting a group to {bytes} bytes"))
    }

    /// Memory that its processes use: their own, the kernel's for them, and pages of files that they brought in.
    pub fn usage(&self) -> Result<u64> {
        let text =
            fs::read_to_string(self.place.join(self.usage)).doing("asking how much memory a group uses")?;
        text.trim().parse().or_else(|_| failed(format!("a group uses {text:?} bytes")))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let begun = Instant::now();
        while fs::remove_dir(&self.place).is_err() && begun.elapsed() < GOES_WITHIN {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
