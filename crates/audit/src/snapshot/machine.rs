//! The machine as a whole: its memory, and what its kernel does to share it.

use super::Machine;
use super::unseen::{Gathered, Kind};
use std::path::Path;

/// Reads what is known of the machine; what is not there stays zero or absent.
pub fn read(proc_root: &Path, page_bytes: u64, unseen: &mut Gathered) -> Machine {
    let name = rustix::system::uname();
    let mut machine = Machine {
        name: name.nodename().to_string_lossy().into_owned(),
        kernel: name.release().to_string_lossy().into_owned(),
        ..Machine::default()
    };
    // By hand, for what is missing: kernels made for containers leave lines out, and the rest is no less true.
    match std::fs::read_to_string(proc_root.join("meminfo")) {
        Ok(text) => memory(&mut machine, &text),
        Err(error) => unseen.add(Kind::Other, "memory of the machine", format!("/proc/meminfo: {error}")),
    }
    let kernel = Path::new("/sys/kernel/mm");
    machine.merged_saved_bytes = std::fs::read_to_string(kernel.join("ksm/pages_sharing"))
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .map(|pages| pages * page_bytes);
    if let Ok(text) = std::fs::read_to_string(kernel.join("transparent_hugepage/enabled")) {
        machine.huge_pages = chosen(&text).unwrap_or_default().to_owned();
    }
    machine
}

fn memory(machine: &mut Machine, text: &str) {
    let size = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    let known = |name| size(name).unwrap_or(0);
    machine.memory_bytes = known("MemTotal");
    machine.available_bytes = size("MemAvailable").unwrap_or_else(|| known("MemFree"));
    machine.cached_bytes = known("Cached") + known("Buffers");
    machine.page_table_bytes = known("PageTables");
    machine.swap_used_bytes = known("SwapTotal").saturating_sub(known("SwapFree"));
}

/// The word in brackets: `always [madvise] never`.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("never\n"), None);
    }

    #[test]
    fn a_recorded_meminfo() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\nBuffers:          50 kB\n\
            Cached:          250 kB\nSwapCached:        9 kB\nSwapTotal:       400 kB\nSwapFree:        300 kB\n\
            PageTables:       12 kB\n";
        std::fs::write(folder.path().join("meminfo"), text).expect("written");
        let mut unseen = Gathered::default();
        let machine = read(folder.path(), 4096, &mut unseen);
        assert!(unseen.finish().is_empty());
        assert_eq!(machine.memory_bytes, 1000 << 10);
        assert_eq!(machine.available_bytes, 600 << 10);
        assert_eq!(machine.cached_bytes, 300 << 10);
        assert_eq!(machine.page_table_bytes, 12 << 10);
        assert_eq!(machine.swap_used_bytes, 100 << 10);
        assert!(!machine.kernel.is_empty());
    }

    #[test]
    fn a_missing_meminfo_is_told() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut unseen = Gathered::default();
        read(folder.path(), 4096, &mut unseen);
        assert!(unseen.finish()[0].what.contains("memory of the machine"));
    }
}
