//! `images.link_…`: what it takes to link a program that makes 1,000 calls into a library.

use crate::context::Context;
use crate::failure::Result;
use crate::images::spent::Start;
use crate::images::suite::{FUNCTIONS, Linked, Suite, bfd};
use crate::installed::find_or_install;
use crate::measure::{Pairs, alternate};
use crate::row::{Bar, Measured, Row};
use serde_json::{Map, Value, json};
use std::path::Path;

fn pairs(context: &Context, suite: &Suite, peer: Linked, linker: &Path) -> Result<Pairs> {
    let (ours, theirs): (Start, Start) =
        (suite.linking(FUNCTIONS, Linked::Image, linker)?, suite.linking(FUNCTIONS, peer, linker)?);
    ours.once()?;
    theirs.once()?;
    alternate(context.pick(41, 5), |_| ours.mean(3), |_| theirs.mean(3))
}

fn measure(context: &Context, peers: &[Linked]) -> Result<Measured> {
    let bfd = bfd()?;
    let suite = Suite::new(context, &[FUNCTIONS])?;
    let mut milliseconds = Map::new();
    let mut first = None;
    for peer in peers {
        let pairs = pairs(context, &suite, *peer, &bfd)?;
        milliseconds.insert(format!("bfd_{}", peer.name()), pairs.summary(1e3));
        first.get_or_insert(pairs);
    }
    let mut beside = Vec::new();
    for (names, package) in [(&["ld.lld"][..], "lld"), (&["ld.mold", "mold"], "mold")] {
        let Some(linker) = find_or_install(names, package) else {
            milliseconds.insert(names[0].into(), json!(format!("not installed (apt install {package})")));
            continue;
        };
        for peer in peers {
            let pairs = pairs(context, &suite, *peer, &linker)?;
            milliseconds.insert(format!("{}_{}", names[0], peer.name()), pairs.summary(1e3));
            beside.push((
                format!("{}, {}", names[0], peer.name()),
                pairs.ratio(),
                Some(pairs.ratio_interval()),
            ));
        }
    }
    let first = first.unwrap_or_default();
    let detail = json!({ "milliseconds_of_processor_time": Value::Object(milliseconds) });
    Ok(Measured { beside, ..first.measured(first.ratio(), detail) })
}

/// Against a shared library.
pub struct LinkVsDynamic;

impl Row for LinkVsDynamic {
    fn id(&self) -> &'static str {
        "images.link_vs_dynamic"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.0))
    }

    fn about(&self) -> &'static str {
        "linking a program with 1,000 references to a code image's stub ÷ to a shared library (ld.bfd; other linkers beside)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        measure(context, &[Linked::Lazy, Linked::Now])
    }
}

/// Against an archive.
pub struct LinkVsStatic;

impl Row for LinkVsStatic {
    fn id(&self) -> &'static str {
        "images.link_vs_static"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.1))
    }

    fn about(&self) -> &'static str {
        "linking a program with 1,000 references to a code image's stub ÷ to an archive of 1,000 members (ld.bfd; other linkers beside)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        measure(context, &[Linked::Static])
    }
}
