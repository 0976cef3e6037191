//! For the fuzz targets: what is private of what stores, core dumps and loaders say.

use crate::bind::Loaded;
use crate::core_dump;
use crate::origin::{Origin, gone_of};
use std::path::Path;

/// What stands beside a copy, the list of those that are gone, and a core dump. The first byte says which.
pub fn notes(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => {
            if let Some(origin) = Origin::decode(rest) {
                assert_eq!(Origin::decode(&origin.encode()), Some(origin));
            }
        }
        1 => {
            let lines = rest.split(|byte| *byte == b'\n').count();
            assert!(gone_of(rest).len() <= lines);
        }
        2 => {
            let _ = core_dump::parse(rest); // none, or what it says
        }
        _ => {
            let _ = core_dump::files_in(Path::new("core"), rest); // as above
        }
    }
}

/// Samples of those.
pub fn sample_notes() -> Vec<Vec<u8>> {
    let origin =
        Origin { path: "/lib/a\nname".into(), build_id: Some("00ff17".into()), base: 0x3000_0001_0000 };
    let gone = b"key1 300000010000 00ff /lib/one.so\nkey2 300000020000  /lib/two.so\n";
    let words = [2_u64, 4096, 0x1000, 0x2000, 0, 0x3000, 0x4000, 1];
    let note = [&words.map(u64::to_le_bytes).concat()[..], b"/bin/a\0/lib/b\0"].concat();
    vec![
        [&[0], &origin.encode()[..]].concat(),
        [&[1], &gone[..]].concat(),
        [&[2], &note[..]].concat(),
        [&[3], &core(&note)[..]].concat(),
    ]
}

/// A core dump that has that note, and nothing else.
fn core(note: &[u8]) -> Vec<u8> {
    let mut bytes = [0; 64 + 56];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let halves = [(16, 4_u16), (18, 62), (52, 64), (54, 56), (56, 1)];
    halves.iter().for_each(|(at, value)| bytes[*at..at + 2].copy_from_slice(&value.to_le_bytes()));
    let words = [(20, 1_u32), (64, 4)];
    words.iter().for_each(|(at, value)| bytes[*at..at + 4].copy_from_slice(&value.to_le_bytes()));
    let length = (20 + note.len()) as u64;
    let longs = [(32, 64_u64), (72, 120), (96, length), (112, 4)];
    longs.iter().for_each(|(at, value)| bytes[*at..at + 8].copy_from_slice(&value.to_le_bytes()));
    let head = [5_u32, note.len() as u32, 0x4649_4c45].map(u32::to_le_bytes).concat();
    [&bytes[..], &head, b"CORE\0\0\0\0", note].concat()
}

/// What a loader says: the files that it loads, and (behind a zero) what references find.
pub fn loaders(bytes: &[u8]) {
    let (listed, found) = bytes.split_at(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
    let mut loaded = Loaded::default();
    let heard = listed.split(|byte| *byte == b'\n').try_for_each(|line| loaded.add_object(line));
    if heard.is_ok() && loaded.add_answers(found).is_ok() {
        let known = |place: &usize| *place < loaded.objects.len();
        assert!(loaded.answers.iter().all(|answer| known(&answer.from) && known(&answer.to)));
        assert_eq!(loaded.objects.len(), loaded.addresses.len());
    }
}

/// Samples of those.
pub fn sample_loaders() -> Vec<Vec<u8>> {
    let text = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f00)\n\t/lib64/ld.so (0x00007f10)\n\0\
        17:\tbinding file /lib/libc.so.6 [0] to /lib64/ld.so [0]: normal symbol `read' [GLIBC_2.2.5]\n\
        17:\tbinding file linux-vdso.so.1 [0] to /lib64/ld.so [0]: normal symbol `x'\n\
        17:\tbinding file /a [1] to /b [1]: normal symbol `y'\n";
    vec![text.as_bytes().to_vec(), b"\tlibx.so => not found\n\tstatically linked\n".to_vec()]
}
