//! Which wired object lies where. A value: what it says is carried out by the host.

use commonhold_object::{Error, ErrorKind, ObjectId, PAGE_SIZE_BYTES, Place, Result, pages_of};
use commonhold_segments::{Arena, Growth, Move, Refused, Run, SegmentId};
use std::collections::{BTreeMap, HashMap, HashSet};

/// At most so many pages are copied to make room for one object: 256 MiB.
const MOST_MOVED: u32 = 65_536;

/// All arenas of a host.
#[derive(Debug, Default)]
pub struct Arenas {
    arenas: BTreeMap<ObjectId, Arena>,
    objects: HashMap<ObjectId, (ObjectId, SegmentId)>,
    /// Objects that lie on disk.
    swapped: HashSet<ObjectId>,
    /// When each object was opened last, of all that were.
    opened: HashMap<ObjectId, u64>,
    now: u64,
}

/// How an object can have another size.
#[derive(Debug, PartialEq, Eq)]
pub enum Resized {
    /// It has it, where it is.
    InPlace,
    /// Others, or it, would have to move: nothing has changed.
    Elsewhere,
}

/// A move that was begun: what is to be copied, and from where to where.
#[derive(Debug)]
pub struct Moving {
    /// Who moves.
    pub object: ObjectId,
    /// Bytes to copy.
    pub length: u64,
    /// Where they are.
    pub from: Place,
    /// Where they go.
    pub to: Place,
    moving: Move,
}

impl Arenas {
    /// An arena is there, and empty. `bytes`: a multiple of pages.
    pub fn add(&mut self, arena: ObjectId, bytes: u64) {
        let pages = u32::try_from(bytes / PAGE_SIZE_BYTES).unwrap_or(u32::MAX);
        self.arenas.entry(arena).or_insert_with(|| Arena::new(pages.max(1)));
    }

    /// Takes an arena out, if nothing is in it; whether it did.
    pub fn remove_empty(&mut self, arena: ObjectId) -> bool {
        let empty = self.arenas.get(&arena).is_some_and(|found| found.free_pages() == found.pages());
        if empty {
            self.arenas.remove(&arena);
        }
        empty
    }

    /// Whether there is no arena.
    pub fn is_empty(&self) -> bool {
        self.arenas.is_empty()
    }

    /// All arenas.
    pub fn all(&self) -> impl Iterator<Item = ObjectId> {
        self.arenas.keys().copied()
    }

    /// All objects, and the arena of each.
    pub fn placed(&self) -> impl Iterator<Item = (ObjectId, ObjectId)> {
        self.objects.iter().map(|(object, (arena, _))| (*object, *arena))
    }

    /// Objects in an arena.
    pub fn objects_in(&self, arena: ObjectId) -> Vec<ObjectId> {
        if !self.arenas.contains_key(&arena) {
            return Vec::new(); // most are none, and there may be many objects to look through
        }
        let of_it = self.objects.iter().filter(|(_, (other, _))| *other == arena);
        of_it.map(|(object, _)| *object).collect()
    }

    /// Where an object is.
    pub fn place_of(&self, object: ObjectId) -> Option<Place> {
        let (arena, segment) = self.objects.get(&object)?;
        let found = self.arenas.get(arena)?;
        Some(place(*arena, found, found.run(*segment).ok()?))
    }

    /// Finds an object a place in one of these arenas.
    pub fn allocate(&mut self, object: ObjectId, bytes: u64, among: &[ObjectId]) -> Option<Place> {
        let pages = u32::try_from(pages_of(bytes)).ok()?;
        among.iter().find_map(|id| {
            let arena = self.arenas.get_mut(id)?;
            let segment = arena.alloc(pages, 1, object.0).ok()?;
            let run = arena.run(segment).ok()?;
            arena.filled(segment, pages).ok()?; // the host zeroes all of it at once
            let at = place(*id, arena, run);
            self.objects.insert(object, (*id, segment));
            Some(at)
        })
    }

    /// An object is where it was before.
    pub fn adopt(&mut self, object: ObjectId, at: Place, bytes: u64) -> Result<()> {
        let taken = || Error::new(ErrorKind::Lost, "its place in its arena is not known any more, or taken");
        let pages = u32::try_from(pages_of(bytes)).map_err(|_| taken())?;
        let start = u32::try_from(at.offset_bytes / PAGE_SIZE_BYTES).map_err(|_| taken())?;
        let arena = self.arenas.get_mut(&at.arena).ok_or_else(taken)?;
        if start.checked_add(pages).is_none_or(|end| end > arena.pages()) {
            return Err(taken());
        }
        let segment = arena.alloc_at(Run::new(start, pages), 1, object.0).map_err(|_| taken())?;
        arena.filled(segment, pages).map_err(|_| taken())?;
        self.objects.insert(object, (at.arena, segment));
        Ok(())
    }

