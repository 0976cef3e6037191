//! What the kernel tells of a program: faults, mappings, processes. It writes them into a buffer
//! for each processor, for a buffer that all processors write to is refused for children. Each
//! record has its time, by which they are put in order.

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// Bytes of a buffer: the first that this user may lock. 512 KiB is the kernel's own allowance for
/// a processor (`kernel.perf_event_mlock_kb`).
const BUFFER_BYTES: [usize; 4] = [2 << 20, 512 << 10, 128 << 10, 32 << 10];
/// A record that is so old is in its buffer: it is written down within microseconds.
const SETTLED_NS: u64 = 100_000_000;
/// Which part of a record says whether the kernel or the program did it, and the kernel's value.
const MODE: u16 = 7;
const BY_KERNEL: u16 = 1;
/// A thread's new name came by executing a program.
const BY_EXECUTING: u16 = 1 << 13;

/// One thing that the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A process, or if it is its own parent a thread of it.
    Began {
        process: u32,
        parent: u32,
    },
    Executes {
        process: u32,
        program: String,
    },
    /// A thread of it.
    Ended {
        process: u32,
    },
    Mapped {
        process: u32,
        range: Range<u64>,
        name: String,
        inode: u64,
    },
    Fault {
        process: u32,
        address: u64,
        in_kernel: bool,
    },
    /// So many records had no room.
    Lost(u64),
}

/// The buffers, and what was read from them.
pub(crate) struct Rings {
    samplers: Vec<Sampler>,
    /// By time; what has the same time is of one processor, and in its order.
    read: BTreeMap<(u64, u64), Told>,
    /// Records so far.
    count: u64,
    /// Faults so far.
    pub(crate) faults: u64,
    /// When they were last read.
    last_ns: u64,
    /// Whether faults within system calls are told.
    pub(crate) tells_calls: bool,
}

impl Rings {
    /// Opens them for the next program that this thread starts.
    pub(crate) fn open() -> io::Result<Rings> {
        let (samplers, tells_calls) = match open_all(true) {
            Err(error) if is_refused(&error) => (open_all(false)?, false),
            other => (other?, true),
        };
        Ok(Rings { samplers, read: BTreeMap::new(), count: 0, faults: 0, last_ns: 0, tells_calls })
    }

    /// Reads what there is.
    pub(crate) fn read(&mut self) {
        self.last_ns = now_ns();
        for sampler in &mut self.samplers {
            while let Some(record) = sampler.next_record() {
                let Some((time, told)) = understand(&record) else { continue };
                self.faults += u64::from(matches!(told, Told::Fault { .. }));
                self.count += 1;
                self.read.insert((time, self.count), told);
            }
        }
    }

    /// The next one before which nothing can come any more.
    pub(crate) fn next_settled(&mut self) -> Option<Told> {
        let (time, _) = self.read.first_key_value()?.0;
        let is_settled = time.saturating_add(SETTLED_NS) < self.last_ns;
        if is_settled { self.next() } else { None }
    }

    /// The next one of those that were read.
    pub(crate) fn next(&mut self) -> Option<Told> {
        self.read.pop_first().map(|(_, told)| told)
    }

    /// Ends it, and reads the last. Gives how many faults the kernel counted.
    pub(crate) fn stop(&mut self) -> io::Result<u64> {
        let mut counted = 0;
        for sampler in &mut self.samplers {
            sampler.disable()?;
            counted += sampler.as_counter_mut().read()?;
        }
        self.read();
        Ok(counted)
    }
}

fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn open_all(with_kernel: bool) -> io::Result<Vec<Sampler>> {
    let processors = processors()?;
    let mut refused = None;
    for bytes in BUFFER_BYTES {
        // It is the counter that this user may not have, or the buffer.
        let counters: Vec<_> = processors
            .iter()
            .map(|processor| counter(*processor, bytes, with_kernel))
            .collect::<io::Result<_>>()?;
        match counters.into_iter().map(|counter| counter.sampled(bytes)).collect() {
            Err(error) if is_refused(&error) => refused = Some(error),
            other => return other,
        }
    }
    Err(io::Error::new(
        io::ErrorKind::OutOfMemory,
        format!("no buffers ({})", refused.map_or_else(String::new, |error| error.to_string())),
    ))
}

fn counter(processor: usize, buffer_bytes: usize, with_kernel: bool) -> io::Result<perf_event::Counter> {
    let mut builder = Builder::new(Software::PAGE_FAULTS);
    builder.observe_self().one_cpu(processor).exclude_kernel(!with_kernel);
    // Not of this program: of what it starts, from the beginning of that on.
    builder.enabled(false).inherit(true).enable_on_exec(true);
    builder.sample_period(1).sample(SampleFlag::TID | SampleFlag::TIME | SampleFlag::ADDR);
    builder.mmap(true).mmap_data(true).mmap2(true).task(true).comm(true).comm_exec(true);
    builder.sample_id_all(true).clockid(Clock::MONOTONIC).wakeup_watermark(buffer_bytes / 2);
    builder.build()
}

/// The processors that are there, such as `0-3,6`.
fn processors() -> io::Result<Vec<usize>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    numbers(text.trim())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("processors {text:?}")))
}

fn numbers(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(all)
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Whatever else it tells is nothing to us.
fn understand(record: &perf_event::Record) -> Option<(u64, Told)> {
    let misc = record.misc();
    let told = match record.parse_record().ok()? {
        Record::Sample(sample) => {
            let (process, address) = (sample.pid()?, sample.addr()?);
            let told = Told::Fault { process, address, in_kernel: misc & MODE == BY_KERNEL };
            return Some((sample.time()?, told));
        }
        Record::Fork(fork) => Told::Began { process: fork.pid, parent: fork.ppid },
        Record::Exit(exit) => Told::Ended { process: exit.pid },
        Record::Comm(comm) if misc & BY_EXECUTING != 0 => {
            Told::Executes { process: comm.pid, program: text(&comm.comm) }
        }
        Record::Mmap2(map) => Told::Mapped {
            process: map.pid,
            range: map.addr..map.addr.saturating_add(map.len),
            name: text(&map.filename),
            inode: map.ino().unwrap_or(0),
        },
        Record::Lost(lost) => Told::Lost(lost.lost),
        _ => return None,
    };
    // All but samples end with who did it (8 bytes) and when.
    let bytes = record.to_contiguous();
    let time = u64::from_ne_bytes(*bytes.last_chunk()?);
    Some((time, told))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(numbers("0"), Some(vec![0]));
        assert_eq!(numbers("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(numbers(""), None);
        assert_eq!(numbers("0-x"), None);
    }
}
