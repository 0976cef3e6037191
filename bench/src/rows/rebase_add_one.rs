//! `rebase.add_one_ratio`: to set one more program takes no longer where many others are set.

use crate::context::Context;
use crate::failure::{Doing, Result, failed, skipped};
use crate::host::program;
use crate::measure::{alternate, seconds};
use crate::row::{Bar, Measured, Row};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Libraries that each of the other programs needs.
const EACH: usize = 25;

/// The row.
pub struct AddOneRatio;

impl Row for AddOneRatio {
    fn id(&self) -> &'static str {
        "rebase.add_one_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.2))
    }

    fn about(&self) -> &'static str {
        "rebase set of one more program with 500 copies of small libraries in the store ÷ into an empty store"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let command = program()?;
        let made = Made::new(context, context.pick(500, 2 * EACH))?;
        let full = context.directory.join("full");
        let all: Vec<&OsStr> = made.others.iter().map(|path| path.as_os_str()).collect();
        set(&command, &full, &all, made.others.len() * EACH)?;
        let pairs = alternate(
            context.pick(31, 3),
            |_| {
                let time = seconds(|| set(&command, &full, &[made.one.as_os_str()], 1))?;
                rebase(&command, "unset", &full, &[made.one.as_os_str()])?;
                rebase(&command, "clean", &full, &[])?;
                Ok(time)
            },
            |round| {
                let empty = context.directory.join(format!("empty-{round}"));
                let time = seconds(|| set(&command, &empty, &[made.one.as_os_str()], 1))?;
                std::fs::remove_dir_all(empty)?;
                Ok(time)
            },
        )?;
        let copies = made.others.len() * EACH;
        let detail =
            json!({ "copies": copies, "programs": made.others.len(), "milliseconds": pairs.summary(1e3) });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

/// One verb of the command on a store; gives what it says.
fn rebase(command: &Path, verb: &str, store: &Path, programs: &[&OsStr]) -> Result<Value> {
    let mut command = Command::new(command);
    command.args(["rebase", verb, "--json", "--store"]).arg(store).args(programs).env_remove("LD_AUDIT");
    let output = command.stdin(Stdio::null()).output().doing("starting commonhold rebase")?;
    if !output.status.success() {
        return failed(format!("rebase {verb}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Sets programs, for which so many copies must be made.
fn set(command: &Path, store: &Path, programs: &[&OsStr], copies: usize) -> Result<()> {
    match rebase(command, "set", store, programs)?["copies_made"].as_u64() {
        Some(made) if made == copies as u64 => Ok(()),
        made => failed(format!("{made:?} copies were made, and {copies} should have been")),
    }
}

/// The row's own programs. They need no C library, so that each store has copies of the row's own
/// libraries alone.
struct Made {
    others: Vec<PathBuf>,
    one: PathBuf,
}

impl Made {
    fn new(context: &Context, copies: usize) -> Result<Made> {
        if !Command::new("cc")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|said| said.success())
        {
            return skipped("there is no C compiler (apt install gcc)");
        }
        let place = context.new_directory("programs")?;
        let halves = [0..copies / 2, copies / 2..copies + 1];
        std::thread::scope(|scope| {
            let making = halves.map(|mut half| {
                let place = &place;
                scope.spawn(move || half.try_for_each(|number| library(place, number)))
            });
            making
                .into_iter()
                .try_for_each(|half| half.join().unwrap_or_else(|_| failed("a thread panicked")))
        })?;
        let others = (0..copies / EACH).map(|of| needs(&place, of * EACH..(of + 1) * EACH));
        Ok(Made { others: others.collect::<Result<_>>()?, one: needs(&place, copies..copies + 1)? })
    }
}

/// A library with words that are relocated, by an address and by a name.
fn library(place: &Path, number: usize) -> Result<()> {
    let name = format!("libone{number}.so");
    let text = format!(
        "int g{number}; int *t{number}[] = {{ &g{number} }}; int f{number}(void) {{ return *t{number}[0]; }}"
    );
    compile(place, &name, &text, &["-shared", "-fPIC", &format!("-Wl,-soname,{name}")])
}

/// A program that needs these libraries.
fn needs(place: &Path, libraries: std::ops::Range<usize>) -> Result<PathBuf> {
    let name = format!("needs-{}", libraries.start);
    let declared: String = libraries.clone().map(|number| format!("int f{number}(void); ")).collect();
    let called: String = libraries.clone().map(|number| format!("f{number}(); ")).collect();
    // The loader itself is what every program needs, as a rule by the C library.
    let mut words = ["-Wl,--no-as-needed", "/lib64/ld-linux-x86-64.so.2", "-L.", "-Wl,-rpath,$ORIGIN"]
        .map(str::to_owned)
        .to_vec();
    words.extend(libraries.map(|number| format!("-lone{number}")));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    compile(place, &name, &format!("{declared} void _start(void) {{ {called} }}"), &words)?;
    Ok(place.canonicalize()?.join(name))
}

fn compile(place: &Path, name: &str, text: &str, words: &[&str]) -> Result<()> {
    let source = format!("{name}.c");
    std::fs::write(place.join(&source), text)?;
    let mut cc = Command::new("cc");
    cc.current_dir(place).args(["-nostdlib", "-o", name, &source]).args(words);
    let output = cc.output().doing("starting cc")?;
    if output.status.success() {
        return Ok(());
    }
    failed(format!("cc of {name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