    /// Somebody opens an object.
    pub fn is_opened(&mut self, object: ObjectId) {
        self.now += 1;
        self.opened.insert(object, self.now);
    }

    /// The objects of these arenas, those first that were not opened for longest.
    pub fn by_last_open(&self, among: &[ObjectId]) -> Vec<ObjectId> {
        let of_them = self.objects.iter().filter(|(_, (arena, _))| among.contains(arena));
        let mut all: Vec<(u64, ObjectId)> =
            of_them.map(|(id, _)| (self.opened.get(id).copied().unwrap_or(0), *id)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }

    /// When an object of this arena was opened last; 0: none was.
    pub fn last_open_in(&self, arena: ObjectId) -> u64 {
        let of_it = self.objects.iter().filter(|(_, (other, _))| *other == arena);
        of_it.filter_map(|(id, _)| self.opened.get(id)).copied().max().unwrap_or(0)
    }

    /// An object lies on disk. Gives the arena that it was in, if it was.
    pub fn is_swapped_out(&mut self, object: ObjectId) -> Option<ObjectId> {
        let left = self.free(object);
        self.swapped.insert(object);
        left
    }

    /// Whether an object lies on disk.
    pub fn is_on_disk(&self, object: ObjectId) -> bool {
        self.swapped.contains(&object)
    }

    /// An object needs its place no more. Gives the arena that it was in.
    pub fn free(&mut self, object: ObjectId) -> Option<ObjectId> {
        self.swapped.remove(&object);
        self.opened.remove(&object);
        let (id, segment) = self.objects.get(&object).copied()?;
        self.arenas.get_mut(&id)?.free(segment).ok()?;
        self.objects.remove(&object);
        Some(id)
    }

    /// An object has the place that was kept for it under another number. Gives the arena that it was in.
    pub fn replace(&mut self, object: ObjectId, by: ObjectId) -> Option<ObjectId> {
        let place = self.objects.remove(&by)?;
        let left = self.free(object);
        self.objects.insert(object, place);
        self.is_opened(object);
        left
    }

    /// Gives an object another size, without a copy.
    pub fn resize(&mut self, object: ObjectId, bytes: u64) -> Result<Resized> {
        let (arena, segment) = self.segment(object)?;
        let pages =
            u32::try_from(pages_of(bytes)).map_err(|_| Error::invalid("the size is past any arena's"))?;
        let had = arena.run(segment).map_err(|refused| explain(&refused))?.pages;
        let done = match pages.cmp(&had) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Less => arena.shrink(segment, pages),
            std::cmp::Ordering::Greater => match arena.plan_growth(segment, pages, 1) {
                Ok(Growth::InPlace) => {
                    arena.grow(segment, pages).and_then(|()| arena.filled(segment, pages - had))
                }
                Ok(_) | Err(Refused::NoRoom { .. }) => return Ok(Resized::Elsewhere),
                Err(other) => Err(other),
            },
        };
        done.map(|()| Resized::InPlace).map_err(|refused| explain(&refused))
    }

    /// Begins the next move of those that make room for so many bytes in one of these arenas; none: no moves would, or none
    /// are needed any more. `is_open`: such an object stays where it is.
    pub fn begin_move(
        &mut self,
        bytes: u64,
        among: &[ObjectId],
        is_open: impl Fn(ObjectId) -> bool,
    ) -> Option<Moving> {
        let pages = u32::try_from(pages_of(bytes)).ok()?;
        among.iter().find_map(|id| {
            let of_it: Vec<(ObjectId, SegmentId)> = self
                .objects
                .iter()
                .filter(|(_, at)| at.0 == *id)
                .map(|(object, at)| (*object, at.1))
                .collect();
            let arena = self.arenas.get_mut(id)?;
            let open = of_it.iter().filter(|(object, _)| is_open(*object)).map(|(_, segment)| *segment);
            let pinned: Vec<SegmentId> = open.filter(|segment| arena.pin(*segment).is_ok()).collect();
            let planned = arena.make_room(pages, 1, MOST_MOVED).and_then(|room| room.moves.first().copied());
            let moving = planned.and_then(|relocation| arena.begin_move(relocation).ok()); // planned for what is now
            for segment in pinned {
                let _ = arena.unpin(segment); // pinned just above
            }
            let moving = moving?;
            let (object, _) = of_it.iter().find(|(_, segment)| *segment == moving.segment)?;
            Some(Moving {
                object: *object,
                length: u64::from(moving.pages) * PAGE_SIZE_BYTES,
                from: place(*id, arena, moving.from),
                to: place(*id, arena, moving.to),
                moving,
            })
        })
    }

