//! Files of equal content with different inodes: which memory is there twice, and how sure that is.

mod proof;

use super::view::{FileUse, in_memory, uses};
use crate::report::{EqualFiles, Proof};
use crate::snapshot::{File, Snapshot};
use proof::{Copies, Copy, Shares};
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Equal files, and what the advice needs to know of them beside the figure.
#[derive(Clone, Debug)]
pub struct Group {
    /// Indices into [`Snapshot::files`], in the order of the figure's paths.
    pub files: Vec<usize>,
    /// Files whose memory is known to be apart from each other's, one list for each memory; the one to keep first.
    /// Empty: nothing is known to be there twice.
    pub apart: Vec<Vec<usize>>,
    /// The figure.
    pub figure: EqualFiles,
}

/// Groups of equal files, those that waste most first.
pub fn groups(snapshot: &Snapshot) -> Vec<Group> {
    let uses = uses(snapshot);
    let shares = Shares::of_files(snapshot);
    let mut groups: Vec<Group> = alike(snapshot, &uses)
        .into_iter()
        .map(|(files, compared)| group(snapshot, &uses, &shares, files, compared))
        .collect();
    groups.sort_by(|one, other| {
        let key = |group: &Group| (group.figure.saving_bytes, group.figure.disk_bytes);
        (key(other), &one.figure.paths).cmp(&(key(one), &other.figure.paths))
    });
    groups
}

/// Indices of files that are equal, and whether their bytes were compared.
fn alike(snapshot: &Snapshot, uses: &[FileUse]) -> Vec<(Vec<usize>, bool)> {
    let mut by_content: BTreeMap<[u8; 32], Vec<usize>> = BTreeMap::new();
    let mut by_build: BTreeMap<(&[u8], u64), Vec<usize>> = BTreeMap::new();
    for (place, file) in snapshot.files.iter().enumerate() {
        // A file that is written through a mapping is somebody's data: equal today, not one file. A deleted one cannot
        // be linked to any more, and is a finding of its own.
        let (false, false, Some(size @ 1..)) = (file.deleted, uses[place].written, file.size) else {
            continue;
        };
        match (&file.content, file.elf.as_ref().and_then(|elf| elf.build_id.as_deref())) {
            (Some(content), _) => by_content.entry(*content).or_default().push(place),
            (None, Some(build)) => by_build.entry((build, size)).or_default().push(place),
            (None, None) => {}
        }
    }
    let several = |files: &Vec<usize>| {
        files.iter().map(|file| snapshot.files[*file].key).collect::<BTreeSet<_>>().len() > 1
    };
    let compared = by_content.into_values().filter(&several).map(|files| (files, true));
    compared.chain(by_build.into_values().filter(&several).map(|files| (files, false))).collect()
}

fn group(
    snapshot: &Snapshot,
    uses: &[FileUse],
    shares: &[Shares],
    mut files: Vec<usize>,
    compared: bool,
) -> Group {
    let path = |file: usize| snapshot.files[file].path.display().to_string();
    files.sort_by_key(|file| (std::cmp::Reverse(uses[*file].users.len()), path(*file)));
    let size = snapshot.files[files[0]].size.unwrap_or(0);
    let single = files.iter().map(|file| copy(snapshot, &uses[*file], *file)).collect();
    let copies = Copies::of(snapshot, shares, single);
    let (apart, by_frames) = if compared { copies.apart() } else { (Vec::new(), false) };
    let proof = match (apart.len() > 1, by_frames) {
        (true, true) => Proof::Frames,
        (true, false) => Proof::Proportional,
        (false, _) if copies.are_one_memory() => Proof::SameFrames,
        (false, _) => Proof::Unproven,
    };
    let (saving, mapped_saving) = if apart.len() > 1 {
        let mapped: Vec<Copy> = apart.iter().map(|copy| copy.mapped()).collect();
        let whole = saving(&apart, snapshot.page_bytes);
        (whole, saving(&mapped.iter().collect::<Vec<_>>(), snapshot.page_bytes).min(whole))
    } else {
        (0, 0)
    };
    let mut apart: Vec<Vec<usize>> =
        if apart.len() > 1 { apart.into_iter().map(|copy| copy.files.clone()).collect() } else { Vec::new() };
    // The one that most processes use stays: its users need not be restarted.
    let users = |copy: &Vec<usize>| copy.iter().map(|file| uses[*file].users.len()).sum::<usize>();
    apart.sort_by_key(|copy| (std::cmp::Reverse(users(copy)), copy.iter().map(|file| path(*file)).min()));
    let (identity, by) = identity(snapshot, &files, compared);
    let devices: BTreeSet<u64> = files.iter().map(|file| snapshot.files[*file].key.device).collect();
    let containers: BTreeSet<&String> = files
        .iter()
        .flat_map(|file| &uses[*file].users)
        .filter_map(|user| snapshot.processes[*user].container.as_ref())
        .collect();
    let figure = EqualFiles {
        identity,
        by: by.to_owned(),
        size_bytes: size,
        paths: files.iter().map(|file| path(*file)).collect(),
        users: files.iter().map(|file| uses[*file].users.len() as u64).collect(),
        resident_bytes: files
            .iter()
            .map(|file| in_memory(&snapshot.files[*file], &uses[*file], snapshot.page_bytes))
            .collect(),
        saving_bytes: saving,
        mapped_saving_bytes: mapped_saving,
        disk_bytes: size * (copies.inodes() as u64).saturating_sub(1),
        proof,
        containers: containers.into_iter().cloned().collect(),
        one_file_system: devices.len() == 1,
    };
    Group { files, apart, figure }
}

/// One file with the pages of it that are in memory: by number where they are known, else how many.
fn copy(snapshot: &Snapshot, of_file: &FileUse, place: usize) -> Copy {
    let file: &File = &snapshot.files[place];
    let mut pages = file.cached_pages.clone();
    let mapped: RoaringBitmap = file.frames.iter().flat_map(|frames| frames.keys()).collect();
    if file.frames.is_some() {
        *pages.get_or_insert_default() |= &mapped;
    }
    let pages = pages.unwrap_or_default();
    // Frames and mincore may both be silent of pages that a mapping has; then its shares say how many.
    let unnumbered = if pages.is_empty() { of_file.union_estimate() } else { 0 };
    let mapped_unnumbered = if mapped.is_empty() { of_file.union_estimate() } else { 0 };
    Copy { files: vec![place], pages, unnumbered, mapped, mapped_unnumbered }
}

/// All pages of these copies less those that one copy would need. Pages whose numbers are unknown are taken to be the
/// same ones in each copy.
fn saving(apart: &[&Copy], page_bytes: u64) -> u64 {
    let mut union = RoaringBitmap::new();
    for copy in apart {
        union |= &copy.pages;
    }
    let one = apart.iter().map(|copy| copy.unnumbered).fold(union.len() * page_bytes, u64::max);
    apart.iter().map(|copy| copy.bytes(page_bytes)).sum::<u64>().saturating_sub(one)
}

fn identity(snapshot: &Snapshot, files: &[usize], compared: bool) -> (String, &'static str) {
    let build = |file: usize| snapshot.files[file].elf.as_ref().and_then(|elf| elf.build_id.as_deref());
    let first = build(files[0]);
    match (first, compared) {
        (Some(id), false) => (hexadecimal(id), "build ID, content not compared"),
        (Some(id), true) if files.iter().all(|file| build(*file) == first) => (hexadecimal(id), "build ID"),
        _ => (hexadecimal(&snapshot.files[files[0]].content.unwrap_or_default()), "content"),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
