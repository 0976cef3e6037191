//! Whether equal files are one memory or several.
//!
//! Two files with different inodes can still be the same page frames: two overlay mounts of one layer are. Frame numbers
//! tell. Without them Pss does: where each page's share is what the file's own users alone make of it, nobody else maps
//! it. What neither tells is not known to be waste.

use crate::figures::view::file_share;
use crate::snapshot::{File, Snapshot};
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, HashMap};

/// One memory: a file, or several that are known to be the same frames.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Indices into [`Snapshot::files`].
    pub files: Vec<usize>,
    /// Pages in memory whose numbers are known.
    pub pages: RoaringBitmap,
    /// Bytes in memory where the numbers are not known.
    pub unnumbered: u64,
    /// Of `pages`, those that processes are known to map.
    pub mapped: RoaringBitmap,
    /// Bytes that processes map, where the numbers are not known.
    pub mapped_unnumbered: u64,
}

impl Copy {
    /// Bytes in memory.
    pub fn bytes(&self, page_bytes: u64) -> u64 {
        (self.pages.len() * page_bytes).max(self.unnumbered)
    }

    /// The same, of what processes map alone.
    pub fn mapped(&self) -> Self {
        let (pages, unnumbered) = (self.mapped.clone(), self.mapped_unnumbered);
        Self { pages, unnumbered, ..self.clone() }
    }
}

/// Equal files, brought together where they are one memory.
pub struct Copies<'a> {
    snapshot: &'a Snapshot,
    shares: &'a [Shares],
    copies: Vec<Copy>,
}

impl<'a> Copies<'a> {
    /// Brings together what shares frames.
    pub fn of(snapshot: &'a Snapshot, shares: &'a [Shares], single: Vec<Copy>) -> Self {
        let mut leader: Vec<usize> = (0..single.len()).collect();
        let mut holder: HashMap<(u32, u64), usize> = HashMap::new();
        for (place, copy) in single.iter().enumerate() {
            for frame in copy.files.iter().flat_map(|file| frames(snapshot, *file)) {
                let other = *holder.entry(frame).or_insert(place);
                let (one, other) = (root(&leader, place), root(&leader, other));
                leader[one.max(other)] = one.min(other);
            }
        }
        let mut copies: BTreeMap<usize, Copy> = BTreeMap::new();
        for (place, copy) in single.into_iter().enumerate() {
            match copies.entry(root(&leader, place)) {
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(copy);
                }
                std::collections::btree_map::Entry::Occupied(mut entry) => {
                    let first = entry.get_mut();
                    first.files.extend(copy.files);
                    first.pages |= copy.pages;
                    first.unnumbered = first.unnumbered.max(copy.unnumbered);
                    first.mapped |= copy.mapped;
                    first.mapped_unnumbered = first.mapped_unnumbered.max(copy.mapped_unnumbered);
                }
            }
        }
        Self { snapshot, shares, copies: copies.into_values().collect() }
    }

    /// All files are the same frames.
    pub fn are_one_memory(&self) -> bool {
        self.copies.len() == 1 && self.copies[0].files.len() > 1
    }

    /// Copies of which each is known to be apart from each other one, the largest first, and whether frames told.
    pub fn apart(&self) -> (Vec<&Copy>, bool) {
        let page = self.snapshot.page_bytes;
        let present = self.copies.iter().filter(|copy| copy.bytes(page) > 0);
        let mut order: Vec<(&Copy, RoaringBitmap)> =
            present.map(|copy| (copy, self.numbered(copy))).collect();
        // What nobody maps has nothing that tells it from the others, and must not stand in their way.
        order.sort_by_key(|(copy, numbered)| {
            std::cmp::Reverse((self.tells(copy, numbered), copy.bytes(page)))
        });
        let (order, numbered): (Vec<&Copy>, Vec<RoaringBitmap>) = order.into_iter().unzip();
        let mut chosen: Vec<usize> = Vec::new();
        let mut by_frames = true;
        for (place, copy) in order.iter().enumerate() {
            let differs = |other: &usize| {
                let same_pages = !numbered[place].is_disjoint(&numbered[*other]);
                // They were not brought together, so a page that both have is in different frames.
                same_pages
                    || (numbered[place].is_empty()
                        && numbered[*other].is_empty()
                        && self.apart_by_shares(copy, order[*other]))
            };
            if chosen.iter().all(differs) {
                by_frames &= !numbered[place].is_empty();
                chosen.push(place);
            }
        }
        (chosen.into_iter().map(|place| order[place]).collect(), by_frames)
    }

    /// Whether its frames or its users' shares are known.
    fn tells(&self, copy: &Copy, numbered: &RoaringBitmap) -> bool {
        !numbered.is_empty() || copy.files.iter().any(|file| self.shares[*file].users > 0)
    }

    /// Pages whose frames are known.
    fn numbered(&self, copy: &Copy) -> RoaringBitmap {
        copy.files.iter().flat_map(|file| frames(self.snapshot, *file)).map(|(page, _)| page).collect()
    }

    /// How many inodes on disk these are at least: two overlay files with one inode number may be one layer's.
    pub fn inodes(&self) -> usize {
        let firsts: Vec<&File> = self.copies.iter().map(|copy| &self.snapshot.files[copy.files[0]]).collect();
        let is_new =
            |place: &usize| firsts[..*place].iter().all(|before| !maybe_one_layer(before, firsts[*place]));
        (0..firsts.len()).filter(is_new).count()
    }

    fn apart_by_shares(&self, one: &Copy, other: &Copy) -> bool {
        let (&[one], &[other]) = (one.files.as_slice(), other.files.as_slice()) else { return false };
        if maybe_one_layer(&self.snapshot.files[one], &self.snapshot.files[other]) {
            return false;
        }
        let (one, other) = (&self.shares[one], &self.shares[other]);
        one.are_its_users_alone(other.users) && other.are_its_users_alone(one.users)
    }
}

