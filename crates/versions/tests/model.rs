//! The rules of versions against copies, with the host's steps in any order, and a host that dies between any two of them.
//!
//! A host keeps pages and notes when it dies; what it knew of its versions it reads from the notes.

use commonhold_versions::{Before, DEPTH, Has, Link, Versions, before_write};
use std::collections::BTreeMap;

const PAGES: u64 = 4;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[derive(Clone, Default)]
struct Version {
    /// The pages that it has.
    own: BTreeMap<u64, u32>,
    /// What it is to show.
    expected: Vec<u32>,
    is_written: bool,
    has_users: bool,
}

/// What a host does for a snapshot of an object that goes, a step at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lift {
    Begin,
    Pages(u64),
    Note,
    Link,
}

#[derive(Default)]
struct World {
    versions: BTreeMap<u32, Version>,
    /// What survives the host.
    notes: BTreeMap<u32, Link<u32>>,
    known: Versions<u32>,
    /// For each object, whom its writers ask: snapshot, link, and whether it is about to move there.
    asked: Vec<(u32, u32, Link<u32>, bool)>,
    lifts: Vec<(u32, u32, Link<u32>, Lift)>,
    next: u32,
}

impl World {
    fn new() -> World {
        let mut world = World { next: 1, ..World::default() };
        let expected = vec![0; PAGES as usize];
        world
            .versions
            .insert(0, Version { expected, is_written: true, has_users: true, ..Version::default() });
        world
    }

    fn shown(&self, id: u32, page: u64) -> u32 {
        let version = &self.versions[&id];
        match (version.own.get(&page), self.known.of(id)) {
            (Some(value), _) => *value,
            (None, Some(link)) => self.shown(link.parent, link.first_page + page),
            (None, None) => 0,
        }
    }

    fn touch(&mut self, id: u32, page: u64) {
        let value = self.shown(id, page);
        let of = self.versions.get_mut(&id).expect("it is there");
        of.own.entry(page).or_insert(value);
    }

    fn write(&mut self, id: u32, page: u64, value: u32) {
        let before = self.shown(id, page);
        let asked: Vec<_> = self.asked.iter().filter(|(parent, ..)| *parent == id).copied().collect();
        for (_, child, link, moves) in asked {
            let Some(at) = link.page_of(page) else { continue };
            let has = if self.versions[&child].own.contains_key(&at) { Has::Yes } else { Has::No };
            match before_write(has, moves) {
                Before::Write => {}
                Before::Copy => {
                    self.versions.get_mut(&child).expect("it is there").own.insert(at, before);
                }
                Before::Bring => self.touch(child, at),
            }
        }
        let version = self.versions.get_mut(&id).expect("it is there");
        version.own.insert(page, value);
        version.expected[page as usize] = value;
    }

    fn snapshot(&mut self, numbers: &mut Numbers, of: u32) {
        let pages = self.versions[&of].expected.len() as u64;
        let first_page = if numbers.below(2) == 0 { 0 } else { numbers.below(pages as usize) as u64 };
        let count =
            if first_page == 0 { pages } else { 1 + numbers.below((pages - first_page) as usize) as u64 };
        let (id, link) = (self.next, Link { parent: of, first_page, pages: count });
        self.next += 1;
        let range = first_page as usize..(first_page + count) as usize;
        let expected = self.versions[&of].expected[range].to_vec();
        let is_written = numbers.below(2) == 0;
        self.versions.insert(id, Version { expected, is_written, has_users: true, ..Version::default() });
        self.notes.insert(id, link);
        assert!(self.known.link(id, link));
        self.asked.push((of, id, link, false));
        if !is_written {
            for (child, link) in self.known.covered_by(id) {
                self.move_under(child, of, link);
                if numbers.below(10) == 0 {
                    return self.die();
                }
            }
        }
    }

    fn move_under(&mut self, child: u32, from: u32, link: Link<u32>) {
        self.notes.insert(child, link);
        self.asked.retain(|(parent, id, ..)| (*parent, *id) != (link.parent, child));
        self.asked.push((link.parent, child, link, false));
        assert!(self.known.link(child, link));
        self.asked.retain(|(parent, id, ..)| (*parent, *id) != (from, child));
    }

    fn cut(&mut self, id: u32) {
        self.known.cut(id);
        self.notes.remove(&id);
        self.asked.retain(|(_, child, ..)| *child != id);
    }

