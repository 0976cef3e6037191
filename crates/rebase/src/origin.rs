//! What a copy was made of, noted beside it, and in one list when it is gone: a core dump names the copy long after no record
//! does.

use crate::elf::Elf;
use crate::store::Store;
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file beside a copy.
pub const FILE: &str = ".of";

/// The list of copies that are gone: a line each, the latest last.
const GONE: &str = "gone";
/// So many are kept: a few megabytes, and what is made anew at fifty boots of a machine with many programs.
const MOST_GONE: usize = 100_000;

/// The copies of such a list, by their keys.
pub(crate) fn gone_of(text: &[u8]) -> BTreeMap<String, Origin> {
    let line = |line: &[u8]| {
        let at = line.iter().position(|byte| *byte == b' ')?;
        let (key, rest) = (std::str::from_utf8(&line[..at]).ok()?, &line[at + 1..]);
        let rest: Vec<u8> = rest.splitn(3, |byte| *byte == b' ').collect::<Vec<_>>().join(&b'\n');
        Some((key.to_owned(), Origin::decode(&rest)?))
    };
    text.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// What a copy was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The original.
    pub path: PathBuf,
    /// Its build ID in hexadecimal digits, if it has one: by that debug information is found.
    pub build_id: Option<String>,
    /// The address of the copy: what is at `base + x` in a process is at `x` in the original.
    pub base: u64,
}

/// The build ID of a file, in hexadecimal digits.
pub fn build_id(elf: &Elf) -> Option<String> {
    elf.build_id().map(|id| {
        id.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    })
}

impl Origin {
    /// Of a copy of this file at this address.
    pub fn new(elf: &Elf, base: u64) -> Origin {
        Origin { path: elf.path.clone(), build_id: build_id(elf), base }
    }

    /// A line each: the address, the build ID, and the path, which may have any bytes.
    pub fn encode(&self) -> Vec<u8> {
        let head = format!("{:x}\n{}\n", self.base, self.build_id.as_deref().unwrap_or_default());
        [head.as_bytes(), self.path.as_os_str().as_bytes()].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Origin> {
        let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
        let mut text = || std::str::from_utf8(lines.next()?).ok();
        let (base, build_id) = (u64::from_str_radix(text()?, 16).ok()?, text()?);
        let build_id = Some(build_id.to_owned()).filter(|id| !id.is_empty());
        let path = lines.next().filter(|path| path.first() == Some(&b'/'))?;
        Some(Origin { path: OsStr::from_bytes(path).into(), build_id, base })
    }

    /// What stands beside a copy.
    pub fn beside(copy: &Path) -> Option<Origin> {
        Origin::decode(&std::fs::read(copy.with_file_name(FILE)).ok()?)
    }
}

impl Store {
    /// What a copy was made of, also if it is gone. None: the path is no copy's, or it is gone for too long.
    pub fn origins(&self) -> Result<impl Fn(&Path) -> Option<Origin>> {
        let copies = self.root().join("copies");
        let gone = self.gone()?;
        Ok(move |path: &Path| {
            let mut below = path.strip_prefix(&copies).ok()?.components();
            let (key, file) = (below.next()?, below.next()?);
            let key = key.as_os_str().to_str()?;
            let origin = Origin::beside(path).or_else(|| gone.get(key).cloned());
            origin.filter(|origin| origin.path.file_name() == Some(file.as_os_str()))
        })
    }

    /// What the copy of a key was made of, if it is there.
    pub(crate) fn origin_of_keys(&self) -> impl Fn(&String) -> Option<Origin> {
        let copies = self.root().join("copies");
        move |key| Origin::beside(&copies.join(key).join(FILE))
    }

    fn gone(&self) -> Result<BTreeMap<String, Origin>> {
        Ok(gone_of(&self.gone_lines()?))
    }

    fn gone_lines(&self) -> Result<Vec<u8>> {
        let path = self.root().join(GONE);
        match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            outcome => outcome.map_err(Error::file(&path)),
        }
    }

    /// Removes copies, and notes what they were made of: `commonhold rebase core` may be asked later.
    pub fn remove(&self, keys: &BTreeSet<String>) -> Result<()> {
        let mut lines = self.gone_lines()?;
        for key in keys {
            let directory = self.root().join("copies").join(key);
            let origin = Origin::beside(&directory.join(FILE)).map(|origin| origin.encode());
            std::fs::remove_dir_all(&directory).map_err(Error::file(&directory))?;
            // A line each, so not those of which the path has more than one.
            if let Some(origin) =
                origin.filter(|text| text.iter().filter(|byte| **byte == b'\n').count() == 2)
            {
                let one_line: Vec<u8> =
                    origin.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }).collect();
                lines.extend([key.as_bytes(), b" ", &one_line, b"\n"].concat());
            }
        }
        let count = lines.iter().filter(|byte| **byte == b'\n').count();
        let too_many = lines.split_inclusive(|byte| *byte == b'\n').take(count.saturating_sub(MOST_GONE));
        let first = too_many.map(<[u8]>::len).sum();
        // Behind the removal, which makes room on a disk that is full.
        if keys.is_empty() { Ok(()) } else { self.replace(Path::new(GONE), &lines[first..], None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_read_again() {
        for build_id in [None, Some("00ff17".to_owned())] {
            let origin = Origin { path: "/lib/a\nname".into(), build_id, base: 0x3000_0001_0000 };
            assert_eq!(Origin::decode(&origin.encode()).as_ref(), Some(&origin));
        }
        for damaged in ["", "3000", "3000\n\n", "3000\n\nlib", "x\n\n/lib", "3000\n/lib"] {
            assert_eq!(Origin::decode(damaged.as_bytes()), None, "{damaged}");
        }
    }
}
