//! `rebase.differences`: whatever happens around them, programs with copies answer as those without.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::rebase::programs::outspoken;
use crate::rebase::trouble::{Displaced, Overlay};
use crate::rebase::watch::{Occupier, addresses, watch};
use crate::rebase::{Program, Rebased};
use crate::row::{Bar, Measured, Row};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The row.
pub struct Differences;

/// What is done to programs' surroundings, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    BoundAtStart,
    Surroundings,
    OtherAddresses,
    Taken,
    Upgraded,
    MadeAnew,
}

impl Trouble {
    const ALL: [Trouble; 7] = [
        Trouble::None,
        Trouble::BoundAtStart,
        Trouble::Surroundings,
        Trouble::OtherAddresses,
        Trouble::Taken,
        Trouble::Upgraded,
        Trouble::MadeAnew,
    ];

    fn name(self) -> &'static str {
        match self {
            Trouble::None => "none",
            Trouble::BoundAtStart => "functions looked up at the start (LD_BIND_NOW)",
            Trouble::Surroundings => "another search (LD_LIBRARY_PATH), locale, language and time zone",
            Trouble::OtherAddresses => "records that say other addresses",
            Trouble::Taken => "the program's loader where a copy belongs",
            Trouble::Upgraded => "the C library upgraded after the records were made",
            Trouble::MadeAnew => "the records made anew after that",
        }
    }

    /// Whether programs must have copies then, or must not.
    fn with_copies(self) -> bool {
        !matches!(self, Trouble::OtherAddresses | Trouble::Taken | Trouble::Upgraded)
    }

    /// Whether some program must say something else for it, copies or not: else it would prove nothing.
    fn is_heard(self) -> bool {
        matches!(self, Trouble::Surroundings | Trouble::Upgraded | Trouble::MadeAnew)
    }

    /// The same on both sides.
    fn variables(self, command: &mut Command) {
        command.env_remove("LANGUAGE").env("LC_ALL", "C").env("TZ", "UTC0");
        if self == Trouble::BoundAtStart {
            command.env("LD_BIND_NOW", "1");
        } else if self == Trouble::Surroundings {
            command.env("LD_LIBRARY_PATH", "/nowhere:/tmp").env("TZ", "JST-9");
            command.env("LC_ALL", "C.UTF-8").env("LANGUAGE", "de");
        }
    }
}

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
         upgraded, ranges taken and variables changed in between"
    }

    fn limit(&self) -> Duration {
        crate::row::LONGEST
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let mut launches = Launches::new(context)?;
        let mut troubles = Trouble::ALL.to_vec();
        // What this process may not do is left out, and that is said.
        let (upgraded, taken) = (launches.overlay.is_there(), launches.occupier.is_some());
        troubles.retain(|one| upgraded || !matches!(one, Trouble::Upgraded | Trouble::MadeAnew));
        troubles.retain(|one| taken || *one != Trouble::Taken);
        let rounds = context.pick(204_usize.div_ceil(troubles.len()), 2);
        let mut situations = Map::new();
        let mut first = Vec::new();
        for trouble in troubles {
            let stock = launches.under(trouble, rounds)?;
            if first.is_empty() {
                first.clone_from(&stock);
            }
            let heard = stock.iter().zip(&first).filter(|(one, other)| compare(one, other).is_some()).count();
            if heard == 0 && trouble.is_heard() {
                return failed(format!("{}: no program says anything else for it", trouble.name()));
            }
            let what = json!({
                "copies": if trouble.with_copies() { "all, as must be" } else { "none, as must be" },
                "programs_whose_stock_output_it_changes": heard,
            });
            situations.insert(trouble.name().into(), what);
        }
        let detail = json!({
            "programs": launches.programs.iter().map(|program| &program.path).collect::<Vec<_>>(),
            "launches": launches.count,
            "launches_whose_mappings_were_looked_at": launches.watched,
            "differences": launches.differences,
            "situations": situations,
            "libraries_were_upgraded": upgraded,
            "addresses_were_taken": taken,
        });
        let count = launches.differences.len() as f64;
        Ok(Measured::single(count, launches.count, detail))
    }
}

