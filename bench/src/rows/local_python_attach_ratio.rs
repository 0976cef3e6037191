//! `local.python_attach_ratio` and `local.python_first_attach_ratio`: attaching from Python, against
//! `multiprocessing.shared_memory`.

use crate::context::Context;
use crate::failure::{Result, failed, skipped};
use crate::measure::alternate;
use crate::objects;
use crate::placement::{Placement, worse};
use crate::row::{Bar, Measured, Row};
use crate::worker::Worker;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const NAME: &str = "/bench/python";
const BYTES: usize = 1 << 20;
const OURS: &str = include_str!("../../python/attach_commonhold.py");
const THEIRS: &str = include_str!("../../python/attach_multiprocessing.py");
const FIRST_OURS: &str = include_str!("../../python/first_commonhold.py");
const FIRST_THEIRS: &str = include_str!("../../python/first_multiprocessing.py");

/// The row.
pub struct PythonAttachRatio;

impl Row for PythonAttachRatio {
    fn id(&self) -> &'static str {
        "local.python_attach_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(2.0))
    }

    fn about(&self) -> &'static str {
        "Python: open + array + touch + close of an existing object ÷ multiprocessing.shared_memory attach + \
         touch + close; program and host on one processor, and on two: the worse"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let python = python()?;
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let object = objects::direct(&host, NAME, BYTES)?;
        object.write_at(&[1], 0)?;
        let state = bench.state().to_string_lossy().into_owned();
        let mut ours = script(context, &python, "ours.py", OURS, &[&state, NAME])?;
        let mut theirs = script(context, &python, "theirs.py", THEIRS, &[&BYTES.to_string()])?;
        let rounds = context.pick(200, 30);
        let ask = |worker: &mut Worker| -> Result<f64> { Ok(worker.ask(&rounds.to_string())?.parse()?) };
        ask(&mut ours)?;
        ask(&mut theirs)?;
        let placement = Placement::begin()?;
        let [server, _] = bench.processes()?;
        let mut places = Vec::new();
        for (place, processor) in placement.places() {
            placement.put(ours.pid(), placement.own())?;
            placement.put(theirs.pid(), placement.own())?;
            placement.put(server, processor)?;
            places.push((place, alternate(context.pick(31, 5), |_| ask(&mut ours), |_| ask(&mut theirs))?));
        }
        drop(placement);
        let (worse, summaries) = worse(places)?;
        let detail = json!({
            "unit_of_times": "µs, p50 of single attaches",
            "times, program and host by processor": summaries,
            "python": python.display().to_string(),
        });
        Ok(worse.measured(worse.ratio(), detail))
    }
}

/// The same of a process that has not attached to anything yet.
pub struct PythonFirstAttachRatio;

impl Row for PythonFirstAttachRatio {
    fn id(&self) -> &'static str {
        "local.python_first_attach_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(3.0))
    }

    fn about(&self) -> &'static str {
        "Python: the first array of a new process, connecting included ÷ its first multiprocessing.shared_memory and an \
         array on it, which starts a resource tracker; imports apart"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let python = python()?;
        let bench = context.start_host()?;
        let host = bench.connect()?;
        objects::direct(&host, NAME, BYTES)?.write_at(&[1], 0)?;
        let state = bench.state().to_string_lossy().into_owned();
        // Theirs has a process that keeps the segment.
        let mut keeper = script(context, &python, "keeper.py", THEIRS, &[&BYTES.to_string()])?;
        let segment = keeper.ask("name")?;
        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = context.directory.join(name);
            std::fs::write(&path, text)?;
            Ok(path)
        };
        let (ours, theirs) = (write("ours.py", FIRST_OURS)?, write("theirs.py", FIRST_THEIRS)?);
        let first = |script: &PathBuf, arguments: &[&str]| -> Result<f64> {
            let output = Command::new(&python).arg(script).args(arguments).stderr(Stdio::null()).output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.trim().parse().or_else(|_| failed(format!("{}: {text:?}", script.display())))
        };
        first(&ours, &[&state, NAME])?;
        first(&theirs, &[&segment])?;
        let pairs = alternate(
            context.pick(31, 5),
            |_| first(&ours, &[&state, NAME]),
            |_| first(&theirs, &[&segment]),
        )?;
        let detail = json!({ "unit_of_times": "µs", "times": pairs.summary(1.0), "python": python.display().to_string() });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

/// Writes a script into the row's folder and starts it.
pub(super) fn script(
    context: &Context,
    python: &PathBuf,
    name: &str,
    text: &str,
    arguments: &[&str],
) -> Result<Worker> {
    let path = context.directory.join(name);
    std::fs::File::create(&path)?.write_all(text.as_bytes())?;
    let mut worker = Worker::spawn(Command::new(python).arg(&path).args(arguments).stdin(Stdio::piped()))?;
    match worker.line() {
        Ok(line) if line == "ready" => Ok(worker),
        Ok(line) => skipped(format!("{name}: {line}")),
        Err(error) => failed(format!("{name}: {error}")),
    }
}

/// The interpreter that has the package: `COMMONHOLD_PYTHON`, or the one in `.venv` of the project.
pub(super) fn python() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("COMMONHOLD_PYTHON").filter(|value| !value.is_empty()) {
        return Ok(named.into());
    }
    let below = |directory: PathBuf| directory.join(".venv/bin/python");
    let own = std::env::current_exe()?;
    let places = own.ancestors().skip(1).map(PathBuf::from).chain(std::env::current_dir());
    match places.map(below).find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => skipped(
            "there is no .venv/bin/python: build the Python package with ./run build, or set COMMONHOLD_PYTHON",
        ),
    }
}
