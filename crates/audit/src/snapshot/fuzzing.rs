//! For the fuzz targets: what the kernel and files say to the snapshot.

use super::mappings;
use super::mounts::Mounts;
use super::{container, elf};
use std::path::Path;

/// smaps, mountinfo, and a path of a control group. The first byte says which.
pub fn proc_files(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => {
            let mut seen = Vec::new();
            if mappings::parse(rest, |one| seen.push(one.mapping)).is_ok() {
                let count = seen.len();
                assert!(mappings::reduce(seen).len() <= count);
            }
        }
        1 => {
            let mounts = Mounts::parse(rest);
            let _ = (mounts.far(Path::new("/a/b")), mounts.hidepid("/proc"), mounts.kind(1)); // what it says
        }
        _ => {
            let path = String::from_utf8_lossy(rest);
            assert!(container::ids(&path).iter().all(|id| path.contains(id)));
        }
    }
}

/// Samples of those.
pub fn sample_proc_files() -> Vec<Vec<u8>> {
    let smaps = "7f10000-7f12000 r-xp 00001000 08:01 77    /lib/a\\012b (deleted)\nSize: 8 kB\nRss: 8 kB\nPss: 4 kB\n\
        Pss_Dirty: 0 kB\nShared_Clean: 8 kB\nKSM: 4 kB\nSwap: 4 kB\nTHPeligible: 0\nVmFlags: rd ex mr\n\
        7ffe000-7fff000 rw-p 00000000 00:00 0    [stack]\nRss: 4 kB\nAnonymous: 4 kB\nPrivate_Dirty: 4 kB\n";
    let mounts = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        23 22 0:21 / /proc rw - proc proc rw,hidepid=invisible\n30 22 0:40 / /a rw - nfs4 server:/x rw\n";
    let id = "3f2a9c0d1e4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1";
    let group = format!("/docker/{id}/system.slice/docker-{id}.scope");
    (0..).zip([smaps, mounts, &group]).map(|(kind, text)| [&[kind], text.as_bytes()].concat()).collect()
}

/// An ELF file, as far as the snapshot reads it.
pub fn elf_file(bytes: &[u8]) {
    let length = bytes.len() as u64;
    if let Ok(found) = elf::parse(bytes, length, 4096) {
        assert!(found.relro.iter().all(|(at, bytes)| at % 4096 == 0 && bytes % 4096 == 0));
        assert!(found.build_id.is_none_or(|id| id.len() <= 64));
    }
}
