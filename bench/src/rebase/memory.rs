//! What processes have for themselves of a program's relocated pages.

use std::fs;
use std::path::Path;

/// Sums over the mappings of a process, in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Relocated {
    /// Its share of changed pages of files that it maps read-only.
    pub pss_dirty_kib: u64,
}

/// Of the mappings of a process that are read-only parts of a file whose name is `file`.
pub fn relocated(pid: u32, file: &str) -> Relocated {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let mut sum = Relocated::default();
    let mut counts = false;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if !first.ends_with(':') {
            let path = line.find('/').map_or("", |at| &line[at..]);
            counts =
                second.starts_with("r--p") && Path::new(path).file_name().is_some_and(|name| name == file);
        } else if counts && first == "Pss_Dirty:" {
            sum.pss_dirty_kib += second.parse::<u64>().unwrap_or(0);
        }
    }
    sum
}

/// A process and all that came of it.
pub fn family(leader: u32) -> Vec<u32> {
    let mut all = vec![leader];
    let mut next = 0;
    while next < all.len() {
        let tasks = fs::read_dir(format!("/proc/{}/task", all[next])).into_iter().flatten().flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let children: Vec<u32> = children
            .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
            .collect();
        all.extend(children);
        next += 1;
    }
    all
}
