//! The machine as a whole: its memory, and what its kernel does to share it.

use super::Machine;
use procfs_core::{FromBufRead, Meminfo};
use std::path::Path;

/// Reads what is known of the machine; what is not there stays zero or absent.
pub fn read(proc_root: &Path, page_bytes: u64) -> Machine {
    let name = rustix::system::uname();
    let mut machine = Machine {
        name: name.nodename().to_string_lossy().into_owned(),
        kernel: name.release().to_string_lossy().into_owned(),
        ..Machine::default()
    };
    if let Ok(text) = std::fs::read(proc_root.join("meminfo"))
        && let Ok(memory) = Meminfo::from_buf_read(&*text)
    {
        machine.memory_bytes = memory.mem_total;
        machine.available_bytes = memory.mem_available.unwrap_or(memory.mem_free);
        machine.cached_bytes = memory.cached + memory.buffers;
        machine.page_table_bytes = memory.page_tables.unwrap_or(0);
        machine.swap_used_bytes = memory.swap_total.saturating_sub(memory.swap_free);
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
            Cached:          250 kB\nSwapCached:        0 kB\nActive:            0 kB\nInactive:          0 kB\n\
            SwapTotal:       400 kB\nSwapFree:        300 kB\nDirty:             0 kB\nWriteback:         0 kB\n\
            Slab:              0 kB\nPageTables:       12 kB\nCommitted_AS:      0 kB\nVmallocTotal:      0 kB\n\
            VmallocUsed:       0 kB\nVmallocChunk:      0 kB\n";
        std::fs::write(folder.path().join("meminfo"), text).expect("written");
        let machine = read(folder.path(), 4096);
        assert_eq!(machine.memory_bytes, 1000 << 10);
        assert_eq!(machine.available_bytes, 600 << 10);
        assert_eq!(machine.cached_bytes, 300 << 10);
        assert_eq!(machine.page_table_bytes, 12 << 10);
        assert_eq!(machine.swap_used_bytes, 100 << 10);
        assert!(!machine.kernel.is_empty());
    }
}
