//! The ways to get at a file's bytes that the tables compare. None of them times opening, making objects, or
//! the call that maps: neither did the paper.

use super::stdio::Stream;
use crate::context::Context;
use crate::failure::{Result, failed};
use crate::measure::seconds;
use crate::objects;
use crate::processes::minor_faults;
use crate::view::{PAGE, RawMapping, View};
use commonhold::{Host, Mapping, SyncMode};
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

/// A way to get at a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Byte by byte through stdio.
    Getc,
    /// Blocks of 4 KiB.
    Read,
    /// The kernel's mapping, one byte of each page touched.
    Mmap,
    /// A direct object, the same touches.
    Direct,
    /// A controlled object (ordered sync) without resident frames, the same touches.
    Controlled,
    /// A private mapping of initialised data, each page made the process's own.
    DataFill,
    /// A resident array copied.
    Bcopy,
}

impl Method {
    /// The order of the table.
    pub const ALL: [Method; 7] = [
        Method::Getc,
        Method::Read,
        Method::Mmap,
        Method::Direct,
        Method::Controlled,
        Method::DataFill,
        Method::Bcopy,
    ];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Method::Getc => "getc",
            Method::Read => "read",
            Method::Mmap => "mmap",
            Method::Direct => "commonhold direct",
            Method::Controlled => "commonhold controlled",
            Method::DataFill => "data fill",
            Method::Bcopy => "bcopy",
        }
    }
}

/// A file, warm in the page cache, and a host that has objects on it.
pub struct Subject<'a> {
    host: &'a Host,
    path: PathBuf,
    file: File,
    size: usize,
}

const NAME: &str = "/bench/sprite";

impl<'a> Subject<'a> {
    /// Makes the file.
    pub fn create(context: &Context, host: &'a Host, size: usize) -> Result<Subject<'a>> {
        let (path, file) = context.make_file(&format!("sprite-{size}"), size)?;
        Ok(Subject { host, path, file, size })
    }

    /// Seconds to get at the whole file, in order.
    pub fn sequential(&self, method: Method) -> Result<f64> {
        match method {
            Method::Getc => {
                let mut stream = Stream::open(&self.path)?;
                let mut count = 0;
                let elapsed = seconds(|| {
                    count = black_box(stream.read_all()).0;
                    Ok(())
                })?;
                if count == self.size { Ok(elapsed) } else { failed("getc did not see the whole file") }
            }
            Method::Read => self.read_blocks(),
            Method::Mmap => {
                let mapping = RawMapping::shared(&self.file, self.size)?;
                seconds(|| Ok(black_box(mapping.view().touch_pages())))
            }
            Method::Direct | Method::Controlled => {
                self.with_object(method, |view| seconds(|| Ok(black_box(view.touch_pages()))))
            }
            Method::DataFill => {
                let mapping = RawMapping::private(&self.file, self.size)?;
                seconds(|| {
                    mapping.view().write_pages();
                    Ok(())
                })
            }
            Method::Bcopy => self.copy(),
        }
    }

    fn read_blocks(&self) -> Result<f64> {
        let mut block = [0u8; PAGE];
        let mut file = File::open(&self.path)?;
        seconds(|| {
            let mut count = 0;
            loop {
                match file.read(&mut block)? {
                    0 => break,
                    n => count += n,
                }
                black_box(&block);
            }
            if count == self.size { Ok(()) } else { failed("read did not see the whole file") }
        })
    }

    fn copy(&self) -> Result<f64> {
        let source = vec![1u8; self.size];
        let mut target = vec![2u8; self.size];
        seconds(|| {
            target.copy_from_slice(black_box(&source));
            black_box(&target);
            Ok(())
        })
    }

    /// Seconds to read single bytes at those offsets, and the page faults that it took.
    pub fn probes(&self, method: Method, offsets: &[usize]) -> Result<(f64, u64)> {
        let mapped = |view: View<'_>| {
            let before = minor_faults();
            let elapsed = seconds(|| {
                Ok(black_box(offsets.iter().map(|offset| u64::from(view.read_byte(*offset))).sum::<u64>()))
            })?;
            Ok((elapsed, minor_faults() - before))
        };
        match method {
            Method::Read => {
                let mut file = File::open(&self.path)?;
                let mut byte = [0];
                let elapsed = seconds(|| {
                    for offset in offsets {
                        file.seek(SeekFrom::Start(*offset as u64))?;
                        file.read_exact(&mut byte)?;
                        black_box(byte);
                    }
                    Ok(())
                })?;
                Ok((elapsed, 0))
            }
            Method::Mmap => mapped(RawMapping::shared(&self.file, self.size)?.view()),
            Method::Direct | Method::Controlled => self.with_object(method, mapped),
            Method::Getc | Method::DataFill | Method::Bcopy => failed("the table has no such probes"),
        }
    }

    /// A new object on the file, mapped, and removed afterwards.
    fn with_object<T>(&self, method: Method, work: impl FnOnce(View<'_>) -> Result<T>) -> Result<T> {
        let sync = if method == Method::Direct { SyncMode::Plain } else { SyncMode::Ordered };
        let object = objects::on_file(self.host, NAME, &self.file, sync)?;
        let mapping: Mapping = object.map(&objects::everything())?;
        let result = work(View::of(&mapping));
        drop(mapping);
        self.host.remove(NAME)?;
        result
    }
}
