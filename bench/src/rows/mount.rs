//! `mount.…`: an object as a file, against a file.

use crate::context::{Context, GIB};
use crate::failure::{Doing, Result, failed, skipped};
use crate::host::{BenchHost, program};
use crate::measure::{alternate, alternate_best, median, seconds};
use crate::objects;
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::RawMapping;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Reads and writes at random places of a mapping.
pub struct DirectRatio;
/// `read()` from end to end.
pub struct SeqRatio;

/// Bytes of a `read()`.
const READ: usize = 128 * 1024;

/// A host's objects as files, until it is dropped.
pub(super) struct Mounted<'h> {
    host: &'h BenchHost,
    directory: PathBuf,
}

impl<'h> Mounted<'h> {
    pub(super) fn of(host: &'h BenchHost, context: &Context) -> Result<Mounted<'h>> {
        if !rustix::process::geteuid().is_root() {
            return skipped("the kernel gives files through for root alone");
        }
        if !Path::new("/dev/fuse").exists() {
            return skipped("this machine has no /dev/fuse");
        }
        let mounted = Mounted { host, directory: context.new_directory("mount")? };
        let output = mounted.command("mount", &[])?;
        if output.status.success() {
            return Ok(mounted);
        }
        failed(format!("`mount` said: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }

    /// Where they are.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn command(&self, verb: &str, words: &[&str]) -> Result<std::process::Output> {
        let mut command = Command::new(program()?);
        command.arg(verb).args(words).arg(&self.directory).env("COMMONHOLD_HOST", self.host.state());
        command.output().doing(format!("running {verb}"))
    }

    /// Makes a file there and fills it, by calls.
    fn make(&self, name: &str, bytes: usize) -> Result<PathBuf> {
        let path = self.directory.join(name);
        fill(&path, bytes)?;
        Ok(path)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.command("umount", &["--lazy"]) {
            eprintln!("commonhold-bench: {error}");
        }
    }
}

fn fill(path: &Path, bytes: usize) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    let block = vec![0x5a; 1 << 20];
    for at in (0..bytes).step_by(block.len()) {
        let part = &block[..block.len().min(bytes - at)];
        std::os::unix::fs::FileExt::write_all_at(&file, part, at as u64)?;
    }
    Ok(())
}

/// Fills files of that size page by page in turn: which places in memory pages have decides a tenth of how fast they are.
fn fill_together(paths: &[&PathBuf], bytes: usize) -> Result<()> {
    let map = |path: &&PathBuf| {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        file.set_len(bytes as u64)?;
        RawMapping::shared(&file, bytes)
    };
    let mappings = paths.iter().map(map).collect::<std::io::Result<Vec<_>>>()?;
    for at in (0..bytes).step_by(4096) {
        mappings.iter().for_each(|mapping| mapping.view().write_word(at, at as u64 + 1));
    }
    Ok(())
}

/// A file in memory, as anonymous objects are: it goes with this.
struct Plain(PathBuf);

impl Plain {
    fn new(bytes: usize) -> Result<Plain> {
        let plain = Plain(PathBuf::from(format!("/dev/shm/commonhold-bench-{}", std::process::id())));
        fill(&plain.0, bytes)?;
        Ok(plain)
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            eprintln!("commonhold-bench: {}: {error}", self.0.display());
        }
    }
}

impl Row for DirectRatio {
    fn id(&self) -> &'static str {
        "mount.direct_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.05))
    }

    fn about(&self) -> &'static str {
        "a mapped file of the mount, 256 MiB, one thread: map it, touch each page, 4 million reads and writes at random \
         places ÷ the same of a file in memory (/dev/shm); their pages were filled in turn, by mappings"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        const BYTES: usize = 256 << 20;
        let host = context.start_host()?;
        let mounted = Mounted::of(&host, context)?;
        let (ours, plain) = (mounted.directory.join("mapped"), Plain::new(0)?);
        fill_together(&[&ours, &plain.0], BYTES)?;
        let accesses = context.pick(4 << 20, 1 << 16);
        let once = |path: &Path, pair: usize| {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            seconds(|| {
                let mapping = RawMapping::shared(&file, BYTES)?;
                black_box(mapping.view().touch_pages());
                Ok(black_box(mapping.view().mix(accesses, pair as u64)))
            })
        };
        let rounds = context.pick(21, 3);
        let pairs = alternate(rounds, |pair| once(&ours, pair), |pair| once(&plain.0, pair))?;
        let detail = json!({ "accesses": accesses, "milliseconds": pairs.summary(1e3) });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

impl Row for SeqRatio {
    fn id(&self) -> &'static str {
        "mount.seq_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.3))
    }

    fn about(&self) -> &'static str {
        "`read()` of 1 GiB of the mount from end to end, a direct object opened for reading, 128 KiB at a time ÷ the same of \
         a file in the page cache (/dev/shm); other kinds of objects, and writing, in detail"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bytes = context.pick(GIB, 64 << 20);
        let host = context.start_host()?;
        let mounted = Mounted::of(&host, context)?;
        let (ours, plain) = (mounted.make("read", bytes)?, Plain::new(bytes)?);
        let once = |path: &Path| read_all(File::open(path)?, bytes);
        once(&ours)?;
        once(&plain.0)?;
        let pairs = alternate_best(context.pick(11, 3), 3, |_| once(&ours), |_| once(&plain.0))?;
        let speed = |seconds: f64| rounded(bytes as f64 / seconds / 1e9);
        let detail = json!({
            "milliseconds": pairs.summary(1e3),
            "gb_per_second": {
                "commonhold": speed(median(&pairs.ours)),
                "peer": speed(median(&pairs.theirs)),
                "other_kinds": other_kinds(context, &host, &mounted, bytes)?,
            },
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

fn read_all(file: File, bytes: usize) -> Result<f64> {
    let mut buffer = vec![0; READ];
    seconds(|| {
        let mut done = 0;
        while done < bytes {
            done += match rustix::io::read(&file, &mut buffer)? {
                0 => return failed(format!("the file ends at {done} of {bytes} bytes")),
                count => count,
            };
        }
        black_box(&buffer);
        Ok(())
    })
}

/// What comes to the server of the mount: each the median of a few.
fn other_kinds(context: &Context, host: &BenchHost, mounted: &Mounted<'_>, bytes: usize) -> Result<Value> {
    let speed = |seconds: Vec<f64>| rounded(bytes as f64 / median(&seconds) / 1e9);
    let times =
        |once: &dyn Fn() -> Result<f64>| (0..context.pick(5, 2)).map(|_| once()).collect::<Result<Vec<_>>>();
    let read = mounted.directory.join("read");
    let for_writing = || read_all(OpenOptions::new().read(true).write(true).open(&read)?, bytes);
    let over = || seconds(|| fill_over(&read, bytes));
    objects::controlled(&host.connect()?, "/controlled", bytes)?;
    let controlled = mounted.directory.join("controlled");
    fill_over(&controlled, bytes)?;
    let served = || read_all(File::open(&controlled)?, bytes);
    Ok(json!({
        "read_direct_opened_for_writing": speed(times(&for_writing)?),
        "write_direct": speed(times(&over)?),
        "read_controlled": speed(times(&served)?),
    }))
}

/// Writes over what is there.
fn fill_over(path: &Path, bytes: usize) -> Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    let block = vec![0xa5; 1 << 20];
    for at in (0..bytes).step_by(block.len()) {
        std::os::unix::fs::FileExt::write_all_at(&file, &block, at as u64)?;
    }
    Ok(())
}
