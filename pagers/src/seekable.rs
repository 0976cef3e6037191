//! The seekable zstd format (zstd's `contrib/seekable_format`): independent frames, and behind them a table of
//! their sizes in a frame that ordinary decompressors skip. Such a file is an ordinary .zst file too.
//!
//! ```text
//! frame 0 … frame n-1 | magic, length | n × (compressed, decompressed [, checksum]) | n, flags, magic
//! ```

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

const SKIPPABLE_MAGIC: u32 = 0x184d_2a5e;
const TABLE_MAGIC: u32 = 0x8f92_eab1;
const FOOTER_BYTES: usize = 9;
const HAS_CHECKSUMS: u8 = 0x80;
const RESERVED_BITS: u8 = 0x7c;
/// Most bytes of one frame, compressed or not: a whole one is held in memory.
pub const FRAME_BYTES_MAX: u32 = 64 << 20;

/// One frame: where it lies in the file, and where its content lies in the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    at: u64,
    compressed_bytes: u32,
    start: u64,
    bytes: u32,
}

/// Which frame holds which bytes.
#[derive(Debug)]
pub struct SeekTable {
    frames: Vec<Frame>,
}

fn damaged(what: impl std::fmt::Display) -> io::Error {
    let advice = "make one with `commonhold-pager-zstd compress`";
    io::Error::new(io::ErrorKind::InvalidData, format!("not a seekable zstd file: {what}; {advice}"))
}

fn number(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

impl SeekTable {
    /// Reads it from the end of a file.
    pub fn read(file: &File) -> io::Result<SeekTable> {
        let length = file.metadata()?.len();
        let footer_at = length.checked_sub(FOOTER_BYTES as u64).ok_or_else(|| damaged("it is too short"))?;
        let mut footer = [0; FOOTER_BYTES];
        file.read_exact_at(&mut footer, footer_at)?;
        if number(&footer[5..]) != TABLE_MAGIC {
            return Err(damaged("there is no table at its end"));
        }
        if footer[4] & RESERVED_BITS != 0 {
            return Err(damaged(format!("its table has flags {:#x} that are not known", footer[4])));
        }
        let entry_bytes = if footer[4] & HAS_CHECKSUMS == 0 { 8 } else { 12 };
        let entries_bytes = u64::from(number(&footer[..4])) * entry_bytes;
        let table_at = footer_at.checked_sub(entries_bytes + 8).ok_or_else(|| damaged("its table is cut"))?;
        let mut table = vec![0; entries_bytes as usize + 8];
        file.read_exact_at(&mut table, table_at)?;
        let stated = u64::from(number(&table[4..8]));
        if number(&table[..4]) != SKIPPABLE_MAGIC || stated != entries_bytes + FOOTER_BYTES as u64 {
            return Err(damaged("the head of its table is wrong"));
        }
        SeekTable::of_entries(table[8..].chunks_exact(entry_bytes as usize), table_at)
    }

    fn of_entries<'e>(entries: impl Iterator<Item = &'e [u8]>, frames_end: u64) -> io::Result<SeekTable> {
        let (mut frames, mut at, mut start) = (Vec::new(), 0, 0);
        for entry in entries {
            let frame =
                Frame { at, compressed_bytes: number(&entry[..4]), start, bytes: number(&entry[4..8]) };
            if frame.compressed_bytes.max(frame.bytes) > FRAME_BYTES_MAX {
                let limit = FRAME_BYTES_MAX;
                return Err(damaged(format!(
                    "a frame of {} bytes is past the limit of {limit}",
                    frame.bytes
                )));
            }
            at += u64::from(frame.compressed_bytes);
            start += u64::from(frame.bytes);
            frames.push(frame);
        }
        if at != frames_end {
            return Err(damaged(format!("its frames end at byte {frames_end}, its table says {at}")));
        }
        Ok(SeekTable { frames })
    }

    /// Bytes of the whole, decompressed.
    pub fn size_bytes(&self) -> u64 {
        self.frames.last().map_or(0, |last| last.start + u64::from(last.bytes))
    }

    /// Frames.
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// The frame that holds byte `offset`, and where in it; nothing past the end.
    pub fn find(&self, offset: u64) -> Option<(usize, usize)> {
        let number = self.frames.partition_point(|frame| frame.start + u64::from(frame.bytes) <= offset);
        let frame = self.frames.get(number)?;
        Some((number, (offset - frame.start) as usize))
    }

    /// The content of a frame.
    pub fn decompress(&self, file: &File, number: usize) -> io::Result<Vec<u8>> {
        let frame = self.frames.get(number).ok_or_else(|| damaged(format!("it has no frame {number}")))?;
        let mut compressed = vec![0; frame.compressed_bytes as usize];
        file.read_exact_at(&mut compressed, frame.at)?;
        let bytes = zstd::bulk::decompress(&compressed, frame.bytes as usize)
            .map_err(|error| damaged(format!("frame {number} at byte {}: {error}", frame.at)))?;
        if bytes.len() != frame.bytes as usize {
            let (found, stated) = (bytes.len(), frame.bytes);
            return Err(damaged(format!("frame {number} has {found} bytes, its table says {stated}")));
        }
        Ok(bytes)
    }
}

