//! The command line.

use crate::failure::{Result, failed};
use std::path::PathBuf;

/// What is asked for.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Print every row id, one a line.
    List,
    /// Run rows.
    Run(Run),
    /// Make the tables of the results in that folder anew.
    Tables(PathBuf),
    /// Be a worker (hidden).
    Worker {
        /// Which.
        name: String,
        /// With what.
        arguments: Vec<String>,
    },
    /// Say how to use it.
    Help,
}

/// How to run rows.
#[derive(Debug, PartialEq)]
pub struct Run {
    /// Which, or `all`.
    pub ids: Vec<String>,
    /// One JSON object a line.
    pub json: bool,
    /// Fewer rounds.
    pub quick: bool,
    /// As long as the papers measured.
    pub paper: bool,
    /// Where to write pages; none: nowhere.
    pub out: Option<PathBuf>,
    /// Leave out what has a result there of this commit and machine.
    pub resume: bool,
    /// What random choices follow from.
    pub seed: u64,
    /// Trials of a crash row.
    pub trials: Option<u64>,
}

/// Where results are.
const RESULTS: &str = "docs/results";

/// How to use it.
pub const HELP: &str = "\
Measures Commonhold beside its peers.

  commonhold-bench list                  every row id, one a line
  commonhold-bench run ID…|all [options]
  commonhold-bench tables [DIR]          the tables of the results in DIR (docs/results) and of PERFORMANCE.md beside it

  --json         one JSON object a line
  --quick        fewer rounds: to see that it works, not to publish
  --paper        as long as the papers measured (ptshare.bank_…, ptshare.fig9_11: ten minutes a point)
  --out DIR      write a page for each row there (run all without --quick: docs/results)
  --resume       go on where it was stopped: leave out rows with a result there of this commit and machine
  --seed N       what all random choices follow from
  --trials N     trials of the crash rows (1000 and, of clusters, 500; 40 and 25 with --quick)

Folders and hosts of its own live below target/bench-state, or $COMMONHOLD_BENCH_DIR: a real disk, not a tmpfs.
";

/// Reads the command line, without the program's name.
pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Command> {
    match words.next().as_deref() {
        Some("list") => match words.next() {
            None => Ok(Command::List),
            Some(word) => failed(format!("`list` takes nothing, not `{word}`")),
        },
        Some("run") => parse_run(words),
        Some("tables") => Ok(Command::Tables(words.next().unwrap_or_else(|| RESULTS.into()).into())),
        Some("worker") => match words.next() {
            Some(name) => Ok(Command::Worker { name, arguments: words.collect() }),
            None => failed("worker takes a name"),
        },
        Some("help" | "--help" | "-h") | None => Ok(Command::Help),
        Some(word) => failed(format!("`{word}` is not known: try `commonhold-bench help`")),
    }
}

fn parse_run(mut words: impl Iterator<Item = String>) -> Result<Command> {
    let mut run = Run {
        ids: Vec::new(),
        json: false,
        quick: false,
        paper: false,
        out: None,
        resume: false,
        seed: 20_260_101,
        trials: None,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().map_or_else(|| failed(format!("{word} takes a value")), Ok);
        match word.as_str() {
            "--json" => run.json = true,
            "--quick" => run.quick = true,
            "--paper" => run.paper = true,
            "--resume" => run.resume = true,
            "--out" => run.out = Some(value()?.into()),
            "--seed" => run.seed = number(&word, &value()?)?,
            "--trials" => run.trials = Some(number(&word, &value()?)?),
            option if option.starts_with('-') => {
                return failed(format!("`{option}` is not an option: try `commonhold-bench help`"));
            }
            _ => run.ids.push(word),
        }
    }
    if run.ids.is_empty() {
        return failed("run what? Name rows (see `commonhold-bench list`), or `all`");
    }
    if run.out.is_none() && run.ids == ["all"] && !run.quick {
        run.out = Some(RESULTS.into());
    }
    if run.paper && run.quick {
        return failed("--paper is long and --quick is short: choose one");
    }
    if run.resume && run.out.is_none() {
        return failed("--resume goes on with what is in a folder: name it with --out");
    }
    Ok(Command::Run(run))
}

fn number(option: &str, text: &str) -> Result<u64> {
    text.parse().or_else(|_| failed(format!("{option} takes a number, not `{text}`")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse_line(line: &str) -> Result<Command> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn run_takes_ids_and_options_in_any_order() {
        let Ok(Command::Run(run)) = parse_line("run --json a.b --seed 7 c.d --trials 9 --quick") else {
            panic!()
        };
        assert_eq!(run.ids, ["a.b", "c.d"]);
        assert!(run.json && run.quick && run.out.is_none());
        assert_eq!((run.seed, run.trials), (7, Some(9)));
    }

    #[test]
    fn only_a_full_run_of_all_writes_pages_unasked() {
        let out = |line| match parse_line(line) {
            Ok(Command::Run(run)) => run.out,
            _ => panic!(),
        };
        assert_eq!(out("run all"), Some("docs/results".into()));
        assert_eq!(out("run all --quick"), None);
        assert_eq!(out("run all --quick --out x"), Some("x".into()));
        assert_eq!(out("run local.idle_cost"), None);
        assert!(parse_line("run local.idle_cost --resume").is_err());
        let resumed = parse_line("run local.idle_cost --resume --out x");
        assert!(matches!(resumed, Ok(Command::Run(run)) if run.resume));
        assert!(matches!(parse_line("tables"), Ok(Command::Tables(folder)) if folder == Path::new(RESULTS)));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["run", "run --seed", "run a --seed x", "run a --fast", "walk", "list x"] {
            assert!(parse_line(line).is_err(), "{line}");
        }
    }
}
