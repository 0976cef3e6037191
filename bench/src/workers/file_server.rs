//! `file-server`: a process that has a file, and writes and reads it for another: what is written
//! and read goes by memory that both have mapped, in line in messages, or to landings.

use crate::failure::{Result, failed};
use crate::objects;
use crate::transfer::{fill_from_file, pour_to_file};
use crate::view::View;
use crate::worker;
use commonhold::{Access, Channel, Host, Mapping, Object};
use rustix::fs::{Advice, fadvise, fdatasync};
use std::fs::File;
use std::path::Path;

/// So much goes at a time: the paper's messages held up to 8 KiB.
pub const BLOCK: usize = 8 << 10;

/// Kinds of messages: the file is emptied; a block is written, is read (which one: [`number`]); all
/// goes to the disk; all of it goes from the page cache; the server ends.
pub const EMPTY: u32 = 1;
/// See [`EMPTY`].
pub const WRITE: u32 = 2;
/// See [`EMPTY`].
pub const READ: u32 = 3;
/// See [`EMPTY`].
pub const SYNC: u32 = 4;
/// See [`EMPTY`].
pub const FORGET: u32 = 5;
/// See [`EMPTY`].
pub const END: u32 = 6;

/// The number of a block, which a message begins with.
pub fn number(bytes: &[u8]) -> Result<u64> {
    match bytes.first_chunk() {
        Some(number) => Ok(u64::from_le_bytes(*number)),
        None => failed("a message names no block"),
    }
}

struct Server {
    file: File,
    ask: Channel,
    answer: Channel,
    object: Object,
    mapping: Mapping,
    how: String,
    /// Bytes that it copied between itself and its client, without those of the channels.
    copied: u64,
}

/// Arguments: state directory, `shared`, `in-line` or `landed`, the file's path, two channels, and
/// an object of one block: shared with the client, or where blocks land here. At the end it says
/// how many bytes it copied.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, how, path, ask, answer, object] = arguments else {
        return failed("file-server takes six arguments");
    };
    let host = Host::connect_to(Path::new(state))?;
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    let object = host.open(object, Access::ReadWrite)?;
    let mapping = object.map(&objects::everything())?;
    let (ask, answer) = (Channel::open(&host, ask)?, Channel::open(&host, answer)?);
    let mut server = Server { file, ask, answer, object, mapping, how: how.clone(), copied: 0 };
    if how == "landed" {
        server.ask.post(&server.object, 0, BLOCK as u64)?;
    }
    worker::say("ready")?;
    server.serve()
}

impl Server {
    fn serve(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        loop {
            let commonhold::Received { kind, region, .. } = self.ask.receive_into(&mut bytes, None)?;
            match kind {
                EMPTY => self.file.set_len(0)?,
                WRITE => self.write(&bytes, region.is_some())?,
                READ => {
                    self.read(&bytes)?;
                    continue;
                }
                SYNC => fdatasync(&self.file).map_err(std::io::Error::from)?,
                FORGET => {
                    fdatasync(&self.file).map_err(std::io::Error::from)?;
                    fadvise(&self.file, 0, None, Advice::DontNeed).map_err(std::io::Error::from)?;
                }
                END => {
                    let copied = self.copied + self.ask.copied_bytes() + self.answer.copied_bytes();
                    return worker::say(&copied.to_string());
                }
                other => return failed(format!("file-server does not know {other}")),
            }
            self.answer.send(kind, b"", None)?;
        }
    }

    fn write(&mut self, bytes: &[u8], landed: bool) -> Result<()> {
        let at = number(bytes)? * BLOCK as u64;
        if self.how == "in-line" {
            use std::os::unix::fs::FileExt;
            return Ok(self.file.write_all_at(&bytes[8..], at)?);
        }
        pour_to_file(&self.file, at, View::of(&self.mapping).part(0, BLOCK))?;
        if landed {
            self.ask.post(&self.object, 0, BLOCK as u64)?;
        }
        Ok(())
    }

    fn read(&mut self, bytes: &[u8]) -> Result<()> {
        let at = number(bytes)? * BLOCK as u64;
        let view = View::of(&self.mapping).part(0, BLOCK);
        match self.how.as_str() {
            "in-line" => {
                use std::os::unix::fs::FileExt;
                let mut block = [0; BLOCK];
                self.file.read_exact_at(&mut block, at)?;
                self.answer.send(READ, &block, None)?;
            }
            "shared" => {
                fill_from_file(&self.file, at, view)?;
                self.answer.send(READ, b"", None)?;
            }
            _ => {
                fill_from_file(&self.file, at, view)?;
                // SAFETY: the mapping has them, and lives.
                unsafe { self.answer.send_region_from(READ, b"", (view.as_mut_ptr(), BLOCK), None) }?;
            }
        }
        Ok(())
    }
}
