//! Sets of programs, found and measured in a thread that is left behind where a file system does not answer: of what
//! lies there the report says so, and has the rest.

use super::{Measurer, Options};
use crate::report::LibrarySet;
use crate::snapshot::Unseen;
use crate::snapshot::mounts::Mounts;
use crate::snapshot::watch::{self, End};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// So many file systems or files that do not answer are passed over; with more the sets end there.
const SILENT: usize = 8;
/// Why something is missing.
const WHY: &str = "its file system did not answer in time";

/// Which sets to measure, and how.
#[derive(Clone)]
pub struct Request {
    /// Names, and the files and folders of each.
    pub sets: Vec<(String, Vec<PathBuf>)>,
    /// Archives that are asked before those that are found.
    pub archives: Vec<PathBuf>,
    /// Below which directory libraries and archives are looked for.
    pub root: PathBuf,
    /// Asked before each program: whether there is still time.
    pub goes_on: Arc<dyn Fn() -> bool + Send + Sync>,
    /// How long one program may take.
    pub patience: Duration,
}

/// What a set's thread hands over: a set, or at last what it could not use.
enum Part {
    Set(Box<LibrarySet>),
    Unseen(Vec<Unseen>),
}

/// Measures all sets, and says what was not seen. Each file that keeps its reader waiting costs the patience once, and
/// so does a file system of a network with all that is on it.
pub fn measure_all(request: &Request) -> (Vec<LibrarySet>, Vec<Unseen>) {
    let mounts = Mounts::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default());
    let mut silent: Vec<PathBuf> = Vec::new();
    loop {
        let (mut sets, mut unseen) = (Vec::new(), Vec::new());
        let now: Arc<Mutex<PathBuf>> = Arc::default();
        let job = job(request.clone(), silent.clone(), Arc::clone(&now));
        let end = watch::stream(request.patience, job, |part| match part {
            Part::Set(set) => sets.push(*set),
            Part::Unseen(more) => unseen = more,
        });
        let told = silent.iter().map(|path| not_seen(path.display().to_string()));
        if end == End::Done {
            unseen.extend(told);
            return (sets, unseen);
        }
        let place = now.lock().map(|place| place.clone()).unwrap_or_default();
        // An empty place: archives that were given are read before any program.
        let given_up = place.as_os_str().is_empty() || silent.len() == SILENT;
        if given_up {
            unseen.extend(told);
            for (name, _) in &request.sets[sets.len()..] {
                unseen.push(not_seen(format!("set {name}")));
                sets.push(LibrarySet { name: name.clone(), ..LibrarySet::default() });
            }
            return (sets, unseen);
        }
        let all_of_it = mounts.far(&place).map(Path::to_owned);
        silent.push(all_of_it.filter(|mount| !silent.contains(mount)).unwrap_or(place));
    }
}

fn not_seen(what: String) -> Unseen {
    Unseen { what, why: WHY.to_owned() }
}

/// Measures, and notes where it is. What is silent is not touched again.
fn job(
    request: Request,
    silent: Vec<PathBuf>,
    now: Arc<Mutex<PathBuf>>,
) -> impl FnOnce(&watch::Outlet<Part>) + Send {
    move |out| {
        let signs = out.signs();
        let at = move |path: &Path| {
            signs.beat();
            if let Ok(mut now) = now.lock() {
                path.clone_into(&mut now);
            }
            !signs.left() && !silent.iter().any(|place| path.starts_with(place))
        };
        let goes_on = Arc::clone(&request.goes_on);
        let options = Options { root: request.root, goes_on: Box::new(move || goes_on()), at: Box::new(at) };
        let mut measurer = Measurer::new(&request.archives, options);
        for (name, programs) in &request.sets {
            if !out.put(Part::Set(Box::new(measurer.set(name, programs)))) {
                return;
            }
        }
        out.put(Part::Unseen(measurer.unseen()));
    }
}

/// The files that a search finds. None: the file system did not answer for so long. `search` hands over one after the
/// other, until it is told that nobody wants more.
pub fn files_of<S>(patience: Duration, search: S) -> Option<Vec<PathBuf>>
where
    S: FnOnce(&mut dyn FnMut(PathBuf) -> bool) + Send + 'static,
{
    let mut files = Vec::new();
    let end = watch::stream(patience, |out| search(&mut |path| out.put(path)), |path| files.push(path));
    (end == End::Done).then_some(files)
}
