//! The libraries that loaders are given by `LD_AUDIT`, where each looks for its own: the loader of x86-64 finds the one that
//! gives programs their copies, that of 32-bit programs one that answers that it has nothing to do with them. (Without it
//! that loader would say of every program that it cannot load the other.)

use crate::bind::Loader;
use crate::guard::is_our_file;
use crate::store::{Store, make_directory};
use crate::{Error, Result, label};
use commonhold_images::ranges::Owner;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

const FILE: &str = "libcommonhold_start.so";
const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libcommonhold_start.so"));
/// What `$LIB` means to the loaders of x86-64: of Debian, of Fedora and SUSE, of Arch.
/// And the store itself, for whoever is told that place.
const PLACES: [&str; 4] = ["lib/x86_64-linux-gnu", "lib64", "lib", PLAIN];
const PLAIN: &str = "";
/// What it means to those of 32-bit programs.
const PLACES_32: [&str; 2] = ["lib/i386-linux-gnu", "lib32"];
/// The loaders of 32-bit programs: of i386, and of x32.
const LOADERS_32: [&str; 2] = ["/lib/ld-linux.so.2", "/libx32/ld-linux-x32.so.2"];

/// A directory, and before it those in which it is.
fn with_those_above(place: &str) -> impl Iterator<Item = &str> {
    place.match_indices('/').map(|(at, _)| &place[..at]).chain([place]).filter(|place| *place != PLAIN)
}

/// Their directories.
pub(crate) fn directories() -> impl Iterator<Item = &'static str> {
    PLACES.into_iter().chain(PLACES_32).flat_map(with_those_above)
}

impl Store {
    /// What `LD_AUDIT` is to be. Each loader puts the name of its own directory into it, and so those of 32-bit programs find
    /// theirs. It first asks the kernel where its program is, though it does not need that here: 40 µs a start, which are
    /// saved in the machine's store where no such loader is. (A user's own may be seen from other roots, which have one.)
    pub fn library(&self) -> PathBuf {
        let plain = self.root().join(FILE);
        let many = LOADERS_32.iter().any(|loader| Path::new(loader).exists());
        let is_plain = self.owner() == Owner::Machine && !many && is_our_file(&plain);
        if is_plain { plain } else { self.library_of_each() }
    }

    fn library_of_each(&self) -> PathBuf {
        self.root().join("$LIB").join(FILE)
    }

    /// Whether `LD_AUDIT` is this store's: [`library`](Store::library), or what that was before there was another loader.
    pub fn is_library(&self, set: &OsStr) -> bool {
        *set == *self.root().join(FILE) || *set == *self.library_of_each()
    }

    /// Whether the audit library is there for programs to have.
    pub fn is_installed(&self) -> bool {
        // Stores of before it was told its place have none there, and do without.
        let mut all = PLACES.iter().filter(|place| **place != PLAIN);
        all.all(|place| is_our_file(&self.root().join(place).join(FILE)))
    }

    /// Those of them that others could have made what they are.
    pub(crate) fn foreign_libraries(&self) -> Vec<PathBuf> {
        let all = PLACES.iter().chain(&PLACES_32).map(|place| self.root().join(place).join(FILE));
        all.filter(|path| path.symlink_metadata().is_ok() && !is_our_file(path)).collect()
    }

    /// Puts the audit library there, if it is not, or if others could have put it there.
    pub fn install(&self) -> Result<()> {
        if BYTES.is_empty() {
            return Err(Error::unfit(self.root(), "rebasing is for x86-64 and glibc"));
        }
        let mounted =
            rustix::fs::statvfs(self.root()).map_err(|errno| Error::file(self.root())(errno.into()))?;
        if mounted.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC) {
            let why =
                "nothing may be executed on its file system (mounted noexec): choose another with --store";
            return Err(Error::store(self.root(), why));
        }
        PLACES.iter().try_for_each(|place| self.put_library(place, BYTES))?;
        let none = for_32_bits();
        PLACES_32.iter().try_for_each(|place| self.put_library(place, &none))
    }

    /// Gives the audit library the loader's label, where it has another. Only when all copies have theirs: a confined
    /// program that may have the library and no copy does not start, while one that may not have it starts as it is.
    pub fn keep_labels(&self) {
        let loader = Loader::of_machine().path;
        for place in PLACES.iter().chain(&PLACES_32) {
            label::keep(&loader, &self.root().join(place).join(FILE));
        }
    }

    fn put_library(&self, place: &str, bytes: &[u8]) -> Result<()> {
        let path = Path::new(place).join(FILE);
        let whole = self.root().join(&path);
        if is_our_file(&whole) && fs::read(&whole).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        for directory in with_those_above(place) {
            make_directory(&self.root().join(directory))?;
        }
        // Whoever may use the loader may use what it is given. But see `keep_labels`.
        let like = if is_our_file(&whole) { whole } else { Loader::of_machine().path };
        self.replace(&path, bytes, Some(&like))
    }
}

