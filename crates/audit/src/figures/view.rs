//! Readings of a mapping and of a file that several figures share.

use crate::snapshot::{File, Mapping, Process, Snapshot};

/// Bytes of page table that a fully used 2 MiB of address space needs, where pages are 4 KiB.
pub const SPAN_BYTES: u64 = 2 << 20;

/// This process's share (Pss) of the pages that were copied on write in a file mapping.
///
/// Copies are dirty; Pss_Dirty also counts pages of the file itself that were freshly written, so neither alone is it.
pub fn copied_share(mapping: &Mapping) -> u64 {
    if mapping.file.is_none() { 0 } else { mapping.anonymous.min(mapping.proportional_dirty) }
}

/// This process's share (Pss) of the file's own pages.
pub fn file_share(mapping: &Mapping) -> u64 {
    mapping.proportional.saturating_sub(copied_share(mapping)).min(mapping.from_file())
}

/// What the processes in scope hold of the file's own pages.
#[derive(Clone, Debug, Default)]
pub struct FileUse {
    /// Processes that map it (indices), in order.
    pub users: Vec<usize>,
    /// Sum of resident pages over all mappings, bytes.
    pub resident: u64,
    /// Largest of these.
    pub largest: u64,
    /// Sum of Pss.
    pub share: u64,
    /// Some process may write into the file through its mapping.
    pub written: bool,
    /// Some process executes it.
    pub executed: bool,
}

impl FileUse {
    /// Bytes of the file that are mapped by someone: their union, which Pss tells when all users are in scope. It is
    /// never less than what one mapping holds, whatever part of Pss belongs to users out of scope.
    pub fn union_estimate(&self) -> u64 {
        self.share.clamp(self.largest, self.resident.max(self.largest))
    }
}

/// For each file of the snapshot, who holds what of it.
pub fn uses(snapshot: &Snapshot) -> Vec<FileUse> {
    let mut uses = vec![FileUse::default(); snapshot.files.len()];
    for (place, process) in snapshot.processes.iter().enumerate() {
        for mapping in &process.mappings {
            let Some(of_file) = mapping.file.and_then(|file| uses.get_mut(file)) else { continue };
            if of_file.users.last() != Some(&place) {
                of_file.users.push(place);
            }
            of_file.resident += mapping.from_file();
            of_file.largest = of_file.largest.max(mapping.from_file());
            of_file.share += file_share(mapping);
            of_file.written |= mapping.shared && mapping.write;
            of_file.executed |= mapping.execute;
        }
    }
    uses
}

/// Bytes of the file that are in memory: pages known by number, else what its users' shares say. None: not known.
pub fn in_memory(file: &File, of_file: &FileUse, page_bytes: u64) -> Option<u64> {
    let cached = file.cached_pages.as_ref().map(|pages| pages.len() * page_bytes);
    let mapped = match &file.frames {
        Some(frames) => Some(frames.len() as u64 * page_bytes),
        None if of_file.users.is_empty() => None,
        None => Some(of_file.union_estimate()),
    };
    cached.max(mapped)
}

/// `name (pid)`.
pub fn process_name(process: &Process) -> String {
    format!("{} ({})", process.name, process.pid)
}
