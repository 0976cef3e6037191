//! The pager of one read-only file in the seekable zstd format: a page costs the decompression of one frame.

use crate::seekable::SeekTable;
use commonhold::Pager;
use std::fs::File;
use std::io;

/// The file, and the frame that was decompressed last: its next pages are asked for next.
pub struct ZstdFile {
    file: File,
    table: SeekTable,
    last: Option<(usize, Vec<u8>)>,
}

impl ZstdFile {
    /// Reads the table at the end of the file.
    pub fn new(file: File) -> io::Result<ZstdFile> {
        Ok(ZstdFile { table: SeekTable::read(&file)?, file, last: None })
    }
}

impl Pager for ZstdFile {
    fn page_in(&mut self, _object: &str, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while let Some((number, within)) =
            self.table.find(offset + done as u64).filter(|_| done < buffer.len())
        {
            if self.last.as_ref().is_none_or(|(last, _)| *last != number) {
                self.last = Some((number, self.table.decompress(&self.file, number)?));
            }
            let rest = self.last.as_ref().map_or(&[][..], |(_, bytes)| &bytes[within..]);
            let count = rest.len().min(buffer.len() - done);
            buffer[done..done + count].copy_from_slice(&rest[..count]);
            done += count;
        }
        buffer[done..].fill(0); // past the end of what was compressed
        Ok(())
    }

    fn page_out(&mut self, object: &str, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::Error::new(
            io::ErrorKind::ReadOnlyFilesystem,
            format!(
                "{object} is a compressed file, which can only be read: open the object for reading alone"
            ),
        ))
    }
}
