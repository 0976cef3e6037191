//! `remote.readers_ratio`: whether readers pay for it that pages which migrate come to be written at once.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::row::{Bar, Measured, Row, rounded};
use commonhold_coherence::forwarding::Options;
use commonhold_simulator::readers::readers;
use serde_json::json;

const PAGES: u32 = 1024;
/// A host that never asks so: more times in a row are not counted.
const NEVER: u8 = u8::MAX;

/// The row.
pub struct ReadersRatio;

impl Row for ReadersRatio {
    fn id(&self) -> &'static str {
        "remote.readers_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.05))
    }

    fn about(&self) -> &'static str {
        "two hosts read 1,024 pages, a third reads and writes one in ten, again and again: messages, acknowledgements too, if \
         hosts ask for pages that migrate to be written at once ÷ if they do not; or two write in turn (the worst). Counted on \
         the state machines"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (rounds, adaptive) = (context.pick(100, 10), Options::default().migrates_after);
        let mut lines = Vec::new();
        let mut ratios = Vec::new();
        for writers in [1, 2] {
            let counted = |after| {
                let traffic = readers(PAGES, writers, rounds, after, context.seed);
                traffic.messages + traffic.acknowledgements
            };
            let [with, without] = [adaptive, NEVER].map(counted);
            if without == 0 {
                return failed("nobody said anything");
            }
            ratios.push(with as f64 / without as f64);
            lines.push(json!({
                "writers": writers,
                "messages": with,
                "messages_of_the_peer": without,
                "ratio": rounded(with as f64 / without as f64),
            }));
        }
        Ok(Measured::most(&ratios, json!({ "rounds": rounds, "each": lines })))
    }
}
