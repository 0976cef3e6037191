//! Page frame numbers of one process, from its pagemap: of pages of files, and of pages that others map too.

use super::mappings::Seen;
use super::watch::Progress;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Entries of pagemap that one read asks for.
const CHUNK: usize = 8192;
/// A mapping of a file of data that is larger is not looked through: what it shares is told by Pss.
const LARGEST_DATA: u64 = 1 << 30;

const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;

/// Page numbers within a file and their frames, in order.
pub type Frames = Vec<(u32, u64)>;

/// What pagemap tells of one process.
#[derive(Debug, Default)]
pub struct Found {
    /// For each mapping, in their order: the pages that are the file's own. Empty where it was not looked at.
    pub of_files: Vec<Frames>,
    /// Frames that somebody else maps too, or this process twice: once for each time this process maps them.
    pub shared: Vec<u64>,
}

/// Whether the kernel tells this reader frame numbers: to others it tells zeros.
pub fn are_told(proc_root: &Path) -> bool {
    let page = rustix::param::page_size() as u64;
    let mark = Box::new(1_u8);
    let address = std::ptr::from_ref(&*mark).addr() as u64;
    let Ok(pagemap) = File::open(proc_root.join("self/pagemap")) else { return false };
    let mut entry = [0; 8];
    pagemap.read_exact_at(&mut entry, address / page * 8).is_ok() && u64::from_ne_bytes(entry) & FRAME != 0
}

/// Whether the frames of this mapping's own file pages are worth reading: those of all texts, and of what loaders map.
fn wants_file(seen: &Seen) -> bool {
    let mapping = &seen.mapping;
    let from_file = mapping.resident.saturating_sub(mapping.anonymous);
    if seen.backing.is_none() || from_file == 0 {
        return false;
    }
    let is_text = mapping.execute && !mapping.write;
    is_text || ((!mapping.write || !mapping.shared) && mapping.end - mapping.start <= LARGEST_DATA)
}

fn wants_shared(seen: &Seen) -> bool {
    seen.mapping.shared_clean + seen.mapping.shared_dirty > 0
}

/// Reads the frames of a process's mappings. `allowed` is asked between reads; none: it said no.
pub fn read(
    pagemap: &File,
    mappings: &[Seen],
    page: u64,
    progress: &Progress,
    allowed: &dyn Fn() -> bool,
) -> std::io::Result<Option<Found>> {
    let mut found = Found { of_files: vec![Frames::new(); mappings.len()], shared: Vec::new() };
    let mut buffer = vec![0; CHUNK * 8];
    for (index, seen) in mappings.iter().enumerate() {
        let (file, shared) = (wants_file(seen), wants_shared(seen));
        if !file && !shared {
            continue;
        }
        let mut present = 0;
        let mut at = seen.mapping.start / page;
        let last = seen.mapping.end / page;
        // A mapping may be far larger than what is in memory of it: the search ends with its last resident page.
        while at < last && present < seen.mapping.resident / page {
            if !allowed() {
                return Ok(None);
            }
            progress.beat();
            let want = usize::try_from(last - at).unwrap_or(CHUNK).min(CHUNK) * 8;
            let got = pagemap.read_at(&mut buffer[..want], at * 8)? / 8;
            if got == 0 {
                break;
            }
            for (place, entry) in buffer[..got * 8].chunks_exact(8).enumerate() {
                let entry = u64::from_ne_bytes(entry.try_into().unwrap_or_default());
                let frame = entry & FRAME;
                if entry & PRESENT == 0 || frame == 0 {
                    continue;
                }
                present += 1;
                if shared && entry & EXCLUSIVE == 0 {
                    found.shared.push(frame);
                }
                if file && entry & OF_FILE != 0 {
                    let address = at - seen.mapping.start / page + place as u64;
                    if let Ok(number) = u32::try_from(seen.mapping.offset / page + address) {
                        found.of_files[index].push((number, frame));
                    }
                }
            }
            at += got as u64;
        }
    }
    Ok(Some(found))
}

