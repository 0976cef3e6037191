//! A mutex that threads of several hosts want, and a file in which each notes when it has it: what must be true of that afterwards.

use crate::ledger;
use crate::wait;
use commonhold::{Error, ErrorKind, Host, Mutex};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nobody notes more.
const MOST: usize = 1 << 19;
/// The first words: how much is noted, whether all are to end, and how often what the mutex guards was changed.
const HEAD: usize = 3;

/// What a process notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// It has the mutex.
    Takes,
    /// It has the mutex, and was told that an owner died.
    TakesFromTheDead,
    /// It is about to let it go.
    LetsGo,
    /// It was the owner until then.
    HadIt,
    /// It was not: it was told so.
    LostIt,
}

const NOTES: [Note; 5] = [Note::Takes, Note::TakesFromTheDead, Note::LetsGo, Note::HadIt, Note::LostIt];

/// What all note, in order.
pub struct Notes {
    path: PathBuf,
    words: &'static [AtomicU64],
}

impl Notes {
    /// Opens them, or begins.
    pub fn open(path: &Path) -> Notes {
        Notes { path: path.to_owned(), words: ledger::words_of(path, HEAD + MOST) }
    }

    /// Where they are.
    pub fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// How much is noted.
    pub fn count(&self) -> u64 {
        self.words[0].load(Ordering::SeqCst)
    }

    /// How often what the mutex guards was changed.
    pub fn changes(&self) -> &AtomicU64 {
        &self.words[2]
    }

