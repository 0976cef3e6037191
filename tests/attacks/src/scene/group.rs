//! A control group for a host.

use commonhold_tests::wait;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A control group with a memory limit, removed at the end.
pub struct Group(PathBuf);

impl Group {
    /// Makes one, or says why that cannot be done here.
    pub fn new(bytes: u64) -> Result<Group, String> {
        let own = commonhold_sys::cgroup::own_group();
        let one = [format!("/sys/fs/cgroup/memory{own}"), "/sys/fs/cgroup/memory".into()];
        let two = [format!("/sys/fs/cgroup{own}"), "/sys/fs/cgroup".into()];
        let places = one.iter().map(|p| (p, "memory.limit_in_bytes"));
        let places = places.chain(two.iter().map(|p| (p, "memory.max")));
        for (place, file) in places {
            let group = Group(Path::new(place).join(format!("commonhold-attacks-{}", std::process::id())));
            if std::fs::create_dir(&group.0).is_ok()
                && std::fs::write(group.0.join(file), bytes.to_string()).is_ok()
            {
                return Ok(group);
            }
        }
        Err(format!("no control group with a memory limit can be made in {} or {}", one[0], two[0]))
    }

    /// Words before a program that is to run in it.
    pub fn words(&self) -> Vec<String> {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        ["sh", "-c", &enter, "sh"].map(str::to_owned).to_vec()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let gone = wait::within(Duration::from_secs(20), || std::fs::remove_dir(&self.0).ok());
        if gone.is_none() && self.0.exists() {
            eprintln!("{} could not be removed", self.0.display());
        }
    }
}
