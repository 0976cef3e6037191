//! `bank-client`: one of the bank's processes.

use super::Layout;
use crate::context::Random;
use crate::failure::{Result, failed};
use crate::objects;
use crate::processes::minor_faults;
use crate::view::{PAGE, RawMapping, View};
use crate::worker;
use commonhold::{Access, Host};
use rand::SeedableRng;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// Operations between two looks at the clock.
const BETWEEN_LOOKS: u64 = 64;

/// Arguments: the file by which it belongs to its group, the bank's scale, a seed, and where the bank is: `segment STATE NAME` or
/// `file PATH`. It says `ready`, then `attached` when it is told so; it is told which part of the bank to look through, of how many, so
/// that all of it is in memory that can be, and says `warm`; then it is told how many milliseconds to run before it counts,
/// while it counts, and after that, and says how many operations it did in a second that it counted, and how often it faulted in one.
pub fn run(arguments: &[String]) -> Result<()> {
    let [group, scale, seed, place @ ..] = arguments else {
        return failed("bank-client takes more arguments");
    };
    let (Ok(scale), Ok(seed)) = (scale.parse(), seed.parse()) else {
        return failed("scale and seed are numbers");
    };
    std::fs::write(group, std::process::id().to_string())?;
    let mut lines = std::io::stdin().lines();
    worker::say("ready")?;
    let layout = Layout { scale };
    let Some(_) = lines.next().transpose()? else { return Ok(()) };
    let mut work = |view: View<'_>| work(layout, view, seed, &mut lines);
    match place {
        [kind, state, name] if kind == "segment" => {
            let object = Host::connect_to(Path::new(state))?.open(name, Access::ReadWrite)?;
            let mapping = object.map(&objects::everything())?;
            work(View::of(&mapping))
        }
        [kind, path] if kind == "file" => {
            let file = File::options().read(true).write(true).open(path)?;
            let mapping = RawMapping::shared(&file, layout.bytes())?;
            work(mapping.view())
        }
        _ => failed("bank-client: where is the bank?"),
    }
}

fn work(
    layout: Layout,
    view: View<'_>,
    seed: u64,
    lines: &mut impl Iterator<Item = std::io::Result<String>>,
) -> Result<()> {
    worker::say("attached")?;
    let Some(line) = lines.next().transpose()? else { return Ok(()) };
    let part: Vec<usize> = line.split(' ').map_while(|word| word.parse().ok()).collect();
    let [part, parts] = part[..] else { return failed(format!("bank-client was told {line:?}")) };
    let pages = view.pages();
    (pages * part / parts..pages * (part + 1) / parts).for_each(|page| {
        view.read_byte(page * PAGE);
    });
    worker::say("warm")?;
    let Some(line) = lines.next().transpose()? else { return Ok(()) };
    let spans: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
    let [before, counted, after] = spans[..] else { return failed(format!("bank-client was told {line:?}")) };
    let mut random = Random::seed_from_u64(seed);
    operate(layout, view, &mut random, before);
    let (begun, faults) = (Instant::now(), minor_faults());
    let operations = operate(layout, view, &mut random, counted);
    // What was begun is done, however long it takes.
    let (seconds, faults) = (begun.elapsed().as_secs_f64(), minor_faults() - faults);
    operate(layout, view, &mut random, after);
    worker::say(&format!("{} {}", operations as f64 / seconds, faults as f64 / seconds))?;
    Ok(())
}

/// Works for so many milliseconds; gives how many operations it did.
fn operate(layout: Layout, view: View<'_>, random: &mut Random, milliseconds: u64) -> u64 {
    let (end, mut operations) = (Instant::now() + Duration::from_millis(milliseconds), 0);
    while Instant::now() < end {
        for _ in 0..BETWEEN_LOOKS {
            layout.operate(view, random);
        }
        operations += BETWEEN_LOOKS;
    }
    operations
}
