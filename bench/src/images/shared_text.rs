//! Twenty programs that do one workload with one library, each a file of its own: how much of their code is in memory.

use super::{image, tool};
use crate::failure::{Failure, Result, failed};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How many programs.
pub const PROGRAMS: usize = 20;

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0";
const ARCHIVE: &str = "/usr/lib/x86_64-linux-gnu/libsqlite3.a";

/// Compiles the programs and links them to the archive, and to an image of the library that was made of the same
/// source.
pub fn prepare(directory: &Path) -> Result<()> {
    if !Path::new(LIBRARY).exists() || !Path::new(ARCHIVE).exists() {
        return Err(Failure::Skipped("SQLite is not installed (apt install libsqlite3-dev)".into()));
    }
    let library = Path::new(LIBRARY).canonicalize()?;
    image(directory, &library, "sqlite3", needed(&library)?)?;
    std::fs::write(directory.join("workload.c"), include_str!("workload.c"))?;
    for number in 0..PROGRAMS {
        let (object, define) = (format!("w{number}.o"), format!("-DNUMBER={number}"));
        tool(directory, "gcc", &["-O2", "-c", "workload.c", "-o", &object, &define])?;
        let linked = format!("w{number}_static");
        tool(directory, "gcc", &["-pie", "-o", &linked, &object, ARCHIVE, "-lm", "-lz", "-ldl", "-pthread"])?;
        let linked = format!("w{number}_image");
        tool(
            directory,
            "gcc",
            &["-pie", "-o", &linked, &object, "sqlite3_stub.o", "-lm", "-lz", "-ldl", "-pthread"],
        )?;
    }
    Ok(())
}

/// What the library needs of others: the C library's functions, which programs hand over.
fn needed(library: &Path) -> Result<BTreeSet<String>> {
    let wrong = |error: commonhold_rebase::Error| Failure::Failed(error.to_string());
    let elf = commonhold_rebase::elf::Elf::open(library).map_err(wrong)?;
    let all = (0..).zip(&elf.symbols.all).skip(1);
    let undefined =
        all.filter(|(_, symbol)| symbol.section == commonhold_rebase::elf::UNDEFINED && !symbol.weak);
    Ok(undefined.map(|(index, _)| String::from_utf8_lossy(elf.name(index)).into_owned()).collect())
}

/// Programs that have done their work and wait.
pub struct Waiting {
    children: Vec<Child>,
    paths: Vec<PathBuf>,
    /// What each said.
    pub said: Vec<String>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for child in &mut self.children {
            drop(child.stdin.take());
            // It ends by itself; if not, it is made to.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts all that were linked so.
pub fn start(directory: &Path, linked: &str) -> Result<Waiting> {
    let mut all = Waiting { children: Vec::new(), paths: Vec::new(), said: Vec::new() };
    for number in 0..PROGRAMS {
        let path = directory.join(format!("w{number}_{linked}"));
        let child = Command::new(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        all.children.push(child);
        all.paths.push(path);
    }
    for child in &mut all.children {
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        if !line.contains(" rows, program ") {
            return failed(format!("a program linked to {linked} did not do its work: {line:?}"));
        }
        all.said.push(line);
    }
    Ok(all)
}

/// Code of the programs and of images, summed over all processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Code {
    /// Its share of the pages, KiB.
    pub pss_kib: f64,
    /// Pages that are mapped, KiB.
    pub rss_kib: f64,
}

impl Waiting {
    /// Executable pages of the programs themselves, which have the library or its stub in them, and of images. Those of
    /// other libraries are the same on both sides.
    pub fn code(&self) -> Result<Code> {
        let mut sum = Code::default();
        for (child, path) in self.children.iter().zip(&self.paths) {
            let text = std::fs::read_to_string(format!("/proc/{}/smaps", child.id()))?;
            let mut counts = false;
            for line in text.lines() {
                let mut words = line.split_ascii_whitespace();
                let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                if !first.ends_with(':') {
                    let file = line.find('/').map_or("", |at| &line[at..]);
                    let ours = Path::new(file) == path || file.contains("/images/content/");
                    counts = ours && second.contains('x');
                } else if counts {
                    let kib = second.parse::<f64>().unwrap_or(0.0);
                    match first {
                        "Pss:" => sum.pss_kib += kib,
                        "Rss:" => sum.rss_kib += kib,
                        _ => {}
                    }
                }
            }
        }
        Ok(sum)
    }
}
