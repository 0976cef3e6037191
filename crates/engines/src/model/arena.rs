//! An arena beside a model that knows every page: who has it, and what is in it.

use super::log_uniform;
use commonhold_segments::{
    Arena, Growth, Move, Placement, Record, Refused, Relocation, Run, SegmentId, Transfer, Unmapped,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const PAGES: u32 = 600;

/// What the model knows of a segment.
#[derive(Clone)]
struct Known {
    id: SegmentId,
    object: u64,
    run: Run,
    /// What was written to its pages; as many as have contents.
    contents: Vec<u64>,
    align: u32,
    pins: u32,
    mapped: u32,
    cacheable: bool,
    moving: Option<Move>,
}

impl Known {
    fn may_move(&self) -> bool {
        self.pins == 0 && self.mapped <= 1 && self.moving.is_none()
    }
}

/// An arena, its model, and the memory of both.
struct Pair<P> {
    arena: Arena<P>,
    known: Vec<Known>,
    memory: Vec<u64>,
    /// Names of segments that are gone.
    gone: Vec<SegmentId>,
    rng: SmallRng,
    written: u64,
    /// The most that a refused allocation may leave in one piece: so many times its size.
    slack: f64,
}

impl<P: Placement> Pair<P> {
    fn new(seed: u64, slack: f64) -> Pair<P> {
        let rng = SmallRng::seed_from_u64(seed);
        let memory = vec![0; PAGES as usize];
        Pair { arena: Arena::new(PAGES), known: Vec::new(), gone: Vec::new(), memory, rng, written: 0, slack }
    }

    fn any(&mut self) -> Option<usize> {
        (!self.known.is_empty()).then(|| self.rng.random_range(0..self.known.len()))
    }

    /// Who has each page, by index in `known`; a move has both places.
    fn owners(&self) -> Vec<Option<usize>> {
        let mut owners = vec![None; PAGES as usize];
        for (n, known) in self.known.iter().enumerate() {
            for run in [Some(known.run), known.moving.map(|moved| moved.to)].into_iter().flatten() {
                for page in run.start..run.end() {
                    assert_eq!(owners[page as usize].replace(n), None, "page {page} is of two");
                }
            }
        }
        owners
    }

    fn largest_free(&self, align: u32) -> u32 {
        let owners = self.owners();
        let run_from =
            |start: u32| owners[start as usize..].iter().take_while(|owner| owner.is_none()).count();
        (0..PAGES).step_by(align as usize).map(|start| run_from(start) as u32).max().unwrap()
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..25 => self.alloc(),
            25..40 => self.free(),
            40..51 => self.fill(),
            51..57 => self.pin(),
            57..69 => self.map(),
            69..77 => self.resize(),
            77..84 => self.begin_move(),
            84..92 => self.end_move(),
            92..94 => self.compact(),
            94..96 => self.make_room(),
            96..98 => self.swap(),
            _ if self.rng.random_bool(0.1) => self.recover(),
            _ => {}
        }
    }

    fn alloc(&mut self) {
        let pages = log_uniform(&mut self.rng, 80);
        let align = if self.rng.random_bool(0.3) { 1 << self.rng.random_range(0..5) } else { 1 };
        let object = self.written;
        match self.arena.alloc(pages, align, object) {
            Ok(id) => self.adopt(id, object, pages, align),
            Err(Refused::NoRoom { free, .. }) => {
                assert_eq!(free, self.arena.free_pages());
                let slack = if align > 1 { 1.0 } else { self.slack };
                assert!(f64::from(self.largest_free(align)) < f64::from(pages) * slack, "{pages} fit");
            }
            Err(refused) => panic!("{refused}"),
        }
    }

    fn adopt(&mut self, id: SegmentId, object: u64, pages: u32, align: u32) {
        let run = self.arena.run(id).unwrap();
        assert_eq!((run.pages, run.start % align), (pages, 0));
        let known = Known {
            id,
            object,
            run,
            contents: vec![],
            align,
            pins: 0,
            mapped: 0,
            cacheable: false,
            moving: None,
        };
        self.known.push(known);
        self.owners();
    }

    fn free(&mut self) {
        let Some(n) = self.any() else { return };
        let known = &self.known[n];
        let may = known.pins == 0 && known.mapped == 0 && known.moving.is_none();
        assert_eq!(self.arena.free(known.id).is_ok(), may);
        if may {
            self.gone.push(self.known.swap_remove(n).id);
        }
    }

    fn fill(&mut self) {
        let Some(n) = self.any() else { return };
        let bound = if self.rng.random_bool(0.7) { PAGES } else { self.rng.random_range(1..40) };
        let known = &mut self.known[n];
        let next = self.arena.fill_next(known.id, bound).unwrap();
        let has = known.contents.len() as u32;
        let Some(run) = next else { return assert_eq!(has, known.run.pages) };
        assert_eq!(run, known.run.part(has, bound.min(known.run.pages - has)));
        let filled = self.arena.filled(known.id, run.pages);
        assert_eq!(filled.is_ok(), known.moving.is_none());
        if filled.is_ok() {
            for page in run.start..run.end() {
                self.written += 1;
                self.memory[page as usize] = self.written;
                known.contents.push(self.written);
            }
        }
    }

    fn pin(&mut self) {
        let Some(n) = self.any() else { return };
        let known = &mut self.known[n];
        if self.rng.random_bool(0.5) {
            let pinned = self.arena.pin(known.id);
            assert_eq!(pinned.is_ok(), known.moving.is_none());
            known.pins += u32::from(pinned.is_ok());
        } else {
            assert_eq!(self.arena.unpin(known.id).is_ok(), known.pins > 0);
            known.pins = known.pins.saturating_sub(1);
        }
    }

    fn map(&mut self) {
        let Some(n) = self.any() else { return };
        let known = &mut self.known[n];
        match self.rng.random_range(0..5) {
            0 | 1 => {
                let may = known.moving.is_none() && known.contents.len() as u32 == known.run.pages;
                assert_eq!(self.arena.map(known.id).is_ok(), may);
                known.mapped += u32::from(may);
            }
            2 | 3 => {
                let unmapped = self.arena.unmap(known.id);
                assert_eq!(unmapped.is_ok(), known.mapped > 0);
                known.mapped = known.mapped.saturating_sub(1);
                if let Ok(unmapped) = unmapped {
                    let expected = match known.mapped {
                        0 if known.cacheable => Unmapped::Cached,
                        0 => Unmapped::Unused,
                        _ => Unmapped::Mapped,
                    };
                    assert_eq!(unmapped, expected);
                }
            }
            _ => {
                known.cacheable = self.rng.random_bool(0.5);
                self.arena.set_cacheable(known.id, known.cacheable).unwrap();
            }
        }
        let reclaimable = |known: &Known| known.cacheable && known.mapped == 0 && known.may_move();
        match self.arena.oldest_cached() {
            Some(oldest) => assert!(reclaimable(self.known.iter().find(|known| known.id == oldest).unwrap())),
            None => assert!(!self.known.iter().any(reclaimable)),
        }
    }

    fn resize(&mut self) {
        let Some(n) = self.any() else { return };
        let known = self.known[n].clone();
        if self.rng.random_bool(0.3) && known.run.pages > 1 {
            let pages = self.rng.random_range(1..known.run.pages);
            let may = known.pins == 0 && known.moving.is_none();
            assert_eq!(self.arena.shrink(known.id, pages).is_ok(), may);
            if may {
                self.known[n].run.pages = pages;
                self.known[n].contents.truncate(pages as usize);
            }
            return;
        }
        let pages = known.run.pages + log_uniform(&mut self.rng, 30);
        match self.arena.plan_growth(known.id, pages, known.align) {
            Ok(Growth::InPlace) => {}
            Ok(Growth::Neighbours(moves)) => moves.into_iter().for_each(|moved| self.move_now(moved)),
            Ok(Growth::Itself(relocation)) => {
                assert_eq!((relocation.segment, relocation.to.pages), (known.id, pages));
                return self.move_now(relocation);
            }
            Err(Refused::Leaving(_)) => return assert!(known.moving.is_some()),
            Err(Refused::NoRoom { .. }) => {
                let behind = known.run.end() as usize;
                let room = self.owners()[behind..].iter().take_while(|owner| owner.is_none()).count();
                return assert!(room < (pages - known.run.pages) as usize, "it could have grown in place");
            }
            Err(refused) => panic!("{refused}"),
        }
        self.arena.grow(known.id, pages).unwrap();
        self.known[n].run.pages = pages;
        self.owners();
    }

    fn index(&self, id: SegmentId) -> usize {
        self.known.iter().position(|known| known.id == id).unwrap()
    }

    fn move_now(&mut self, relocation: Relocation) {
        let n = self.index(relocation.segment);
        assert!(self.known[n].may_move());
        let moved = self.arena.begin_move(relocation).unwrap();
        self.known[n].moving = Some(moved);
        self.owners();
        self.finish(n, moved);
    }

    fn finish(&mut self, n: usize, moved: Move) {
        self.memory.copy_within(
            moved.from.start as usize..(moved.from.start + moved.pages) as usize,
            moved.to.start as usize,
        );
        self.memory[moved.from.start as usize..moved.from.end() as usize].fill(u64::MAX);
        self.arena.finish_move(&moved).unwrap();
        let known = &mut self.known[n];
        assert_eq!(self.arena.run(known.id), Ok(moved.to));
        (known.run, known.moving) = (moved.to, None);
    }

    fn begin_move(&mut self) {
        let Some(n) = self.any() else { return };
        let known = &self.known[n];
        let start = self.rng.random_range(0..PAGES) / known.align * known.align;
        let more = if self.rng.random_bool(0.2) { 3 } else { 0 };
        let to = Run::new(start, (known.run.pages + more).min(PAGES - start));
        let is_free = self.owners()[start as usize..to.end() as usize].iter().all(Option::is_none);
        let may = known.may_move() && is_free && to.pages >= known.run.pages;
        let begun = self.arena.begin_move(Relocation { segment: known.id, to });
        assert_eq!(begun.is_ok(), may, "{begun:?}");
        if let Ok(moved) = begun {
            assert_eq!((moved.from, moved.pages as usize), (known.run, known.contents.len()));
            self.known[n].moving = Some(moved);
        }
    }

    fn end_move(&mut self) {
        let Some(n) = (0..self.known.len()).find(|n| self.known[*n].moving.is_some()) else { return };
        let moved = self.known[n].moving.unwrap();
        if self.rng.random_bool(0.6) {
            self.finish(n, moved);
        } else {
            self.memory[moved.to.start as usize..moved.to.end() as usize].fill(u64::MAX);
            self.arena.abandon_move(&moved).unwrap();
            self.known[n].moving = None;
        }
        assert_eq!(self.arena.finish_move(&moved), Err(Refused::NotThere(moved.segment)), "once");
    }

    fn compact(&mut self) {
        let bound = self.rng.random_range(1..40);
        let Some(relocation) = self.arena.compact(bound) else { return };
        let from = self.arena.run(relocation.segment).unwrap();
        assert!(relocation.to.pages <= bound && relocation.to.end() <= from.start);
        self.move_now(relocation);
    }

    fn make_room(&mut self) {
        let pages = log_uniform(&mut self.rng, 150);
        let align = 1 << self.rng.random_range(0..4);
        let at_most = self.rng.random_range(0..300);
        let Some(room) = self.arena.make_room(pages, align, at_most) else { return };
        assert!(room.moves.iter().map(|moved| moved.to.pages).sum::<u32>() <= at_most);
        room.moves.into_iter().for_each(|moved| self.move_now(moved));
        let object = self.written;
        let id = self.arena.alloc_at(room.run, align, object).unwrap();
        self.adopt(id, object, pages, align);
    }

    /// Out to an arena of swap space, and back.
    fn swap(&mut self) {
        let Some(n) = self.any() else { return };
        let known = self.known[n].clone();
        let mut store: Arena<P> = Arena::new(2048);
        let slot = store.alloc(known.run.pages, 1, known.object).unwrap();
        let transfer = Transfer::begin(&mut self.arena, &mut store, known.id, slot);
        assert_eq!(transfer.is_ok(), known.may_move());
        assert_eq!(store.is_movable(slot), Ok(transfer.is_err()));
        let Ok(transfer) = transfer else { return };
        assert!(self.arena.pin(known.id).is_err() && self.arena.free(known.id).is_err());
        if self.rng.random_bool(0.5) {
            return transfer.abandon(&mut self.arena, &mut store).unwrap();
        }
        transfer.finish(&mut self.arena, &mut store).unwrap();
        assert_eq!((store.run(slot), store.filled_pages(slot)), (Ok(transfer.to), Ok(transfer.pages)));
        self.memory[known.run.start as usize..known.run.end() as usize].fill(u64::MAX);
        self.known.swap_remove(n);
        let Ok(id) = self.arena.alloc(known.run.pages, known.align, known.object) else { return };
        let back = Transfer::begin(&mut store, &mut self.arena, slot, id).unwrap();
        back.finish(&mut store, &mut self.arena).unwrap();
        for (page, contents) in (back.to.start..).zip(&known.contents) {
            self.memory[page as usize] = *contents;
        }
        self.known.push(Known { id, run: back.to, mapped: 0, moving: None, ..known });
    }

    /// A crash: all that is known is the records.
    fn recover(&mut self) {
        let records: Vec<Record> = self.arena.records().collect();
        let (arena, ids) = Arena::recover(PAGES, records.iter().rev().copied()).unwrap();
        self.gone.clear();
        self.arena = arena;
        for (record, id) in records.iter().zip(ids) {
            let known = self.known.iter_mut().find(|known| known.run.start == record.run.start).unwrap();
            assert_eq!(record.filled as usize, known.contents.len());
            assert_eq!(known.object, record.object);
            (known.id, known.pins, known.mapped, known.moving) = (id, 0, 0, None);
        }
        assert_eq!(records.len(), self.known.len());
    }

    /// All that must always hold.
    fn check(&self) {
        let owners = self.owners();
        let (mut end, mut free, mut was_free) = (0, 0, false);
        for piece in self.arena.pieces() {
            assert_eq!(piece.run.start, end, "no hole and no overlap");
            assert!(piece.run.pages > 0 && !(was_free && piece.is_free), "free neighbours are merged");
            (end, was_free) = (piece.run.end(), piece.is_free);
            free += if piece.is_free { piece.run.pages } else { 0 };
            for page in piece.run.start..piece.run.end() {
                assert_eq!(owners[page as usize].is_none(), piece.is_free, "page {page}");
            }
        }
        assert_eq!((end, free), (PAGES, self.arena.free_pages()));
        for id in self.gone.iter().rev().take(20) {
            assert_eq!(self.arena.run(*id), Err(Refused::NoSegment(*id)), "a name is never used again");
        }
        for known in &self.known {
            assert_eq!(self.arena.run(known.id), Ok(known.run));
            assert_eq!(self.arena.object(known.id), Ok(known.object));
            assert_eq!(self.arena.is_movable(known.id), Ok(known.may_move()));
            let pages = known.run.start as usize..;
            assert_eq!(&self.memory[pages][..known.contents.len()], &known.contents[..], "contents");
        }
    }
}

/// Random operations beside the model. Once an allocation was refused, the largest piece that was
/// free had less than `slack` times its size.
pub fn run<P: Placement>(operations: u64, seed: u64, slack: f64) {
    let mut pair: Pair<P> = Pair::new(seed, slack);
    for _ in 0..operations {
        pair.step();
        pair.check();
    }
}
