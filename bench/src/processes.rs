//! Other processes: what they cost (/proc), and how they end.

use crate::failure::{Result, failed};
use crate::measure::some;
use commonhold_sys::process::{self, Identity};
use rustix::process::{Pid, Signal};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Kills a process, if it is still the same one.
pub fn kill(who: Identity) {
    signal(who, Signal::KILL);
}

/// Sends a signal to a process, if it is still the same one.
pub fn signal(who: Identity, signal: Signal) {
    let pid = i32::try_from(who.pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid.filter(|_| process::is_alive(who)) {
        // Gone in between is as good.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Kills a process that was started in a group of its own and is not reaped yet, with all its children.
pub fn kill_group(leader: u32) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // Gone in between is as good.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

/// Host and keeper of a state directory: the processes that have a file of it open. This program's own
/// processes have none.
pub fn of_directory(state: &Path) -> Vec<Identity> {
    let me = std::process::id();
    let pids = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok().filter(|pid| *pid != me));
    pids.filter(|pid| has_open(*pid, state)).filter_map(|pid| process::identity(pid).ok()).collect()
}

fn has_open(pid: u32, directory: &Path) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|file| file.starts_with(directory) && file != directory)
}

/// Processor time of a process, with its threads that ended: the scheduler's own nanoseconds.
pub fn processor_time(pid: u32) -> Result<Duration> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both write to a variable of their own.
    let is_known = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) == 0
            && libc::clock_gettime(clock, &mut time) == 0
    };
    if !is_known {
        return failed(format!("process {pid} has no clock: it has ended"));
    }
    let total = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
    some(total.as_secs_f64(), "processor time")?;
    Ok(total)
}

/// Processor time from /proc/PID/stat (utime and stime): in ticks of 10 ms, but also of threads that ended.
pub fn processor_ticks(pid: u32) -> Result<Duration> {
    user_and_system(pid).map(|(user, system)| user + system)
}

/// Processor time of a process outside of the kernel, and within it.
pub fn user_and_system(pid: u32) -> Result<(Duration, Duration)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().collect();
    let field = |n: usize| fields.get(n).and_then(|text| text.parse::<u64>().ok());
    match (field(11), field(12)) {
        (Some(user), Some(system)) => {
            Ok((Duration::from_millis(user * 10), Duration::from_millis(system * 10)))
        }
        _ => failed(format!("/proc/{pid}/stat has another form")),
    }
}

/// Bytes that a process had read from a disk.
pub fn read_from_disk(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/io");
    let text = fs::read_to_string(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    match line.and_then(|rest| rest.trim().parse().ok()) {
        Some(bytes) => Ok(bytes),
        None => failed(format!("{path} has no read_bytes")),
    }
}

/// What a process holds in memory, in KiB: pages (`Rss`) and page tables (`VmPTE`).
pub fn memory_kib(pid: u32) -> Result<u64> {
    let pages = field_kib(&format!("/proc/{pid}/smaps_rollup"), "Rss:")?;
    let tables = field_kib(&format!("/proc/{pid}/status"), "VmPTE:")?;
    Ok(pages + tables)
}

/// What a host holds in memory besides frames of objects, in KiB: pages of all its mappings but
/// those of frames.
pub fn books_kib(pid: u32) -> Result<u64> {
    let (mut sum, mut counts) = (0, true);
    for line in fs::read_to_string(format!("/proc/{pid}/smaps"))?.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("Rss:") if counts => {
                sum += words.next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0)
            }
            Some(first) if !first.ends_with(':') => {
                counts = !["/memfd:commonhold-frames", "/memfd:commonhold-object"]
                    .iter()
                    .any(|kind| line.contains(kind));
            }
            _ => {}
        }
    }
    Ok(sum)
}

/// Memory of all page tables of the machine, in KiB.
pub fn page_tables_kib() -> Result<u64> {
    field_kib("/proc/meminfo", "PageTables:")
}

fn field_kib(path: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    match line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok()) {
        Some(kib) => Ok(kib),
        None => failed(format!("{path} has no line {name}")),
    }
}

/// Page faults of this process so far that needed no disk.
pub fn minor_faults() -> u64 {
    faults_of(libc::RUSAGE_SELF)
}

/// The same of the calling thread.
pub fn thread_faults() -> u64 {
    faults_of(libc::RUSAGE_THREAD)
}

fn faults_of(whose: i32) -> u64 {
    // SAFETY: zeroed is a valid rusage (plain numbers).
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is the structure that the call fills, and outlives it.
    let result = unsafe { libc::getrusage(whose, &mut usage) };
    if result == 0 { usage.ru_minflt as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_costs_something() {
        let me = std::process::id();
        assert!(memory_kib(me).unwrap() > 100);
        let start = processor_time(me).unwrap();
        let mut sum = 0u64;
        while processor_time(me).unwrap() < start + Duration::from_millis(30) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(processor_ticks(me).unwrap() >= Duration::from_millis(10));
        assert!(minor_faults() > 0);
    }
}
