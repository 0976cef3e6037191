//! `gap-watcher`: a client of the home of a strict object that touches its pages without a pause,
//! and notes how long it was held up.

use crate::context::Random;
use crate::failure::{Result, failed};
use crate::objects;
use crate::view::{PAGE, View};
use crate::worker;
use commonhold::{Coherence, CreateOptions, Host, Mapping, OnLoss};
use commonhold_sys::clock;
use rand::{RngExt, SeedableRng};
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two touches of pages that the host has to make.
const GAP: Duration = Duration::from_millis(2);

/// Between two touches that is long enough to ask why, in nanoseconds.
const WORTH_A_LOOK: u64 = 20_000;

/// Arguments: state directory, name, resident bytes, further bytes that nobody has touched. Then a
/// line for each watch: milliseconds, and a seed.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, name, resident, fresh] = arguments else { return failed("gap-watcher takes four arguments") };
    let (resident, fresh): (usize, usize) = (resident.parse()?, fresh.parse()?);
    let mapping = create(Path::new(state), name, resident + fresh)?;
    let view = View::of(&mapping);
    (0..resident / PAGE).for_each(|page| view.write_word(page * PAGE, page as u64 + 1));
    worker::say("ready")?;
    let mut fresh = resident / PAGE..view.pages();
    for line in std::io::stdin().lines() {
        let line = line?;
        let numbers: std::result::Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        let Ok([milliseconds, seed]) = numbers.as_deref() else {
            return failed(format!("what is `{line}`?"));
        };
        worker::say("begun")?;
        worker::say(&watch(view, resident / PAGE, &mut fresh, Duration::from_millis(*milliseconds), *seed))?;
    }
    Ok(())
}

fn create(state: &Path, name: &str, bytes: usize) -> Result<Mapping> {
    let options = CreateOptions {
        size_bytes: bytes as u64,
        coherence: Coherence::strict(OnLoss::Error),
        reserve: Some(false),
        ..CreateOptions::default()
    };
    Ok(Host::connect_to(state)?.create(name, &options, None)?.map(&objects::everything())?)
}

/// Touches for so long: what [`Gaps`] says of resident pages, how many touches of pages that nobody
/// had touched there were, and nanoseconds of the longest of these.
fn watch(
    view: View<'_>,
    resident: usize,
    fresh: &mut std::ops::Range<usize>,
    time: Duration,
    seed: u64,
) -> String {
    let until = clock::now() + time.as_nanos() as u64;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let faults = scope.spawn({
            let over = &over;
            move || touch_fresh(view, fresh, over)
        });
        let gaps = touch_resident(view, resident, until, seed);
        over.store(true, Ordering::SeqCst);
        let (faults, longest_fault) = faults.join().unwrap_or_default();
        format!("{} {} {} {faults} {longest_fault}", gaps.touches, gaps.waited, gaps.longest)
    })
}

/// What a process that touched resident pages saw.
#[derive(Default)]
struct Gaps {
    touches: u64,
    /// Nanoseconds of the longest time between two touches in which the thread waited.
    waited: u64,
    /// Nanoseconds of the longest time between two touches, also where another program had the
    /// processor.
    longest: u64,
}

fn touch_resident(view: View<'_>, pages: usize, until: u64, seed: u64) -> Gaps {
    let mut random = Random::seed_from_u64(seed);
    let (mut gaps, mut last, mut waits) = (Gaps::default(), clock::now(), waits_so_far());
    while last < until {
        let offset = random.random_range(0..pages) * PAGE;
        if gaps.touches % 2 == 0 {
            black_box(view.read_word(offset));
        } else {
            view.write_word(offset + 8, gaps.touches);
        }
        let now = clock::now();
        if now - last > WORTH_A_LOOK {
            let before = std::mem::replace(&mut waits, waits_so_far());
            gaps.longest = gaps.longest.max(now - last);
            gaps.waited = gaps.waited.max(if waits == before { 0 } else { now - last });
        }
        (last, gaps.touches) = (now, gaps.touches + 1);
    }
    gaps
}

/// How often this thread has given its processor away to wait for something.
fn waits_so_far() -> i64 {
    // SAFETY: zeroed is a valid rusage (plain numbers).
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is the structure that the call fills, and outlives it.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    if result == 0 { usage.ru_nvcsw } else { 0 }
}

fn touch_fresh(view: View<'_>, pages: &mut std::ops::Range<usize>, over: &AtomicBool) -> (u64, u64) {
    let (mut touches, mut longest) = (0, 0);
    while !over.load(Ordering::SeqCst)
        && let Some(page) = pages.next()
    {
        let before = clock::now();
        view.write_word(page * PAGE, 1);
        longest = longest.max(clock::now() - before);
        touches += 1;
        std::thread::sleep(GAP);
    }
    (touches, longest)
}
