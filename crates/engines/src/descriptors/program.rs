//! The 32-bit program: compiled, started, and asked through pipes.

use crate::memory::Memory;
use commonhold_segments::Run;
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

const SOURCE: &str = include_str!("segments.c");
/// A question is six words of 32 bits, an answer three; as in `segments.c`.
const QUESTION: usize = 24;
const ANSWER: usize = 12;
/// So many questions are written to a pipe in one piece, and their answers are.
const AT_ONCE: usize = 4096 / QUESTION;

/// One question.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    /// That the memory be mapped: so many pages.
    Map { pages: u32 },
    /// That a descriptor be loaded.
    Load { entry: u32, run: Run, writable: bool },
    /// That a descriptor be cleared.
    Unload { entry: u32 },
    /// A word at an offset of a segment.
    Read { entry: u32, at: u32 },
    /// The same, to be changed.
    Write { entry: u32, at: u32, word: u64 },
}

impl Ask {
    fn words(self) -> [u32; 6] {
        match self {
            Ask::Map { pages } => [0, 0, 0, pages, 0, 0],
            Ask::Load { entry, run, writable } => [1, entry, run.start, run.pages, u32::from(writable), 0],
            Ask::Unload { entry } => [2, entry, 0, 0, 0, 0],
            Ask::Read { entry, at } => [3, entry, at, 0, 0, 0],
            Ask::Write { entry, at, word } => [4, entry, at, 0, word as u32, (word >> 32) as u32],
        }
    }
}

/// The program, running. It ends when this value goes.
#[derive(Debug)]
pub struct Program {
    child: Child,
    questions: Option<ChildStdin>,
    answers: ChildStdout,
}

impl Program {
    /// Starts it over a memory.
    pub fn start(memory: &Memory) -> io::Result<Program> {
        let program = compiled().as_ref().map_err(|why| io::Error::other(why.as_str()))?;
        let file = rustix::fs::memfd_create("commonhold-segments", MemfdFlags::CLOEXEC)?;
        let mut file = File::from(file);
        file.write_all(program)?;
        // What is open to be written is not executed.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let readable = File::open(&path)?;
        drop(file);
        let mut command = Command::new(format!("/proc/self/fd/{}", readable.as_raw_fd()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::from(memory.file().try_clone_to_owned()?));
        let mut child = command.spawn()?;
        let answers = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut program = Program { questions: child.stdin.take(), child, answers };
        program.done(Ask::Map { pages: memory.pages() })?;
        // Kernels may be built without descriptors of programs.
        program.load(0, Run::new(0, 1), true)?;
        program.unload(0)?;
        Ok(program)
    }

    /// Loads a descriptor.
    pub fn load(&mut self, entry: u32, run: Run, writable: bool) -> io::Result<()> {
        self.done(Ask::Load { entry, run, writable })
    }

    /// Clears a descriptor.
    pub fn unload(&mut self, entry: u32) -> io::Result<()> {
        self.done(Ask::Unload { entry })
    }

    /// Asks, in order. None for what trapped or was refused.
    pub fn ask(&mut self, asked: &[Ask]) -> io::Result<Vec<Option<u64>>> {
        let mut answers = Vec::with_capacity(asked.len());
        for some in asked.chunks(AT_ONCE) {
            let bytes: Vec<u8> = some.iter().flat_map(|ask| ask.words()).flat_map(u32::to_ne_bytes).collect();
            self.questions.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(&bytes)?;
            let mut answered = vec![0; some.len() * ANSWER];
            self.answers.read_exact(&mut answered)?;
            answers.extend(answered.chunks_exact(ANSWER).map(|answer| {
                let word = |n: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| answer[n * 4 + byte]));
                (word(0) == 0).then(|| u64::from(word(1)) | u64::from(word(2)) << 32)
            }));
        }
        Ok(answers)
    }

    fn done(&mut self, ask: Ask) -> io::Result<()> {
        match self.ask(&[ask])?[..] {
            [Some(_)] => Ok(()),
            _ => Err(io::Error::other(format!("the kernel refused {ask:?}"))),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.questions.take());
        let _ = self.child.wait(); // it ends when there is nobody who asks
    }
}

/// The program's bytes, or why there are none. It is compiled once.
fn compiled() -> &'static Result<Vec<u8>, String> {
    static COMPILED: OnceLock<Result<Vec<u8>, String>> = OnceLock::new();
    COMPILED.get_or_init(|| compile().map_err(|error| format!("no 32-bit program can be made: {error}")))
}

fn compile() -> io::Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let (source, program) = (folder.path().join("segments.c"), folder.path().join("segments"));
    std::fs::write(&source, SOURCE)?;
    let freestanding = [
        "-m32",
        "-O1",
        "-nostdlib",
        "-static",
        "-ffreestanding",
        "-fno-pie",
        "-no-pie",
        "-fno-stack-protector",
    ];
    let mut cc = Command::new("cc");
    let output = cc.args(freestanding).arg("-o").arg(&program).arg(&source).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    std::fs::read(&program)
}
