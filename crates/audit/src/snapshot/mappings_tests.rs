//! smaps as kernels wrote it: Linux 6.18, and 4.19 with fewer attributes.

use super::*;

const RECORDED: &str = "\
55d0c8a00000-55d0c8a2f000 r-xp 00002000 fe:00 1311                       /usr/bin/dash
Size:                188 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                 120 kB
Pss:                  40 kB
Pss_Dirty:             0 kB
Shared_Clean:        120 kB
Shared_Dirty:          0 kB
Private_Clean:         0 kB
Private_Dirty:         0 kB
Referenced:          120 kB
Anonymous:             0 kB
KSM:                   0 kB
LazyFree:              0 kB
AnonHugePages:         0 kB
ShmemPmdMapped:        0 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:       0 kB
Swap:                  0 kB
SwapPss:               0 kB
Locked:                0 kB
THPeligible:           0
ProtectionKey:         0
VmFlags: rd ex mr mw me sd 
55d0c9000000-55d0c9021000 rw-p 00000000 00:00 0                          [heap]
Rss:                  12 kB
Pss:                  12 kB
Pss_Dirty:            12 kB
Private_Dirty:        12 kB
Anonymous:            12 kB
Swap:                  8 kB
SwapPss:               4 kB
7f0000000000-7f0000200000 rw-s 00000000 00:01 0                          /SYSV00000000 (deleted)
Rss:                2048 kB
Pss:                1024 kB
ShmemPmdMapped:     2048 kB
7f0001000000-7f0001001000 r--p 00001000 00:2b 77                         /srv/a file\\012with (deleted)
Rss:                   4 kB
";

fn all(text: &[u8]) -> Vec<Seen> {
    let mut seen = Vec::new();
    parse(text, |one| seen.push(one)).expect("understood");
    seen
}

#[test]
fn a_recorded_text() {
    let seen = all(RECORDED.as_bytes());
    assert_eq!(seen.len(), 4);
    let text = &seen[0].mapping;
    assert_eq!((text.start, text.end), (0x55d0_c8a0_0000, 0x55d0_c8a2_f000));
    assert!(text.read && !text.write && text.execute && !text.shared);
    assert_eq!((text.offset, text.resident, text.proportional), (0x2000, 120 << 10, 40 << 10));
    assert_eq!(text.shared_clean, 120 << 10);
    let backing = seen[0].backing.as_ref().expect("a file");
    assert_eq!(backing.device, rustix::fs::makedev(0xfe, 0));
    assert_eq!((backing.inode, backing.path.to_str(), backing.deleted), (1311, Some("/usr/bin/dash"), false));
    let heap = &seen[1].mapping;
    assert_eq!(
        (heap.label.as_str(), heap.anonymous, heap.swap, heap.swap_proportional),
        ("[heap]", 12288, 8192, 4096)
    );
    assert_eq!(heap.proportional_dirty, 12288);
}

#[test]
fn system_v_memory_has_a_file_even_with_inode_0() {
    let seen = all(RECORDED.as_bytes());
    let backing = seen[2].backing.as_ref().expect("a file");
    assert!(backing.is_nameless() && backing.deleted && backing.inode == 0);
    assert_eq!(seen[2].mapping.huge, 2 << 20);
    assert!(seen[2].mapping.shared);
}

#[test]
fn marks_line_feeds_spaces_and_strange_bytes_in_paths() {
    let seen = all(RECORDED.as_bytes());
    let backing = seen[3].backing.as_ref().expect("a file");
    assert!(backing.deleted && !backing.is_nameless());
    assert_eq!(backing.path.to_str(), Some("/srv/a file\nwith"));
    let strange = all(b"1000-2000 r--p 00000000 00:2b 77 /tmp/\xff\xfe\nRss: 4 kB\n");
    assert_eq!(strange[0].backing.as_ref().expect("a file").path.as_os_str().as_bytes(), b"/tmp/\xff\xfe");
    // A name that the parser of the library would trip over.
    let tricky = all(b"1000-2000 r--p 00000000 00:2b 77 /SYSV1\nRss: 4 kB\n");
    assert_eq!(tricky[0].backing.as_ref().expect("a file").path.to_str(), Some("/SYSV1"));
}

#[test]
fn kernels_without_dirty_shares_charge_private_pages() {
    let old = all(
        b"1000-5000 rw-p 00000000 08:01 9  /lib/x.so\nRss: 16 kB\nPrivate_Dirty: 8 kB\nAnonymous: 8 kB\n",
    );
    assert_eq!(old[0].mapping.proportional_dirty, 8 << 10);
}

#[test]
fn what_is_not_smaps_is_an_error_and_no_panic() {
    for text in
        [&b"no numbers here\n"[..], b"1000-2000\n", b"zz-yy rwxp 0 0:0 0 /x\n", b"1000-2000 r--p 0 0 0 /x\n"]
    {
        assert!(parse(text, |_| ()).is_err(), "{}", String::from_utf8_lossy(text));
    }
    assert!(all(b"").is_empty());
}

#[test]
fn anonymous_memory_of_one_kind_becomes_one_entry_and_files_stay() {
    let anonymous = |start: u64, write, label: &str| Mapping {
        start,
        end: start + 0x1000,
        read: true,
        write,
        label: label.into(),
        resident: 4096,
        private_dirty: 4096,
        ..Mapping::default()
    };
    let file =
        |start| Mapping { start, end: start + 0x1000, file: Some(0), resident: 4096, ..Mapping::default() };
    let reduced = reduce(vec![
        anonymous(0x1000, true, ""),
        file(0x2000),
        anonymous(0x3000, true, ""),
        anonymous(0x4000, false, ""),
        file(0x5000),
        anonymous(0x6000, true, "[heap]"),
        anonymous(0x7000, true, ""),
    ]);
    let shape: Vec<_> = reduced.iter().map(|m| (m.start, m.end, m.resident, m.file.is_some())).collect();
    assert_eq!(
        shape,
        [
            (0x1000, 0x8000, 3 * 4096, false),
            (0x2000, 0x3000, 4096, true),
            (0x4000, 0x5000, 4096, false),
            (0x5000, 0x6000, 4096, true),
            (0x6000, 0x7000, 4096, false),
        ]
    );
    assert_eq!(reduced[0].private_dirty, 3 * 4096);
}
