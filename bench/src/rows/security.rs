//! `security.breaches` and `security.collateral_ms`: the suite of attacks, and what others notice of it.

use crate::context::Context;
use crate::failure::{Doing, Failure, Result, failed};
use crate::row::{Bar, Measured, Row, rounded};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The program of the suite, which is built beside this one.
const PROGRAM: &str = "commonhold-attacks";

/// A figure of the suite.
pub struct Figure {
    id: &'static str,
    unit: &'static str,
    bar: Bar,
    about: &'static str,
    /// Of the lines of all attacks.
    of: fn(&[Value]) -> Measured,
}

/// Attacks that got through.
pub static BREACHES: Figure = Figure {
    id: "security.breaches",
    unit: "attacks",
    bar: Bar::Exactly(0.0),
    about: "attacks of the suite, by users and by members of a cluster, that got through",
    of: |all| {
        let breaches = all.iter().filter(|line| !line["breach"].is_null()).count();
        Measured::single(breaches as f64, all.len(), detail(all))
    },
};

/// How long others wait while attacks run.
pub static COLLATERAL: Figure = Figure {
    id: "security.collateral_ms",
    unit: "ms",
    bar: Bar::AtMost(1000.0),
    about: "longest time that another user's open, map, touch or sync took while each attack ran, over all attacks",
    of: |all| {
        let times: Vec<f64> = all.iter().filter_map(|line| line["collateral_ms"].as_f64()).collect();
        Measured::most(&times, detail(all))
    },
};

impl Row for Figure {
    fn id(&self) -> &'static str {
        self.id
    }

    fn unit(&self) -> &'static str {
        self.unit
    }

    fn bar(&self) -> Option<Bar> {
        Some(self.bar)
    }

    fn limit(&self) -> Duration {
        crate::row::LONGEST
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        attack(context).map(|all| (self.of)(&all))
    }
}

/// A line of each attack that was tried: what the other row of this run has found, or what is found now.
fn attack(context: &Context) -> Result<Vec<Value>> {
    let shared = context.shared("attacks");
    let lines = if shared.is_file() {
        std::fs::read_to_string(&shared)?
    } else {
        let lines = run_suite(context)?;
        std::fs::write(&shared, &lines)?;
        lines
    };
    let all = lines.lines().filter_map(|line| serde_json::from_str(line).ok());
    let all: Vec<Value> = all.filter(|line: &Value| line["left_out"].is_null()).collect();
    if all.is_empty() {
        return failed("no attack was run");
    }
    Ok(all)
}

/// Runs the suite, a few attacks of it where that is enough; what it prints.
fn run_suite(context: &Context) -> Result<String> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::Skipped("the attacks need root, who runs the host, and two other users".into()));
    }
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    if !program.is_file() {
        return Err(Failure::Skipped(format!("{} was not built: `./run build` does", program.display())));
    }
    let words = context.pick::<&[&str]>(&[], &["names."]);
    let mut command = Command::new(&program);
    let output = command.arg("run").args(words).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.doing(format!("running {}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What each attack tried and what came of it.
fn detail(all: &[Value]) -> Value {
    let line = |line: &Value| {
        let told = json!({
            "tries": line["tries"],
            "breach": line["breach"],
            "collateral_ms": rounded(line["collateral_ms"].as_f64().unwrap_or(f64::NAN)),
        });
        (line["id"].as_str().unwrap_or_default().to_owned(), told)
    };
    json!({ "attacks": all.iter().map(line).collect::<serde_json::Map<_, _>>() })
}
