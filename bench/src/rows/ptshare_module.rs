//! `ptshare.module_…`: page tables of 4 KiB pages that the kernel module shares, counted within an emulated machine, whose
//! times mean nothing.

use crate::context::Context;
use crate::failure::{Doing, Result, failed, skipped};
use crate::row::{Bar, Measured, Row};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Memory of tables, a process.
pub struct KibPerProcess;
/// Faults of the second process.
pub struct SecondFaults;

/// How long the emulated machine may run, seconds.
const LIMIT: u64 = 480;

/// What the tests of the module count: of each of these rows, and of the same with a memfd that each process maps itself.
fn counts() -> Result<&'static [(String, f64)]> {
    // The machine is emulated once for all rows.
    static COUNTS: OnceLock<Vec<(String, f64)>> = OnceLock::new();
    match COUNTS.get() {
        Some(counts) => Ok(counts),
        None => asked().map(|counts| COUNTS.get_or_init(|| counts).as_slice()),
    }
}

fn asked() -> Result<Vec<(String, f64)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"));
    let script = root.join("tests/kernel/run.sh");
    if !script.exists() {
        return skipped(format!("{} is not there: the module is tested from the sources", script.display()));
    }
    let named = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut command = Command::new("sh");
    command.arg(script).arg("bookworm-backports").arg(named.join("kernel/6.12")).arg(LIMIT.to_string());
    let output = command.arg("tables_are_shared").output().doing("testing the kernel module")?;
    let said = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        Some(0) => {}
        Some(77) => {
            return skipped(said.lines().last().unwrap_or("the emulated machine cannot be had").to_owned());
        }
        _ => return failed(format!("the kernel module's tests failed:\n{said}")),
    }
    let count = |line: &str| {
        let (name, value) = line.trim().strip_prefix("count ")?.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    Ok(said.lines().filter_map(count).collect())
}

fn measured(what: &str) -> Result<Measured> {
    let counts = counts()?;
    let find = |whose: &str| {
        let name = format!("ptshare.{whose}_{what}");
        let found = counts.iter().find(|(known, _)| *known == name);
        found.map_or_else(|| failed(format!("the tests do not say {name}")), |(_, value)| Ok(*value))
    };
    let (module, memfd) = (find("module")?, find("memfd")?);
    let detail =
        json!({ "module": module, "each process's own tables": memfd, "kernel": "Debian's 6.12, emulated" });
    Ok(Measured::single(module, 1, detail))
}

impl Row for KibPerProcess {
    fn id(&self) -> &'static str {
        "ptshare.module_kib_per_process"
    }

    fn unit(&self) -> &'static str {
        "KiB"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(8.0))
    }

    fn about(&self) -> &'static str {
        "growth of PageTables per process that attaches a segment of 256 MiB in 4 KiB pages by the kernel module and touches \
         all of it, 50 processes, less that of the same processes idle"
    }

    fn run(&self, _context: &Context) -> Result<Measured> {
        measured("kib_per_process")
    }
}

impl Row for SecondFaults {
    fn id(&self) -> &'static str {
        "ptshare.module_second_faults"
    }

    fn unit(&self) -> &'static str {
        "faults"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(4.0))
    }

    fn about(&self) -> &'static str {
        "faults of the second process while it touches all of such a segment, after attach"
    }

    fn run(&self, _context: &Context) -> Result<Measured> {
        measured("second_faults")
    }
}
