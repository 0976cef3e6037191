//! `security.fuzz_failures`: made up inputs of every format that comes from elsewhere.

use crate::context::Context;
use crate::failure::{Doing, Failure, Result, failed};
use crate::row::{Bar, Measured, Row};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The program with all formats, which is built beside this one.
const PROGRAM: &str = "commonhold-fuzz";
/// Inputs of each format, and of all together.
const OF_EACH: u64 = 500_000;
const OF_ALL: u64 = 10_000_000;

/// The row.
pub struct FuzzFailures;

impl Row for FuzzFailures {
    fn id(&self) -> &'static str {
        "security.fuzz_failures"
    }

    fn unit(&self) -> &'static str {
        "formats"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn limit(&self) -> Duration {
        crate::row::LONGEST
    }

    fn about(&self) -> &'static str {
        "formats of which a made up input crashed, hung for 10 s or took memory over the limit, of 10,000,000 inputs and \
         500,000 of each"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let program = std::env::current_exe()?.with_file_name(PROGRAM);
        if !program.is_file() {
            return Err(Failure::Skipped(format!("{} was not built: `./run fuzz` does", program.display())));
        }
        let formats = lines(Command::new(&program).arg("list"))?.len() as u64;
        let of_each = context.pick(OF_EACH.max(OF_ALL.div_ceil(formats.max(1))), 500);
        let mut command = Command::new(&program);
        command.arg("run").arg(&context.directory).arg("--json");
        command.arg(format!("--inputs={of_each}")).arg(format!("--seed={}", context.seed));
        let all: Vec<Value> =
            lines(&mut command)?.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let failures = all.iter().filter(|line| !line["failure"].is_null()).count();
        let inputs = |line: &Value| line["inputs"].as_u64().unwrap_or(0);
        let short = |line: &&Value| line["failure"].is_null() && inputs(line) < of_each;
        if all.len() as u64 != formats || all.iter().any(|line| short(&line)) {
            return failed(format!("not all inputs were tried: {}", json!(all)));
        }
        let total: u64 = all.iter().map(inputs).sum();
        Ok(Measured::single(failures as f64, all.len(), json!({ "inputs": total, "formats": kept(&all)? })))
    }
}

/// What a program says. Whether it ends well says less than that.
fn lines(command: &mut Command) -> Result<Vec<String>> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.doing(format!("running {PROGRAM}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// What came of each, by its name. Inputs that failed are copied to where they stay.
fn kept(all: &[Value]) -> Result<Value> {
    let mut told = serde_json::Map::new();
    for line in all {
        let mut line = line.clone();
        let path = line["failure"].as_str().map(std::path::PathBuf::from).filter(|path| path.is_file());
        if let Some(path) = path {
            let own = std::env::temp_dir().join(path.file_name().unwrap_or_default());
            std::fs::copy(&path, &own).doing(format!("keeping {}", path.display()))?;
            line["failure"] = json!(own);
        }
        let name = line["format"].as_str().unwrap_or_default().to_owned();
        line.as_object_mut().map(|fields| fields.remove("format"));
        told.insert(name, line);
    }
    Ok(Value::Object(told))
}
