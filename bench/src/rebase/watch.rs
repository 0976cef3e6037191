//! A launch under this process's eyes: which copies it has mapped when it ends; and, where that is wanted, an address that
//! is taken before anything of it runs.
//!
//! The address is taken by the program's own loader. The kernel puts that below the room for the stack; so a limit of the
//! stack of many TiB brings it to wherever it is wanted, in any program. Once it is there the limit is what it was.

use super::Program;
use crate::failure::{Doing, Failure, Result, failed};
use commonhold_rebase::store::Store;
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::thread::{JoinHandle, spawn};

/// What was seen of a launch.
pub struct Seen {
    /// What it said, and how it ended.
    pub output: Output,
    /// The copies that it had mapped at its end.
    pub copies: BTreeSet<PathBuf>,
}

/// The copies of a store that a process has mapped.
pub fn copies(store: &Store, pid: u32) -> Result<BTreeSet<PathBuf>> {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/maps")).doing("reading what a process has mapped")?;
    let below = store.root().join("copies");
    let paths = text.lines().filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])));
    Ok(paths.filter(|path| path.starts_with(&below)).collect())
}

/// Runs a command to its end. `taken`: an address, and how to come to it.
pub fn watch(mut command: Command, store: &Store, taken: Option<(u64, &Occupier)>) -> Result<Seen> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let limit = taken.map(|(address, occupier)| occupier.limit(address));
    stop_at_begin(&mut command, limit);
    let mut child = command.spawn().doing(format!("starting {command:?}"))?;
    let (output, errors) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let (status, copies) = follow(child.id() as i32, store, taken)?;
    let said = |reader: JoinHandle<io::Result<Vec<u8>>>| match reader.join() {
        Ok(bytes) => Ok(bytes?),
        Err(_) => failed("reading what a program says"),
    };
    Ok(Seen { output: Output { status, stdout: said(output)?, stderr: said(errors)? }, copies })
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<io::Result<Vec<u8>>> {
    spawn(move || {
        let mut bytes = Vec::new();
        pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut bytes)).map(|_| bytes)
    })
}

/// From the first instruction to the last.
fn follow(
    process: i32,
    store: &Store,
    taken: Option<(u64, &Occupier)>,
) -> Result<(ExitStatus, BTreeSet<PathBuf>)> {
    begin(process)?;
    if let Some((address, occupier)) = taken {
        if !has_mapped(process, address)? {
            return failed(format!("nothing is at {address:#x}, which was to be taken"));
        }
        occupier.restore(process)?;
    }
    let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SETOPTIONS, process, options as u64)?;
    let (mut mapped, mut signal) = (None, 0);
    loop {
        request(libc::PTRACE_CONT, process, signal)?;
        let status = wait(process)?;
        if !libc::WIFSTOPPED(status) {
            let Some(mapped) = mapped else { return failed("a program ended without being seen to") };
            return Ok((ExitStatus::from_raw(status), mapped));
        }
        signal = 0;
        match (libc::WSTOPSIG(status), status >> 16) {
            (libc::SIGTRAP, libc::PTRACE_EVENT_EXIT) => mapped = Some(copies(store, process as u32)?),
            (libc::SIGTRAP, libc::PTRACE_EVENT_EXEC) => {}
            (other, _) => signal = other as u64,
        }
    }
}

/// It has begun: nothing but the program and its loader are there.
fn begin(process: i32) -> Result<()> {
    let status = wait(process)?;
    if libc::WIFSTOPPED(status) { Ok(()) } else { failed("a program ended before it began") }
}

fn has_mapped(process: i32, address: u64) -> Result<bool> {
    Ok(mappings(process)?.any(|(first, end, _)| (first..end).contains(&address)))
}

fn mappings(process: i32) -> Result<impl Iterator<Item = (u64, u64, String)>> {
    let text = std::fs::read_to_string(format!("/proc/{process}/maps"))?;
    let one = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (first, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some((number(first)?, number(end)?, rest.to_owned()))
    };
    Ok(text.lines().filter_map(one).collect::<Vec<_>>().into_iter())
}

/// The command stops before its first instruction; with a limit of its stack, and nothing at random places.
fn stop_at_begin(command: &mut Command, stack: Option<libc::rlim_t>) {
    let before = move || {
        if let Some(bytes) = stack {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: hard_limit()?.rlim_max };
            // SAFETY: reads the limit, and sets what is this process's own.
            let refused = unsafe {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) == -1
                    || libc::setrlimit(libc::RLIMIT_STACK, &limit) != 0
            };
            if refused {
                return Err(io::Error::last_os_error());
            }
        }
        request(libc::PTRACE_TRACEME, 0, 0)
    };
    // SAFETY: nothing but system calls between fork and exec.
    unsafe { command.pre_exec(before) };
}

