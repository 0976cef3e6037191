//! Power loss at every point: after recovery the object is exactly what some sync left, no
//! acknowledged one being lost.

mod common;

use common::{Host, OBJECT, new_disk};
use commonhold_journal::testing::{Crash, Fault, PowerLoss, Rng, SimDisk};

/// Recovers from a crash and checks the object. Now and then goes on: uses the journal, opens it again,
/// and cuts the power during the recovery itself.
fn check(crash: Crash, states: &[Vec<u8>], rng: &mut Rng, deep: u64) {
    let place = format!(
        "event {}, {}, acknowledged {}, attempted {}",
        crash.event, crash.kept, crash.acknowledged, crash.attempted
    );
    let allowed = &states[crash.acknowledged as usize..=crash.attempted as usize];
    let nested = deep > 0 && rng.one_in(deep);
    let before = nested.then(|| crash.files.clone());
    let disk = SimDisk::new(crash.files);
    let mut host = match Host::start(&disk, 2) {
        Ok((host, _)) => host,
        Err(error) => panic!("{place}: {error}"),
    };
    let recovered = disk.contents(OBJECT);
    let Some(reached) = allowed.iter().position(|state| *state == recovered) else {
        panic!("{place}: the object is in no allowed state");
    };
    if rng.one_in(16) {
        host.sync(&[5]).unwrap_or_else(|error| panic!("{place}: sync after recovery: {error}"));
        let (_, again) = Host::start(&disk, 2).unwrap_or_else(|error| panic!("{place}: again: {error}"));
        assert_eq!(again.records, 1, "{place}");
    }
    let Some(files) = before else { return };
    // The recovery is cut short: whatever is there then must recover to the very same state or, if this
    // one was not durable yet, to another allowed one.
    let disk = SimDisk::new(files);
    drop(Host::start(&disk, 2).expect("it did before"));
    let power = PowerLoss { exhaustive_writes: 5, samples: 8, torn_samples: 2, seed: rng.next_u64() };
    power.run(&disk.recording(), |crash| {
        let disk = SimDisk::new(crash.files);
        let start = Host::start(&disk, 2);
        assert!(start.is_ok(), "{place}, again at event {}: {:?}", crash.event, start.err());
        assert!(disk.contents(OBJECT) == allowed[reached], "{place}, again at event {}", crash.event);
    });
}

fn cut_everywhere(host: &Host, power: &PowerLoss, deep: u64) {
    let mut rng = Rng::new(1);
    let states = power.run(&host.disk.recording(), |crash| check(crash, &host.states, &mut rng, deep));
    println!("{states} states");
    assert!(states > 500);
}

#[test]
fn creation_first_syncs_and_a_checkpoint() {
    let (mut host, _) = Host::start(&new_disk(), 2).unwrap();
    host.sync(&[0, 1]).unwrap();
    host.sync(&[1, 2, 3]).unwrap();
    let ticket = host.begin_checkpoint();
    host.finish_checkpoint(ticket).unwrap();
    host.sync(&[4]).unwrap();
    cut_everywhere(&host, &PowerLoss::default(), 200);
}

#[test]
fn both_files_and_appends_during_checkpoints() {
    let (mut host, _) = Host::start(&new_disk(), 2).unwrap();
    for round in 0..3u32 {
        host.sync(&[round, round + 1]).unwrap();
        host.sync(&[0, 1, 2, 3, 4]).unwrap();
        let ticket = host.begin_checkpoint();
        host.sync(&[round + 3]).unwrap();
        host.finish_checkpoint(ticket).unwrap();
        host.sync(&[2, 3]).unwrap();
    }
    // A checkpoint with nothing appended to the other file.
    for _ in 0..2 {
        let ticket = host.begin_checkpoint();
        host.finish_checkpoint(ticket).unwrap();
        host.sync(&[5]).unwrap();
    }
    cut_everywhere(&host, &PowerLoss { seed: 2, ..PowerLoss::default() }, 200);
}

