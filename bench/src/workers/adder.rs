//! `adder`: adds to words of its own on pages that others write too, without a pause, and must find
//! what it left.

use crate::context::Random;
use crate::failure::{Result, failed};
use crate::objects;
use crate::tight::ledger::{Found, Kind, Ledger, PAGES, WORD_BYTES};
use crate::tight::plan::Scene;
use crate::view::{PAGE, View};
use crate::worker;
use commonhold::{Coherence, CreateOptions, ErrorKind, Host, Mapping, Object, OnLoss, PagerKind, SyncMode};
use commonhold_sys::clock;
use rand::{RngExt, SeedableRng};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;

/// Between two syncs, in nanoseconds.
const SYNC_GAP: u64 = 150_000_000;
/// One step in so many looks at a word of another writer too.
const LOOK: u64 = 8;

/// Arguments: state directory, name, scene, file to create the object on (`create`: without one;
/// `-`: it exists), ledger, slot, first and last page but one, slots whose words it must see at
/// once.
///
/// With the slot `check` it gives a line with the words that are not as the ledger says, and ends.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, name, scene, file, ledger, slot, first, end, peers] = arguments else {
        return failed("adder takes nine arguments");
    };
    let Some(scene) = Scene::of_word(scene) else { return failed(format!("what is a scene `{scene}`?")) };
    let object = object(Path::new(state), name, scene, file)?;
    let mapping = object.map(&objects::everything())?;
    let peers = peers.split(',').filter(|slot| !slot.is_empty()).map(str::parse);
    let peers = peers.collect::<std::result::Result<Vec<usize>, _>>()?;
    let ledger = Ledger::open(Path::new(ledger))?;
    let pages = first.parse()?..end.parse()?;
    if slot == "check" {
        return worker::say(&check(View::of(&mapping), &ledger, pages, &peers));
    }
    let adder = Adder { scene, mapping, ledger, slot: slot.parse()?, pages, peers };
    worker::say("ready")?;
    adder.add()
}

struct Adder {
    scene: Scene,
    mapping: Mapping,
    ledger: Ledger,
    slot: usize,
    pages: Range<usize>,
    peers: Vec<usize>,
}

fn offset(slot: usize, page: usize) -> usize {
    page * PAGE + slot * WORD_BYTES
}

impl Adder {
    fn add(&self) -> Result<()> {
        let view = View::of(&self.mapping);
        let mut random = Random::seed_from_u64(clock::now());
        // What this process left; of the pages that it has not written one before it may have been
        // killed in between.
        let mut left = [None; PAGES];
        let mut synced = clock::now();
        for step in 0u64.. {
            self.ledger.pause_if_asked(self.slot);
            let page = self.pages.start + (step % self.pages.len() as u64) as usize;
            if step.is_multiple_of(LOOK) && !self.peers.is_empty() {
                self.look(view, self.peers[random.random_range(0..self.peers.len())], page);
            }
            left[page] = Some(self.add_to(view, page, left[page]));
            self.ledger.step(self.slot);
            if clock::now() - synced > SYNC_GAP {
                self.sync(&mut left);
                synced = clock::now();
            }
        }
        Ok(())
    }

    /// Adds one to this writer's word of a page; what it is then.
    fn add_to(&self, view: View<'_>, page: usize, left: Option<u64>) -> u64 {
        let value = view.load(offset(self.slot, page));
        let [begun, done, synced] = self.ledger.versions(self.slot, page);
        let (least, most) = left.map_or((done, begun), |left| (left, left));
        let kind = if value < least { Some(Kind::Lost) } else { (value > most).then_some(Kind::Wrong) };
        if let Some(kind) = kind {
            let synced_at = self.ledger.synced_at(self.slot);
            let found = Found {
                by: self.slot,
                kind,
                of: self.slot,
                page,
                expected: least,
                found: value,
                synced,
                synced_at,
            };
            self.ledger.note(found);
        }
        self.ledger.begin(self.slot, page, value + 1);
        view.store(offset(self.slot, page), value + 1);
        self.ledger.done(self.slot, page, value + 1);
        value + 1
    }

    /// What another writer has said to be done before must be seen.
    fn look(&self, view: View<'_>, peer: usize, page: usize) {
        let [_, expected, synced] = self.ledger.versions(peer, page);
        let found = view.load(offset(peer, page));
        if found < expected {
            let (by, synced_at) = (self.slot, self.ledger.synced_at(peer));
            self.ledger.note(Found {
                by,
                kind: Kind::Stale,
                of: peer,
                page,
                expected,
                found,
                synced,
                synced_at,
            });
        }
    }

    /// An error leaves everything as it was: it is tried again later. If newest versions were lost, what this process left is
    /// no more than what it finds.
    fn sync(&self, left: &mut [Option<u64>; PAGES]) {
        if self.scene == Scene::LocalAnonymous {
            return;
        }
        let (start, length) = (self.pages.start * PAGE, self.pages.len() * PAGE);
        self.ledger.set_syncing(self.slot, true);
        let outcome = match self.scene {
            scene if scene.is_freezable() => self.mapping.object().sync_frozen(start as u64, length as u64),
            _ => self.mapping.sync_range(start, length),
        };
        self.ledger.set_syncing(self.slot, false);
        match outcome {
            Ok(_) => {
                self.ledger.note_sync(self.slot, clock::now());
                let known = self.pages.clone().filter_map(|page| left[page].map(|value| (page, value)));
                known.for_each(|(page, value)| self.ledger.synced(self.slot, page, value));
            }
            Err(error) if error.kind == ErrorKind::Lost => left.fill(None),
            Err(_) => {}
        }
    }
}

/// Words of those slots that are not what was done last; of other slots, that are older than what
/// was synced. Nobody writes.
fn check(view: View<'_>, ledger: &Ledger, pages: Range<usize>, exact: &[usize]) -> String {
    let mut wrong = Vec::new();
    for page in 0..PAGES {
        for slot in 0..crate::tight::ledger::SLOTS {
            let ([_, done, synced], value) = (ledger.versions(slot, page), view.load(offset(slot, page)));
            let is_exact = exact.contains(&slot) && pages.contains(&page);
            if (is_exact && value != done) || value < synced {
                wrong.push(format!("page {page} slot {slot}: {value}, done {done}, synced {synced}"));
            }
        }
    }
    wrong.join("; ")
}

fn object(state: &Path, name: &str, scene: Scene, file: &str) -> Result<Object> {
    if file != "-" {
        return create(state, name, scene, file);
    }
    super::open_soon(state, name)
}

fn create(state: &Path, name: &str, scene: Scene, file: &str) -> Result<Object> {
    let file = match file {
        "create" => None,
        path => Some(File::options().read(true).write(true).open(path)?),
    };
    let coherence = match scene {
        Scene::Central | Scene::CentralFreezable => Coherence::central(OnLoss::Revert),
        Scene::Forwarding => Coherence::strict(OnLoss::Revert),
        Scene::Explicit | Scene::ExplicitFreezable => Coherence::Explicit,
        Scene::Local | Scene::LocalFreezable | Scene::LocalAnonymous => Coherence::Local,
    };
    let options = CreateOptions {
        size_bytes: (PAGES * PAGE) as u64,
        pager: if file.is_some() { PagerKind::File } else { PagerKind::Anonymous },
        sync: if file.is_some() { SyncMode::Ordered } else { SyncMode::Plain },
        controlled: true,
        freezable: scene.is_freezable(),
        coherence,
        reserve: Some(false),
        ..CreateOptions::default()
    };
    Ok(Host::connect_to(state)?.create(name, &options, file.as_ref().map(AsFd::as_fd))?)
}
