//! `inject-load`: works with the objects of a local life, and notes what it does, until it is killed.
//!
//! Each writer has a lane of each object. An error is no reason to stop: it is tried again, and counted.

use super::guarded::Guarded;
use crate::context::Random;
use crate::crash::environment::reconnect;
use crate::crash::ledger::Ledger;
use crate::crash::pattern;
use crate::crash::verify::{Finding, page_in_memory};
use crate::failure::{Result, failed};
use crate::objects;
use crate::view::PAGE;
use crate::worker;
use commonhold::{Access, CreateOptions, Host, Mapping, Object};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The objects, and what each is.
pub const NAMES: [&str; 3] = ["/inject/atomic", "/inject/ordered", "/inject/anonymous"];
/// Which of them has no file.
pub const ANONYMOUS: usize = 2;
/// Pages of one writer in each object: more than fit the smallest budget, with two writers.
pub const PAGES_EACH: usize = 160;

/// Where the ledger of an object is.
pub fn ledger_path(directory: &Path, object: usize) -> PathBuf {
    directory.join(format!("ledger-{object}"))
}

struct Part {
    state: PathBuf,
    writer: usize,
    ledgers: Vec<Ledger>,
    guarded: Guarded,
    random: Random,
    mappings: Vec<Mapping>,
    scratch: u64,
}

/// Arguments: state directory, folder, writer, seed.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, directory, writer, seed] = arguments else {
        return failed("inject-load takes four arguments");
    };
    let directory = Path::new(directory);
    let ledgers: Result<Vec<_>> =
        (0..NAMES.len()).map(|object| Ledger::open(&ledger_path(directory, object))).collect();
    let mut part = Part {
        state: state.into(),
        writer: writer.parse()?,
        ledgers: ledgers?,
        guarded: Guarded::new()?,
        random: Random::seed_from_u64(seed.parse()?),
        mappings: Vec::new(),
        scratch: 0,
    };
    part.mappings = NAMES.iter().map(|name| part.map(name)).collect::<Result<_>>()?;
    (0..NAMES.len()).for_each(|object| part.finish_what_was_begun(object));
    worker::say("ready")?;
    loop {
        let object = part.random.random_range(0..NAMES.len());
        if object == ANONYMOUS {
            part.touch_pages(object)
        } else {
            part.next_generation(object)
        }
        part.something_else(object);
        part.ledgers[0].advance(part.writer);
    }
}

impl Part {
    fn map(&self, name: &str) -> Result<Mapping> {
        reconnect(&self.state, |host| host.open(name, Access::ReadWrite)?.map(&objects::everything()))
    }

    fn lane(&self) -> std::ops::Range<usize> {
        self.writer * PAGES_EACH..(self.writer + 1) * PAGES_EACH
    }