fn root(leader: &[usize], mut place: usize) -> usize {
    while leader[place] != place {
        place = leader[place];
    }
    place
}

fn frames(snapshot: &Snapshot, file: usize) -> impl Iterator<Item = (u32, u64)> {
    snapshot.files[file].frames.iter().flatten().map(|(page, frame)| (*page, *frame))
}

/// Both files may be seen through file systems that pass another one's frames on: overlay mounts show the inode number
/// of the layer's file (with bits of their own above), others tell nothing.
fn maybe_one_layer(one: &File, other: &File) -> bool {
    let passes_on = |file: &File| {
        let kind = file.file_system.as_str();
        kind.starts_with("fuse") || matches!(kind, "aufs" | "unionfs" | "ecryptfs" | "virtiofs" | "9p" | "")
    };
    let is_overlay = |file: &File| file.file_system == "overlay";
    let number = |file: &File| file.key.inode & 0xffff_ffff;
    (passes_on(one) && passes_on(other))
        || (is_overlay(one) && is_overlay(other) && number(one) == number(other))
}

/// What Pss says of a file's pages that are only read.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    users: u64,
    /// Sum of Pss.
    share: u64,
    /// smaps rounds each mapping's share down to a KiB: so much may be missing in `share`.
    rounded: u64,
    /// The most that one process has: the union is no less.
    largest: u64,
}

impl Shares {
    /// Of every file.
    pub fn of_files(snapshot: &Snapshot) -> Vec<Self> {
        let mut all = vec![Self::default(); snapshot.files.len()];
        for process in &snapshot.processes {
            let mut resident: BTreeMap<usize, u64> = BTreeMap::new();
            for mapping in &process.mappings {
                let Some(file) = mapping.file.filter(|file| *file < all.len()) else { continue };
                if !mapping.write && mapping.anonymous == 0 && mapping.resident > 0 {
                    *resident.entry(file).or_default() += mapping.from_file();
                    all[file].share += file_share(mapping);
                    all[file].rounded += 1024;
                }
            }
            for (file, bytes) in resident {
                all[file].users += 1;
                all[file].largest = all[file].largest.max(bytes);
            }
        }
        all
    }

    /// Whether the shares are what `users` processes make of pages that they alone map, and not what they would be if
    /// `others` mapped them too. If they alone do, the shares add up to the union, which no process exceeds; if the
    /// others do as well, to about users ÷ (users + others) of it.
    fn are_its_users_alone(&self, others: u64) -> bool {
        if self.users == 0 || others == 0 || self.largest == 0 {
            return false;
        }
        let if_shared = self.largest * self.users / (self.users + others);
        self.share + self.rounded >= self.largest / 50 * 49 && self.share >= (self.largest + if_shared) / 2
    }
}
