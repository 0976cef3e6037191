//! Files of a host's state directory.

use super::Format;
use commonhold_host::live::{Grant, Live, Mark};
use commonhold_host::newer::{self, Newer};
use commonhold_journal::testing::{fuzz_recover, sample_files};
use commonhold_registry::fuzzing as registry;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The two files of an object's journal.
pub const JOURNAL: Format = Format::new("journal", 40_000, fuzz_recover, sample_journal);

/// The file of names and objects: what is damaged in it.
pub const REGISTRY: Format = Format::new("registry", 120, registry::file, sample_registry).taking(64);

/// The values in it.
pub const RECORDS: Format = Format::new("records", 2048, registry::records, registry::sample_records);

/// What the next host must know of an object's frames.
pub const LIVE: Format = Format::new("live", 6000, live, sample_live);

/// What lies beside a file or a replica.
pub const NEWER: Format = Format::new("newer", 8192, newer, sample_newer);

fn sample_journal() -> Vec<Vec<u8>> {
    let [a, b] = sample_files();
    let whole = [&[2], &((a.len() / 512) as u16).to_le_bytes()[..], &a, &b].concat();
    // An edit: of the first file, aimed at a header, a byte of its epoch becomes one more.
    let edit = [10, 40, 0, 1, 0, 0];
    vec![whole[..whole.len().min(40_000)].to_vec(), vec![1], [&[3], &edit[..]].concat()]
}

fn sample_registry() -> Vec<Vec<u8>> {
    // Nothing is changed; and a byte of the head.
    vec![Vec::new(), vec![9, 0, 0, 0, 7, 0]]
}

const BOOT: &str = "boot";
/// An object that is small, so that little is mapped.
const OBJECT_BYTES: u64 = 1 << 20;

/// A file that lies in memory, under its path.
fn memory(name: &str) -> (File, PathBuf) {
    let file = File::from(commonhold_sys::frames::create(name, 0).expect("memory"));
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    (file, path)
}

/// Header and intent (the beginning of each), then bytes of the marks and of the grants.
fn live(bytes: &[u8]) {
    let (file, path) = memory("live");
    drop(Live::create(&path, BOOT, 42, OBJECT_BYTES).expect("it can be made"));
    // As a host makes it: the file is longer than what it has to say.
    const GRANTS_AT: u64 = (2 << 30) + 65536;
    let length = GRANTS_AT + 16 * (OBJECT_BYTES / 4096);
    file.set_len(length).expect("memory has any length");
    let parts = [(0, 160), (4096, 512), (65536, 64), (65536 + (512 << 20), 64), (GRANTS_AT, 512)];
    let mut rest = bytes;
    for (at, most) in parts {
        let (part, after) = rest.split_at(rest.len().min(most));
        file.write_all_at(part, at).expect("memory can be written");
        rest = after;
    }
    let Ok(Some((mut live, header))) = Live::reopen(&path, BOOT) else { return };
    assert!(live.intent().expect("it can be read").len() <= 256);
    let _ = (live.holder(), live.lost_home()); // what they are
    let pages = header.size_bytes.div_ceil(4096).max(1);
    for mark in [Mark::Dirty, Mark::Writing, Mark::Spilled, Mark::Lent] {
        live.each(mark, |page| assert!(page < pages, "a mark of a page that is not there"));
    }
    for page in [0, pages - 1] {
        let _ = live.grant(page); // what it is
        live.prepare(Mark::Dirty, page, 1).expect("there is room");
        live.mark(Mark::Dirty, page, 1, true);
        let grant = Grant { to: Some(7), stamp: 9 };
        live.granted(page, 1, grant).expect("there is room");
        assert_eq!(live.grant(page), grant);
    }
}

fn sample_live() -> Vec<Vec<u8>> {
    let (file, path) = memory("live");
    let live = Live::create(&path, BOOT, 42, OBJECT_BYTES).expect("it can be made");
    live.announce(&[3, 1, 4]).expect("it can be written");
    live.set_holder(5).expect("it can be written");
    let mut bytes = vec![0; 160 + 512];
    file.read_exact_at(&mut bytes[..160], 0).expect("it can be read");
    file.read_exact_at(&mut bytes[160..], 4096).expect("it can be read");
    bytes.extend([vec![5; 64], vec![0; 64], vec![1; 64]].concat());
    vec![bytes]
}

/// What is beside a file, which is this process's own.
fn beside() -> &'static (PathBuf, File) {
    static FILES: OnceLock<(PathBuf, File)> = OnceLock::new();
    FILES.get_or_init(|| {
        let own = std::env::temp_dir().join(format!("commonhold-fuzz-{}", std::process::id()));
        newer::make_own(&own, OBJECT).expect("it can be made");
        let beside = own.with_extension("commonhold");
        let file = File::options().read(true).write(true).open(&beside).expect("it is there");
        (own, file)
    })
}

const OBJECT: u128 = 7;

fn newer(bytes: &[u8]) {
    let (own, file) = beside();
    let (head, bits) = bytes.split_at(bytes.len().min(96));
    file.set_len(4096).expect("it can be cut");
    file.write_all_at(&[0; 96], 0).expect("it can be written");
    file.write_all_at(head, 0).expect("it can be written");
    file.write_all_at(bits, 4096).expect("it can be written");
    let Ok(mut newer) = Newer::open(own, OBJECT) else { return };
    let ones: u64 = bits.iter().map(|byte| u64::from(byte.count_ones())).sum();
    assert_eq!(newer.pages().len(), ones);
    let _ = newer.whole_as(BOOT); // in which boot
    newer.kept_by(None);
    newer.set(&[3, 9].into()).expect("there is room");
    newer.clear(&[3].into()).expect("there is room");
    assert!(newer.pages().contains(9) && !newer.pages().contains(3));
}

fn sample_newer() -> Vec<Vec<u8>> {
    let (own, file) = beside();
    let mut newer = Newer::open(own, OBJECT).expect("it was made");
    newer.note_whole(BOOT, [5, 6]).expect("it can be written");
    newer.kept_by(None);
    newer.set(&[1, 2, 77].into()).expect("it can be written");
    let mut bytes = vec![0; 96 + 16];
    file.read_exact_at(&mut bytes[..96], 0).expect("it can be read");
    let _ = file.read_at(&mut bytes[96..], 4096).expect("it can be read");
    vec![bytes]
}