/// A library of i386 that has the one function by which the loader asks whether a library fits, and its answer is no. It is
/// written here word by word: no compiler for 32 bits is needed.
fn for_32_bits() -> Vec<u8> {
    const HEADERS: u32 = 52 + 4 * 32;
    const HASH: u32 = HEADERS;
    const SYMBOLS: u32 = HASH + 20;
    const STRINGS: u32 = SYMBOLS + 32;
    const CODE: u32 = STRINGS + 16;
    /// The dynamic section lies in a page that may be written: older loaders write there.
    const DYNAMIC: u32 = CODE + 16;
    const DYNAMIC_BYTES: u32 = 6 * 8;
    const PAGE: u32 = 4096;
    let mut file = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let halves =
        |file: &mut Vec<u8>, all: &[u16]| all.iter().for_each(|half| file.extend(half.to_le_bytes()));
    let words = |file: &mut Vec<u8>, all: &[u32]| all.iter().for_each(|word| file.extend(word.to_le_bytes()));
    halves(&mut file, &[3, 3]); // a shared library, of i386
    words(&mut file, &[1, 0, 52, 0, 0]);
    halves(&mut file, &[52, 32, 4, 0, 0, 0]);
    // Type, offset, address twice, bytes in the file and in memory, rights, alignment.
    let segment = |file: &mut Vec<u8>, kind, first: u32, up: u32, bytes, rights, alignment| {
        words(file, &[kind, first, first + up, first + up, bytes, bytes, rights, alignment]);
    };
    segment(&mut file, 1, 0, 0, DYNAMIC, 5, PAGE);
    segment(&mut file, 1, DYNAMIC, PAGE, DYNAMIC_BYTES, 6, PAGE);
    segment(&mut file, 2, DYNAMIC, PAGE, DYNAMIC_BYTES, 6, 4);
    words(&mut file, &[0x6474_e551, 0, 0, 0, 0, 0, 6, 16]); // the stack is not executed
    words(&mut file, &[1, 2, 1, 0, 0]); // one bucket with the one symbol
    words(&mut file, &[0; 4]);
    words(&mut file, &[1, CODE, 3]); // its name is at 1
    file.extend([0x12, 0, 1, 0]); // a function for all, in some section
    file.extend(b"\0la_version\0\0\0\0\0");
    file.extend([0x31, 0xc0, 0xc3]); // xor %eax, %eax; ret
    file.resize(DYNAMIC as usize, 0x90);
    words(&mut file, &[4, HASH, 5, STRINGS, 6, SYMBOLS, 10, 12, 11, 16, 0, 0]);
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::Object;

    #[test]
    fn the_library_for_32_bits_has_its_one_function() {
        let bytes = for_32_bits();
        let file = object::File::parse(&*bytes).unwrap();
        assert_eq!((file.architecture(), file.is_64()), (object::Architecture::I386, false));
        let words: Vec<u32> =
            bytes.chunks_exact(4).map(|raw| u32::from_le_bytes(raw.try_into().unwrap())).collect();
        let code = words[(52 + 4 * 32 + 20 + 16) / 4 + 1] as usize;
        assert_eq!(bytes[code..code + 3], [0x31, 0xc0, 0xc3]);
        let name = words[(52 + 4 * 32 + 20 + 16) / 4] as usize;
        assert_eq!(&bytes[52 + 4 * 32 + 20 + 32 + name..][..11], b"la_version\0");
    }
}
