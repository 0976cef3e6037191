//! Taking a snapshot: who runs, what each maps, which files these are, which of them are equal.

use super::budget::{Budget, Work};
use super::census::{self, Reader, Target};
use super::files::{Files, Rules};
use super::mappings;
use super::mounts::Mounts;
use super::options::{Error, Scope, SnapshotOptions};
use super::process::{self, How, Whole, Why};
use super::unique::Counter;
use super::unseen::{Gathered, Kind};
use super::walk::{Found, Walk};
use super::watch::{self, End, Outlet};
use super::{Process, Snapshot, content, frames, machine, scope};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A process may keep its reader waiting so much longer than a file.
const PROCESS_PATIENCE: u32 = 10;

/// Looks at a machine, or at the part of it that was asked for.
pub fn take(options: &SnapshotOptions) -> Result<Snapshot, Error> {
    let began = Instant::now();
    let taken_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let budget = Budget::new(options.budget);
    let page = rustix::param::page_size() as u64;
    let mut unseen = Gathered::default();
    let mounts = Arc::new(readers_mounts(&options.proc_root));
    let reader = Reader::of(&options.proc_root);
    let root = match &options.scope {
        Scope::Root(directory) => Some(scope::directory_identity(directory, options.file_deadline)?),
        _ => None,
    };
    let census = census::take(options, &reader, &mounts, &mut unseen)?;
    let has_hidden = census.has_hidden;
    let targets = scope::select(census, &options.scope, root)?;
    let has_frames = options.frames && frames::are_told(&options.proc_root);
    if options.frames && !has_frames {
        unseen.add(Kind::Other, "page frame numbers", "only root is told: files are told apart by Pss");
    }
    let rules = Rules {
        proc_root: options.proc_root.clone(),
        deadline: options.file_deadline,
        page,
        budget,
        mounts: Arc::clone(&mounts),
    };
    let mut taking = Taking {
        budget,
        has_frames,
        unseen,
        files: Files::new(rules),
        counter: has_frames.then(|| Counter::new(&options.proc_root, page)).flatten(),
        processes: Vec::with_capacity(targets.len()),
    };
    if has_hidden && let Some(counter) = &mut taking.counter {
        counter.miss_in_scope();
    }
    taking.read_all(targets, options, page);
    // Before anything that takes long: map counts are of now.
    let group_unique = taking.group_unique();
    if let Scope::Root(directory) = &options.scope {
        taking.walk(directory, options, mounts, page);
    }
    if options.hash {
        content::compare(&mut taking.files, &taking.processes, page, budget, &mut taking.unseen);
    }
    let Taking { mut unseen, files, mut processes, .. } = taking;
    let machine = machine::read(&options.proc_root, page, &mut unseen);
    let files = files.finish(&mut processes, has_frames, &mut unseen);
    Ok(Snapshot {
        taken_at,
        took_ms: milliseconds(began.elapsed()),
        cpu_ms: milliseconds(budget.spent()),
        scope: options.scope.to_string(),
        page_bytes: page,
        has_frames,
        processes,
        files,
        machine,
        group_unique,
        unseen: unseen.finish(),
    })
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What is mounted for the reader: as the procfs says that is looked at, else the machine's own.
fn readers_mounts(proc_root: &Path) -> Mounts {
    let text =
        std::fs::read(proc_root.join("self/mountinfo")).or_else(|_| std::fs::read("/proc/self/mountinfo"));
    text.map(|text| Mounts::parse(&text)).unwrap_or_default()
}

/// A snapshot in the making.
struct Taking {
    budget: Budget,
    has_frames: bool,
    unseen: Gathered,
    files: Files,
    counter: Option<Counter>,
    processes: Vec<Process>,
}

impl Taking {
    /// Reads the processes, one after another, in a thread that is left behind where one hangs.
    fn read_all(&mut self, targets: Vec<Target>, options: &SnapshotOptions, page: u64) {
        let (targets, has_frames) = (Arc::new(targets), self.has_frames);
        let mut next = 0;
        let mut patience = options.file_deadline * PROCESS_PATIENCE;
        while next < targets.len() {
            let (all, proc_root, budget) = (Arc::clone(&targets), options.proc_root.clone(), self.budget);
            let reader = move |out: &Outlet<(usize, Result<Whole, Why>)>| {
                let wants_frames = || has_frames && budget.allows(Work::Frames);
                let how = How { proc_root: &proc_root, page, frames: &wants_frames };
                for (index, target) in all.iter().enumerate().skip(next) {
                    out.progress().at(index as u64);
                    if !budget.allows(Work::Needed)
                        || !out.put((index, process::read(target, &how, out.progress())))
                    {
                        return;
                    }
                }
            };
            let end = watch::stream(patience, reader, |(index, result)| {
                next = index + 1;
                self.one(&targets[index], result);
            });
            match end {
                End::Done if next < targets.len() => {
                    for target in &targets[next..] {
                        self.miss(target, &self.budget.why());
                    }
                    return;
                }
                End::Done => {}
                End::Hung(index) => {
                    let index = usize::try_from(index).unwrap_or(next).max(next);
                    self.miss(&targets[index], "it did not answer in time: its address space is locked");
                    next = index + 1;
                    // Where one hangs others do: they are given less time.
                    patience = options.file_deadline;
                }
            }
        }
    }

    fn one(&mut self, target: &Target, result: Result<Whole, Why>) {
        match result {
            Ok(whole) => self.add(target, whole),
            Err(Why::Ended) => {
                self.unseen.add(Kind::Process, target.title(), "ended while it was to be read")
            }
            Err(Why::Forbidden) => self.miss(target, census::forbidden()),
            Err(Why::Strange(why)) => self.miss(target, &why),
        }
    }

    /// A process that is there, but could not be read.
    fn miss(&mut self, target: &Target, why: &str) {
        self.unseen.add(Kind::Process, target.title(), why);
        self.count(|counter| {
            counter.begin(&target.cgroup, target.container.as_deref())?;
            counter.miss();
            Ok(())
        });
    }

    /// Takes a process in: its files become indices, and of its memory only sums are kept.
    fn add(&mut self, target: &Target, whole: Whole) {
        let Whole { mut process, seen, program, frames, directory, namespace } = whole;
        if frames.is_none() && self.has_frames {
            let why = match self.budget.allows(Work::Frames) {
                true => "its page frames could not be read".to_owned(),
                false => format!("its page frames were not read: {}", self.budget.why()),
            };
            self.unseen.add(Kind::Process, target.title(), why);
        }
        let private = seen.iter().map(|one| one.mapping.private_clean + one.mapping.private_dirty).sum();
        self.count(|counter| {
            counter.begin(&target.cgroup, target.container.as_deref())?;
            match &frames {
                Some(found) => counter.add(private, &found.shared),
                None => counter.miss(),
            }
            Ok(())
        });
        let mut of_files = frames.map(|found| found.of_files).unwrap_or_default().into_iter();
        let mut mappings = Vec::with_capacity(seen.len());
        for (index, mut one) in seen.into_iter().enumerate() {
            let pages = of_files.next().unwrap_or_default();
            one.mapping.file = self.files.of(&directory, namespace, &one);
            if let (None, Some(backing)) = (one.mapping.file, &one.backing) {
                one.mapping.label = backing.path.display().to_string();
            }
            if let Some(file) = one.mapping.file {
                self.files.add_frames(file, &pages);
                if program == Some(index) {
                    process.program = Some(file);
                }
            }
            mappings.push(one.mapping);
        }
        process.mappings = mappings::reduce(mappings);
        self.processes.push(process);
    }

    /// Does something with the counter of frames; if the kernel's counts cannot be read, there is none any more.
    fn count(&mut self, work: impl FnOnce(&mut Counter) -> std::io::Result<()>) {
        if let Some(counter) = &mut self.counter
            && let Err(error) = work(counter)
        {
            self.counter = None;
            self.no_counts(&error);
        }
    }

    fn no_counts(&mut self, error: &std::io::Error) {
        let why = format!("/proc/kpagecount could not be read: {error}");
        self.unseen.add(Kind::Other, "memory of containers and control groups by frames", why);
    }

    fn group_unique(&mut self) -> std::collections::BTreeMap<String, u64> {
        match self.counter.take().map(Counter::finish) {
            Some(Ok(unique)) => unique,
            Some(Err(error)) => {
                self.no_counts(&error);
                Default::default()
            }
            None => Default::default(),
        }
    }

    /// The ELF files below a root directory.
    fn walk(&mut self, directory: &Path, options: &SnapshotOptions, mounts: Arc<Mounts>, page: u64) {
        let now: Arc<Mutex<PathBuf>> = Arc::default();
        let walk = Walk {
            top: directory.to_owned(),
            cross: options.cross_file_systems,
            mounts,
            budget: self.budget,
            page,
            now: Arc::clone(&now),
        };
        let end = watch::stream(
            options.file_deadline,
            move |out| walk.run(out),
            |found| match found {
                Found::Elf(file) => self.files.add_lying(*file),
                Found::Unseen(path, why) => self.unseen.add(Kind::File, path.display().to_string(), why),
            },
        );
        if end != End::Done {
            let place = now.lock().map(|now| now.display().to_string()).unwrap_or_default();
            let why = "its file system did not answer in time: it and what was still to come were left out";
            self.unseen.add(Kind::File, place, why);
        }
    }
}
