//! Moving bytes between files and objects: in chunks, past stretches of zeros where the target is zero already,
//! with a progress bar for copies of more than a second on a terminal.

use super::contents::CHUNK_BYTES;
use super::interrupts::Interrupts;
use commonhold::{Object, PAGE_SIZE_BYTES, Result};
use commonhold_object::error::Doing;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where bytes come from.
pub enum Source {
    /// A file, and its path for errors.
    File(File, PathBuf),
    /// An object.
    Object(Object),
}

impl Source {
    /// Bytes to copy.
    pub fn size_bytes(&self) -> Result<u64> {
        match self {
            Source::File(file, path) => Ok(file.metadata().doing(format!("cannot read {path:?}"))?.len()),
            Source::Object(object) => Ok(object.size_bytes()),
        }
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        match self {
            Source::File(file, path) => {
                file.read_exact_at(buffer, offset).doing(format!("cannot read {path:?} at byte {offset}"))
            }
            Source::Object(object) => object.read_at(buffer, offset),
        }
    }
}

/// Where bytes go.
pub enum Sink {
    /// A file that is one hole, and its path for errors.
    File(File, PathBuf),
    /// An object.
    Object {
        /// Which.
        object: Object,
        /// It was just made: all its bytes are zero.
        zeroed: bool,
    },
}

impl Sink {
    fn is_zeroed(&self) -> bool {
        matches!(self, Sink::File(..) | Sink::Object { zeroed: true, .. })
    }

    fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        match self {
            Sink::File(file, path) => {
                file.write_all_at(data, offset).doing(format!("cannot write {path:?} at byte {offset}"))
            }
            Sink::Object { object, .. } => object.write_at(data, offset),
        }
    }
}

/// Copies `size_bytes`; gives the bytes that were really written. A signal ends it between two chunks.
pub fn transfer(source: &Source, sink: &Sink, size_bytes: u64, interrupts: &Interrupts) -> Result<u64> {
    let mut buffer = vec![0; CHUNK_BYTES.min(size_bytes) as usize];
    let mut progress = Progress::new(size_bytes);
    let (mut at, mut written) = (0, 0);
    while at < size_bytes {
        interrupts.check()?;
        let chunk = &mut buffer[..CHUNK_BYTES.min(size_bytes - at) as usize];
        source.read(chunk, at)?;
        if sink.is_zeroed() {
            for (offset, length) in runs_with_content(chunk) {
                sink.write(&chunk[offset..offset + length], at + offset as u64)?;
                written += length as u64;
            }
        } else {
            sink.write(chunk, at)?;
            written += chunk.len() as u64;
        }
        at += chunk.len() as u64;
        progress.at(at);
    }
    progress.end();
    Ok(written)
}

/// The stretches of pages that are not all zero: offset and length of each.
fn runs_with_content(chunk: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    for page in chunk.chunks(PAGE_SIZE_BYTES as usize) {
        if page.iter().any(|byte| *byte != 0) {
            match runs.last_mut() {
                Some((offset, length)) if *offset + *length == at => *length += page.len(),
                _ => runs.push((at, page.len())),
            }
        }
        at += page.len();
    }
    runs
}

/// A bar that appears after a second, on a terminal only.
struct Progress {
    total_bytes: u64,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    const PATIENCE: Duration = Duration::from_secs(1);

    fn new(total_bytes: u64) -> Self {
        Progress { total_bytes, started: Instant::now(), bar: None }
    }

    fn at(&mut self, bytes: u64) {
        if self.bar.is_none() && self.started.elapsed() >= Self::PATIENCE && std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(self.total_bytes), ProgressDrawTarget::stderr());
            let template = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
            // The template is ours and right (tested); the library's own style would do as well.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_passed_over_in_whole_pages() {
        let page = PAGE_SIZE_BYTES as usize;
        let mut chunk = vec![0; 5 * page + 10];
        assert_eq!(runs_with_content(&chunk), []);
        chunk[page] = 1;
        chunk[3 * page - 1] = 1;
        chunk[5 * page + 9] = 1;
        assert_eq!(runs_with_content(&chunk), [(page, 2 * page), (5 * page, 10)]);
    }

    #[test]
    fn a_file_is_copied_with_its_holes() {
        let directory = std::env::temp_dir().join(format!("commonhold-transfer-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (from, to) = (directory.join("from"), directory.join("to"));
        let mut content = vec![0; 3 * CHUNK_BYTES as usize + 17];
        content[5000] = 7;
        content[3 * CHUNK_BYTES as usize + 16] = 9;
        std::fs::write(&from, &content).unwrap();
        let target = File::create(&to).unwrap();
        target.set_len(content.len() as u64).unwrap();
        let source = Source::File(File::open(&from).unwrap(), from);
        let written =
            transfer(&source, &Sink::File(target, to.clone()), content.len() as u64, &Interrupts::none())
                .unwrap();
        assert_eq!(written, PAGE_SIZE_BYTES + 17);
        assert!(std::fs::read(&to).unwrap() == content);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_source_that_shrank_is_an_error() {
        let path = std::env::temp_dir().join(format!("commonhold-shrank-{}", std::process::id()));
        std::fs::write(&path, b"short").unwrap();
        let source = Source::File(File::open(&path).unwrap(), path.clone());
        let sink = Sink::File(File::create(path.with_extension("out")).unwrap(), path.clone());
        transfer(&source, &sink, 100, &Interrupts::none()).unwrap_err();
        std::fs::remove_file(path.with_extension("out")).unwrap();
        std::fs::remove_file(path).unwrap();
    }
}
