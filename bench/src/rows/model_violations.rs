//! `model.violations`: every interleaving of small clusters.

use crate::context::Context;
use crate::failure::Result;
use crate::measure::some;
use crate::row::{Bar, Measured, Row};
use commonhold_simulator::configurations::{GROUPS, LONGER, NOT_SEARCHED, Searched};
use serde_json::json;

/// The row.
pub struct ModelViolations;

impl Row for ModelViolations {
    fn id(&self) -> &'static str {
        "model.violations"
    }

    fn unit(&self) -> &'static str {
        "violations"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn about(&self) -> &'static str {
        "every interleaving of small clusters under the real schedulers: one writer or many readers, every access finds the \
         newest version, nobody waits for ever"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        // The same clusters always: nothing is drawn.
        let searched = GROUPS.iter().chain(context.pick(LONGER, &[]));
        let (mut all, mut wrong, mut groups) = (Searched::default(), Vec::new(), Vec::new());
        for group in searched {
            match (group.run)() {
                Ok(searched) => {
                    all.configurations += searched.configurations;
                    all.states += searched.states;
                    let Searched { configurations, states } = searched;
                    let line =
                        json!({"name": group.name, "configurations": configurations, "states": states});
                    groups.push(line);
                }
                Err(what) => wrong.push(format!("{}: {what}", group.name)),
            }
        }
        let detail = json!({
            "states": all.states,
            "configurations": all.configurations,
            "groups": groups,
            "not_searched": NOT_SEARCHED,
            "wrong": wrong,
        });
        if wrong.is_empty() {
            some(all.states as f64, "states searched")?;
        }
        Ok(Measured::single(wrong.len() as f64, GROUPS.len(), detail))
    }
}
