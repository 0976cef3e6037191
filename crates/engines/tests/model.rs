//! An arena and a machine in lockstep with the models, for each preset and placement.

use commonhold_engines::model::machine::{On, Successes};
use commonhold_engines::model::{arena, machine, operations};
use commonhold_segments::{NextBucket, Placement, Rules, ScannedBuckets, Tlsf};

const SEEDS: u64 = 4;

fn arenas<P: Placement>(slack: f64) {
    (0..SEEDS).for_each(|seed| arena::run::<P>(operations(100_000) / SEEDS, seed, slack));
}

#[test]
fn arena_tlsf() {
    arenas::<Tlsf>(1.05);
}

#[test]
fn arena_scanned_buckets() {
    arenas::<ScannedBuckets>(1.0);
}

#[test]
fn arena_next_bucket() {
    arenas::<NextBucket>(2.0);
}

fn machines<P: Placement + Clone>(rules: Rules) {
    let operations = operations(20_000);
    let mut successes = Successes::new();
    for seed in 0..SEEDS {
        for (name, times) in machine::run::<P>(On::Rules(rules), operations / SEEDS, seed) {
            *successes.entry(name).or_default() += times;
        }
    }
    println!("{}: {successes:?}", rules.name);
    if !rules.translates {
        // What is mapped stays where its addresses say.
        successes.retain(|name, _| !name.starts_with("swap"));
    }
    assert!(successes.values().all(|times| *times >= operations / 2_000), "{}: {successes:?}", rules.name);
}

macro_rules! presets {
    ($($name:ident: $placement:ty;)*) => {
        $(#[test] fn $name() { Rules::PRESETS.into_iter().for_each(machines::<$placement>); })*
    };
}

presets! {
    machine_tlsf: Tlsf;
    machine_scanned_buckets: ScannedBuckets;
    machine_next_bucket: NextBucket;
}