/// Compresses `input` in frames of `frame_bytes`. Gives how many bytes there were and how many there are.
pub fn compress(
    mut input: impl Read,
    mut output: impl Write,
    frame_bytes: u32,
    level: i32,
) -> io::Result<(u64, u64)> {
    if frame_bytes == 0 || frame_bytes > FRAME_BYTES_MAX {
        let what =
            format!("a frame of {frame_bytes} bytes is not between 1 and the limit of {FRAME_BYTES_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut compressor = zstd::bulk::Compressor::new(level)?;
    compressor.include_checksum(true)?;
    let (mut entries, mut before, mut after) = (Vec::new(), 0, 0);
    let mut content = Vec::new();
    loop {
        content.clear();
        input.by_ref().take(frame_bytes.into()).read_to_end(&mut content)?;
        if content.is_empty() {
            break;
        }
        let compressed = compressor.compress(&content)?;
        output.write_all(&compressed)?;
        entries.extend((compressed.len() as u32).to_le_bytes());
        entries.extend((content.len() as u32).to_le_bytes());
        before += content.len() as u64;
        after += compressed.len() as u64;
    }
    output.write_all(&SKIPPABLE_MAGIC.to_le_bytes())?;
    output.write_all(&((entries.len() + FOOTER_BYTES) as u32).to_le_bytes())?;
    output.write_all(&entries)?;
    output.write_all(&((entries.len() / 8) as u32).to_le_bytes())?;
    output.write_all(&[0])?;
    output.write_all(&TABLE_MAGIC.to_le_bytes())?;
    output.flush()?;
    Ok((before, after + 8 + (entries.len() + FOOTER_BYTES) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn text(length: usize) -> Vec<u8> {
        (0..length).flat_map(|n| format!("{n} ").into_bytes()).take(length).collect()
    }

    fn compressed(content: &[u8], frame_bytes: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let (before, after) = compress(content, &mut out, frame_bytes, 3).unwrap();
        assert_eq!((before, after), (content.len() as u64, out.len() as u64));
        out
    }

    #[test]
    fn every_frame_comes_back_and_bytes_are_found_in_the_right_one() {
        for length in [0, 1, 999, 1000, 1001, 12_345] {
            let content = text(length);
            let file = file_of(&compressed(&content, 1000));
            let table = SeekTable::read(&file).unwrap();
            assert_eq!((table.size_bytes(), table.frames()), (length as u64, length.div_ceil(1000)));
            let whole: Vec<u8> =
                (0..table.frames()).flat_map(|n| table.decompress(&file, n).unwrap()).collect();
            assert!(whole == content);
            for offset in [0, 1, 999, 1000, 1001, 12_344, 12_345, 1 << 40] {
                let expected = (offset < length).then_some((offset / 1000, offset % 1000));
                assert_eq!(table.find(offset as u64), expected, "{offset} of {length}");
            }
        }
    }

    #[test]
    fn it_is_an_ordinary_zst_file_too() {
        let content = text(50_000);
        assert!(zstd::decode_all(&compressed(&content, 4096)[..]).unwrap() == content);
    }

    /// As other programs write it: with a checksum of each frame in the table.
    #[test]
    fn a_table_with_checksums_is_read() {
        let content = text(5_000);
        let mut out = compressed(&content, 1000);
        let old = out.split_off(out.len() - FOOTER_BYTES - 5 * 8 - 8);
        let entries: Vec<u8> =
            old[8..48].chunks(8).flat_map(|entry| [entry, &[1, 2, 3, 4]].concat()).collect();
        out.extend(SKIPPABLE_MAGIC.to_le_bytes());
        out.extend((entries.len() as u32 + FOOTER_BYTES as u32).to_le_bytes());
        out.extend(&entries);
        out.extend(5u32.to_le_bytes());
        out.push(HAS_CHECKSUMS);
        out.extend(TABLE_MAGIC.to_le_bytes());
        let file = file_of(&out);
        let table = SeekTable::read(&file).unwrap();
        assert_eq!(table.decompress(&file, 3).unwrap(), content[3000..4000]);
    }

    #[test]
    fn what_is_not_such_a_file_is_refused() {
        let good = compressed(&text(5_000), 1000);
        let change = |at: usize, value: u8| {
            let mut bad = good.clone();
            bad[at] = value;
            bad
        };
        let (end, entries) = (good.len(), good.len() - FOOTER_BYTES - 40);
        for (bad, says) in [
            (Vec::new(), "too short"),
            (b"no zstd at all".to_vec(), "no table"),
            (good[..end - 1].to_vec(), "no table"),
            (good[end - 20..].to_vec(), "is cut"),
            (good[1..].to_vec(), "frames end at"),
            (change(end - 5, 4), "flags 0x4"),
            (change(end - 9, 4), "head of its table"),
            (change(entries - 1, 9), "head of its table"),
            (change(entries + 7, 0x7f), "past the limit"),
            (change(entries, good[entries].wrapping_add(1)), "frames end at"),
        ] {
            let error = SeekTable::read(&file_of(&bad)).unwrap_err().to_string();
            assert!(error.contains(says), "{says}: {error}");
        }
    }

    #[test]
    fn a_damaged_frame_is_an_error_and_the_others_are_not() {
        let content = text(5_000);
        let mut bad = compressed(&content, 1000);
        let table = SeekTable::read(&file_of(&bad)).unwrap();
        let at = table.frames[2].at as usize + table.frames[2].compressed_bytes as usize / 2;
        bad[at] ^= 0x55;
        let file = file_of(&bad);
        let table = SeekTable::read(&file).unwrap();
        table.decompress(&file, 1).unwrap();
        let error = table.decompress(&file, 2).unwrap_err().to_string();
        assert!(error.contains("frame 2"), "{error}");
        table.decompress(&file, 3).unwrap();
    }

    #[test]
    fn a_frame_of_another_length_than_stated_is_an_error() {
        let mut bad = compressed(&text(2_000), 1000);
        let sizes = bad.len() - FOOTER_BYTES - 16;
        bad[sizes + 4] -= 1;
        let file = file_of(&bad);
        SeekTable::read(&file).unwrap().decompress(&file, 0).unwrap_err();
    }
}
