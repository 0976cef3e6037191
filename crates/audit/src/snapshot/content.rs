//! Which files have the same bytes: only those are hashed that may be equal, and what reading brought into memory
//! leaves it again.

use super::budget::{Budget, Work};
use super::files::Files;
use super::open::Miss;
use super::residency::cached_pages;
use super::unseen::{Gathered, Kind};
use super::watch::Progress;
use super::{File, Process};
use roaring::RoaringBitmap;
use rustix::fs::{Advice, fadvise};
use std::collections::HashMap;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Read at once.
const BLOCK: usize = 1 << 20;
/// Parts of a file that are compared before the whole is hashed: its first, its last, and one in the middle.
const PART: u64 = 4096;

/// What two equal files have in common without being read.
type Likeness = (u64, Option<Vec<u8>>, Option<String>, u64);

fn likeness(file: &File) -> Likeness {
    let elf = file.elf.as_ref();
    (
        file.size.unwrap_or(0),
        elf.and_then(|elf| elf.build_id.clone()),
        elf.and_then(|elf| elf.soname.clone()),
        elf.map_or(0, |elf| elf.text_bytes),
    )
}

/// How much of each file its processes have in memory, and whether one of them writes to it for all.
#[derive(Clone, Copy, Default)]
struct Use {
    resident: u64,
    is_mapped: bool,
    is_written: bool,
}

/// Hashes the files that may be equal to another one, those with most in memory first.
pub fn compare(files: &mut Files, processes: &[Process], page: u64, budget: Budget, unseen: &mut Gathered) {
    let uses = uses(files.all().len(), processes);
    let worth = |index: usize, file: &File| {
        let one = uses[index];
        let is_library_or_data = file.elf.is_some() || (one.is_mapped && !one.is_written);
        // A file without a name cannot be made one with another: it is a finding of its own.
        is_library_or_data && !file.deleted && file.size.is_some_and(|size| size > page)
    };
    let chosen = files.all().iter().enumerate();
    let chosen = chosen.filter(|(index, file)| worth(*index, file) && !files.is_another(*index));
    let alike = several(chosen.map(|(index, file)| (likeness(file), index)));
    for group in by_memory(alike, &uses) {
        let mut samples = Vec::new();
        for index in group {
            if !budget.allows(Work::Content) {
                leave(files, index, &budget.why(), unseen);
                continue;
            }
            let size = files.all()[index].size.unwrap_or(0);
            match files.with(index, move |file, progress| sample(&file, size, progress)) {
                Ok(Ok((cached, sample))) => {
                    files.file_mut(index).cached_pages = cached;
                    samples.push((sample, index));
                }
                Ok(Err(_)) => leave(files, index, Miss::Failed.why(), unseen),
                Err(miss) => leave(files, index, miss.why(), unseen),
            }
        }
        for index in several(samples).into_iter().flatten() {
            hash(files, index, budget, unseen);
        }
    }
}

fn leave(files: &Files, index: usize, why: &str, unseen: &mut Gathered) {
    unseen.add(
        Kind::File,
        files.all()[index].path.display().to_string(),
        format!("not compared with others: {why}"),
    );
}

fn uses(count: usize, processes: &[Process]) -> Vec<Use> {
    let mut uses = vec![Use::default(); count];
    for mapping in processes.iter().flat_map(|process| &process.mappings) {
        let Some(one) = mapping.file.and_then(|file| uses.get_mut(file)) else { continue };
        one.is_mapped = true;
        one.is_written |= mapping.shared && mapping.write;
        one.resident += mapping.from_file();
    }
    uses
}

/// Groups of more than one.
fn several<K: std::hash::Hash + Eq>(all: impl IntoIterator<Item = (K, usize)>) -> Vec<Vec<usize>> {
    let mut groups: HashMap<K, Vec<usize>> = HashMap::new();
    for (key, index) in all {
        groups.entry(key).or_default().push(index);
    }
    let mut groups: Vec<Vec<usize>> = groups.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_unstable();
    groups
}

/// If the budget does not suffice, the largest of what may be saved is known.
fn by_memory(mut groups: Vec<Vec<usize>>, uses: &[Use]) -> Vec<Vec<usize>> {
    let memory = |group: &Vec<usize>| group.iter().map(|index| uses[*index].resident).sum::<u64>();
    groups.sort_by_cached_key(|group| std::cmp::Reverse(memory(group)));
    groups
}

/// Which pages are in memory, before this very look brings any in; and a few parts that tell most files apart.
fn sample(
    file: &std::fs::File,
    size: u64,
    progress: &Progress,
) -> io::Result<(Option<RoaringBitmap>, Vec<u8>)> {
    let cached = cached_pages(file, size);
    let _ = fadvise(file, 0, None, Advice::Random);
    let mut sample = Vec::new();
    for at in [0, size / 2 / PART * PART, size.saturating_sub(PART)] {
        let mut part = vec![0; usize::try_from(PART.min(size)).unwrap_or(0)];
        file.read_exact_at(&mut part, at)?;
        sample.extend(part);
        progress.beat();
    }
    Ok((cached, sample))
}