    /// All are to end.
    pub fn end(&self) {
        self.words[1].store(1, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.words[1].load(Ordering::SeqCst) != 0 || self.count() as usize + 8 > MOST
    }

    fn note(&self, note: Note) {
        let at = self.words[0].fetch_add(1, Ordering::SeqCst) as usize;
        let number = NOTES.iter().position(|one| *one == note).unwrap_or_default() as u64 + 1;
        if let Some(word) = self.words.get(HEAD + at) {
            word.store(number << 32 | u64::from(std::process::id()), Ordering::SeqCst);
        }
    }

    /// What was noted, and by which process. Who was killed meanwhile left a gap.
    pub fn all(&self) -> Vec<(u32, Note)> {
        let count = self.count() as usize;
        let word = |at: usize| self.words.get(HEAD + at).map_or(0, |word| word.load(Ordering::SeqCst));
        let read = |word: u64| Some((word as u32, *NOTES.get(((word >> 32) as usize).checked_sub(1)?)?));
        (0..count).filter_map(|at| read(word(at))).collect()
    }

    /// How often that process took it.
    pub fn times_of(&self, pid: u32) -> usize {
        let takes =
            |(by, note): &(u32, Note)| *by == pid && matches!(note, Note::Takes | Note::TakesFromTheDead);
        self.all().iter().filter(|one| takes(one)).count()
    }

    /// Waits until each of those processes took it some times more.
    pub fn wait_for(&self, pids: &[u32]) {
        let before: Vec<usize> = pids.iter().map(|pid| self.times_of(*pid)).collect();
        for (pid, before) in pids.iter().zip(before) {
            let more = || (self.times_of(*pid) > before + 1 || self.is_over()).then_some(());
            if wait::within(wait::LONG, more).is_none() {
                let where_are =
                    pids.iter().map(|pid| format!("{pid} in {}", where_is(*pid))).collect::<Vec<_>>();
                let last = self.all();
                let last = &last[last.len().saturating_sub(3000)..];
                let times =
                    pids.iter().map(|pid| (*pid, last.iter().filter(|(by, _)| by == pid).count() / 3));
                let times: Vec<_> = times.collect();
                panic!(
                    "process {pid} waits in vain; {}; {} notes, of late {times:?}: {:?}",
                    where_are.join(", "),
                    self.count(),
                    self.around(usize::MAX)
                );
            }
        }
    }

    /// No two had it at once who both were the owner to the end; and who comes after one that died with it was told.
    pub fn check(&self) {
        let all = self.all();
        let mut begun: HashMap<u32, usize> = HashMap::new();
        // From when to when each had it, and whether it was the owner to the end; `None`: it died with it.
        let mut sections: Vec<(usize, usize, u32, bool)> = Vec::new();
        let mut ends: HashMap<u32, usize> = HashMap::new();
        for (at, (pid, note)) in all.iter().enumerate() {
            match note {
                Note::Takes | Note::TakesFromTheDead => drop(begun.insert(*pid, at)),
                Note::LetsGo => drop(ends.insert(*pid, at)),
                Note::HadIt | Note::LostIt => {
                    if let (Some(from), Some(to)) = (begun.remove(pid), ends.remove(pid)) {
                        sections.push((from, to, *pid, *note == Note::HadIt));
                    }
                }
            }
        }
        let mut whole: Vec<_> = sections.iter().filter(|section| section.3).collect();
        whole.sort();
        for pair in whole.windows(2) {
            assert!(pair[0].1 < pair[1].0, "two owners at once: {:?} in {:?}", pair, self.around(pair[1].0));
        }
        for (pid, from) in begun.iter().filter(|(pid, _)| !ends.contains_key(*pid)) {
            let takes = |note: &Note| matches!(note, Note::Takes | Note::TakesFromTheDead);
            let next = all[from + 1..].iter().find(|(_, note)| takes(note));
            let told = next.is_none_or(|(_, note)| *note == Note::TakesFromTheDead);
            assert!(told, "{pid} died with it, and {next:?} was not told: {:?}", self.around(*from));
        }
    }

    fn around(&self, at: usize) -> Vec<(u32, Note)> {
        let all = self.all();
        let at = at.min(all.len());
        all[at.saturating_sub(8)..(at + 8).min(all.len())].to_vec()
    }
}

/// Takes the mutex of that name again and again until all are to end, and changes `guarded`, which must be as the notes say.
/// Opens it anew when it is lost. Gives how often that was.
pub fn contend(host: &Host, name: &str, notes: &Notes, guarded: Option<&AtomicU64>) -> Result<u64, Error> {
    let mut opened = 0;
    let mut seed = u64::from(std::process::id());
    while !notes.is_over() {
        let deadline = Instant::now() + wait::LONG;
        let mutex = loop {
            match Mutex::open(host, name) {
                Ok(mutex) => break mutex,
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        opened += 1;
        while !notes.is_over() {
            seed = crate::page::mix(seed, 3);
            let waited = Some(Instant::now() + wait::LONG * 3 / 4);
            match once(&mutex, notes, (guarded, seed % 200), waited) {
                Ok(()) => {}
                Err(error) if error.kind == ErrorKind::Lost => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(opened - 1)
}

fn once(
    mutex: &Mutex,
    notes: &Notes,
    (guarded, pause_us): (Option<&AtomicU64>, u64),
    deadline: Option<Instant>,
) -> Result<(), Error> {
    let died = mutex.acquire_marked(deadline.into())?;
    notes.note(if died { Note::TakesFromTheDead } else { Note::Takes });
    if let Some(guarded) = guarded {
        let changes = notes.changes();
        let (seen, truth) = (guarded.load(Ordering::SeqCst), changes.load(Ordering::SeqCst));
        if seen != truth && !died {
            let text = format!("what the mutex guards is {seen}, and was changed {truth} times");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        // Not in one step: the mutex is what makes it right.
        guarded.store(truth + 1, Ordering::SeqCst);
        changes.store(truth + 1, Ordering::SeqCst);
    }
    std::thread::sleep(Duration::from_micros(pause_us));
    let mended = if died { mutex.consistent() } else { Ok(()) };
    notes.note(Note::LetsGo);
    let let_go = mended.and_then(|()| mutex.release());
    notes.note(if let_go.is_ok() { Note::HadIt } else { Note::LostIt });
    let_go.or_else(|error| if error.kind == ErrorKind::NotOwner { Ok(()) } else { Err(error) })
}

/// Where each thread of a process is in the kernel, for people.
fn where_is(pid: u32) -> String {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let places =
        threads.map(|thread| std::fs::read_to_string(thread.path().join("wchan")).unwrap_or_default());
    places.collect::<Vec<_>>().join("+")
}
