//! `crash-pages`: reads and writes random pages of an anonymous object that is far larger than its budget.
//!
//! Each writer owns every second page. Before it writes a page it checks that the page still holds what was
//! written there last, by whichever process.

use super::environment::{Part, reconnect};
use super::pattern;
use super::verify::{Finding, page_in_memory};
use crate::context::Random;
use crate::failure::Result;
use crate::objects;
use crate::view::{PAGE, View};
use crate::worker;
use commonhold::Access;
use rand::{RngExt, SeedableRng};

/// Arguments: as [`Part`] says.
pub fn run(arguments: &[String]) -> Result<()> {
    let part = Part::from_arguments(arguments)?;
    let mapping =
        reconnect(&part.state, |host| host.open(&part.name, Access::ReadWrite)?.map(&objects::everything()))?;
    let mut random = Random::seed_from_u64(part.seed);
    let view = View::of(&mapping);
    let mut found = vec![0; PAGE];
    worker::say("ready")?;
    loop {
        part.ledger.pause_if_asked(part.writer);
        let page = random.random_range(0..part.pages) * super::ledger::WRITERS + part.writer;
        let versions = part.ledger.versions(page);
        view.read(page * PAGE, &mut found);
        let finding = page_in_memory(page, &found, versions);
        if finding != Finding::Good {
            part.ledger.note_wrong(part.writer);
            eprintln!(
                "commonhold-bench: writer {}: page {page}: {finding:?}, noted {versions:?}",
                part.writer
            );
        }
        // What a killed writer had begun is completed first: no page ever holds words of three versions.
        let next = if versions.0 == versions.1 { versions.0 + 1 } else { versions.0 };
        part.ledger.start(page, next);
        pattern::write(view, page, next);
        part.ledger.finish(page, next);
        part.ledger.advance(part.writer);
    }
}
