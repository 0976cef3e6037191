//! A life on one host: objects of every sort that a host serves alone, two writers, and the judge's own mappings.

use super::guarded::Guarded;
use super::injector::{Injector, Sort};
use super::load::{ANONYMOUS, NAMES, PAGES_EACH, ledger_path};
use super::tally::Tally;
use crate::context::Random;
use crate::crash::environment::store;
use crate::crash::ledger::{Ledger, WRITERS};
use crate::crash::pattern::{self, Seen};
use crate::crash::verify::{self, Finding};
use crate::failure::{Doing, Result};
use crate::host::BenchHost;
use crate::objects;
use crate::processes;
use crate::view::PAGE;
use crate::worker::{Worker, own_command};
use commonhold::{CreateOptions, Mapping, PageState, PagerKind, SyncMode};
use rand::{RngExt, SeedableRng};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const PAGES: usize = WRITERS * PAGES_EACH;
const BUDGET: u64 = 1 << 20;
/// What no client may take longer than, once no more faults are injected.
pub const BOUND: Duration = Duration::from_secs(30);
/// An operation that fails for so long after the last fault fails for good.
pub const STICKY: Duration = Duration::from_secs(10);

/// The whole.
pub struct Local {
    directory: PathBuf,
    host: BenchHost,
    ledgers: Vec<Ledger>,
    files: Vec<Option<File>>,
    mappings: Vec<Mapping>,
    writers: Vec<Worker>,
    guarded: Guarded,
    random: Random,
    tally: Tally,
}

impl Local {
    /// Starts a host, makes objects and starts writers.
    pub fn begin(directory: &Path, seed: u64) -> Result<Local> {
        let host = BenchHost::start(&directory.join("state"))?;
        let client = host.connect()?;
        let (mut ledgers, mut files, mut mappings) = (Vec::new(), Vec::new(), Vec::new());
        for (object, name) in NAMES.iter().enumerate() {
            let ledger = Ledger::create(&ledger_path(directory, object), PAGES)?;
            let file = (object != ANONYMOUS)
                .then(|| store(&directory.join(format!("stored-{object}")), PAGES, WRITERS, &ledger))
                .transpose()?;
            let options = CreateOptions {
                size_bytes: (PAGES * PAGE) as u64,
                pager: if file.is_some() { PagerKind::File } else { PagerKind::Anonymous },
                sync: [SyncMode::Atomic, SyncMode::Ordered, SyncMode::Plain][object],
                controlled: true,
                budget_bytes: Some(BUDGET),
                ..CreateOptions::default()
            };
            let made = client.create(name, &options, file.as_ref().map(AsFd::as_fd)).doing("creating")?;
            mappings.push(made.map(&objects::everything())?);
            ledgers.push(ledger);
            files.push(file);
        }
        let random = Random::seed_from_u64(seed);
        let (directory, guarded) = (directory.to_owned(), Guarded::new()?);
        let (writers, tally) = (Vec::new(), Tally::default());
        let mut this = Local { directory, host, ledgers, files, mappings, writers, guarded, random, tally };
        for writer in 0..WRITERS {
            let worker = this.start_writer(writer)?;
            this.writers.push(worker);
        }
        Ok(this)
    }

    fn start_writer(&mut self, writer: usize) -> Result<Worker> {
        let arguments = [
            self.host.state().to_string_lossy().into_owned(),
            self.directory.to_string_lossy().into_owned(),
            writer.to_string(),
            self.random.random::<u64>().to_string(),
        ];
        Worker::spawn(own_command("inject-load", &arguments)?.stdin(Stdio::null()))
    }

    /// Faults, then none; gives what was wrong.
    pub fn round(&mut self, injector: &mut Injector, lasting: Duration, sort: Sort) -> Result<Tally> {
        self.tally = Tally::default();
        let wrong = self.wrong();
        injector.run(lasting, sort);
        if !self.all_go_on()? {
            // What is there is judged all the same.
            self.writers.iter_mut().for_each(Worker::kill);
            (0..NAMES.len()).for_each(|object| self.check(object));
            return Ok(self.tally);
        }
        self.tally.wrong_bytes += self.wrong() - wrong;
        self.ledgers[0].ask_pause(true);
        if self.wait("hold still", |life, writer| life.ledgers[0].is_paused(writer))? {
            (0..NAMES.len()).for_each(|object| self.check(object));
        }
        self.ledgers[0].ask_pause(false);
        Ok(self.tally)
    }

    fn wrong(&self) -> u64 {
        self.ledgers[0].wrong()
    }

    /// Whoever is gone is replaced, and every writer does something whole.
    fn all_go_on(&mut self) -> Result<bool> {
        let before: Vec<u64> = (0..WRITERS).map(|writer| self.ledgers[0].progress(writer)).collect();
        self.wait("go on", |life, writer| life.ledgers[0].progress(writer) >= before[writer] + 2)
    }

