//! The three engines: one suite for all, and machines on each.

#[path = "../../../tests/left_out.rs"]
mod left_out;

use commonhold_engines::model::machine::{MEMORY, On};
use commonhold_engines::model::{machine, operations};
use commonhold_engines::{Accesses, Checked, Descriptors, Engine, Windows, conformance};
use commonhold_segments::{Rules, Tlsf};
use std::io;

type Boxed = Box<dyn Engine>;

fn checked(rules: Rules) -> io::Result<Boxed> {
    Ok(Box::new(Checked::new(rules, MEMORY)?))
}

fn windows(rules: Rules) -> io::Result<Boxed> {
    Ok(Box::new(Windows::new(rules, MEMORY, Accesses::ByKernel)?))
}

fn descriptors(rules: Rules) -> io::Result<Boxed> {
    Ok(Box::new(Descriptors::new(rules, MEMORY)?))
}

/// The script and random operations on an engine of each preset.
fn conforms(engine: fn(Rules) -> io::Result<Boxed>) {
    for (seed, rules) in (0..).zip(Rules::PRESETS) {
        let script = conformance::script(&mut *engine(rules).unwrap());
        let random = conformance::random(&mut *engine(rules).unwrap(), operations(2_000), seed);
        println!("{}: {script:?}, {random:?}", rules.name);
        let least =
            [script.loads, script.allowed, script.trapped, random.loads, random.allowed, random.trapped];
        assert!(least.into_iter().all(|count| count > 10), "{}: {script:?}, {random:?}", rules.name);
    }
}

/// A machine on an engine of each preset.
fn carries_a_machine(engine: fn(Rules) -> io::Result<Boxed>) {
    for (seed, rules) in (0..).zip(Rules::PRESETS) {
        machine::run::<Tlsf>(On::Engine(engine(rules).unwrap()), operations(2_000), seed);
    }
}

/// Whether this machine has descriptors of programs; it says why not.
fn has_descriptors() -> bool {
    let tried = descriptors(Rules::ONE);
    if let Err(error) = &tried {
        left_out::left_out(&format!("x86 descriptors: {error}"));
    }
    tried.is_ok()
}

#[test]
fn the_table_conforms() {
    conforms(checked);
}

#[test]
fn windows_conform() {
    conforms(windows);
}

#[test]
fn descriptors_conform() {
    if has_descriptors() {
        conforms(descriptors);
    }
}

#[test]
fn the_processor_traps_where_the_kernel_refuses() {
    for rules in [Rules::ONE, Rules::CRAY, Rules::CORTEX_M] {
        let mut windows = Windows::new(rules, MEMORY, Accesses::ByChildren).unwrap();
        let tried = conformance::script(&mut windows);
        assert!(tried.trapped > 100 && tried.allowed > 100, "{tried:?}");
    }
}

#[test]
fn the_table_carries_a_machine() {
    carries_a_machine(checked);
}

#[test]
fn windows_carry_a_machine() {
    carries_a_machine(windows);
}

#[test]
fn descriptors_carry_a_machine() {
    if has_descriptors() {
        carries_a_machine(descriptors);
    }
}