    /// Tries until it is done.
    fn insist<T, E: std::fmt::Display>(&self, what: &str, work: impl Fn() -> std::result::Result<T, E>) -> T {
        let mut tries = 0_u32;
        loop {
            match work() {
                Ok(done) => return done,
                Err(error) => {
                    self.ledgers[0].note_sync_error(self.writer);
                    tries += 1;
                    if tries.is_multiple_of(1000) {
                        eprintln!("commonhold-bench: writer {}: {what}: {error}", self.writer);
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    fn put(&self, object: usize, page: usize, version: u64) {
        let bytes = pattern::bytes(page, version);
        let what = format!("writing page {page} of {}", NAMES[object]);
        self.insist(&what, || self.guarded.write(&self.mappings[object], page, &bytes));
    }

    /// A killed writer may have left a page half written.
    fn finish_what_was_begun(&self, object: usize) {
        for page in self.lane() {
            let (started, done) = self.ledgers[object].versions(page);
            if started != done {
                self.put(object, page, started);
                self.ledgers[object].finish(page, started);
            }
        }
    }

    fn write_version(&self, object: usize, page: usize, version: u64) {
        self.ledgers[0].pause_if_asked(self.writer);
        self.ledgers[object].start(page, version);
        self.put(object, page, version);
        self.ledgers[object].finish(page, version);
    }

    /// All pages of the lane, and a sync of them.
    fn next_generation(&mut self, object: usize) {
        let mut pages: Vec<usize> = self.lane().collect();
        let last = pages.iter().map(|page| self.ledgers[object].versions(*page).0).max().unwrap_or(0);
        pages.shuffle(&mut self.random);
        pages.iter().for_each(|page| self.write_version(object, *page, last + 1));
        self.ledgers[0].pause_if_asked(self.writer);
        self.ledgers[object].begin_sync(self.writer, last + 1);
        let lane = self.lane();
        let sync = || self.mappings[object].sync_range(lane.start * PAGE, PAGES_EACH * PAGE);
        self.insist(&format!("sync of {}", NAMES[object]), sync);
        self.ledgers[object].acknowledge(self.writer, last + 1);
    }

    /// Some pages: each is what it was, and becomes the next version.
    fn touch_pages(&mut self, object: usize) {
        let mut found = vec![0; PAGE];
        for _ in 0..PAGES_EACH / 2 {
            self.ledgers[0].pause_if_asked(self.writer);
            let page = self.random.random_range(self.lane());
            let versions = self.ledgers[object].versions(page);
            while self.guarded.read(&self.mappings[object], page, &mut found).is_err() {
                self.ledgers[0].note_sync_error(self.writer);
                std::thread::sleep(Duration::from_millis(5));
            }
            if page_in_memory(page, &found, versions) != Finding::Good {
                self.ledgers[0].note_wrong(self.writer);
                eprintln!("commonhold-bench: writer {}: page {page}, noted {versions:?}", self.writer);
            }
            self.write_version(object, page, versions.0 + 1);
        }
    }

    /// Calls whose outcome nobody waits for: that they come back is judged, and what they leave.
    fn something_else(&mut self, object: usize) {
        let _ = self.try_something(object); // errors are what was asked for
    }

    fn try_something(&mut self, object: usize) -> commonhold::Result<()> {
        let lane = self.lane();
        let (offset, length) = ((lane.start * PAGE) as u64, (PAGES_EACH * PAGE) as u64);
        let handle: Object = self.mappings[object].object().clone();
        match self.random.random_range(0..8) {
            0 => handle.incore(offset, length).map(drop),
            1 => handle.prefetch(offset, length),
            2 => {
                let locked = handle.lock(offset, 4 * PAGE as u64);
                self.insist("unlock", || match handle.unlock(offset, 4 * PAGE as u64) {
                    // A lock ends with the connection that it was taken by.
                    Err(error) if error.message.contains("not locked by this client") => Ok(()),
                    other => other,
                });
                locked.map(drop)
            }
            3 => handle.sync_frozen(offset, length).map(drop),
            4 => {
                self.mappings[object] = Host::connect_to(&self.state)?
                    .open(NAMES[object], Access::ReadWrite)?
                    .map(&objects::everything())?;
                Ok(())
            }
            5 => self.use_scratch(true),
            6 => self.use_scratch(false),
            _ => handle.info().map(drop),
        }
    }

    /// An object that begins and ends here.
    fn use_scratch(&mut self, controlled: bool) -> commonhold::Result<()> {
        self.scratch += 1;
        let name = format!("/inject/scratch-{}-{}-{}", self.writer, std::process::id(), self.scratch);
        let options = CreateOptions { size_bytes: 16 * PAGE as u64, controlled, ..CreateOptions::default() };
        let host = Host::connect_to(&self.state)?;
        let object = host.create(&name, &options, None)?;
        let mapping = object.map(&objects::everything());
        if let Ok(mapping) = &mapping {
            let _ = self.guarded.write(mapping, 3, &pattern::bytes(3, 1)); // an error is asked for
        }
        let _ = object.write_at(&[7; 100], 50); // as above
        let _ = object.resize(32 * PAGE as u64); // as above
        host.remove(&name)?;
        mapping.map(drop)
    }
}
