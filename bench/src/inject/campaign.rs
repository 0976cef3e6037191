//! `inject-campaign`: life after life, until so many faults were injected. Says each round, and at the end every point.

use super::injector::{Injector, Sort};
use super::local::Local;
use super::shared::Shared;
use super::tally::Tally;
use crate::context::Random;
use crate::failure::{Result, failed};
use crate::storm::plan::Scene;
use crate::worker;
use commonhold_points::{Board, Point};
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rounds that one set of processes goes through.
const ROUNDS_IN_A_LIFE: u64 = 40;
/// No life begins after so long.
const LONGEST: Duration = Duration::from_secs(35 * 60);

/// One life.
enum Life {
    Local(Box<Local>),
    Shared(Box<Shared>),
}

/// The variable that names the board, which the caller makes.
pub const VARIABLE: &str = "COMMONHOLD_FAULTS";

/// Arguments: folder, seed, faults.
pub fn run(arguments: &[String]) -> Result<()> {
    commonhold_points::spare_this_process();
    let [directory, seed, wanted] = arguments else { return failed("inject-campaign takes three arguments") };
    let Some(board) = std::env::var_os(VARIABLE) else { return failed("no board is named") };
    let board = Arc::new(Board::open(Path::new(&board))?);
    let (directory, seed, wanted): (PathBuf, u64, u64) = (directory.into(), seed.parse()?, wanted.parse()?);
    let mut random = Random::seed_from_u64(seed);
    let begun = Instant::now();
    let mut number = 0;
    while injected(&board.points()) < wanted && begun.elapsed() < LONGEST {
        number += 1;
        let place = directory.join(format!("life-{number}"));
        std::fs::create_dir(&place)?;
        if live(&place, number, &board, &mut random, wanted)? {
            let _ = std::fs::remove_dir_all(&place); // what is left goes with the row's folder
        } else {
            eprintln!("commonhold-bench: what life {number} left is in {}", keep(&place)?.display());
        }
    }
    worker::say(&json!({ "points": board.points().iter().map(describe).collect::<Vec<_>>() }).to_string())
}

/// One life; whether nothing went wrong.
fn live(place: &Path, number: u64, board: &Arc<Board>, random: &mut Random, wanted: u64) -> Result<bool> {
    let mut injector = Injector::new(board.clone(), Random::seed_from_u64(random.random()));
    let lives = std::env::var("COMMONHOLD_INJECT_LIVES").unwrap_or("local,central,forwarding".to_owned());
    let lives: Vec<&str> = lives.split(',').collect();
    let (name, mut life) = match lives[(number - 1) as usize % lives.len()] {
        "central" => ("central", Life::Shared(Box::new(Shared::begin(place, Scene::Central)?))),
        "forwarding" => ("forwarding", Life::Shared(Box::new(Shared::begin(place, Scene::Forwarding)?))),
        _ => ("local", Life::Local(Box::new(Local::begin(place, random.random())?))),
    };
    for round in 0..ROUNDS_IN_A_LIFE {
        let sort = if round % 2 == 0 { Sort::Gentle } else { Sort::Deadly };
        let lasting = Duration::from_millis(random.random_range(200..1200));
        let before = board.points();
        let outcome = match &mut life {
            Life::Local(life) => life.round(&mut injector, lasting, sort),
            Life::Shared(life) => life.round(&mut injector, lasting, sort),
        };
        let tally = outcome.unwrap_or_else(|failure| {
            eprintln!("commonhold-bench: {failure}");
            Tally { died: 1, ..Tally::default() }
        });
        let points = board.points();
        let done = injected(&points);
        let line = json!({
            "life": number, "of": name, "round": round, "sort": format!("{sort:?}"),
            "tally": tally.to_json(), "failures": tally.total(), "injected": done,
            "did": if tally == Tally::default() { Value::Null } else { acted(&before, &points) },
        });
        worker::say(&line.to_string())?;
        if tally != Tally::default() {
            if let Life::Shared(life) = &life {
                std::fs::write(place.join("troubles"), life.troubles())?;
            }
            return Ok(false); // the rest is begun anew
        }
        if done >= wanted {
            break;
        }
    }
    Ok(true)
}

fn injected(points: &[Point]) -> u64 {
    points.iter().flat_map(|point| point.injected).sum()
}

/// What points did between two looks at them.
fn acted(before: &[Point], after: &[Point]) -> Value {
    let earlier = |point: &Point| {
        before.iter().find(|other| other.row == point.row).map_or([0; 4], |other| other.injected)
    };
    let did = after.iter().filter_map(|point| {
        let more: Vec<u64> =
            point.injected.iter().zip(earlier(point)).map(|(now, then)| now - then).collect();
        more.iter().any(|count| *count > 0).then(|| format!("{:?} {} {more:?}", point.kind, point.name))
    });
    did.collect()
}

/// A point, as the detail has it.
pub fn describe(point: &Point) -> Value {
    json!({ "name": point.name, "kind": format!("{:?}", point.kind), "hits": point.hits, "injected": point.injected })
}

/// Moves what a life left to where it outlives the row.
fn keep(place: &Path) -> Result<PathBuf> {
    let name = format!("inject-{}-{}", std::process::id(), place.file_name().unwrap_or_default().display());
    let kept = place.ancestors().nth(3).unwrap_or(place).join(name);
    std::fs::rename(place, &kept)?;
    Ok(kept)
}