/// All launches, of programs that are set together.
struct Launches {
    programs: Vec<Program>,
    rebased: Rebased,
    overlay: Overlay,
    occupier: Option<Occupier>,
    count: usize,
    watched: usize,
    differences: Vec<Value>,
    /// Copies of the C library from before the upgrade.
    old: BTreeSet<PathBuf>,
}

impl Launches {
    fn new(context: &Context) -> Result<Launches> {
        let programs = outspoken(context)?;
        // Where /usr/lib may be changed without changing it.
        let overlay = Overlay::over_libraries(&context.directory)?;
        let occupier = Occupier::new()?;
        let rebased = Rebased::new(context, &programs.iter().collect::<Vec<_>>())?;
        let (differences, old) = (Vec::new(), BTreeSet::new());
        Ok(Launches { programs, rebased, overlay, occupier, count: 0, watched: 0, differences, old })
    }

    /// Brings the trouble, starts every program so often with copies, and compares. Gives what stock answers.
    fn under(&mut self, trouble: Trouble, rounds: usize) -> Result<Vec<Output>> {
        let mut displaced = Vec::new();
        match trouble {
            Trouble::OtherAddresses => {
                let paths: BTreeSet<&Path> = self.programs.iter().map(|program| &*program.path).collect();
                for path in paths {
                    displaced.push(Displaced::new(&self.rebased.store, path)?);
                }
            }
            Trouble::Upgraded => self.overlay.upgrade()?,
            Trouble::MadeAnew => self.rebased.renew()?,
            _ => {}
        }
        let mut all = Vec::new();
        for program in self.programs.clone() {
            let stock = self.stock(&program, trouble)?;
            for round in 0..rounds {
                let ours = self.launch(&program, trouble, round)?;
                self.count += 1;
                if let Some(what) = compare(&stock, &ours) {
                    let difference =
                        json!({ "program": program.path, "trouble": trouble.name(), "what": what });
                    self.differences.push(difference);
                }
            }
            if let Some(what) = compare(&stock, &self.stock(&program, trouble)?) {
                return failed(format!(
                    "{} differs from itself without copies: {what}",
                    program.path.display()
                ));
            }
            all.push(stock);
        }
        Ok(all)
    }

    fn stock(&self, program: &Program, trouble: Trouble) -> Result<Output> {
        let mut command = command(program, trouble);
        match self.taken(program, trouble, 0)? {
            None => Ok(command.output()?),
            taken => Ok(watch(command, &self.rebased.store, taken)?.output),
        }
    }

    /// With copies. Every second launch is watched, and so are those that need it; the others are as users make them.
    fn launch(&mut self, program: &Program, trouble: Trouble, round: usize) -> Result<Output> {
        let mut command = command(program, trouble);
        command.envs(self.rebased.store.variables());
        let taken = self.taken(program, trouble, round)?;
        if taken.is_none() && round % 2 == 1 {
            return Ok(command.output()?);
        }
        let seen = watch(command, &self.rebased.store, taken)?;
        let wanted = if trouble.with_copies() { self.rebased.expected(program)? } else { 0 };
        let wrong = |what: String| failed(format!("{}, {}: {what}", program.path.display(), trouble.name()));
        if seen.copies.len() != wanted {
            return wrong(format!("{} copies are mapped where {wanted} should be", seen.copies.len()));
        }
        let of_libc = || seen.copies.iter().filter(|path| path.ends_with("libc.so.6"));
        if trouble == Trouble::None {
            self.old.extend(of_libc().cloned());
        } else if trouble == Trouble::MadeAnew && of_libc().any(|path| self.old.contains(path)) {
            return wrong("a copy of the old library is mapped".into());
        }
        self.watched += 1;
        Ok(seen.output)
    }

    /// In each round another library of the program loses its address.
    fn taken(&self, program: &Program, trouble: Trouble, round: usize) -> Result<Option<(u64, &Occupier)>> {
        let Some(occupier) = self.occupier.as_ref().filter(|_| trouble == Trouble::Taken) else {
            return Ok(None);
        };
        let all = addresses(&self.rebased.store, program)?;
        Ok(Some((all[round % all.len()], occupier)))
    }
}

fn command(program: &Program, trouble: Trouble) -> Command {
    let mut command = program.command();
    command.stdin(Stdio::null());
    trouble.variables(&mut command);
    command
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
