//! Random lives of a journal against a model: syncs, checkpoints, failures, kills and power cuts.

mod common;

use common::{A, B, Host, OBJECT, OBJECT_PAGES, new_disk};
use commonhold_journal::Ticket;
use commonhold_journal::testing::{Fault, FaultOp, Rng, SimDisk};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Sync(Vec<u32>),
    BeginCheckpoint,
    FinishCheckpoint,
    FailWrite { after: u64, keep_bytes: usize, file: usize },
    FailFlush { after: u64, file: usize },
    FailObjectFlush,
    Kill,
    PowerCut(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop::collection::vec(0..OBJECT_PAGES, 1..7).prop_map(Step::Sync),
        2 => Just(Step::BeginCheckpoint),
        2 => Just(Step::FinishCheckpoint),
        1 => (0..6u64, 0..20000usize, A..=B)
            .prop_map(|(after, keep_bytes, file)| Step::FailWrite { after, keep_bytes, file }),
        2 => (0..4u64, A..=B).prop_map(|(after, file)| Step::FailFlush { after, file }),
        1 => Just(Step::FailObjectFlush),
        1 => Just(Step::Kill),
        2 => any::<u64>().prop_map(Step::PowerCut),
    ]
}

struct Life {
    disk: SimDisk,
    host: Host,
    ticket: Option<Ticket>,
    part_pages: usize,
}

impl Life {
    fn new(part_pages: usize) -> Life {
        let disk = new_disk();
        let (host, _) = Host::start(&disk, part_pages).unwrap();
        Life { disk, host, ticket: None, part_pages }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Sync(pages) => {
                let _ = self.host.sync(&pages);
            }
            Step::BeginCheckpoint => {
                if let Ok(ticket) = self.host.journal.begin_checkpoint() {
                    assert!(self.ticket.replace(ticket).is_none());
                }
            }
            Step::FinishCheckpoint => {
                if let Some(ticket) = self.ticket.take()
                    && self.host.finish_checkpoint(ticket).is_err()
                {
                    self.ticket = Some(ticket);
                }
            }
            Step::FailWrite { after, keep_bytes, file } => {
                self.disk.plan(Fault { keep_bytes, file: Some(file), ..Fault::no_space(after) });
            }
            Step::FailFlush { after, file } => {
                self.disk.plan(Fault { file: Some(file), ..Fault::flush(after) });
            }
            Step::FailObjectFlush => {
                self.disk.plan(Fault { op: FaultOp::Flush, file: Some(OBJECT), ..Fault::flush(0) });
                if let Some(ticket) = self.ticket {
                    let finished = self.host.finish_checkpoint(ticket).is_ok();
                    self.ticket = Some(ticket).filter(|_| !finished);
                } else {
                    self.disk.heal();
                }
            }
            Step::Kill => self.restart(),
            Step::PowerCut(seed) => {
                self.disk = SimDisk::new(self.disk.power_cut(&mut Rng::new(seed)));
                self.restart();
            }
        }
    }

    /// Starts again, through whatever failures are still planned, and compares with the model.
    fn restart(&mut self) {
        let mut started = Host::start(&self.disk, self.part_pages);
        for _ in 0..20 {
            if started.is_ok() {
                break;
            }
            started = Host::start(&self.disk, self.part_pages);
        }
        let (host, _) = started.unwrap();
        self.disk.heal();
        let object = self.disk.contents(OBJECT);
        let allowed = &self.host.states[self.host.acknowledged..];
        assert!(allowed.contains(&object), "the object is in none of {} allowed states", allowed.len());
        self.host = host;
        self.ticket = None;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_object_is_always_what_some_sync_left(
        steps in prop::collection::vec(step(), 1..60),
        part_pages in 1usize..4,
        seed in any::<u64>(),
    ) {
        let mut life = Life::new(part_pages);
        for step in steps {
            life.step(step);
        }
        life.disk.heal();
        life.step(Step::PowerCut(seed));
        life.step(Step::Sync(vec![0, 1]));
        assert_eq!(life.host.acknowledged, 1, "a recovered journal works");
    }
}
