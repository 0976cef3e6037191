//! Every interleaving of threads that share an arena: moves against pins, frees and other moves.
//! Pages are cells that notice two accesses at once. Whatever is not so is a panic.

use commonhold_segments::{Arena, Monitor, Move, Refused, Relocation, Run, SegmentId, Shared, Tlsf};
use loom::cell::Cell;
use loom::sync::{Arc, Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};

struct Lock(Mutex<Arena>, Condvar);

impl Monitor<Arena> for Lock {
    fn run<R>(&self, mut step: impl FnMut(&mut Arena) -> Option<R>) -> Option<R> {
        let mut arena = self.0.lock().unwrap();
        loop {
            if let Some(result) = step(&mut arena) {
                self.1.notify_all();
                return Some(result);
            }
            arena = self.1.wait(arena).unwrap();
        }
    }
}

/// Memory of a few pages, and an arena of as many.
struct World {
    shared: Shared<Tlsf, Lock>,
    memory: Vec<Page>,
}

struct Page(Cell<u32>);

// SAFETY: not so, on purpose: loom's cell panics when two threads use it at once, which is what the
// tests are to find.
unsafe impl Sync for Page {}

impl World {
    /// One segment of a page, with 7 in it, at page 1 of 3.
    fn new() -> (Arc<World>, SegmentId) {
        let mut arena: Arena = Arena::new(3);
        let below = arena.alloc(1, 1, 0).unwrap();
        let segment = arena.alloc(1, 1, 1).unwrap();
        arena.free(below).unwrap();
        arena.filled(segment, 1).unwrap();
        let memory: Vec<Page> = (0..3).map(|_| Page(Cell::new(0))).collect();
        memory[1].0.set(7);
        let shared = Shared::new(Lock(Mutex::new(arena), Condvar::new()));
        (Arc::new(World { shared, memory }), segment)
    }

    fn copy(&self, moved: &Move) {
        self.memory[moved.to.start as usize].0.set(self.memory[moved.from.start as usize].0.get());
    }

    fn relocate(&self, segment: SegmentId, to: u32) -> Result<(), Refused> {
        let relocation = Relocation { segment, to: Run::new(to, 1) };
        self.shared.relocate(relocation, |moved| self.copy(moved))
    }

    fn contents(&self, segment: SegmentId) -> u32 {
        let run = self.shared.with(|arena| arena.run(segment)).unwrap();
        self.memory[run.start as usize].0.get()
    }
}

/// A name, and a search that returns how many interleavings it went through.
pub type Race = (&'static str, fn() -> u64);

/// All of them.
pub const RACES: [Race; 4] = [
    ("no write under a pin is lost to a move", no_write_under_a_pin_is_lost_to_a_move),
    (
        "of two moves at once one is refused or they follow each other",
        of_two_moves_at_once_one_is_refused_or_they_follow_each_other,
    ),
    ("a segment is freed after its move", a_segment_is_freed_after_its_move),
    ("who allocates gets pages that no move uses", who_allocates_gets_pages_that_no_move_uses),
];

/// Runs a model in every interleaving.
fn every(model: impl Fn() + Send + Sync + 'static) -> u64 {
    let interleavings = std::sync::Arc::new(AtomicU64::new(0));
    let count = interleavings.clone();
    loom::model(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    interleavings.load(Ordering::Relaxed)
}

fn no_write_under_a_pin_is_lost_to_a_move() -> u64 {
    every(|| {
        let (world, segment) = World::new();
        let other = world.clone();
        let io = loom::thread::spawn(move || {
            let pinned = other.shared.pin(segment).unwrap();
            other.memory[pinned.run().start as usize].0.set(8);
        });
        match world.relocate(segment, 0) {
            Ok(()) | Err(Refused::Pinned(_)) => {}
            Err(refused) => panic!("{refused}"),
        }
        io.join().unwrap();
        assert_eq!(world.contents(segment), 8);
        assert!(world.shared.with(|arena| arena.is_movable(segment)).unwrap());
    })
}

fn of_two_moves_at_once_one_is_refused_or_they_follow_each_other() -> u64 {
    every(|| {
        let (world, segment) = World::new();
        let other = world.clone();
        let mover = loom::thread::spawn(move || other.relocate(segment, 0).is_ok());
        let here = world.relocate(segment, 2).is_ok();
        let there = mover.join().unwrap();
        assert!(here || there);
        assert_eq!(world.contents(segment), 7);
        assert_eq!(world.shared.with(|arena| arena.free_pages()), 2);
    })
}

fn a_segment_is_freed_after_its_move() -> u64 {
    every(|| {
        let (world, segment) = World::new();
        let other = world.clone();
        let mover = loom::thread::spawn(move || {
            other.shared.compact(1, |moved| other.copy(moved)).unwrap();
        });
        world.shared.free(segment).unwrap();
        mover.join().unwrap();
        assert_eq!(world.shared.with(|arena| arena.free_pages()), 3);
    })
}

fn who_allocates_gets_pages_that_no_move_uses() -> u64 {
    every(|| {
        let (world, segment) = World::new();
        let other = world.clone();
        let user = loom::thread::spawn(move || {
            if let Ok(mine) = other.shared.with(|arena| arena.alloc(1, 1, 2)) {
                let pinned = other.shared.pin(mine).unwrap();
                other.memory[pinned.run().start as usize].0.set(9);
            }
        });
        let _ = world.relocate(segment, 0); // refused where the other was quicker
        user.join().unwrap();
        assert_eq!(world.contents(segment), 7);
    })
}