    /// Waits for every writer. Those that fail all the time are told from those that wait.
    fn wait(&mut self, what: &str, is: impl Fn(&Local, usize) -> bool) -> Result<bool> {
        let deadline = Instant::now() + BOUND;
        let mut looked = Instant::now() - BOUND;
        let mut errors = None;
        while !(0..WRITERS).all(|writer| is(self, writer)) {
            if looked.elapsed() > Duration::from_millis(50) {
                looked = Instant::now();
                self.replace_the_dead()?;
                if processes::of_directory(self.host.state()).is_empty() {
                    self.host.start_again()?;
                }
            }
            if Instant::now() + BOUND > deadline + STICKY {
                errors.get_or_insert_with(|| self.ledgers[0].sync_errors());
            }
            if Instant::now() > deadline {
                let fails = errors.is_some_and(|before| self.ledgers[0].sync_errors() > before);
                eprintln!("commonhold-bench: not all writers {what} within {BOUND:?}; errors: {fails}");
                self.tally.sticky += u64::from(fails);
                self.tally.late += u64::from(!fails);
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(true)
    }

    fn replace_the_dead(&mut self) -> Result<()> {
        for writer in 0..WRITERS {
            if !self.writers[writer].is_running() {
                self.ledgers[0].forget_pause(writer);
                self.writers[writer] = self.start_writer(writer)?;
            }
        }
        Ok(())
    }

    /// Tries until it is done; an error for too long is one that stays.
    fn insist<T>(&mut self, what: &str, work: impl Fn(&Local) -> std::io::Result<T>) -> Option<T> {
        let deadline = Instant::now() + STICKY;
        loop {
            match work(self) {
                Ok(done) => return Some(done),
                Err(error) if Instant::now() > deadline => {
                    eprintln!("commonhold-bench: {what} still fails: {error}");
                    self.tally.sticky += 1;
                    return None;
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn check(&mut self, object: usize) {
        let name = NAMES[object];
        let other = |error: commonhold::Error| std::io::Error::other(error.to_string());
        let states =
            self.insist(&format!("incore of {name}"), |life| life.mappings[object].incore().map_err(other));
        let mut memory = vec![0; PAGES * PAGE];
        for page in 0..PAGES {
            let mut bytes = vec![0; PAGE];
            let read = self.insist(&format!("reading page {page} of {name}"), |life| {
                let mut bytes = vec![0; PAGE];
                life.guarded.read(&life.mappings[object], page, &mut bytes).map(|()| bytes)
            });
            let Some(read) = read else { return };
            bytes.copy_from_slice(&read);
            let notes = self.ledgers[object].versions(page);
            if verify::page_in_memory(page, &bytes, notes) != Finding::Good {
                let found = pattern::look(page, &bytes);
                eprintln!("commonhold-bench: page {page} of {name} in memory: {found:?}, noted {notes:?}");
                self.tally.wrong_bytes += 1;
            }
            memory[page * PAGE..(page + 1) * PAGE].copy_from_slice(&bytes);
        }
        if self.files[object].is_some() {
            self.check_stored(object, &memory, &states.unwrap_or_default());
        }
    }

    fn check_stored(&mut self, object: usize, memory: &[u8], states: &[(PageState, bool)]) {
        let Some(file) = &self.files[object] else { return };
        let mut stored = vec![0; PAGES * PAGE];
        if let Err(error) = file.read_exact_at(&mut stored, 0) {
            eprintln!("commonhold-bench: reading the file of {}: {error}", NAMES[object]);
            self.tally.lost_syncs += 1;
            return;
        }
        for writer in 0..WRITERS {
            let ledger = &self.ledgers[object];
            let (acknowledged, syncing) = (ledger.acknowledged(writer), ledger.syncing(writer));
            let first = writer * PAGES_EACH;
            let lane = &stored[first * PAGE..(first + PAGES_EACH) * PAGE];
            let wrong = match object {
                0 => u64::from(verify::lane_in_store(first, lane, acknowledged, syncing) != Finding::Good),
                _ => lane_in_order(ledger, first, lane, acknowledged),
            };
            if wrong > 0 {
                let name = NAMES[object];
                eprintln!(
                    "commonhold-bench: stored lane {writer} of {name}: {wrong} wrong, acknowledged {acknowledged}, begun \
                     {syncing}"
                );
            }
            self.tally.lost_syncs += wrong;
        }
        for (page, (state, _)) in states.iter().enumerate() {
            let part = page * PAGE..(page + 1) * PAGE;
            if verify::state(&memory[part.clone()], &stored[part], *state) != Finding::Good {
                eprintln!("commonhold-bench: page {page} of {} is {state:?}", NAMES[object]);
                self.tally.wrongly_clean += 1;
            }
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // They never end by themselves.
        self.writers.iter_mut().for_each(Worker::kill);
    }
}

/// Pages of a lane that are older than what was acknowledged, or not whole: evictions may store newer ones at any time.
fn lane_in_order(ledger: &Ledger, first: usize, lane: &[u8], acknowledged: u64) -> u64 {
    let is_good = |(n, bytes): (usize, &[u8])| match pattern::look(first + n, bytes) {
        Seen::Whole(version) => (acknowledged..=ledger.versions(first + n).0).contains(&version),
        // What is stored while it is written may be of two versions, the older of which was acknowledged.
        Seen::Mixed => {
            let (started, _) = ledger.versions(first + n);
            started > acknowledged && pattern::is_between(first + n, bytes, started - 1, started)
        }
        Seen::Zero => false,
    };
    lane.chunks_exact(PAGE).enumerate().filter(|page| !is_good(*page)).count() as u64
}
