//! `segments.races`: every interleaving of threads that share an arena.

use crate::context::Context;
use crate::failure::Result;
use crate::measure::some;
use crate::row::{Bar, Measured, Row};
use commonhold_engines::races::RACES;
use serde_json::{Map, json};
use std::panic::catch_unwind;

/// The row.
pub struct Races;

impl Row for Races {
    fn id(&self) -> &'static str {
        "segments.races"
    }

    fn unit(&self) -> &'static str {
        "races"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn about(&self) -> &'static str {
        "moves of segments against pins, writes, frees, allocations and other moves by another thread, in every interleaving \
         (loom): pages that two use at once, or that are lost"
    }

    fn run(&self, _context: &Context) -> Result<Measured> {
        // The same models always: nothing is drawn.
        let (mut interleavings, mut wrong) = (Map::new(), Vec::new());
        for (name, search) in RACES {
            match catch_unwind(search) {
                Ok(count) => {
                    some(count as f64, name)?;
                    interleavings.insert(name.into(), json!(count));
                }
                Err(_) => wrong.push(name),
            }
        }
        let detail = json!({ "interleavings": interleavings, "wrong": wrong });
        Ok(Measured::single(wrong.len() as f64, RACES.len(), detail))
    }
}
