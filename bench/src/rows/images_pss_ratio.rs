//! `images.pss_ratio`: the code of SQLite in twenty programs.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::images::shared_text::{PROGRAMS, prepare, start};
use crate::measure::some;
use crate::row::{Bar, Measured, Row, rounded};
use serde_json::json;

/// The row.
pub struct PssRatio;

impl Row for PssRatio {
    fn id(&self) -> &'static str {
        "images.pss_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.15))
    }

    fn about(&self) -> &'static str {
        "code of twenty programs that do one workload with SQLite (Pss of the program's own executable pages and the image's): \
         SQLite as a code image ÷ linked statically"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        prepare(&context.directory)?;
        let mut ratios = Vec::new();
        let mut last = json!({});
        for _ in 0..context.pick(5, 1) {
            let images = start(&context.directory, "image")?;
            let (ours, said) = (images.code()?, images.said.clone());
            drop(images);
            let archives = start(&context.directory, "static")?;
            let theirs = archives.code()?;
            if archives.said != said {
                return failed("programs with the image and with the archive do not say the same");
            }
            some(ours.pss_kib.min(theirs.pss_kib), "code of the programs")?;
            ratios.push(ours.pss_kib / theirs.pss_kib);
            last = json!({
                "programs": PROGRAMS,
                "kib": {
                    "image_pss": rounded(ours.pss_kib), "static_pss": rounded(theirs.pss_kib),
                    "image_rss": rounded(ours.rss_kib), "static_rss": rounded(theirs.rss_kib),
                },
            });
        }
        Ok(Measured::median(&ratios, last))
    }
}