    /// A move was copied and noted: the object is at its new place.
    pub fn finish_move(&mut self, moved: &Moving) {
        if let Some(arena) = self.arenas.get_mut(&moved.from.arena) {
            let _ = arena.finish_move(&moved.moving); // begun here, and finished once
        }
    }

    /// A move came to nothing: the object is where it was.
    pub fn abandon_move(&mut self, moved: &Moving) {
        let still_there = self.objects.get(&moved.object) == Some(&(moved.from.arena, moved.moving.segment));
        if let Some(arena) = self.arenas.get_mut(&moved.from.arena) {
            let _ = arena.abandon_move(&moved.moving); // as above
            if !still_there {
                let _ = arena.free(moved.moving.segment); // which could not be done when it was replaced
            }
        }
    }

    /// Bytes of these arenas, in all.
    pub fn bytes_of(&self, among: &[ObjectId]) -> u64 {
        let pages = among.iter().filter_map(|id| self.arenas.get(id)).map(|arena| u64::from(arena.pages()));
        pages.sum::<u64>() * PAGE_SIZE_BYTES
    }

    fn segment(&mut self, object: ObjectId) -> Result<(&mut Arena, SegmentId)> {
        let found = self.objects.get(&object).copied();
        let arena = found.and_then(|(id, segment)| Some((self.arenas.get_mut(&id)?, segment)));
        arena.ok_or_else(|| Error::new(ErrorKind::Lost, "the object has no place in an arena"))
    }
}

fn place(id: ObjectId, arena: &Arena, run: Run) -> Place {
    let [offset_bytes, arena_bytes] =
        [run.start, arena.pages()].map(|pages| u64::from(pages) * PAGE_SIZE_BYTES);
    Place { arena: id, offset_bytes, arena_bytes }
}

