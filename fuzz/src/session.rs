//! Fuzzes formats, two at a time, each in a process of its own, and says what came of it.

use crate::formats::{self, Format};
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// Processes at once.
const AT_ONCE: usize = 2;

/// What is asked for.
pub struct Session {
    /// Where inputs, failures and logs are kept.
    pub directory: PathBuf,
    /// For libFuzzer: how long, or how many inputs.
    pub limit: String,
    /// And where its choices come from.
    pub seed: Option<u64>,
    /// A line of JSON for each, and not one for people.
    pub json: bool,
    /// Which.
    pub formats: Vec<&'static Format>,
}

impl Session {
    /// From the words behind `run`.
    pub fn new(words: &[String]) -> Result<Session, String> {
        let mut session = Session {
            directory: PathBuf::new(),
            limit: String::new(),
            seed: None,
            json: false,
            formats: Vec::new(),
        };
        for word in words {
            let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{word}: not a number"));
            match word.split_once('=') {
                Some(("--seconds", text)) => session.limit = format!("-max_total_time={}", number(text)?),
                Some(("--inputs", text)) => session.limit = format!("-runs={}", number(text)?),
                Some(("--seed", text)) => session.seed = Some(number(text)?),
                _ if word == "--json" => session.json = true,
                _ if session.directory.as_os_str().is_empty() => session.directory = word.into(),
                _ => {
                    let format = formats::ALL.iter().find(|format| format.name == *word);
                    session.formats.push(format.ok_or(format!("{word}: there is no such format"))?);
                }
            }
        }
        if session.limit.is_empty() || session.directory.as_os_str().is_empty() {
            return Err("a directory, and --seconds or --inputs, must be given".into());
        }
        if session.formats.is_empty() {
            session.formats = formats::ALL.iter().collect();
        }
        Ok(session)
    }

    /// Runs it. Whether there was no failure.
    pub fn run(&self) -> io::Result<bool> {
        formats::write_samples(&self.directory.join("corpus"))?;
        for name in ["failures", "logs"] {
            std::fs::create_dir_all(self.directory.join(name))?;
        }
        let next = Mutex::new(self.formats.iter());
        let work = || -> io::Result<bool> {
            let mut good = true;
            loop {
                let taken = next.lock().map_or(None, |mut next| next.next());
                let Some(format) = taken else { return Ok(good) };
                let came = self.fuzz(format)?;
                good &= came["failure"].is_null();
                println!("{}", if self.json { came.to_string() } else { in_words(&came) });
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
            let all = threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(false)));
            all.collect::<io::Result<Vec<bool>>>().map(|all| all.into_iter().all(|good| good))
        })
    }

    fn fuzz(&self, format: &Format) -> io::Result<Value> {
        let (corpus, failures) =
            (self.directory.join("corpus").join(format.name), self.directory.join("failures"));
        let own = format!("{}-", format.name);
        let log = self.directory.join("logs").join(format.name);
        let (before, began) = (entries(&failures, &own)?, Instant::now());
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(format!("--format={}", format.name)).arg(&self.limit);
        command.args(self.seed.map(|seed| format!("-seed={}", seed as u32)));
        command.arg(format!("-artifact_prefix={}", failures.join(&own).display())).arg(&corpus);
        let ended = command
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .stdout(Stdio::null())
            .status()?;
        let seconds = began.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
        let left = entries(&failures, &own)?.into_iter().find(|path| !before.contains(path));
        let failure = match left {
            Some(path) => Some(path.display().to_string()),
            None => (!ended.success()).then(|| format!("it ended with {ended}: see {}", log.display())),
        };
        let (edges, of) = coverage(format, &corpus)?;
        Ok(json!({
            "format": format.name,
            "inputs": number_behind(&said, "stat::number_of_executed_units:").or(number_behind(&said, "\n#")),
            "seconds": (seconds * 10.0).round() / 10.0,
            "edges": edges,
            "edges_of_functions_reached": of,
            "features": number_behind(&said, " ft: "),
            "failure": failure,
        }))
    }
}

/// In a process of its own: an input may end it.
fn coverage(format: &Format, corpus: &Path) -> io::Result<(Option<u64>, Option<u64>)> {
    let mut command = Command::new(std::env::current_exe()?);
    let said = command.arg("coverage").arg(format.name).arg(corpus).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let mut numbers = said.split_ascii_whitespace().map(|word| word.parse().ok());
    Ok((numbers.next().flatten(), numbers.next().flatten()))
}

fn entries(directory: &Path, begin: &str) -> io::Result<Vec<PathBuf>> {
    let all = std::fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path()));
    let all: io::Result<Vec<PathBuf>> = all.collect();
    let of_this =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin));
    Ok(all?.into_iter().filter(of_this).collect())
}

/// The number behind the last of these words.
fn number_behind(text: &str, words: &str) -> Option<u64> {
    let (_, behind) = text.rsplit_once(words)?;
    let behind = behind.trim_start();
    behind[..behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len())].parse().ok()
}

fn in_words(came: &Value) -> String {
    let number = |key: &str| came[key].as_u64().map_or("?".into(), |number| number.to_string());
    let name = came["format"].as_str().unwrap_or_default();
    let counted = format!(
        "{name:<16} {:>9} inputs {:>7} s {:>6} of {:>6} edges {:>6} features",
        number("inputs"),
        came["seconds"],
        number("edges"),
        number("edges_of_functions_reached"),
        number("features"),
    );
    match came["failure"].as_str() {
        None => counted,
        Some(path) => format!("{counted}  FAILED: {path}"),
    }
}
