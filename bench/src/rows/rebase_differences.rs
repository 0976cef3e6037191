//! `rebase.differences`: whatever happens around them, programs with copies answer as those without.

use crate::context::Context;
use crate::failure::Result;
use crate::rebase::trouble::{Overlay, displace};
use crate::rebase::{Program, Rebased, programs};
use crate::row::{Bar, Measured, Row};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The row.
pub struct Differences;

/// What is done to a program's surroundings.
const TROUBLES: [&str; 6] = [
    "none",
    "functions looked up at the start (LD_BIND_NOW)",
    "another search (LD_LIBRARY_PATH), another locale",
    "copies that are not at their addresses",
    "a library replaced after the record was made",
    "the record made anew after that",
];

impl Row for Differences {
    fn id(&self) -> &'static str {
        "rebase.differences"
    }

    fn unit(&self) -> &'static str {
        "launches"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn about(&self) -> &'static str {
        "launches of real programs whose output, errors or status differ from stock's, 200 and more of each, with libraries \
         replaced, ranges taken and variables changed in between"
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let programs = programs(context)?;
        // Where /usr/lib may be changed without changing it.
        let overlay = Overlay::over_libraries(&context.directory)?;
        let rounds = context.pick(34, 1);
        let mut launches = 0;
        let mut differences = Vec::new();
        let mut with_copies = BTreeMap::new();
        for program in &programs {
            let stock = answer(command(program))?;
            for trouble in TROUBLES {
                let rebased = Rebased::new(context, &[program])?;
                prepare(trouble, &rebased, program, &overlay)?;
                if trouble == TROUBLES[5] {
                    Rebased::new(context, &[program])?;
                }
                for _ in 0..rounds {
                    launches += 1;
                    let mut command = command(program);
                    command.envs(rebased.store.variables());
                    if let Some(difference) = compare(&stock, &answer(variables(trouble, command))?) {
                        differences
                            .push(json!({ "program": program.path, "trouble": trouble, "what": difference }));
                    }
                }
                *with_copies.entry(trouble).or_insert(0) += usize::from(rebased.is_current(program)?);
            }
        }
        let detail = json!({
            "programs": programs.iter().map(|program| &program.path).collect::<Vec<_>>(),
            "launches": launches,
            "differences": differences,
            "programs_that_had_copies": with_copies,
            "libraries_were_replaced": overlay.is_there(),
        });
        let count = differences.len() as f64;
        Ok(Measured { value: count, runs: launches, min: count, max: count, detail })
    }
}

fn command(program: &Program) -> Command {
    let mut command = program.command();
    command.stdin(Stdio::null());
    command
}

fn answer(mut command: Command) -> Result<Output> {
    Ok(command.output()?)
}

fn variables(trouble: &str, mut command: Command) -> Command {
    if trouble == TROUBLES[1] {
        command.env("LD_BIND_NOW", "1");
    } else if trouble == TROUBLES[2] {
        command.env("LD_LIBRARY_PATH", "/nowhere:/tmp").env("TZ", "Asia/Tokyo");
    }
    command
}

fn prepare(trouble: &str, rebased: &Rebased, program: &Program, overlay: &Overlay) -> Result<()> {
    if trouble == TROUBLES[3] {
        displace(&rebased.store.record(&program.path))?;
    } else if trouble == TROUBLES[4] || trouble == TROUBLES[5] {
        overlay.replace_a_library_of(&program.path)?;
    }
    Ok(())
}

fn compare(stock: &Output, ours: &Output) -> Option<String> {
    if stock.status != ours.status {
        return Some(format!("ended with {} instead of {}", ours.status, stock.status));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    let differs = |what: &str, stock: &[u8], ours: &[u8]| {
        (stock != ours).then(|| format!("{what}: {:?} instead of {:?}", text(ours), text(stock)))
    };
    differs("output", &stock.stdout, &ours.stdout).or_else(|| differs("errors", &stock.stderr, &ours.stderr))
}