fn explain(refused: &Refused) -> Error {
    Error::new(ErrorKind::Busy, format!("the object's place in its arena stays as it is: {refused}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn one() -> (Arenas, [ObjectId; 1]) {
        let mut arenas = Arenas::default();
        arenas.add(ObjectId(1), 2 * MIB);
        (arenas, [ObjectId(1)])
    }

    #[test]
    fn objects_lie_apart_and_give_back_what_they_had() {
        let (mut arenas, among) = one();
        let places: Vec<Place> =
            (10..14).map(|id| arenas.allocate(ObjectId(id), MIB / 2, &among).unwrap()).collect();
        for (n, place) in places.iter().enumerate() {
            assert!(
                places[..n].iter().all(|other| other.offset_bytes.abs_diff(place.offset_bytes) >= MIB / 2)
            );
        }
        assert_eq!(arenas.allocate(ObjectId(20), 4096, &among), None);
        assert!(!arenas.remove_empty(ObjectId(1)));
        assert_eq!(arenas.free(ObjectId(10)), Some(ObjectId(1)));
        assert_eq!(arenas.free(ObjectId(10)), None);
        assert!(arenas.allocate(ObjectId(20), MIB / 2, &among).is_some());
        [20, 11, 12, 13].iter().for_each(|id| assert!(arenas.free(ObjectId(*id)).is_some()));
        assert!(arenas.remove_empty(ObjectId(1)));
    }

    #[test]
    fn what_was_is_adopted_and_nothing_else() {
        let (mut arenas, _) = one();
        let at = |offset_bytes| Place { arena: ObjectId(1), offset_bytes, arena_bytes: 2 * MIB };
        arenas.adopt(ObjectId(10), at(MIB), MIB / 2).unwrap();
        assert_eq!(arenas.place_of(ObjectId(10)), Some(at(MIB)));
        for (place, bytes) in [
            (at(MIB + 4096), 4096),
            (at(MIB / 2), MIB / 2 + 1),
            (at(2 * MIB), 4096),
            (at(MIB + MIB / 2), MIB),
            (at(u64::MAX - 4095), 8192),
            (Place { arena: ObjectId(2), offset_bytes: 0, arena_bytes: 2 * MIB }, 4096),
        ] {
            assert!(arenas.adopt(ObjectId(11), place, bytes).is_err(), "{place:?}");
        }
    }

    #[test]
    fn sizes_change_where_there_is_room() {
        let (mut arenas, among) = one();
        let [first, second] = [10, 11].map(ObjectId);
        arenas.allocate(first, 8192, &among).unwrap();
        arenas.allocate(second, 4096, &among).unwrap();
        assert_eq!(arenas.resize(first, 12288).unwrap(), Resized::Elsewhere);
        assert_eq!(arenas.resize(second, 8192).unwrap(), Resized::InPlace);
        assert_eq!(arenas.resize(first, 4096).unwrap(), Resized::InPlace);
        assert_eq!(arenas.resize(first, 8192).unwrap(), Resized::InPlace);
        assert!(arenas.resize(ObjectId(99), 4096).is_err());
    }

    #[test]
    fn what_was_not_opened_for_longest_goes_first() {
        let (mut arenas, among) = one();
        let ids: Vec<ObjectId> = (10..14).map(ObjectId).collect();
        ids.iter().for_each(|id| assert!(arenas.allocate(*id, 4096, &among).is_some()));
        [2, 0, 3, 1, 2].iter().for_each(|n| arenas.is_opened(ids[*n]));
        assert_eq!(arenas.by_last_open(&among), [ids[0], ids[3], ids[1], ids[2]]);
        assert_eq!([arenas.last_open_in(among[0]), arenas.last_open_in(ObjectId(9))], [5, 0]);
        assert_eq!(arenas.is_swapped_out(ids[0]), Some(among[0]));
        assert!(arenas.is_on_disk(ids[0]) && arenas.place_of(ids[0]).is_none());
        assert_eq!(arenas.by_last_open(&among), [ids[3], ids[1], ids[2]]);
        assert_eq!(arenas.free(ids[0]), None);
        assert!(!arenas.is_on_disk(ids[0]));
    }

    #[test]
    fn what_is_replaced_while_a_move_begins_leaves_nothing() {
        let (mut arenas, among) = one();
        arenas.add(ObjectId(2), 2 * MIB);
        let ids: Vec<ObjectId> = (10..14).map(ObjectId).collect();
        ids.iter().for_each(|id| assert!(arenas.allocate(*id, MIB / 2, &among).is_some()));
        [0, 2].iter().for_each(|n| assert!(arenas.free(ids[*n]).is_some()));
        let room = arenas.begin_move(MIB, &among, |id| id != ids[1]).unwrap();
        arenas.allocate(ObjectId(99), MIB / 2, &[ObjectId(2)]).unwrap();
        arenas.replace(ids[1], ObjectId(99));
        arenas.abandon_move(&room);
        assert_eq!(arenas.place_of(ids[1]).map(|place| place.arena), Some(ObjectId(2)));
        assert_eq!(arenas.free(ids[3]), Some(ObjectId(1)));
        assert!(arenas.remove_empty(ObjectId(1)));
    }

    #[test]
    fn moves_make_room_and_leave_alone_what_is_open() {
        let (mut arenas, among) = one();
        let ids: Vec<ObjectId> = (10..18).map(ObjectId).collect();
        ids.iter().for_each(|id| assert!(arenas.allocate(*id, MIB / 4, &among).is_some()));
        [1, 4, 6].iter().for_each(|n| assert!(arenas.free(ids[*n]).is_some()));
        assert_eq!(arenas.allocate(ObjectId(30), MIB / 2, &among), None);
        let open = |id: ObjectId| id != ids[5];
        let room = arenas.begin_move(MIB / 2, &among, open).expect("one of them can go");
        assert_eq!(room.object, ids[5]);
        // While it is under way its place is nobody's.
        assert_eq!(arenas.place_of(ids[5]), Some(room.from));
        arenas.abandon_move(&room);
        assert!(arenas.begin_move(MIB / 2, &among, |_| true).is_none());
        let room = arenas.begin_move(MIB / 2, &among, open).unwrap();
        arenas.finish_move(&room);
        assert_eq!(arenas.place_of(ids[5]), Some(room.to));
        assert!(arenas.allocate(ObjectId(30), MIB / 2, &among).is_some());
    }
}
