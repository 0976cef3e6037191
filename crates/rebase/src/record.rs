//! Writes the record of a program, which `commonhold-record` reads.

use commonhold_record::{FILE_BYTES, HEADER_BYTES, MAGIC, State};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// One file of it.
pub struct Entry<'a> {
    /// Its path as the loader has it.
    pub path: &'a OsStr,
    /// The path of its copy, and the address of the copy's dynamic section.
    pub copy: Option<(&'a OsStr, u64)>,
    /// Its state.
    pub state: State,
}

/// The bytes of a record: the program, its loader, and the other files.
pub fn encode(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut files = Vec::new();
    let mut strings = vec![0];
    let first_string = HEADER_BYTES + entries.len() * FILE_BYTES;
    let mut place = |text: &OsStr| {
        let at = first_string + strings.len();
        strings.extend_from_slice(text.as_bytes());
        strings.push(0);
        at as u32
    };
    for entry in entries {
        let (copy, dynamic) =
            entry.copy.map_or((first_string as u32, 0), |(copy, dynamic)| (place(copy), dynamic));
        files.extend(place(entry.path).to_le_bytes());
        files.extend(copy.to_le_bytes());
        let State { device, inode, size, modified_ns, changed_ns } = entry.state;
        for word in [device, inode, size, modified_ns as u64, changed_ns as u64, dynamic, 0] {
            files.extend(word.to_le_bytes());
        }
    }
    let strings_bytes = strings.len();
    let mut record = MAGIC.to_vec();
    record.extend(((first_string + strings_bytes) as u32).to_le_bytes());
    record.extend((entries.len() as u32).to_le_bytes());
    files.extend(strings);
    record.extend(commonhold_record::sum(&files).to_le_bytes());
    record.extend(files);
    debug_assert!(commonhold_record::Record::new(&record).is_some());
    record
}
