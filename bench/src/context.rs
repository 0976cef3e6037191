//! What a row has at hand while it runs: how thorough to be, a folder on a real disk, hosts of its own.

use crate::failure::{Doing, Result};
use crate::host::BenchHost;
use rand::SeedableRng;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Where random choices come from: the same ones for the same seed, on any machine.
pub type Random = rand::rngs::Xoshiro256PlusPlus;

/// One GiB.
pub const GIB: usize = 1 << 30;

/// Where and how a row runs.
#[derive(Clone, Debug)]
pub struct Context {
    /// Fewer rounds: to see that it works, not to publish.
    pub quick: bool,
    /// As long as the papers measured, where a row's paper says so.
    pub paper: bool,
    /// What all random choices follow from.
    pub seed: u64,
    /// How many trials a crash row makes, if it was said.
    pub trials: Option<u64>,
    /// A folder for this row alone, removed afterwards.
    pub directory: PathBuf,
}

impl Context {
    /// `full`, or `quick` when only a quick run was asked for.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Random choices, the same for the same seed.
    pub fn random(&self, stream: u64) -> Random {
        Random::seed_from_u64(self.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The path of something that rows of one run leave for each other; gone when the run is over.
    pub fn shared(&self, name: &str) -> PathBuf {
        self.directory.with_file_name(name)
    }

    /// Starts a host of this row's own; it ends when the result is dropped.
    pub fn start_host(&self) -> Result<BenchHost> {
        BenchHost::start(&self.directory.join("state"))
    }

    /// A new folder, whose name begins so; it goes with the row's.
    pub fn new_directory(&self, name: &str) -> Result<PathBuf> {
        let made = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(&self.directory);
        Ok(made.doing(format!("making a folder in {}", self.directory.display()))?.keep())
    }

    /// Makes a file of that size with content that is nowhere zero, stored on the disk, and warm in the page
    /// cache.
    pub fn make_file(&self, name: &str, size_bytes: usize) -> Result<(PathBuf, File)> {
        let path = self.directory.join(name);
        let file = fill_file(&path, size_bytes).doing(format!("making {}", path.display()))?;
        Ok((path, file))
    }
}

fn fill_file(path: &Path, size_bytes: usize) -> std::io::Result<File> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    let mut writer = BufWriter::with_capacity(1 << 20, &file);
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut left = size_bytes;
    while left > 0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = (state | 0x0101_0101_0101_0101).to_le_bytes();
        let part = left.min(8);
        writer.write_all(&word[..part])?;
        left -= part;
    }
    writer.flush()?;
    drop(writer);
    file.sync_all()?;
    Ok(file)
}
