//! Processes that allocate.

use super::load::{Load, Mimalloc, Ours, ours};
use crate::context::Random;
use crate::failure::{Result, failed};
use crate::worker;
use commonhold::{Heap, Host};
use rand::{RngExt, SeedableRng};
use std::path::Path;

/// Blocks of the two that allocate and are killed: a word for each.
pub const WORDS: u64 = 256;

/// Arguments: state directory, name of the heap, what to do.
///
/// * `load ours|mimalloc STEPS`: runs the load for each line, and says the seconds.
/// * `churn NUMBER SEED`: allocates into words, and frees from them, until it is killed; one of two.
/// * `blocks`: for each line allocates a block, and says where.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, name, what @ ..] = arguments else { return failed("heap-client takes three arguments") };
    let host = Host::connect_to(Path::new(state))?;
    match what.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["load", kind, steps] => load(&host, name, kind, steps.parse()?),
        ["churn", number, seed] => churn(&Heap::open(&host, name)?, number.parse()?, seed.parse()?),
        ["blocks"] => blocks(&Heap::open(&host, name)?),
        _ => failed(format!("heap-client knows nothing of {what:?}")),
    }
}

/// Calls `each` for each line of the input.
fn for_each_line(mut each: impl FnMut() -> Result<String>) -> Result<()> {
    worker::say("ready")?;
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line)? > 0 {
        worker::say(&each()?)?;
    }
    Ok(())
}

fn load(host: &Host, name: &str, kind: &str, steps: usize) -> Result<()> {
    let load = Load::new(&mut Random::seed_from_u64(7), steps, 1024);
    let mut memory: Option<Ours> = if kind == "ours" { Some(ours(host, name)?) } else { None };
    for_each_line(|| {
        let seconds = match &mut memory {
            Some(ours) => load.run(ours, || ())?,
            None => load.run(&mut Mimalloc, || ())?,
        };
        Ok(seconds.to_string())
    })
}

/// The first of the words that the block of the root has.
pub fn words_of(heap: &Heap) -> Result<u64> {
    let root = heap.root("words")?;
    Ok(heap.word(root)?.load(std::sync::atomic::Ordering::Acquire))
}

fn churn(heap: &Heap, number: u64, seed: u64) -> Result<()> {
    let (first, of) = (words_of(heap)?, heap.type_of("int64")?);
    let (mut arena, mut random) = (heap.arena()?, Random::seed_from_u64(seed));
    worker::say("ready")?;
    loop {
        let word = first + 8 * (2 * random.random_range(0..WORDS / 2) + number);
        if heap.word(word)?.load(std::sync::atomic::Ordering::Acquire) != 0 {
            arena.free_from(word)?;
        } else {
            // Some are runs of pages, and a few are larger than a chunk.
            let most = if random.random_range(0..50) == 0 { 40_000 } else { 500 };
            arena.allocate_into(of, random.random_range(1..most), word)?;
        }
    }
}

fn blocks(heap: &Heap) -> Result<()> {
    let (of, mut arena) = (heap.type_of("int32")?, heap.arena()?);
    for_each_line(|| {
        let at = arena.allocate(of, 16)?;
        let address: *mut u32 = heap.address(at, 64)?.cast();
        // SAFETY: a block of 64 bytes, which is this program's.
        unsafe { address.write_volatile(1) };
        Ok(at.to_string())
    })
}
