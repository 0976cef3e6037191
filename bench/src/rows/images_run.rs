//! `images.run_…`: programs that make 1,000 calls into a library, from start to end.

use crate::context::Context;
use crate::failure::Result;
use crate::images::spent::Start;
use crate::images::suite::{FUNCTIONS, Libc, Linked, STEP, Suite};
use crate::measure::{Pairs, alternate};
use crate::row::{Bar, Measured, Row};
use serde_json::{Value, json};

/// Both in turns, start by start: in each other's way, as programs are on a machine, and not hot from the start before.
fn pairs(context: &Context, ours: &Start, theirs: &Start) -> Result<Pairs> {
    ours.once()?;
    theirs.once()?;
    alternate(context.pick(1501, 101), |_| ours.once(), |_| theirs.once())
}

/// The suite with these programs linked.
fn suite(context: &Context, programs: &[(usize, Linked, Libc)]) -> Result<Suite> {
    let mut calls: Vec<usize> = programs.iter().map(|(calls, _, _)| *calls).collect();
    calls.sort_unstable();
    calls.dedup();
    let suite = Suite::new(context, &calls)?;
    programs.iter().try_for_each(|(calls, linked, libc)| suite.link(*calls, *linked, *libc))?;
    Ok(suite)
}

fn detail(what: &[(&str, &Pairs)]) -> Value {
    let all = what.iter().map(|(name, pairs)| ((*name).to_owned(), pairs.summary(1e6)));
    json!({ "microseconds_of_processor_time": Value::Object(all.collect()) })
}

/// What the ratio to static programs may be.
const BAR: f64 = 1.35;

/// Against static programs.
pub struct RunVsStatic;

impl Row for RunVsStatic {
    fn id(&self) -> &'static str {
        "images.run_vs_static"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(BAR))
    }

    fn about(&self) -> &'static str {
        "a program that calls 1,000 null functions of a code image ÷ the same linked statically: without libc, and with \
         static glibc; the worse of the two"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let all = [Libc::None, Libc::Static]
            .map(|libc| [(FUNCTIONS, Linked::Image, libc), (FUNCTIONS, Linked::Static, libc)]);
        let suite = suite(context, all.as_flattened())?;
        let mut results = Vec::new();
        for [(calls, ours, libc), (_, theirs, _)] in all {
            results.push(pairs(
                context,
                &suite.start(calls, ours, libc)?,
                &suite.start(calls, theirs, libc)?,
            )?);
        }
        let worse = if results[0].ratio() > results[1].ratio() { &results[0] } else { &results[1] };
        let detail = detail(&[("without_libc", &results[0]), ("static_glibc", &results[1])]);
        Ok(worse.measured(worse.ratio(), detail))
    }
}

/// Against a shared library.
pub struct RunVsLazy;

impl Row for RunVsLazy {
    fn id(&self) -> &'static str {
        "images.run_vs_lazy"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.3))
    }

    fn about(&self) -> &'static str {
        "a program that calls 1,000 null functions of a code image ÷ of a shared library that is bound at first calls; no libc"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let program = |linked| (FUNCTIONS, linked, Libc::None);
        let suite = suite(context, &[Linked::Image, Linked::Lazy, Linked::Now].map(program))?;
        let start = |linked| suite.start(FUNCTIONS, linked, Libc::None);
        let lazy = pairs(context, &start(Linked::Image)?, &start(Linked::Lazy)?)?;
        let now = pairs(context, &start(Linked::Image)?, &start(Linked::Now)?)?;
        Ok(lazy.measured(lazy.ratio(), detail(&[("lazy", &lazy), ("now", &now)])))
    }
}

/// With the number of calls.
pub struct RunGrowth;

impl Row for RunGrowth {
    fn id(&self) -> &'static str {
        "images.run_growth"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.1))
    }

    fn about(&self) -> &'static str {
        "a program that calls 1,000 null functions of a code image ÷ one that calls 50 of them; no libc"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let kinds = [Linked::Image, Linked::Static, Linked::Lazy];
        let programs: Vec<_> = kinds
            .iter()
            .flat_map(|linked| [(FUNCTIONS, *linked, Libc::None), (STEP, *linked, Libc::None)])
            .collect();
        let suite = suite(context, &programs)?;
        let mut results = Vec::new();
        for linked in kinds {
            let start = |calls| suite.start(calls, linked, Libc::None);
            results.push(pairs(context, &start(FUNCTIONS)?, &start(STEP)?)?);
        }
        let named: Vec<(&str, &Pairs)> = kinds.iter().map(|linked| linked.name()).zip(&results).collect();
        Ok(results[0].measured(results[0].ratio(), detail(&named)))
    }
}
