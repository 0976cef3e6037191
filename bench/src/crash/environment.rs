//! What the trials of a segment have in common: an object, a ledger, two writers, and the judge's own mapping.

use super::ledger::{Ledger, WRITERS};
use super::pattern;
use super::plan::Scene;
use crate::failure::{Doing, Result, failed};
use crate::objects;
use crate::view::PAGE;
use crate::worker::{Worker, own_command};
use commonhold::{CreateOptions, Host, Mapping, PagerKind, SyncMode};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long anybody may take to go on after a death that was not theirs.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Smallest budget there is.
const BUDGET: u64 = 1 << 20;
const NAME: &str = "/crash/object";

/// What a writer is told.
pub struct Part {
    /// State directory of the host.
    pub state: PathBuf,
    /// Name of the object.
    pub name: String,
    /// Where to note what is done.
    pub ledger: Ledger,
    /// Its number.
    pub writer: usize,
    /// How many pages are its own.
    pub pages: usize,
    /// What its random choices follow from.
    pub seed: u64,
}

impl Part {
    /// From the command line.
    pub fn from_arguments(arguments: &[String]) -> Result<Part> {
        let [state, name, ledger, writer, pages, seed] = arguments else {
            return failed("a writer takes six arguments");
        };
        Ok(Part {
            state: state.into(),
            name: name.clone(),
            ledger: Ledger::open(Path::new(ledger))?,
            writer: writer.parse()?,
            pages: pages.parse()?,
            seed: seed.parse()?,
        })
    }
}

/// Does something with a host that may just be taking over: tries again as long as nobody may complain.
pub fn reconnect<T>(state: &Path, work: impl Fn(&Host) -> commonhold::Result<T>) -> Result<T> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match Host::connect_to(state).and_then(|host| work(&host)) {
            Ok(result) => return Ok(result),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// One segment's processes and files.
pub struct Environment {
    /// What the writers write to.
    pub scene: Scene,
    /// State directory of the host.
    pub state: PathBuf,
    /// The notes of all.
    pub ledger: Ledger,
    /// The judge's own mapping: the judge is a client, too, and the last one.
    pub mapping: Mapping,
    /// The stored object, if there is one.
    pub file: Option<File>,
    /// Who writes.
    pub writers: Vec<Worker>,
    /// The judge's own generation, in the last page of an atomic object.
    pub own_generation: u64,
    directory: PathBuf,
    seed: u64,
    started: u64,
}

impl Environment {
    /// Makes object, ledger and writers.
    pub fn create(scene: Scene, state: &Path, directory: &Path, seed: u64) -> Result<Environment> {
        let pages = pages(scene);
        let ledger = Ledger::create(&directory.join("ledger"), pages)?;
        let file = if scene == Scene::Anonymous {
            None
        } else {
            Some(store(&directory.join("stored"), pages, WRITERS, &ledger)?)
        };
        let options = CreateOptions {
            size_bytes: (pages * PAGE) as u64,
            pager: if file.is_some() { PagerKind::File } else { PagerKind::Anonymous },
            sync: if file.is_some() { SyncMode::Atomic } else { SyncMode::Plain },
            controlled: true,
            budget_bytes: (scene != Scene::Atomic).then_some(BUDGET),
            ..CreateOptions::default()
        };
        let host = Host::connect_to(state)?;
        let object =
            host.create(NAME, &options, file.as_ref().map(AsFd::as_fd)).doing("creating the object")?;
        let mapping = object.map(&objects::everything())?;
        let mut this = Environment {
            scene,
            state: state.to_owned(),
            ledger,
            mapping,
            file,
            writers: Vec::new(),
            own_generation: 1,
            directory: directory.to_owned(),
            seed,
            started: 0,
        };
        for writer in 0..WRITERS {
            let worker = this.start_writer(writer)?;
            this.writers.push(worker);
        }
        Ok(this)
    }

    /// Pages of the object.
    pub fn pages(&self) -> usize {
        pages(self.scene)
    }

    /// Pages of one writer.
    pub fn pages_each(&self) -> usize {
        pages_each(self.scene)
    }

    /// The judge's own page of an atomic object.
    pub fn own_page(&self) -> usize {
        pages(self.scene) - 1
    }

    fn start_writer(&mut self, writer: usize) -> Result<Worker> {
        self.started += 1;
        let name = if self.scene == Scene::Anonymous { "crash-pages" } else { "crash-lanes" };
        let arguments = [
            self.state.to_string_lossy().into_owned(),
            NAME.to_owned(),
            self.directory.join("ledger").to_string_lossy().into_owned(),
            writer.to_string(),
            self.pages_each().to_string(),
            (self.seed ^ (self.started << 32)).to_string(),
        ];
        let mut worker = Worker::spawn(own_command(name, &arguments)?.stdin(Stdio::null()))?;
        worker.expect("ready")?;
        Ok(worker)
    }

    /// Puts another writer in the place of one that is gone.
    pub fn replace_writer(&mut self, writer: usize) -> Result<()> {
        self.ledger.forget_pause(writer);
        self.writers[writer] = self.start_writer(writer)?;
        Ok(())
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // Writers never end by themselves.
        self.writers.iter_mut().for_each(Worker::kill);
    }
}

fn pages_each(scene: Scene) -> usize {
    match scene {
        Scene::Atomic => 32,
        Scene::AtomicSmallBudget => 256,
        Scene::Anonymous => 2048,
    }
}

fn pages(scene: Scene) -> usize {
    pages_each(scene) * WRITERS + usize::from(scene != Scene::Anonymous)
}

/// A file that holds generation 1 everywhere, noted as such.
pub fn store(path: &Path, pages: usize, writers: usize, ledger: &Ledger) -> Result<File> {
    let mut file = File::options().read(true).write(true).create_new(true).open(path)?;
    for page in 0..pages {
        file.write_all(&pattern::bytes(page, 1))?;
        ledger.start(page, 1);
        ledger.finish(page, 1);
    }
    file.sync_all()?;
    for writer in 0..writers {
        ledger.begin_sync(writer, 1);
        ledger.acknowledge(writer, 1);
    }
    Ok(file)
}
