//! Random interleavings of clusters too large for the model checker, from seeds that are printed when something is wrong.

use crate::world::{Limits, Op, World};
use commonhold_coherence::central::{self, OnLoss, Options};
use commonhold_coherence::{Access, HostId, Scheduler, Span, forwarding};
use std::fmt::Debug;

/// xorshift64*: replayable anywhere, and its quality does not matter.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides
    }

    /// A program whose host has pages of `size` scheduler pages: all its requests are aligned to them.
    fn script(&mut self, pages: u32, size: u32) -> Vec<Op> {
        let op = |dice: &mut Dice| {
            let first = dice.roll(pages as usize) as u32 / size * size;
            let span = Span::new(first, size.min(pages - first));
            (span, if dice.roll(3) == 0 { Access::Write } else { Access::Read })
        };
        (0..self.roll(12)).map(|_| op(self)).collect()
    }
}

fn run<N: Scheduler + Debug>(dice: &mut Dice, seed: u64, limits: &Limits, nodes: Vec<N>)
where
    N::Message: Clone + Debug,
{
    let mut world = World::new(limits, nodes);
    let mut taken = Vec::new();
    loop {
        let steps = world.steps();
        // Without a hold, hosts may take a page from each other for ever: chance ends that.
        if steps.is_empty() || taken.len() > 100_000 {
            break;
        }
        let step = steps[dice.roll(steps.len())].clone();
        world.step(&step);
        taken.push(step);
        assert!(world.violation.is_none(), "seed {seed}: {:?}, {limits:?}, {taken:?}", world.violation);
    }
    assert!(world.is_done(), "seed {seed}: somebody waits, {limits:?}, {world:#?}");
}

#[test]
fn central() {
    for seed in 1..=4000u64 {
        let mut dice = Dice::new(seed);
        let (hosts, pages) = (2 + dice.roll(7), 1 + dice.roll(6) as u32);
        let on_loss = if dice.roll(2) == 0 { OnLoss::Error } else { OnLoss::Revert };
        let options = Options { reader_bound: dice.roll(3) as u32, on_loss };
        let scripts = (0..hosts).map(|_| {
            let size = 1 << dice.roll(3);
            dice.script(pages, size)
        });
        let limits = Limits {
            scripts: scripts.collect(),
            pages,
            evictions: dice.roll(6) as u8,
            losses: if dice.roll(2) == 0 { 0 } else { dice.roll(hosts) as u8 },
            on_loss,
        };
        let has_hold = dice.roll(4) != 0;
        let node = |me| central::Node::new(HostId(me), HostId(0), options, has_hold);
        let nodes = (0..hosts as u32).map(node).collect();
        run(&mut dice, seed, &limits, nodes);
    }
}

#[test]
fn forwarding() {
    for seed in 1..=4000u64 {
        let mut dice = Dice::new(seed);
        let (hosts, pages) = (2 + dice.roll(15), 1 + dice.roll(3) as u32);
        let scripts = (0..hosts).map(|_| dice.script(pages, 1)).collect();
        let evictions = dice.roll(10) as u8;
        let limits = Limits { scripts, pages, evictions, losses: 0, on_loss: OnLoss::Error };
        let (has_hold, patience) = (dice.roll(4) != 0, dice.roll(6) as u32);
        // An object may be copied from any host that has it.
        let nodes = (0..hosts as u32).map(|me| {
            let origin = if me == 0 { 0 } else { dice.roll(me as usize) as u32 };
            (me, origin)
        });
        let nodes = nodes.collect::<Vec<_>>().into_iter();
        let nodes =
            nodes.map(|(me, from)| forwarding::Node::new(HostId(me), HostId(from), has_hold, patience));
        let nodes = nodes.collect();
        run(&mut dice, seed, &limits, nodes);
    }
}
