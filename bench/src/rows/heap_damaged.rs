//! `heap.damaged`: what processes that are killed while they allocate and free leave behind.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::heaps::worker::{WORDS, words_of};
use crate::row::{Bar, Measured, Row};
use crate::worker::Worker;
use commonhold::{CreateOptions, Heap};
use rand::RngExt;
use serde_json::json;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The row.
pub struct Damaged;

impl Row for Damaged {
    fn id(&self) -> &'static str {
        "heap.damaged"
    }

    fn unit(&self) -> &'static str {
        "blocks and heaps"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn about(&self) -> &'static str {
        "heaps that are damaged, and blocks in no list and in no program's book, or in two, after 1,000 kills of one of two \
         processes that allocate and free in one heap"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let options = CreateOptions { size_bytes: 64 << 20, ..CreateOptions::default() };
        let heap = Heap::create(&bench.connect()?, "/bench/heap", &options)?;
        let words = heap.type_of("int64")?;
        let first = heap.allocate_into(words, WORDS, heap.root("words")?)?;
        (0..WORDS).try_for_each(|n| heap.word(first + 8 * n).map(|word| word.store(0, Ordering::Release)))?;
        let kills = context.trials.unwrap_or(context.pick(1000, 30));
        let mut random = context.random(3);
        let mut start = |number: usize| start(bench.state(), number, random.random());
        let mut two = [start(0)?, start(1)?];
        let (mut wrong, mut examples, mut mended) = (0, Vec::new(), 0);
        for kill in 0..kills {
            let number = (kill % 2) as usize;
            std::thread::sleep(Duration::from_micros(kill * 137 % 3000));
            if !two[number].is_running() {
                return failed("a process ended before it was killed");
            }
            two[number].kill();
            // Every tenth time nobody changes anything, so that each block can be looked at.
            if kill % 10 == 9 || kill + 1 == kills {
                two[1 - number].kill();
                mended += 2;
                // Each takes the place of a dead one, and mends it.
                let mut arenas = Vec::new();
                while heap.check()?.ended > 0 && arenas.len() < 16 {
                    arenas.push(heap.arena()?);
                }
                let found = wrong_in(&heap)?;
                wrong += found.len();
                examples.extend(found.into_iter().take(3));
                drop(arenas);
                two[1 - number] = start(1 - number)?;
            }
            two[number] = start(number)?;
        }
        let detail = json!({ "kills": kills + mended / 2, "examples": examples });
        Ok(Measured::single(wrong as f64, kills as usize, detail))
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(1800)
    }
}

fn start(state: &Path, number: usize, seed: u64) -> Result<Worker> {
    let state = state.to_string_lossy().into_owned();
    let (number, seed) = (number.to_string(), seed.to_string());
    Worker::start("heap-client", &[state.as_str(), "/bench/heap", "churn", &number, &seed])
}

/// What is wrong in a heap that nobody uses now: its own words, and blocks that are not in just one word.
fn wrong_in(heap: &Heap) -> Result<Vec<String>> {
    let mut wrong: Vec<String> = heap.check()?.problems.iter().map(ToString::to_string).collect();
    let first = words_of(heap)?;
    let mut known = HashSet::from([first]);
    for n in 0..WORDS {
        let block = heap.word(first + 8 * n)?.load(Ordering::Acquire);
        if block != 0 && !known.insert(block) {
            wrong.push(format!("block {block} is in two words"));
        }
    }
    let mut blocks = HashSet::new();
    heap.visit(|at, _, _| _ = blocks.insert(at))?;
    wrong.extend(blocks.difference(&known).map(|block| format!("block {block} is in no word")));
    wrong.extend(known.difference(&blocks).map(|block| format!("block {block} is none, and in a word")));
    Ok(wrong)
}