#[test]
fn failed_flushes_leave_their_bytes_in_doubt() {
    let (mut host, _) = Host::start(&new_disk(), 2).unwrap();
    host.sync(&[0, 1]).unwrap();
    // In the active file: long, then short, so that parts of the failed one stay behind.
    host.disk.plan(Fault::flush(0));
    assert!(host.sync(&[0, 1, 2, 3, 4]).is_err());
    host.sync(&[1]).unwrap();
    host.disk.plan(Fault::flush(0));
    assert!(host.sync(&[2, 3, 4]).is_err());
    host.disk.plan(Fault::flush(0));
    assert!(host.sync(&[0, 3, 5]).is_err());
    // The retry goes to the other file.
    let ticket = host.begin_checkpoint();
    host.sync(&[2]).unwrap();
    // The flush of the header fails, and appends go on before the retry.
    host.object_flushed_then_header_fails(ticket);
    host.sync(&[3, 4]).unwrap();
    host.finish_checkpoint(ticket).unwrap();
    host.sync(&[5]).unwrap();
    cut_everywhere(&host, &PowerLoss { seed: 3, ..PowerLoss::default() }, 200);
}

#[test]
fn a_creation_whose_flushes_fail() {
    let disk = new_disk();
    for after in 0..4 {
        disk.plan(Fault::flush(after));
        assert!(Host::start(&disk, 2).is_err());
    }
    let (mut host, _) = Host::start(&disk, 2).unwrap();
    host.sync(&[0, 1]).unwrap();
    host.sync(&[2]).unwrap();
    cut_everywhere(&host, &PowerLoss::default(), 200);
}

#[test]
fn a_failed_flush_of_the_object() {
    let (mut host, _) = Host::start(&new_disk(), 2).unwrap();
    host.sync(&[0, 1]).unwrap();
    host.sync(&[1, 2]).unwrap();
    let ticket = host.begin_checkpoint();
    host.disk.plan(Fault { file: Some(OBJECT), ..Fault::flush(0) });
    host.sync(&[3]).unwrap();
    host.finish_checkpoint(ticket).unwrap();
    host.sync(&[4]).unwrap();
    cut_everywhere(&host, &PowerLoss::default(), 200);
}

#[test]
fn writes_that_fail_half_way() {
    let (mut host, _) = Host::start(&new_disk(), 2).unwrap();
    host.sync(&[0, 1]).unwrap();
    for after in 0..3 {
        host.disk.plan(Fault { keep_bytes: 5000, ..Fault::no_space(after) });
        assert!(host.sync(&[0, 1, 2, 3, 4]).unwrap_err().is_no_space());
        host.sync(&[after as u32 + 1, 5]).unwrap();
    }
    cut_everywhere(&host, &PowerLoss { seed: 4, ..PowerLoss::default() }, 200);
}

/// The host process is killed and started again, and then the power fails: what the second process
/// read and redid had perhaps never been on disk.
#[test]
fn a_killed_host_then_power_loss() {
    let disk = new_disk();
    let (mut host, _) = Host::start(&disk, 2).unwrap();
    host.sync(&[0, 1]).unwrap();
    let ticket = host.begin_checkpoint();
    host.sync(&[1, 2]).unwrap();
    host.object_flushed_then_header_fails(ticket);
    disk.plan(Fault::flush(0));
    assert!(host.sync(&[0, 1, 2, 3]).is_err());
    let mut states = host.states.clone();
    let attempted = states.len() as u64 - 1;
    drop(host);
    // The last attempt is whole in memory: it is redone, and from then on it is what sync left.
    let (mut host, recovery) = Host::start(&disk, 2).unwrap();
    assert_eq!(recovery.records, 2);
    assert!(disk.contents(OBJECT) == states[attempted as usize]);
    disk.acknowledged(attempted);
    host.states = std::mem::take(&mut states);
    host.acknowledged = attempted as usize;
    host.sync(&[4]).unwrap();
    cut_everywhere(&host, &PowerLoss { seed: 5, ..PowerLoss::default() }, 200);
}

/// Helper steps used by the scenarios above.
trait Steps {
    fn object_flushed_then_header_fails(&mut self, ticket: commonhold_journal::Ticket);
}

impl Steps for Host {
    fn object_flushed_then_header_fails(&mut self, ticket: commonhold_journal::Ticket) {
        // The object's flush comes first and succeeds.
        self.disk.plan(Fault::flush(1));
        assert!(self.finish_checkpoint(ticket).is_err());
    }
}
