//! Which files a core dump had mapped: its NT_FILE note says it.

use crate::{Error, Result};
use commonhold_images::place::ordinary_file;
use object::LittleEndian as Le;
use object::elf::{FileHeader64, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `NT_FILE`.
const FILES: u32 = 0x4649_4c45;

/// Each file that was mapped, once, with its first address.
pub fn files(core: &Path) -> Result<Vec<(u64, PathBuf)>> {
    files_in(core, &ReadCache::new(ordinary_file(core).map_err(Error::file(core))?))
}

/// The same of these bytes of it.
pub(crate) fn files_in<'data>(core: &Path, bytes: impl ReadRef<'data>) -> Result<Vec<(u64, PathBuf)>> {
    let damaged = |error: object::Error| Error::damaged(core, error.to_string());
    let header = FileHeader64::<Le>::parse(bytes).map_err(damaged)?;
    const CORE: u16 = 4;
    if header.e_type.get(Le).0 != CORE {
        return Err(Error::damaged(core, "it is no core dump"));
    }
    for segment in header.program_headers(Le, bytes).map_err(damaged)? {
        if segment.p_type(Le) != PT_NOTE {
            continue;
        }
        let Some(mut notes) = segment.notes(Le, bytes).map_err(damaged)? else { continue };
        while let Some(note) = notes.next().map_err(damaged)? {
            if note.n_type(Le).0 == FILES {
                return parse(note.desc())
                    .ok_or_else(|| Error::damaged(core, "its list of files is damaged"));
            }
        }
    }
    Err(Error::damaged(core, "it does not say which files were mapped"))
}

/// count, page size, count × (first, end, offset), then the names.
pub(crate) fn parse(note: &[u8]) -> Option<Vec<(u64, PathBuf)>> {
    let word = |at: usize| Some(u64::from_le_bytes(note.get(at..at + 8)?.try_into().ok()?));
    let count = usize::try_from(word(0)?).ok()?;
    let names = note.get(count.checked_mul(24)?.checked_add(16)?..)?;
    let mut known = HashSet::new();
    let mut all: Vec<(u64, PathBuf)> = Vec::new();
    for (index, name) in names.split(|byte| *byte == 0).take(count).enumerate() {
        if known.insert(name) {
            all.push((word(16 + index * 24)?, OsStr::from_bytes(name).into()));
        }
    }
    Some(all)
}
