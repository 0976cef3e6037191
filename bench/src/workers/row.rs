//! `row`: one row in a process of its own, so that nothing of one row is left for the next, and a row that
//! dies takes no other with it.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::row::to_json;
use crate::{rows, worker};

/// Runs the row that is named and says its line.
pub fn run(arguments: &[String]) -> Result<()> {
    let [id, directory, seed, quick, trials] = arguments else { return failed("row takes five arguments") };
    let Some(row) = rows::all().into_iter().find(|row| row.id() == id) else {
        return failed(format!("there is no row `{id}`"));
    };
    let context = Context {
        quick: quick == "quick",
        paper: quick == "paper",
        seed: seed.parse()?,
        trials: trials.parse().ok(),
        directory: directory.into(),
    };
    let outcome = row.run(&context);
    worker::say(&to_json(row, &outcome).to_string())
}
