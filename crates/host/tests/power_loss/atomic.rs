//! Atomic syncs, whole or not at all, whatever failed before the power did.

use crate::rig::{A, B, OBJECT, OPTIONS, PAGE, Rig, Shape, cut_everywhere, place};
use commonhold_journal::Options;
use commonhold_journal::testing::{Fault, FaultOp, PowerLoss};
use commonhold_object::{ErrorKind, PageRange};

/// After every crash the stored object is what a sync between the last acknowledged and the last attempted left.
fn cut(rig: &Rig, seed: u64) {
    let power = PowerLoss { exhaustive_writes: 7, samples: 12, torn_samples: 3, seed };
    cut_everywhere(rig, &power, |crash, recovered| {
        let allowed = &rig.states[crash.acknowledged as usize..=crash.attempted as usize];
        assert!(allowed.iter().any(|state| state == recovered), "{}: in no allowed state", place(crash));
    });
}

fn on(file: usize, fault: Fault) -> Fault {
    Fault { file: Some(file), ..fault }
}

#[test]
fn syncs_of_overlapping_pages_and_checkpoints() {
    let mut rig = Rig::new(Shape::default());
    rig.store(&[0, 1]);
    rig.store(&[1, 2, 5]);
    rig.cache.checkpoint().unwrap();
    rig.store(&[5, 0]);
    rig.store(&[0, 1, 2, 3, 4, 5]);
    rig.cache.checkpoint().unwrap();
    rig.cache.checkpoint().unwrap();
    rig.store(&[3]);
    assert!(rig.shown() == rig.memory);
    cut(&rig, 1);
}

#[test]
fn syncs_go_on_during_a_checkpoint() {
    let mut rig = Rig::new(Shape::default());
    rig.store(&[0, 1]);
    for round in 0..2u64 {
        // The sync is made by another thread's call in the middle of the checkpoint's flush.
        rig.write(&[1, 2 + round]);
        let (cache, disk) = (rig.cache.clone(), rig.disk.clone());
        let attempt = rig.states.len() as u64;
        rig.states.push(rig.memory.clone());
        rig.acknowledged = attempt as usize;
        rig.on_flush(move || {
            disk.attempted(attempt);
            assert_eq!(cache.sync(PageRange::new(0, 6), false).unwrap(), 2);
            disk.acknowledged(attempt);
        });
        rig.cache.checkpoint().unwrap();
        rig.store(&[0, 4]);
    }
    cut(&rig, 2);
}

#[test]
fn records_of_many_parts() {
    let mut rig = Rig::new(Shape { part_pages: 2, ..Shape::default() });
    rig.store(&[0, 1, 2, 3, 4]);
    rig.store(&[1, 3, 5]);
    rig.cache.checkpoint().unwrap();
    rig.store(&[0, 2, 4]);
    cut(&rig, 3);
}

#[test]
fn a_sync_of_a_part_stores_that_part() {
    let mut rig = Rig::new(Shape::default());
    rig.store(&[0, 1, 2, 3]);
    for range in [PageRange::new(0, 2), PageRange::new(2, 3), PageRange::new(5, 1), PageRange::new(0, 6)] {
        rig.write(&[1, 2, 3, 5]);
        let mut state = rig.states[rig.acknowledged].clone();
        let bytes = range.offset_bytes() as usize..state.len().min(range.end() as usize * PAGE);
        state[bytes.clone()].copy_from_slice(&rig.memory[bytes]);
        rig.sync_range(range, state).unwrap();
        assert!(rig.disk.contents(OBJECT) == rig.states[rig.acknowledged], "nothing else was stored");
    }
    cut(&rig, 4);
}

#[test]
fn failed_flushes_of_the_journal() {
    let mut rig = Rig::new(Shape::default());
    rig.store(&[0, 1]);
    for after in 0..2 {
        rig.write(&[0, 1, 2, 3]);
        rig.disk.plan(Fault::flush(0));
        let error = rig.sync().unwrap_err();
        assert!(error.message.contains("everything is kept in memory"), "{error}");
        assert!(rig.shown() == rig.memory);
        rig.store(&[4 + after]);
    }
    rig.cache.checkpoint().unwrap();
    rig.write(&[2]);
    rig.disk.plan(Fault { times: 2, ..Fault::flush(0) });
    rig.sync().unwrap_err();
    rig.sync().unwrap_err();
    rig.sync().unwrap();
    cut(&rig, 5);
}

#[test]
fn a_full_disk_under_the_journal() {
    let mut rig = Rig::new(Shape { part_pages: 2, ..Shape::default() });
    rig.store(&[0, 1]);
    for after in 0..3 {
        rig.write(&[0, 1, 2, 3, 5]);
        rig.disk
            .plan(Fault { keep_bytes: 5000, ..on(if after == 2 { B } else { A }, Fault::no_space(after)) });
        rig.disk.plan(on(if after == 2 { A } else { B }, Fault::no_space(after)));
        let failed = rig.sync();
        rig.disk.heal();
        if let Err(error) = failed {
            assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
        }
        rig.store(&[4]);
    }
    cut(&rig, 6);
}

