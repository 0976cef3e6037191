//! A process that has the tree for the first time: how long it takes to have it, and its first look-ups.

use super::{Checks, Context, Node, Sealed, expected, keys, look_up, plain};
use crate::failure::{Result, failed};
use crate::worker::{own_command, say};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

/// How a process has the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// By inclusion.
    Image,
    /// By rkyv, mapped and trusted.
    Archive,
    /// By rkyv, mapped and checked.
    CheckedArchive,
}

impl Side {
    /// All of them.
    pub const ALL: [Side; 3] = [Side::Image, Side::Archive, Side::CheckedArchive];

    /// What it is called in the detail.
    pub fn name(self) -> &'static str {
        match self {
            Side::Image => "image",
            Side::Archive => "rkyv",
            Side::CheckedArchive => "rkyv_checked",
        }
    }
}

/// Microseconds until the tree was there, and of the first look-ups.
#[derive(Clone, Copy, Debug)]
pub struct First {
    /// Until it was there.
    pub include_us: f64,
    /// Of the first look-ups.
    pub look_ups_us: f64,
}

/// Measures in a process of its own.
pub fn first(side: Side, place: &Path, seed: u64, look_ups: usize) -> Result<First> {
    let place = place.display().to_string();
    let arguments = [side.name(), &place, &seed.to_string(), &look_ups.to_string()];
    let output = own_command("pointer-tree", &arguments)?.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    match (output.status.success(), &numbers[..]) {
        (true, [include_us, look_ups_us]) => Ok(First { include_us: *include_us, look_ups_us: *look_ups_us }),
        _ => failed(format!("the process said: {text} {}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn measure<N: Node>(begun: Instant, top: N, keys: &[u64]) -> Result<()> {
    let included = begun.elapsed();
    let begun = Instant::now();
    let sum = black_box(look_up::<_, true>(top, keys));
    let found = begun.elapsed();
    if sum != expected(keys) {
        return failed("the look-ups found other values than were stored");
    }
    say(&format!("{} {}", included.as_secs_f64() * 1e6, found.as_secs_f64() * 1e6))
}

/// The worker: side, place, seed, number of look-ups.
pub fn run(arguments: &[String]) -> Result<()> {
    let [side, place, seed, count] = arguments else {
        return failed("side, place, seed and count are needed");
    };
    let context = Context {
        quick: false,
        paper: false,
        seed: seed.parse()?,
        trials: None,
        directory: Path::new(place).to_owned(),
    };
    let keys = keys(&mut context.random(7), count.parse()?);
    let place = Path::new(place);
    let begun = Instant::now();
    match Side::ALL.into_iter().find(|one| one.name() == side) {
        Some(Side::Image) => measure(begun, Sealed::include(place)?, &keys),
        Some(Side::Archive) => measure(begun, plain::map(place, Checks::Trusted)?, &keys),
        Some(Side::CheckedArchive) => measure(begun, plain::map(place, Checks::Checked)?, &keys),
        None => failed(format!("there is no side {side}")),
    }
}