/// Hashes one file wholly, if the budget lasts.
fn hash(files: &mut Files, index: usize, budget: Budget, unseen: &mut Gathered) {
    let cached = files.all()[index].cached_pages.clone();
    match files.with(index, move |file, progress| whole(&file, cached.as_ref(), budget, progress)) {
        Ok(Ok(Some(content))) => files.file_mut(index).content = Some(content),
        Ok(Ok(None)) => leave(files, index, &budget.why(), unseen),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ResourceBusy => {
            leave(files, index, "it was changed while it was read", unseen);
        }
        Ok(Err(_)) => leave(files, index, Miss::Failed.why(), unseen),
        Err(miss) => leave(files, index, miss.why(), unseen),
    }
}

/// The hash of a file's bytes; none: the budget was spent.
fn whole(
    file: &std::fs::File,
    cached: Option<&RoaringBitmap>,
    budget: Budget,
    progress: &Progress,
) -> io::Result<Option<[u8; 32]>> {
    let state = |about: std::fs::Metadata| (about.len(), about.mtime(), about.mtime_nsec());
    let before = state(file.metadata()?);
    let _ = fadvise(file, 0, None, Advice::Sequential);
    let mut hasher = blake3::Hasher::new();
    let mut block = vec![0; BLOCK.min(usize::try_from(before.0).unwrap_or(BLOCK)).max(1)];
    let mut at = 0;
    let mut complete = true;
    loop {
        progress.beat();
        if progress.left() || !budget.allows(Work::Content) {
            complete = false;
            break;
        }
        let got = file.read_at(&mut block, at)?;
        if got == 0 {
            break;
        }
        hasher.update(&block[..got]);
        at += got as u64;
    }
    if let Some(cached) = cached {
        let_go(file, cached, at);
    }
    if complete && (state(file.metadata()?) != before || at != before.0) {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    Ok(complete.then(|| *hasher.finalize().as_bytes()))
}

/// Lets the kernel drop the pages that were not in memory before: an audit leaves the page cache as it was. Pages that
/// somebody maps stay in any case.
fn let_go(file: &std::fs::File, cached: &RoaringBitmap, read: u64) {
    let page = rustix::param::page_size() as u64;
    let mut next = 0;
    let ends = cached.iter().map(u64::from).chain([read.div_ceil(page)]);
    for kept in ends {
        if kept > next
            && let Some(length) = NonZeroU64::new((kept - next) * page)
        {
            let _ = fadvise(file, next * page, Some(length), Advice::DontNeed);
        }
        next = kept + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Duration;

    fn file(bytes: &[u8]) -> std::fs::File {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(bytes).expect("written");
        file
    }

    #[test]
    fn the_whole_content_counts() {
        let mut bytes = vec![7; 3 * BLOCK / 2];
        let (progress, budget) = (Progress::default(), Budget::new(None));
        let whole =
            |bytes: &[u8]| whole(&file(bytes), None, budget, &progress).expect("read").expect("complete");
        let one = whole(&bytes);
        assert_eq!(one, whole(&bytes));
        assert_eq!(one, *blake3::hash(&bytes).as_bytes());
        let last = bytes.len() - 1;
        bytes[last] = 8;
        assert_ne!(one, whole(&bytes));
    }

    #[test]
    fn a_spent_budget_gives_no_hash_rather_than_one_of_a_part() {
        let budget = Budget::new(Some(Duration::ZERO));
        let hash = whole(&file(&[1; 10000]), None, budget, &Progress::default()).expect("no failure");
        assert_eq!(hash, None);
    }

    #[test]
    fn samples_tell_files_apart_at_both_ends_and_in_the_middle() {
        let size = 64 * 1024;
        let of = |place: Option<usize>| {
            let mut bytes = vec![0; size];
            place.into_iter().for_each(|place| bytes[place] = 1);
            sample(&file(&bytes), size as u64, &Progress::default()).expect("read").1
        };
        assert_eq!(of(None), of(None));
        for place in [0, size / 2, size - 1] {
            assert_ne!(of(None), of(Some(place)), "{place}");
        }
        assert!(sample(&file(&[0; 5000]), 9000, &Progress::default()).is_err(), "it shrank meanwhile");
    }

    #[test]
    fn what_may_be_equal_is_in_one_group_and_nothing_else() {
        let groups = several([("a", 1), ("b", 2), ("a", 3), ("c", 4)]);
        assert_eq!(groups, [vec![1, 3]]);
    }
}
