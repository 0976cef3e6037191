//! Durable writes of random pages: the work of both `local.sync_…` rows, on each of their sides.

use crate::context::{Context, GIB, Random};
use crate::failure::Result;
use crate::measure::{Pairs, alternate};
use crate::objects;
use crate::row::rounded;
use crate::view::{PAGE, View};
use commonhold::{Host, Mapping, SyncMode};
use serde_json::{Value, json};
use std::fs::File;
use std::time::Instant;

/// Pages (or values) made durable at once.
pub const AT_ONCE: usize = 1000;
/// Pages of the data that exists.
pub const PAGES: usize = GIB / PAGE;

/// Something that makes random pages durable.
pub trait Side {
    /// Writes `content` to the pages (values) of those numbers and makes them durable; seconds of writing and
    /// of making durable.
    fn round(&mut self, pages: &[u32], content: &[u8]) -> Result<[f64; 2]>;
    /// Pays what was put off: everything is in its final place on the disk when this returns.
    fn settle(&mut self) -> Result<()>;
}

/// An atomic object on a file of 1 GiB, all of it resident.
pub struct AtomicObject {
    mapping: Mapping,
    file: File,
}

impl AtomicObject {
    /// Makes the file and the object, and brings all pages in.
    pub fn create(context: &Context, host: &Host) -> Result<AtomicObject> {
        let (_, file) = context.make_file("atomic", GIB)?;
        let object = objects::on_file(host, "/bench/atomic", &file, SyncMode::Atomic)?;
        let mapping = object.map(&objects::everything())?;
        View::of(&mapping).touch_pages();
        Ok(AtomicObject { mapping, file })
    }
}

impl Side for AtomicObject {
    fn round(&mut self, pages: &[u32], content: &[u8]) -> Result<[f64; 2]> {
        let view = View::of(&self.mapping);
        let start = Instant::now();
        pages.iter().for_each(|page| view.write(*page as usize * PAGE, content));
        let written = start.elapsed();
        let count = self.mapping.sync()?;
        let all = start.elapsed();
        if count != pages.len() as u64 {
            return crate::failure::failed(format!("sync stored {count} pages of {}", pages.len()));
        }
        Ok([written.as_secs_f64(), (all - written).as_secs_f64()])
    }

    fn settle(&mut self) -> Result<()> {
        Ok(self.file.sync_data()?)
    }
}

/// The rounds of both sides in alternating blocks.
#[derive(Default)]
pub struct Blocks {
    /// Writing and making durable, with what was put off, per block.
    pub whole: Pairs,
    /// Ours without the writing to memory, per block.
    pub sync_only: Pairs,
    rounds: usize,
}

/// Runs blocks of rounds, first one side's, then the other's, in the other order each time. At its end a block
/// pays what it put off, so that no side's checkpoint falls into the other's time.
pub fn compare(context: &Context, ours: &mut dyn Side, theirs: &mut dyn Side) -> Result<Blocks> {
    let (blocks, rounds) = (context.pick(7, 2), context.pick(24, 6));
    let random = std::cell::RefCell::new(context.random(3));
    let written = std::cell::RefCell::new(Vec::new());
    block(ours, 2, &mut random.borrow_mut())?;
    block(theirs, 2, &mut random.borrow_mut())?;
    let whole = alternate(
        blocks,
        |_| {
            let [whole, writing] = block(ours, rounds, &mut random.borrow_mut())?;
            written.borrow_mut().push(writing);
            Ok(whole)
        },
        |_| Ok(block(theirs, rounds, &mut random.borrow_mut())?[0]),
    )?;
    let mut sync_only = whole.clone();
    sync_only.ours.iter_mut().zip(written.into_inner()).for_each(|(whole, writing)| *whole -= writing);
    Ok(Blocks { whole, sync_only, rounds })
}

/// Seconds of a block: all of it, and the part that wrote to memory.
fn block(side: &mut dyn Side, rounds: usize, random: &mut Random) -> Result<[f64; 2]> {
    let mut content = vec![0u8; PAGE];
    let (mut whole, mut writing) = (0.0, 0.0);
    for round in 0..rounds {
        let chosen = rand::seq::index::sample(random, PAGES, AT_ONCE);
        let pages: Vec<u32> = chosen.iter().map(|page| page as u32).collect();
        content.fill(pages[0] as u8 | 1);
        content[..8].copy_from_slice(&(round as u64).to_le_bytes());
        let [written, stored] = side.round(&pages, &content)?;
        whole += written + stored;
        writing += written;
    }
    let start = Instant::now();
    side.settle()?;
    Ok([whole + start.elapsed().as_secs_f64(), writing])
}

impl Blocks {
    /// What the tables show.
    pub fn detail(&self, peer: &str) -> Value {
        let per_round = 1e3 / self.rounds as f64;
        json!({
            "peer": peer,
            "unit_of_times": "ms per round of 1,000 pages, what was put off included",
            "rounds": self.rounds * self.whole.ours.len(),
            "rounds_in_a_block": self.rounds,
            "whole": self.whole.summary(per_round),
            "sync_call_only": self.sync_only.summary(per_round),
            "ratio_of_totals": rounded(self.whole.ratio_of_totals()),
            "ratio_of_totals_sync_call_only": rounded(self.sync_only.ratio_of_totals()),
        })
    }
}
