//! For the fuzz targets: programs, libraries, and archives with what is in them.

use super::archive::index_of;
use super::elf::{dispatch, member};
use super::names::Names;

/// Any bytes as a program or library, and as a member of an archive.
pub fn elf_file(bytes: &[u8]) {
    let mut names = Names::default();
    if let Ok(Some(image)) = dispatch(bytes, &mut names) {
        assert!(image.code_bytes <= bytes.len() as u64, "code that the file does not hold");
    }
    let _ = member(bytes, &mut names); // none, or what it defines
}

/// Any bytes as an archive.
pub fn archive(bytes: &[u8]) {
    let (mut names, length) = (Names::default(), bytes.len() as u64);
    let Ok((ranges, index)) = index_of(bytes, length, &mut names) else { return };
    assert!(index.values().all(|place| *place < ranges.len()));
    for (offset, size) in ranges {
        let _ = member(&bytes[offset as usize..(offset + size) as usize], &mut names); // as above
    }
}
