//! `commonhold-pager-zstd`: makes seekable zstd files, and serves one as the pages of objects.

use clap::{Parser, Subcommand};
use commonhold_pagers::seekable::{SeekTable, compress};
use commonhold_pagers::{ZstdFile, serving};
use commonhold_points as points;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A pager for read-only compressed data: objects whose pages are decompressed when they are touched.
#[derive(Parser)]
#[command(
    version,
    after_help = "Example:
  commonhold-pager-zstd compress words.txt words.zst
  commonhold create /lab/words --size $(commonhold-pager-zstd size words.zst) --pager /pagers/words
  commonhold-pager-zstd serve words.zst --name /pagers/words &
  commonhold cat /lab/words | head"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compress a file into one that can be served
    Compress {
        /// What to compress
        input: PathBuf,
        /// Where to put it; a file that is there is overwritten
        output: PathBuf,
        /// Bytes of content in a frame: how much a page costs to bring in
        #[arg(long, default_value_t = 256 << 10)]
        frame_bytes: u32,
        /// Compression level of zstd
        #[arg(long, default_value_t = 9, allow_negative_numbers = true)]
        level: i32,
    },
    /// Print the size of the content: what `commonhold create --size` needs
    Size {
        /// A compressed file
        file: PathBuf,
    },
    /// Serve the file as the pages of every object created with this pager
    Serve {
        /// A compressed file
        file: PathBuf,
        /// Name of the pager, as in `commonhold create --pager NAME`
        #[arg(long)]
        name: String,
        /// State directory of the host, unless it is the one that any program finds
        #[arg(long)]
        host: Option<PathBuf>,
    },
}

fn open(path: &Path) -> io::Result<File> {
    File::open(path).map_err(|e| io::Error::new(e.kind(), format!("cannot open {}: {e}", path.display())))
}

fn run(command: Command) -> Result<(), Box<dyn std::error::Error>> {
    match command {
        Command::Compress { input, output, frame_bytes, level } => {
            let from = BufReader::new(open(&input)?);
            let to = File::create(&output).map_err(|e| format!("cannot make {}: {e}", output.display()))?;
            let (before, after) = compress(from, BufWriter::new(&to), frame_bytes, level)?;
            points::fsync(|| to.sync_all())?;
            println!("{before} bytes, compressed to {after}");
        }
        Command::Size { file } => println!("{}", SeekTable::read(&open(&file)?)?.size_bytes()),
        Command::Serve { file, name, host } => {
            serving::serve(host.as_deref(), &name, ZstdFile::new(open(&file)?)?)?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("commonhold-pager-zstd: {error}");
            ExitCode::FAILURE
        }
    }
}
