//! `wired-client`: a process that has wired objects mapped, and counts its faults while it uses them.

use crate::failure::{Doing, Result, failed};
use crate::objects;
use crate::processes::thread_faults;
use crate::view::{RawMapping, View, memory_file};
use crate::worker;
use commonhold::{Access, Host, Mapping};
use std::path::Path;
use std::time::{Duration, Instant};

/// A round of the control loop: a thousand a second.
const ROUND: Duration = Duration::from_millis(1);

/// Arguments: state directory, and names. Maps them, and answers a line each with the number of faults: `touch` (all pages of all),
/// `fork` (the same in a child), `loop SECONDS` (a control loop of 1 kHz on the first page of each), `again` (maps all anew).
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, names @ ..] = arguments else { return failed("wired-client takes a folder and names") };
    let host = Host::connect_to(Path::new(state))?;
    lock_own_memory()?;
    let mut mappings = map(&host, names)?;
    worker::say("ready")?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let faults = match line.split(' ').collect::<Vec<_>>()[..] {
            ["touch"] => touch(&mappings),
            // What the child copies of its parent's own memory is copied before.
            ["fork"] => in_child(|| {
                bring_code_in();
                [&[][..], &mappings].map(touch)[1]
            })?,
            ["loop", seconds] => counted_loop(&mappings, Duration::from_secs(seconds.parse()?)),
            ["again"] => {
                mappings.clear();
                mappings = map(&host, names)?;
                touch(&mappings)
            }
            _ => return failed(format!("wired-client does not know {line:?}")),
        };
        worker::say(&faults.to_string())?;
    }
    Ok(())
}

/// As a control loop does with what is its own: code, stack, numbers. What is mapped later is not locked by it.
fn lock_own_memory() -> Result<()> {
    // SAFETY: nothing that is there changes.
    match unsafe { libc::mlockall(libc::MCL_CURRENT) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).doing("locking this program in memory"),
    }
}

/// A child has none of its parent's pages of files until it touches them: those of programs and libraries are brought in.
fn bring_code_in() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let of_files = maps.lines().filter(|line| line.contains(" /") && !line.contains(" /memfd:"));
    for line in of_files {
        let Some((start, end)) = line.split(' ').next().and_then(|range| range.split_once('-')) else {
            continue;
        };
        let number = |text: &str| usize::from_str_radix(text, 16).unwrap_or(0);
        let (start, end) = (number(start), number(end));
        // SAFETY: reads pages that are mapped. What cannot be read stays away.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_POPULATE_READ) };
    }
}

fn map(host: &Host, names: &[String]) -> Result<Vec<Mapping>> {
    let map = |name: &String| Ok(host.open(name, Access::ReadWrite)?.map(&objects::everything())?);
    names.iter().map(map).collect()
}

/// Faults of this thread while it touches all of them. What the code itself, its stack and its numbers take is taken before: it
/// touches memory of its own in the same way.
fn touch(mappings: &[Mapping]) -> u64 {
    let counted = |own: &RawMapping, mappings: &[Mapping]| {
        own.view().write_pages();
        let before = thread_faults();
        mappings.iter().for_each(|mapping| View::of(mapping).write_pages());
        thread_faults() - before
    };
    let Ok(own) = memory_file(1 << 20).and_then(|memory| RawMapping::shared(memory, 1 << 20)) else {
        return u64::MAX;
    };
    counted(&own, &[]);
    counted(&own, mappings)
}

/// Faults of so long a loop. What its code takes is taken before, in a shorter one.
fn counted_loop(mappings: &[Mapping], duration: Duration) -> u64 {
    control_loop(mappings, 20 * ROUND);
    control_loop(mappings, duration)
}

fn control_loop(mappings: &[Mapping], duration: Duration) -> u64 {
    let (begun, mut next) = (Instant::now(), Instant::now());
    let before = thread_faults();
    while begun.elapsed() < duration {
        for view in mappings.iter().map(View::of) {
            view.write_word(0, view.read_word(8).wrapping_add(1));
        }
        next += ROUND;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    thread_faults() - before
}

/// What a forked child counts; 255 at most.
fn in_child(count: impl FnOnce() -> u64) -> Result<u64> {
    // SAFETY: the library's handlers make the child whole; it counts, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = count().min(255) as i32;
        // SAFETY: nothing of the parent is to be ended in order.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for that child.
    if child < 0 || unsafe { libc::waitpid(child, &raw mut status, 0) } != child || !libc::WIFEXITED(status) {
        return failed("the child did not end in order");
    }
    Ok(libc::WEXITSTATUS(status) as u64)
}