    /// What nobody uses goes, or goes on going.
    fn collapse(&mut self, numbers: &mut Numbers) {
        let unused: Vec<u32> =
            self.versions.iter().filter(|(_, one)| !one.has_users).map(|(id, _)| *id).collect();
        let Some(id) = (!unused.is_empty()).then(|| unused[numbers.below(unused.len())]) else { return };
        let Some((child, past)) = self.known.past(id).into_iter().next() else {
            self.cut(id);
            self.versions.remove(&id);
            self.lifts.retain(|(middle, child, ..)| *middle != id && *child != id);
            return;
        };
        let Some(link) = past else {
            (0..self.versions[&child].expected.len() as u64).for_each(|page| self.touch(child, page));
            return self.cut(child);
        };
        if !self.lifts.iter().any(|(middle, one, ..)| (*middle, *one) == (id, child)) {
            self.lifts.push((id, child, link, Lift::Begin));
        }
    }

    fn lift(&mut self, numbers: &mut Numbers) {
        if self.lifts.is_empty() {
            return;
        }
        let at = numbers.below(self.lifts.len());
        let (middle, child, link, step) = self.lifts[at];
        // What the host holds for that long does not change: the object above stays what it is.
        if self.known.of(child).map(|of| of.parent) != Some(middle)
            || self.known.of(middle).map(|of| of.parent) != Some(link.parent)
        {
            self.asked.retain(|(parent, id, _, moves)| !(*parent == link.parent && *id == child && *moves));
            self.lifts.swap_remove(at);
            return;
        }
        self.lifts[at].3 = match step {
            Lift::Begin => {
                self.asked.retain(|(parent, id, ..)| (*parent, *id) != (link.parent, child));
                self.asked.push((link.parent, child, link, true));
                Lift::Pages(0)
            }
            Lift::Pages(page) if page < link.pages => {
                let of = self.known.of(child).expect("it was asked");
                if self.versions[&middle].own.contains_key(&(of.first_page + page)) {
                    self.touch(child, page);
                }
                Lift::Pages(page + 1)
            }
            Lift::Pages(_) => Lift::Note,
            Lift::Note => {
                self.notes.insert(child, link);
                Lift::Link
            }
            Lift::Link => {
                self.move_under(child, middle, link);
                self.lifts.swap_remove(at);
                return;
            }
        };
    }

    fn die(&mut self) {
        self.lifts.clear();
        self.known = Versions::default();
        self.asked.clear();
        for (id, link) in &self.notes {
            assert!(self.known.link(*id, *link));
            self.asked.push((link.parent, *id, *link, false));
        }
    }

    fn check(&self) {
        for (id, version) in self.versions.iter().filter(|(_, version)| version.has_users) {
            for (page, expected) in version.expected.iter().enumerate() {
                assert_eq!(self.shown(*id, page as u64), *expected, "version {id}, page {page}");
            }
        }
    }
}

#[test]
fn each_version_shows_what_it_is_to() {
    for seed in 1u64..400 {
        let (mut world, mut numbers) = (World::new(), Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        for step in 0..300 {
            let used: Vec<u32> =
                world.versions.iter().filter(|(_, one)| one.has_users).map(|(id, _)| *id).collect();
            let one = used[numbers.below(used.len())];
            let page = numbers.below(world.versions[&one].expected.len()) as u64;
            match numbers.below(16) {
                0..5 if world.versions[&one].is_written => world.write(one, page, step + 1),
                5 | 6 if world.versions.len() < 8 => world.snapshot(&mut numbers, one),
                7 => world.touch(one, page),
                8 if used.len() > 1 => world.versions.get_mut(&one).expect("it is there").has_users = false,
                9 | 10 => world.collapse(&mut numbers),
                11..15 => world.lift(&mut numbers),
                15 if numbers.below(4) == 0 => world.die(),
                _ => {}
            }
            world.check();
        }
    }
}

#[test]
fn no_circles() {
    let mut versions = Versions::default();
    let of = |parent| Link { parent, first_page: 0, pages: 1 };
    assert!(versions.link(1, of(0)) && versions.link(2, of(1)));
    assert!(!versions.link(0, of(2)) && !versions.link(1, of(1)));
    assert_eq!(versions.cut_all(1).len(), 2);
    assert!(versions.of(2).is_none());
}

#[test]
fn not_too_deep() {
    let mut versions = Versions::default();
    for id in 1..300 {
        assert!(versions.link(id, Link { parent: 0, first_page: 0, pages: 1 }));
        for (child, link) in versions.covered_by(id) {
            assert!(versions.link(child, link));
        }
        assert!((1..=id).all(|id| versions.depth(id) <= DEPTH));
    }
    assert_eq!(versions.children(0).len(), 300usize.div_ceil(DEPTH));
}
