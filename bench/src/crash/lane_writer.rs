//! `crash-lanes`: writes generation after generation to its lane of an atomic object, and syncs each.
//!
//! A *lane* is a run of pages with one writer. All pages of a generation bear its number, so the stored
//! object may at any time hold one generation of a lane only.

use super::environment::{Part, reconnect};
use super::pattern;
use crate::context::Random;
use crate::failure::{Result, failed};
use crate::objects;
use crate::view::{PAGE, View};
use crate::worker;
use commonhold::{Access, Mapping};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use std::time::Duration;

/// Arguments: as [`Part`] says. The lane is the writer's share of the object's pages.
pub fn run(arguments: &[String]) -> Result<()> {
    let part = Part::from_arguments(arguments)?;
    let mapping =
        reconnect(&part.state, |host| host.open(&part.name, Access::ReadWrite)?.map(&objects::everything()))?;
    let mut random = Random::seed_from_u64(part.seed);
    let mut pages: Vec<usize> = (part.writer * part.pages..(part.writer + 1) * part.pages).collect();
    let last = pages.iter().map(|page| part.ledger.versions(*page).0).max().unwrap_or(0);
    finish_what_was_begun(&part, View::of(&mapping), &pages);
    worker::say("ready")?;
    for generation in last + 1.. {
        pages.shuffle(&mut random);
        let view = View::of(&mapping);
        for page in &pages {
            part.ledger.pause_if_asked(part.writer);
            part.ledger.start(*page, generation);
            pattern::write(view, *page, generation);
            part.ledger.finish(*page, generation);
        }
        part.ledger.pause_if_asked(part.writer);
        part.ledger.begin_sync(part.writer, generation);
        store(&part, &mapping);
        part.ledger.acknowledge(part.writer, generation);
        part.ledger.advance(part.writer);
    }
    failed("the generations are used up")
}

/// A killed writer may have left a page half written. It is completed first, so that no page ever holds words
/// of more than two versions.
fn finish_what_was_begun(part: &Part, view: View<'_>, pages: &[usize]) {
    for page in pages {
        let (started, done) = part.ledger.versions(*page);
        if started != done {
            pattern::write(view, *page, started);
            part.ledger.finish(*page, started);
        }
    }
}

/// Syncs the lane; an error leaves everything as it was, so it is tried again.
fn store(part: &Part, mapping: &Mapping) {
    let length = part.pages * PAGE;
    let mut said = String::new();
    while let Err(error) = mapping.sync_range(part.writer * length, length) {
        part.ledger.note_sync_error(part.writer);
        if error.message != said {
            eprintln!("commonhold-bench: writer {}: sync: {error}", part.writer);
            said = error.message;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
