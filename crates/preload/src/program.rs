//! Whether a program would load what stands before it: said before it starts, because afterwards nobody says it.

use commonhold_object::{Error, ErrorKind, Result};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, elf};
use rustix::process::{getegid, geteuid};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What to know of a program that runs all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heed {
    /// Nothing.
    Nothing,
    /// A line.
    Note(String),
}

/// How many scripts may be each other's interpreters, as in the kernel.
const SCRIPTS: usize = 4;

/// The program that a shell would run by that name.
pub fn find(name: &OsStr) -> Result<PathBuf> {
    let none = || Error::new(ErrorKind::NotFound, format!("there is no program {}", name.to_string_lossy()));
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file()).ok_or_else(none);
    }
    let runs =
        |path: &PathBuf| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).map(|directory| directory.join(name)).find(runs).ok_or_else(none)
}

/// Refuses a program that would not load the library.
pub fn check(program: &Path) -> Result<Heed> {
    let mut path = program.to_owned();
    for _ in 0..SCRIPTS {
        check_rights(&path)?;
        let mut file = File::open(&path).map_err(|error| unreadable(&path, &error))?;
        let mut beginning = Vec::new();
        file.by_ref().take(256).read_to_end(&mut beginning).map_err(|error| unreadable(&path, &error))?;
        match beginning.strip_prefix(b"#!") {
            Some(line) => path = interpreter(line),
            None if beginning.starts_with(&elf::ELFMAG) => return check_elf(&path, file),
            None => return Ok(Heed::Nothing), // the kernel says what it is not
        }
    }
    Ok(Heed::Nothing)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format_args!("reading {}, to see whether it can be run so", path.display()), error)
}

fn refused(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{} {why}", path.display()))
}

fn interpreter(line: &[u8]) -> PathBuf {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_start();
    let name = line.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    PathBuf::from(OsStr::from_bytes(name))
}

/// The loader of a program with rights that its caller lacks loads nothing that the caller names.
fn check_rights(path: &Path) -> Result<()> {
    let stat = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    let becomes_another = stat.mode() & 0o4000 != 0 && stat.uid() != geteuid().as_raw()
        || stat.mode() & 0o2010 == 0o2010 && stat.gid() != getegid().as_raw();
    let capable = || rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).is_ok();
    if becomes_another || !geteuid().is_root() && capable() {
        let why = "has rights that its caller lacks (setuid, setgid, file capabilities): nothing can stand before it. Run it as \
                   the user that it becomes";
        return Err(refused(path, why));
    }
    Ok(())
}

fn check_elf(path: &Path, file: File) -> Result<Heed> {
    let damaged = |_| refused(path, "is no whole program (ELF)");
    let cache = ReadCache::new(file);
    let other = "is for another kind of processor than libcommonhold_preload.so";
    let header: &elf::FileHeader64<Endianness> =
        FileHeader::parse(&cache).map_err(|_| refused(path, other))?;
    let endian = header.endian().map_err(damaged)?;
    if header.e_machine(endian) != OWN_MACHINE {
        return Err(refused(path, other));
    }
    let segments = header.program_headers(endian, &cache).map_err(damaged)?;
    let loader = segments.iter().find_map(|segment| segment.interpreter(endian, &cache).transpose());
    let Some(loader) = loader.transpose().map_err(damaged)? else {
        return Err(refused(
            path,
            "is linked statically: nothing can stand before it. Link it with the C library as shared",
        ));
    };
    if !loader.windows(8).any(|word| word == b"ld-linux") {
        let why =
            format!("has another C library than glibc (its loader is {})", String::from_utf8_lossy(loader));
        return Err(refused(path, &why));
    }
    let sections = header.sections(endian, &cache).map_err(damaged)?;
    let is_go = |section: &elf::SectionHeader64<Endianness>| {
        sections.section_name(endian, section).is_ok_and(|name| name == b".go.buildinfo")
    };
    if sections.iter().any(is_go) {
        let note = "is a Go program: only what its C code calls is seen, Go's own system calls are not";
        return Ok(Heed::Note(format!("{} {note}", path.display())));
    }
    Ok(Heed::Nothing)
}

#[cfg(target_arch = "x86_64")]
const OWN_MACHINE: elf::Machine = elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const OWN_MACHINE: elf::Machine = elf::EM_AARCH64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = std::env::temp_dir().join(format!("commonhold-preload-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn says(path: &Path) -> String {
        let said = check(path);
        std::fs::remove_file(path).unwrap();
        said.map_or_else(|error| error.message, |heed| format!("{heed:?}"))
    }

    #[test]
    fn ordinary_programs_and_scripts_may_run() {
        let shell = find(OsStr::new("sh")).unwrap();
        assert_eq!(check(&shell), Ok(Heed::Nothing));
        assert_eq!(says(&file("script", b"#! /bin/sh -e\n:\n", 0o755)), "Nothing");
        assert!(find(OsStr::new("no-such-program-here")).is_err());
    }

    #[test]
    fn what_would_not_load_it_is_refused() {
        // An ELF header alone, of this machine, without a single segment.
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap()[..64].to_vec();
        bytes[32..48].fill(0);
        bytes[56..64].fill(0);
        assert!(says(&file("static", &bytes, 0o755)).contains("linked statically"));
        bytes[18] ^= 0xff;
        assert!(says(&file("foreign", &bytes, 0o755)).contains("another kind of processor"));
        bytes[4] = 1;
        assert!(says(&file("narrow", &bytes, 0o755)).contains("another kind of processor"));
        assert!(says(&file("cut", &bytes[..20], 0o755)).contains("another kind of processor"));
    }

    #[test]
    fn scripts_that_lead_nowhere_are_errors() {
        assert!(says(&file("lost", b"#!/no/such/interpreter\n", 0o755)).contains("/no/such/interpreter"));
    }
}