#[test]
fn the_journal_holds_a_sync_that_could_not_be_written_into_the_object() {
    let mut rig = Rig::new(Shape::default());
    rig.store(&[0, 1]);
    let on_object = |fault| on(OBJECT, Fault { op: FaultOp::Write, ..fault });
    rig.write(&[0, 2, 4]);
    rig.disk.plan(on_object(Fault::no_space(1)));
    rig.sync().unwrap_err();
    assert!(rig.shown() == rig.memory);
    rig.store(&[3]);
    // Again, and this time the checkpoint comes before the next sync.
    rig.write(&[1, 5]);
    rig.disk.plan(on_object(Fault { keep_bytes: 512, ..Fault::no_space(0) }));
    rig.sync().unwrap_err();
    rig.cache.checkpoint().unwrap();
    rig.store(&[0]);
    cut(&rig, 7);
}

#[test]
fn revert_after_such_a_sync_shows_what_is_stored() {
    let mut rig = Rig::new(Shape::default());
    rig.store(&[0, 1, 2]);
    rig.write(&[0, 2, 4]);
    rig.disk.plan(on(OBJECT, Fault { op: FaultOp::Write, ..Fault::no_space(1) }));
    rig.sync().unwrap_err();
    rig.write(&[1]);
    rig.cache.revert().unwrap();
    rig.memory = rig.states.last().unwrap().clone();
    assert!(rig.shown() == rig.memory, "memory");
    assert!(rig.disk.contents(OBJECT) == rig.memory, "stored");
    rig.store(&[3]);
    cut(&rig, 8);
}

#[test]
fn a_failed_flush_of_the_object() {
    let mut rig = Rig::new(Shape::default());
    rig.store(&[0, 1]);
    rig.store(&[1, 2]);
    rig.disk.plan(on(OBJECT, Fault::flush(0)));
    rig.cache.checkpoint().unwrap();
    rig.store(&[3]);
    cut(&rig, 9);
}

/// The second flush of a checkpoint fails too: no later flush may be believed before everything is written again.
#[test]
fn flushes_of_the_object_that_go_on_failing() {
    let mut rig = Rig::new(Shape::default());
    rig.store(&[0, 1]);
    rig.store(&[1, 2]);
    rig.disk.plan(on(OBJECT, Fault { times: 2, ..Fault::flush(0) }));
    rig.cache.checkpoint().unwrap_err();
    rig.store(&[3]);
    rig.cache.checkpoint().unwrap();
    rig.store(&[0, 4]);
    rig.cache.checkpoint().unwrap();
    cut(&rig, 10);
}

#[test]
fn a_failed_flush_of_a_header_in_a_checkpoint() {
    let mut rig = Rig::new(Shape::default());
    rig.store(&[0, 1]);
    rig.store(&[2]);
    rig.disk.plan(on(A, Fault::flush(0)));
    rig.cache.checkpoint().unwrap_err();
    rig.store(&[0, 3]);
    rig.cache.checkpoint().unwrap();
    rig.store(&[4]);
    cut(&rig, 11);
}

/// Checkpoints begin by themselves in the background, at any instant.
#[test]
fn checkpoints_in_the_background() {
    let options = Options { checkpoint_bytes: 24 << 10, ..OPTIONS };
    let mut rig = Rig::new(Shape { options, ..Shape::default() });
    for round in 0..8 {
        rig.store(&[round % 6, (round + 2) % 6, (round + 3) % 6]);
    }
    cut(&rig, 12);
}

/// The host is killed and started again between syncs, and then the power fails: what the second process read and
/// redid had perhaps never been on disk.
#[test]
fn a_killed_host_before_the_power_fails() {
    let shape = Shape::default();
    let mut rig = Rig::new(shape);
    rig.store(&[0, 1]);
    rig.cache.checkpoint().unwrap();
    rig.store(&[1, 2]);
    rig.write(&[0, 1, 2, 3]);
    rig.disk.plan(Fault::flush(0));
    rig.sync().unwrap_err();
    let (disk, states) = (rig.disk.clone(), std::mem::take(&mut rig.states));
    drop(rig);
    let mut rig = Rig::on(&disk, shape).unwrap();
    // The failed attempt may be whole in the files: then it was redone, and is what a sync left.
    let reached = states.iter().rposition(|state| *state == rig.memory).unwrap();
    assert!(reached >= states.len() - 2);
    let attempted = states.len() as u64 - 1;
    disk.attempted(attempted);
    disk.acknowledged(reached as u64);
    (rig.states, rig.acknowledged) = (states, reached);
    rig.store(&[4]);
    rig.cache.checkpoint().unwrap();
    rig.store(&[0, 5]);
    cut(&rig, 13);
}

/// An object larger than its memory: dirty pages wait in the spill file, never in the stored object.
#[test]
fn pages_that_had_to_leave_memory_are_stored_by_the_sync_and_not_before() {
    let shape = Shape { size_bytes: 12 * PAGE as u64, limit_pages: 4, part_pages: 4, ..Shape::default() };
    let mut rig = Rig::new(shape);
    for round in 0..2u64 {
        let before = rig.disk.contents(OBJECT);
        rig.write(&(round..12).step_by(2).collect::<Vec<_>>());
        assert!(rig.cache.numbers().spilled_pages > 0, "{:?}", rig.cache.numbers());
        assert!(rig.shown() == rig.memory);
        assert!(rig.disk.contents(OBJECT) == before, "eviction never overwrites the stored object");
        rig.sync().unwrap();
        assert!(rig.disk.contents(OBJECT) == rig.memory);
        if round == 0 {
            rig.cache.checkpoint().unwrap();
        }
    }
    cut(&rig, 14);
}