/// Adds pages to those that are known of a file; a page that moved meanwhile has its newest frame.
pub fn merge(known: &mut Frames, more: &[(u32, u64)]) {
    if more.is_empty() || known == more {
        return;
    }
    let old = std::mem::take(known);
    let mut merged = Vec::with_capacity(old.len() + more.len());
    let (mut old, mut more) = (old.into_iter().peekable(), more.iter().copied().peekable());
    loop {
        let next = match (old.peek(), more.peek()) {
            (Some(a), Some(b)) if a.0 < b.0 => old.next(),
            (Some(a), Some(b)) => {
                if a.0 == b.0 {
                    old.next();
                }
                more.next()
            }
            (Some(_), None) => old.next(),
            (None, _) => more.next(),
        };
        match next {
            Some(pair) => merged.push(pair),
            None => break,
        }
    }
    *known = merged;
}

#[cfg(test)]
mod tests {
    use super::super::Mapping;
    use super::super::mappings::Backing;
    use super::*;
    use std::io::Write;

    #[test]
    fn merging_keeps_order_and_the_newest_frame() {
        let mut known = vec![(1, 10), (3, 30), (5, 50)];
        merge(&mut known, &[(0, 1), (3, 31), (4, 40), (9, 90)]);
        assert_eq!(known, [(0, 1), (1, 10), (3, 31), (4, 40), (5, 50), (9, 90)]);
        merge(&mut known, &[]);
        assert_eq!(known.len(), 6);
    }

    /// A pagemap made by hand: the pages from 16 on.
    fn pagemap(entries: &[u64]) -> File {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&[0; 16 * 8]).expect("written");
        for entry in entries {
            file.write_all(&entry.to_ne_bytes()).expect("written");
        }
        file
    }

    fn mapping(pages: u64, resident: u64) -> Seen {
        let mapping = Mapping {
            start: 16 * 4096,
            end: (16 + pages) * 4096,
            read: true,
            execute: true,
            offset: 7 * 4096,
            resident: resident * 4096,
            shared_clean: 4096,
            ..Mapping::default()
        };
        Seen { mapping, backing: Some(Backing::default()) }
    }

    #[test]
    fn own_pages_of_the_file_and_shared_frames() {
        let entries = [
            PRESENT | OF_FILE | 100,             // the file's, mapped by others too
            PRESENT | OF_FILE | EXCLUSIVE | 101, // the file's, mapped here alone
            0,                                   // not in memory
            PRESENT | EXCLUSIVE | 102,           // a private copy
            PRESENT | 103,                       // a copy shared with a child
            1 << 62 | 5,                         // swapped
        ];
        let progress = Progress::default();
        let found = read(&pagemap(&entries), &[mapping(6, 6)], 4096, &progress, &|| true)
            .expect("read")
            .expect("all");
        assert_eq!(found.of_files, [vec![(7, 100), (8, 101)]]);
        assert_eq!(found.shared, [100, 103]);
    }

    #[test]
    fn it_stops_when_it_may_not_go_on_and_at_the_end_of_a_short_file() {
        let progress = Progress::default();
        let file = pagemap(&[PRESENT | OF_FILE | 100]);
        assert!(read(&file, &[mapping(6, 6)], 4096, &progress, &|| false).expect("read").is_none());
        let found = read(&file, &[mapping(6, 6)], 4096, &progress, &|| true).expect("read").expect("all");
        assert_eq!(found.of_files[0], [(7, 100)]);
    }

    #[test]
    fn data_that_is_written_together_is_not_a_loaders_work() {
        let mut seen = mapping(6, 6);
        assert!(wants_file(&seen));
        seen.mapping.execute = false;
        assert!(wants_file(&seen), "read-only data");
        (seen.mapping.write, seen.mapping.shared) = (true, true);
        assert!(!wants_file(&seen));
        seen.mapping.shared = false;
        assert!(wants_file(&seen), "pages of a library's data that nobody wrote yet");
        seen.mapping.end += 2 << 30;
        assert!(!wants_file(&seen));
    }
}
