//! What an audit reads: files of the kernel in which others' names are, files that anybody may have
//! made, reports.

use super::Format;
use super::libraries::samples;
use commonhold_audit::library::fuzzing as library;
use commonhold_audit::report::fuzzing::{reports, sample_reports};
use commonhold_audit::snapshot::fuzzing as snapshot;
use commonhold_sys::cgroup::own_group_of;
use commonhold_sys::maps::MappedFile;
use commonhold_sys::mounts::Mounts;

/// Files of /proc. Hosts read some of them, too.
pub const PROC_FILES: Format = Format::new("proc-files", 4096, proc_files, snapshot::sample_proc_files);

/// Programs and libraries.
pub const ELF_FILES: Format = Format::new("elf-files", 20_000, elf_files, samples);

/// Archives of object files.
pub const ARCHIVES: Format = Format::new("archives", 20_000, library::archive, sample_archives);

/// Reports that somebody else wrote.
pub const REPORTS: Format = Format::new("reports", 16_000, reports, sample_reports);

fn proc_files(bytes: &[u8]) {
    snapshot::proc_files(bytes);
    let _ = own_group_of(&String::from_utf8_lossy(bytes)); // which it is
    let _ = Mounts::parse(bytes); // which they are
    let file = std::fs::File::open("/proc/self/exe").and_then(MappedFile::of).expect("this program");
    let _ = file.mappings_among(bytes); // as above
}

fn elf_files(bytes: &[u8]) {
    snapshot::elf_file(bytes);
    library::elf_file(bytes);
}

/// An archive with an index, as `ar` makes it, with the library as its member.
fn sample_archives() -> Vec<Vec<u8>> {
    let member = samples().into_iter().next().unwrap_or_default();
    let head = |name: &str, length: usize| {
        format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{length:<10}`\n", 0, 0, 0, 644).into_bytes()
    };
    let names = b"one\0two\0";
    let at = 8 + 60 + 12 + names.len() as u32;
    let index = [&2_u32.to_be_bytes()[..], &at.to_be_bytes(), &at.to_be_bytes(), names].concat();
    let all = [&b"!<arch>\n"[..], &head("/", index.len()), &index, &head("a.o/", member.len()), &member];
    vec![all.concat()]
}
