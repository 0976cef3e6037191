//! Ordered syncs: after the power failed, every sector holds what it was given by the last acknowledged sync or by
//! something later, and never anything that was not written there.

use crate::rig::{OBJECT, PAGE, Rig, Shape, new_disk, place};
use commonhold_journal::testing::{Fault, PowerLoss};
use commonhold_object::SyncMode;

const SECTOR: usize = 512;

fn shape() -> Shape {
    Shape { sync: SyncMode::Ordered, ..Shape::default() }
}

fn cut(rig: &Rig, seed: u64) {
    let power = PowerLoss { exhaustive_writes: 9, samples: 32, torn_samples: 6, seed };
    let count = power.run(&rig.disk.recording(), |crash| {
        let (from, to) = (crash.acknowledged as usize, crash.attempted as usize);
        for (number, sector) in crash.files[OBJECT].chunks(SECTOR).enumerate() {
            let at = number * SECTOR..number * SECTOR + sector.len();
            let known = rig.states[from..=to].iter().any(|state| state[at.clone()] == *sector);
            assert!(known, "{}: sector {number}", place(&crash));
        }
    });
    println!("{count} states");
    assert!(count > 100, "only {count} states");
}

#[test]
fn syncs_one_after_another() {
    let mut rig = Rig::new(shape());
    rig.store(&[0, 1, 5]);
    rig.store(&[1, 2]);
    rig.store(&[0, 1, 2, 3, 4, 5]);
    cut(&rig, 21);
}

#[test]
fn a_failed_flush_is_not_made_good_by_a_later_one() {
    let mut rig = Rig::new(shape());
    rig.store(&[0, 1]);
    for _ in 0..2 {
        rig.write(&[1, 2, 3]);
        rig.disk.plan(Fault::flush(0));
        rig.sync().unwrap_err();
        assert!(rig.shown() == rig.memory);
        rig.sync().unwrap();
    }
    rig.store(&[4]);
    cut(&rig, 22);
}

/// Pages of an ordered object may reach its file by eviction; a sync still makes all of them durable.
#[test]
fn evicted_pages_are_flushed_by_the_next_sync() {
    let size_bytes = 24 * PAGE as u64;
    let mut rig = Rig::on(&new_disk(size_bytes), Shape { size_bytes, limit_pages: 6, ..shape() }).unwrap();
    for round in 0..2u64 {
        let pages: Vec<u64> = (round..24).step_by(2).collect();
        rig.write_more_than_fits(&pages);
        rig.sync().unwrap();
        assert!(rig.disk.contents(OBJECT) == rig.memory);
    }
    cut(&rig, 23);
}

/// A flush is told of a failure once. Pages that were evicted before it must not be lost with it.
#[test]
fn evicted_pages_survive_a_flush_that_fails() {
    let size_bytes = 24 * PAGE as u64;
    let mut rig = Rig::on(&new_disk(size_bytes), Shape { size_bytes, limit_pages: 6, ..shape() }).unwrap();
    for of_an_eviction in [true, false, true] {
        if of_an_eviction {
            rig.disk.plan(Fault::flush(0));
        }
        rig.write_more_than_fits(&(0..24).collect::<Vec<u64>>());
        if !of_an_eviction {
            // An eviction that is under way still may meet the failure in its place.
            let fails = |rig: &mut Rig| {
                rig.disk.plan(Fault::flush(0));
                rig.sync().is_err() || {
                    rig.write_more_than_fits(&(0..24).collect::<Vec<u64>>());
                    false
                }
            };
            assert!((0..20).any(|_| fails(&mut rig)), "no sync was told of a failure");
            assert!(rig.shown() == rig.memory);
        }
        rig.sync().unwrap();
        assert!(rig.disk.contents(OBJECT) == rig.memory);
    }
    cut(&rig, 24);
}
