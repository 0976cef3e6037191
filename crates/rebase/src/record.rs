//! Writes the record of a program, which `commonhold-record` reads.

use commonhold_record::{FILE_BYTES, HEADER_BYTES, MAGIC, State};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// One file of it.
pub struct Entry<'a> {
    /// Its path as the loader has it.
    pub path: &'a OsStr,
    /// Its copy.
    pub copy: Option<Copied<'a>>,
    /// Its state.
    pub state: State,
}

/// What stands for a file.
#[derive(Clone, Copy)]
pub struct Copied<'a> {
    /// Its path.
    pub path: &'a OsStr,
    /// The address of its dynamic section.
    pub dynamic: u64,
    /// Its state.
    pub state: State,
}

/// Of a file that has no copy.
const NO_STATE: State = State { device: 0, inode: 0, size: 0, modified_ns: 0, changed_ns: 0 };

fn put(bytes: &mut Vec<u8>, state: State) {
    let State { device, inode, size, modified_ns, changed_ns } = state;
    for word in [device, inode, size, modified_ns as u64, changed_ns as u64] {
        bytes.extend(word.to_le_bytes());
    }
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
        let (copy, dynamic, copy_state) = entry
            .copy
            .map_or((first_string as u32, 0, NO_STATE), |copy| (place(copy.path), copy.dynamic, copy.state));
        files.extend(place(entry.path).to_le_bytes());
        files.extend(copy.to_le_bytes());
        put(&mut files, entry.state);
        files.extend(dynamic.to_le_bytes());
        put(&mut files, copy_state);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;
    use commonhold_record::{Record, version};

    #[test]
    fn records_are_those_of_their_version() {
        let state = |n| State { device: n, inode: n + 1, size: n + 2, modified_ns: -3, changed_ns: 4 };
        let entry = |path: &'static str, copy| Entry { path: OsStr::new(path), copy, state: state(10) };
        let copied = Copied { path: OsStr::new("/copies/key/libc.so"), dynamic: 1 << 40, state: state(20) };
        let written =
            encode(&[entry("/bin/a", None), entry("/lib/ld.so", None), entry("/lib/libc.so", Some(copied))]);
        let number = (MAGIC[7] - b'0').into();
        let mut kept = golden::check(env!("CARGO_MANIFEST_DIR"), "record", number, &written);
        let record = Record::new(&kept).unwrap();
        let files: Vec<_> = record.files().map(|file| (file.path, file.copy, file.dynamic)).collect();
        assert_eq!(files[2], (&b"/lib/libc.so\0"[..], &b"/copies/key/libc.so\0"[..], 1 << 40));
        assert_eq!((files.len(), version(&kept)), (3, Some(MAGIC[7])));
        kept[7] += 1;
        assert_eq!((Record::new(&kept).is_none(), version(&kept)), (true, Some(MAGIC[7] + 1)));
        assert_eq!(version(b"CHREBA"), None);
    }
}
