//! `prober`: a client that touches pages of one object and notes how long each touch takes; it is
//! asked at any time.

use crate::context::Random;
use crate::failure::{Result, failed};
use crate::objects;
use crate::view::{PAGE, View};
use crate::worker;
use commonhold::{Access, Coherence, CreateOptions, Host, Mapping, OnLoss, PagerKind, SyncMode};
use commonhold_sys::clock;
use rand::{RngExt, SeedableRng};
use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an object of another host may take to be found.
const DEADLINE: Duration = Duration::from_secs(30);
/// Between two touches.
const GAP: Duration = Duration::from_millis(5);
/// A touch that takes longer is counted.
const LONG: u64 = 1_000_000_000;
/// Memory for the frames of an object on a file: so that some are evicted.
const SLOW_BUDGET: u64 = 1 << 20;
/// Between two syncs of a process that syncs.
const SYNC_GAP: Duration = Duration::from_secs(3);

/// Arguments: state directory, name, what to do for the object (`open`, `local`, `central`,
/// `forwarding`, `central-file:PATH`, `forwarding-file:PATH`, `pager:NAME`), its pages, seed, how
/// to touch (`random`: reads and writes; `fresh`: each page once; `scan`: reads in order, without a
/// pause), and whether it also syncs (`sync`, `-`). To any line it answers touches, touches beyond
/// a second (one under way counts), and the longest in nanoseconds.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, name, what, pages, seed, how, sync] = arguments else {
        return failed("prober takes seven arguments");
    };
    let pages: usize = pages.parse()?;
    let mapping: &'static Mapping = Box::leak(Box::new(map(Path::new(state), name, what, pages)?));
    let notes = Arc::new(Notes::default());
    let (noted, how, random) = (notes.clone(), how.clone(), Random::seed_from_u64(seed.parse()?));
    std::thread::spawn(move || touch(View::of(mapping), &how, random, &noted));
    if sync == "sync" {
        // What comes of it is nobody's concern here: it keeps the storage busy.
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(SYNC_GAP);
                let _ = mapping.sync(); // as said
            }
        });
    }
    worker::say("ready")?;
    for line in std::io::stdin().lines() {
        line?;
        worker::say(&notes.line())?;
    }
    Ok(())
}

#[derive(Default)]
struct Notes {
    touches: AtomicU64,
    long: AtomicU64,
    longest: AtomicU64,
    /// When the touch under way was begun; 0: none is.
    begun: AtomicU64,
}

impl Notes {
    fn line(&self) -> String {
        let begun = self.begun.load(Ordering::SeqCst);
        let waiting = if begun == 0 { 0 } else { clock::now().saturating_sub(begun) };
        let long = self.long.load(Ordering::SeqCst) + u64::from(waiting > LONG);
        let longest = self.longest.load(Ordering::SeqCst).max(waiting);
        format!("{} {long} {longest}", self.touches.load(Ordering::SeqCst))
    }
}

fn touch(view: View<'static>, how: &str, mut random: Random, notes: &Notes) {
    for touch in 0.. {
        let (page, write) = match how {
            "fresh" if touch == view.pages() => return,
            "fresh" => (touch, true),
            "scan" => (touch % view.pages(), false),
            _ => (random.random_range(0..view.pages()), random.random_bool(0.5)),
        };
        let begun = clock::now();
        notes.begun.store(begun, Ordering::SeqCst);
        if write {
            view.write_word(page * PAGE, begun);
        } else {
            black_box(view.read_word(page * PAGE));
        }
        let took = clock::now() - begun;
        notes.begun.store(0, Ordering::SeqCst);
        notes.touches.fetch_add(1, Ordering::SeqCst);
        notes.long.fetch_add(u64::from(took > LONG), Ordering::SeqCst);
        notes.longest.fetch_max(took, Ordering::SeqCst);
        if how != "scan" {
            std::thread::sleep(GAP);
        }
    }
}

fn map(state: &Path, name: &str, what: &str, pages: usize) -> Result<Mapping> {
    let host = Host::connect_to(state)?;
    let usual = CreateOptions {
        size_bytes: (pages * PAGE) as u64,
        controlled: true,
        reserve: Some(false),
        ..CreateOptions::default()
    };
    let shared = |coherence| CreateOptions { coherence, ..usual.clone() };
    let object = match what.split_once(':') {
        Some((scheduler @ ("central-file" | "forwarding-file"), path)) => {
            let file = File::options().read(true).write(true).open(path)?;
            let coherence = match scheduler {
                "central-file" => Coherence::central(OnLoss::Revert),
                _ => Coherence::strict(OnLoss::Revert),
            };
            let options = CreateOptions {
                pager: PagerKind::File,
                sync: SyncMode::Ordered,
                budget_bytes: Some(SLOW_BUDGET),
                ..shared(coherence)
            };
            host.create(name, &options, Some(file.as_fd()))?
        }
        Some(("pager", pager)) => {
            let pager = PagerKind::External { pager: pager.into() };
            host.create(name, &CreateOptions { pager, sync: SyncMode::Ordered, ..usual }, None)?
        }
        _ => match what {
            "open" => open(&host, name)?,
            "local" => host.create(name, &usual, None)?,
            "central" => host.create(name, &shared(Coherence::central(OnLoss::Error)), None)?,
            "forwarding" => host.create(name, &shared(Coherence::strict(OnLoss::Error)), None)?,
            other => return failed(format!("what is an object `{other}`?")),
        },
    };
    Ok(object.map(&objects::everything())?)
}

fn open(host: &Host, name: &str) -> Result<commonhold::Object> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match host.open(name, Access::ReadWrite) {
            Ok(object) => return Ok(object),
            Err(error) if Instant::now() > deadline => {
                return Err(error.into());
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}
