//! A program is run under this process's eyes: it stops when all is relocated and its own code is about to begin, and
//! once more when it ends.

use std::fs;
use std::io::{Error, Result};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// How it ended.
pub struct Ended {
    /// As `waitpid` says it.
    pub status: i32,
    /// Its memory then.
    pub memory: Memory,
}

/// What a process has for itself, in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Pages that it changed.
    pub private_kib: u64,
    /// Of those, such as it may not change any more: what was relocated.
    pub relocated_kib: u64,
}

fn request(what: libc::c_uint, process: i32, address: u64, data: u64) -> Result<i64> {
    // SAFETY: none of the requests that are made here writes to this process's memory, but GETREGS, which is not among them.
    let result = unsafe { libc::ptrace(what, process, address, data) };
    if result == -1 { Err(Error::last_os_error()) } else { Ok(result) }
}

fn wait(process: i32) -> Result<i32> {
    let mut status = 0;
    // SAFETY: room for the status.
    match unsafe { libc::waitpid(process, &mut status, libc::__WALL) } {
        -1 => Err(Error::last_os_error()),
        _ => Ok(status),
    }
}

/// Runs a command; `begun` is called when its own code is about to begin.
pub fn run(mut command: Command, mut begun: impl FnMut(i32)) -> Result<Ended> {
    // SAFETY: one system call between fork and exec.
    unsafe { command.pre_exec(|| request(libc::PTRACE_TRACEME, 0, 0, 0).map(drop)) };
    let child = command.spawn()?;
    let process = child.id() as i32;
    wait(process)?;
    let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SETOPTIONS, process, 0, options as u64)?;
    let mut beginning = Some(Beginning::mark(process)?);
    let mut memory = Memory::default();
    let mut signal = 0;
    loop {
        request(libc::PTRACE_CONT, process, 0, signal)?;
        let status = wait(process)?;
        signal = 0;
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            return Ok(Ended { status, memory });
        }
        match (libc::WSTOPSIG(status), status >> 16) {
            (libc::SIGTRAP, libc::PTRACE_EVENT_EXEC) => beginning = Some(Beginning::mark(process)?),
            (libc::SIGTRAP, libc::PTRACE_EVENT_EXIT) => memory = of(process),
            (libc::SIGTRAP, 0) if beginning.is_some() => {
                beginning.take().expect("it is there").restore(process)?;
                begun(process);
            }
            (other, _) => signal = other as u64,
        }
    }
}

/// The first instruction of a program, replaced by one that stops it.
struct Beginning {
    address: u64,
    words: i64,
}

const STOP: u64 = 0xcc;
/// `AT_ENTRY`.
const ENTRY: u64 = 9;
/// Offset of the instruction pointer among a process's registers.
const INSTRUCTION: u64 =
    std::mem::offset_of!(libc::user, regs) as u64 + std::mem::offset_of!(libc::user_regs_struct, rip) as u64;

impl Beginning {
    fn mark(process: i32) -> Result<Beginning> {
        let vector = fs::read(format!("/proc/{process}/auxv"))?;
        let word = |raw: &[u8]| u64::from_le_bytes(raw.try_into().expect("eight bytes"));
        let mut pairs = vector.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..])));
        let entry = pairs
            .find(|(kind, _)| *kind == ENTRY)
            .ok_or(Error::other("the kernel does not say where it begins"))?;
        let words = request(libc::PTRACE_PEEKTEXT, process, entry.1, 0)?;
        request(libc::PTRACE_POKETEXT, process, entry.1, words as u64 & !0xff | STOP)?;
        Ok(Beginning { address: entry.1, words })
    }

    fn restore(self, process: i32) -> Result<()> {
        request(libc::PTRACE_POKETEXT, process, self.address, self.words as u64)?;
        request(libc::PTRACE_POKEUSER, process, INSTRUCTION, self.address).map(drop)
    }
}

/// The memory of a process, from what the kernel says of its mappings.
fn of(process: i32) -> Memory {
    let text = fs::read_to_string(format!("/proc/{process}/smaps")).unwrap_or_default();
    let mut memory = Memory::default();
    let (mut read_only_file, mut dirty) = (false, 0);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let kib = || second.parse().unwrap_or(0);
        match first {
            "Private_Dirty:" => dirty = kib(),
            "Anonymous:" => {
                // What is dirty and not anonymous is a file's that was just written, and nobody's own.
                let own = dirty.min(kib());
                memory.private_kib += own;
                memory.relocated_kib += if read_only_file { own } else { 0 };
            }
            _ if !first.ends_with(':') => read_only_file = second.starts_with("r--p") && line.contains('/'),
            _ => {}
        }
    }
    memory
}