fn hard_limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for the limit.
    match unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

fn request(what: libc::c_uint, process: i32, data: u64) -> io::Result<()> {
    // SAFETY: of the requests that are made here none writes to this process's memory.
    match unsafe { libc::ptrace(what, process, 0_u64, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn wait(process: i32) -> io::Result<i32> {
    let mut status = 0;
    // SAFETY: room for the status.
    match unsafe { libc::waitpid(process, &mut status, libc::__WALL) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(status),
    }
}

/// Brings loaders to addresses.
pub struct Occupier {
    /// The limit of the stack as it is.
    limit: libc::rlimit,
    /// The end of a loader, and the limit with which it is there: both grow against each other.
    known: (u64, libc::rlim_t),
}

impl Occupier {
    /// None where this process may not do that; the row says so.
    pub fn new() -> Result<Option<Occupier>> {
        const TRIED: libc::rlim_t = 78 << 40;
        let mut command = Command::new("/bin/true");
        stop_at_begin(&mut command, Some(TRIED));
        let limit = hard_limit()?;
        let Ok(child) = command.spawn() else { return Ok(None) };
        let process = child.id() as i32;
        begin(process)?;
        let loader = mappings(process)?.filter(|(_, _, rest)| rest.contains("/ld-linux"));
        let end = loader.map(|(_, end, _)| end).max();
        request(libc::PTRACE_KILL, process, 0)?;
        wait(process)?;
        let end = end.ok_or(Failure::Failed("/bin/true has no loader".into()))?;
        Ok(Some(Occupier { limit, known: (end, TRIED) }))
    }

    /// So that the loader has this address: 64 KiB below its end.
    fn limit(&self, address: u64) -> libc::rlim_t {
        let end = (address & !0xfff) + (64 << 10);
        self.known.1.wrapping_add(self.known.0.wrapping_sub(end))
    }

    fn restore(&self, process: i32) -> Result<()> {
        // SAFETY: reads one limit and writes none.
        match unsafe { libc::prlimit(process, libc::RLIMIT_STACK, &self.limit, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().into()),
        }
    }
}

/// An address in each library of a program that has a copy, in the order in which they are loaded. Of a program that has a
/// copy itself in the first alone: with the others it is another program that finds them taken.
pub fn addresses(store: &Store, program: &Program) -> Result<Vec<u64>> {
    let path = store.record(&program.path);
    let bytes = std::fs::read(&path).doing(format!("reading {}", path.display()))?;
    let record = commonhold_record::Record::new(&bytes);
    let files = record.iter().flat_map(commonhold_record::Record::files).skip(1);
    let with_copies = files.filter(|file| !file.copy.is_empty()).map(|file| file.dynamic);
    let all: Vec<u64> = with_copies.take(if program.moved { 1 } else { usize::MAX }).collect();
    if all.is_empty() { failed(format!("{} has no copies", program.path.display())) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_rebase::images::Owner;

    #[test]
    fn a_loader_comes_to_the_address_that_is_asked_for() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store"), Owner::Machine).unwrap();
        // Where a process may not do that, nothing can be asked of it.
        let Some(occupier) = Occupier::new().unwrap() else { return };
        let before = hard_limit().unwrap().rlim_cur;
        for address in [0x3000_0012_3000, 0x3456_789a_b000] {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "ulimit -s; cat /proc/$$/maps; exit 3"]);
            // It fails if nothing is there.
            let seen = watch(command, &store, Some((address, &occupier))).unwrap();
            let said = String::from_utf8(seen.output.stdout).unwrap();
            let loader: Vec<&str> = said.lines().filter(|line| line.contains("/ld-linux")).collect();
            let number =
                |line: &str, at| u64::from_str_radix(line.split([' ', '-']).nth(at).unwrap(), 16).unwrap();
            let first = loader.iter().map(|line| number(line, 0)).min().unwrap();
            let end = loader.iter().map(|line| number(line, 1)).max().unwrap();
            assert!((first..end).contains(&address), "{address:#x}: {said}");
            let limit: Option<u64> = said.lines().next().and_then(|kib| kib.parse().ok());
            assert_eq!(limit.map_or(libc::RLIM_INFINITY, |kib| kib * 1024), before);
            assert_eq!((seen.output.status.code(), seen.copies.len()), (Some(3), 0));
        }
    }
}
