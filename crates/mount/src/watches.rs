//! Objects of explicit coherence that are open: when pages of one change, the kernel's copies of them end.
//!
//! ```mermaid
//! sequenceDiagram
//!     participant O as another host
//!     participant H as host
//!     participant W as server
//!     participant K as kernel
//!     O->>H: sync: pages change
//!     H->>W: Changed
//!     W->>H: watch it again
//!     W->>K: these pages are not what they were
//!     K->>W: what was written here (WRITE), which stays
//!     Note over K: the next touch asks anew (READ)
//! ```
//!
//! In this order: what changes after it is watched again is told again.
//!
//! The kernel may wait for a page that a program writes by a call, and that call for an answer of
//! this server. If the server is killed then, the thread that tells the kernel is in the midst of
//! that wait, and the process cannot end. The keeper counts it as ended (`stuck.rs` there), the
//! next server answers the call, and the thread is free to end. What the kernel does for it yet is
//! harmless: it ends pages, and whoever touches one next asks for it anew.

use crate::failure::{Failure, Outcome};
use crate::fuse::Device;
use crate::lock;
use commonhold::{Heard, ObjectId, Watcher};
use commonhold_keeper::{StateLog, TELLS_KERNEL};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Changes that are remembered for who is about to note an object.
const EARLY: usize = 4096;
/// Between two attempts to reach a host that was lost.
const AGAIN: Duration = Duration::from_millis(200);

/// An object that is watched.
struct Watched {
    path: String,
    /// Its number on the connection of now.
    object: Option<ObjectId>,
    /// Open files of it.
    files: u64,
    /// The kernel is being told; and once more after that.
    telling: bool,
    again: bool,
}

#[derive(Default)]
struct State {
    watch: Option<Arc<Watcher>>,
    /// Changes of objects whose numbers nobody here had noted yet.
    early: HashSet<ObjectId>,
    /// Of each node, who opens or closes it there.
    turns: HashMap<u64, Arc<Mutex<()>>>,
    /// By their nodes.
    objects: HashMap<u64, Watched>,
}

/// All that is watched.
pub struct Watches {
    device: Device,
    host_directory: PathBuf,
    log: StateLog,
    /// The name that a node has now, and the object that it is.
    place_of: Box<dyn Fn(u64) -> Option<(String, u128)> + Send + Sync>,
    state: Mutex<State>,
}

impl Watches {
    /// Nothing yet.
    pub fn new(
        device: Device,
        host_directory: PathBuf,
        log: StateLog,
        place_of: impl Fn(u64) -> Option<(String, u128)> + Send + Sync + 'static,
    ) -> Arc<Watches> {
        let place_of = Box::new(place_of);
        Arc::new(Watches { device, host_directory, log, place_of, state: Mutex::default() })
    }

    /// One at a time opens or closes the object of a node: what one closes another has not just opened.
    fn turn(&self, node: u64) -> Arc<Mutex<()>> {
        let mut state = self.lock();
        state.turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        state.turns.entry(node).or_default().clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A file of that node is being opened. From the answer on, changes are told.
    pub fn add(self: &Arc<Self>, node: u64, path: &str) -> Outcome<()> {
        let turn = self.turn(node);
        let held = lock(&turn);
        let known = self.note(node, path);
        if known.is_none() {
            match self.watch(node) {
                Ok(object) => self.is_watched(node, object),
                Err(failure) => {
                    drop(held);
                    self.remove(node);
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    /// One file more. Gives the number by which it is watched already.
    fn note(&self, node: u64, path: &str) -> Option<ObjectId> {
        let new = || Watched { path: path.to_owned(), object: None, files: 0, telling: false, again: false };
        let mut state = self.lock();
        let watched = state.objects.entry(node).or_insert_with(new);
        watched.files += 1;
        watched.object
    }

    /// Watches the object of a node. If another has its name by now, it is not found.
    fn watch(self: &Arc<Self>, node: u64) -> Outcome<ObjectId> {
        let watch = self.connection()?;
        let (path, uuid) = (self.place_of)(node).ok_or(Failure(Errno::NOENT))?;
        let (object, found) = watch.open(&path)?;
        if found != uuid {
            watch.close(object)?;
            return Err(Failure(Errno::NOENT));
        }
        watch.watch(object)?;
        Ok(object)
    }

    fn is_watched(self: &Arc<Self>, node: u64, object: ObjectId) {
        let mut state = self.lock();
        if let Some(watched) = state.objects.get_mut(&node) {
            watched.object = Some(object);
        }
        let has_changed = state.early.remove(&object);
        drop(state);
        if has_changed {
            self.changed(node);
        }
    }

    /// The same of a file that was open when this server took over: what the kernel has of it may be old.
    pub fn inherit(self: &Arc<Self>, node: u64, path: &str) {
        self.note(node, path);
        self.changed(node);
    }

    /// A file of it was closed.
    pub fn remove(&self, node: u64) {
        let turn = self.turn(node);
        let _held = lock(&turn);
        let mut state = self.lock();
        let Some(watched) = state.objects.get_mut(&node) else { return };
        watched.files -= 1;
        if watched.files > 0 {
            return;
        }
        let object = state.objects.remove(&node).and_then(|watched| watched.object);
        if let (Some(watch), Some(object)) = (state.watch.clone(), object) {
            state.early.remove(&object);
            drop(state);
            let _ = watch.close(object); // a host that was lost knows of nothing that is open
        }
    }

    fn connection(self: &Arc<Self>) -> Outcome<Arc<Watcher>> {
        let mut state = self.lock();
        if let Some(watch) = &state.watch {
            return Ok(watch.clone());
        }
        let watch = Arc::new(Watcher::begin(&self.host_directory)?);
        state.watch = Some(watch.clone());
        drop(state);
        let (this, listening) = (self.clone(), watch.clone());
        std::thread::Builder::new().name("watch-objects".into()).spawn(move || this.listen(&listening))?;
        Ok(watch)
    }

    fn listen(self: &Arc<Self>, watch: &Arc<Watcher>) {
        while let Heard::Changed(object) = watch.next() {
            let nodes: Vec<u64> = {
                let mut state = self.lock();
                let all = state.objects.iter().filter(|(_, watched)| watched.object == Some(object));
                let nodes: Vec<u64> = all.map(|(node, _)| *node).collect();
                if nodes.is_empty() && state.early.len() < EARLY {
                    state.early.insert(object);
                }
                nodes
            };
            nodes.into_iter().for_each(|node| self.changed(node));
        }
        let mut state = self.lock();
        if state.watch.as_ref().is_some_and(|current| Arc::ptr_eq(current, watch)) {
            state.watch = None;
        }
        state.early.clear();
        state.objects.values_mut().for_each(|watched| watched.object = None);
        let nodes: Vec<u64> = state.objects.keys().copied().collect();
        drop(state);
        nodes.into_iter().for_each(|node| self.changed(node));
    }

    /// Tells the kernel, in a thread of its own: it waits for who uses the pages. One at a time for
    /// each object. The thread's name says to the keeper that it keeps no next server waiting: it
    /// may be what that thread waits for.
    fn changed(self: &Arc<Self>, node: u64) {
        let mut state = self.lock();
        let Some(watched) = state.objects.get_mut(&node) else { return };
        watched.again = true;
        if watched.telling {
            return;
        }
        watched.telling = true;
        drop(state);
        let this = self.clone();
        let begun = std::thread::Builder::new().name(TELLS_KERNEL.into()).spawn(move || this.tell(node));
        if begun.is_err() {
            self.log.say("no thread is left to tell the kernel of a change: old pages stay until it is told of the next");
            if let Some(watched) = self.lock().objects.get_mut(&node) {
                watched.telling = false;
            }
        }
    }

    fn tell(self: &Arc<Self>, node: u64) {
        loop {
            let mut state = self.lock();
            let Some(watched) = state.objects.get_mut(&node) else { return };
            if !watched.again {
                watched.telling = false;
                return;
            }
            watched.again = false;
            let path = watched.path.clone();
            drop(state);
            self.watch_again(node);
            if let Err(error) = self.device.invalidate(node, 0, 0) {
                self.log.say(&format!("the kernel was not told that {path} changed: {error}"));
            }
        }
    }

    /// Watches on, for as long as somebody has it open, and it has a name: without one nobody elsewhere changes it.
    fn watch_again(self: &Arc<Self>, node: u64) {
        loop {
            let known = match self.lock().objects.get(&node) {
                Some(watched) => watched.object,
                None => return,
            };
            let again = match known {
                Some(object) => {
                    self.connection().and_then(|watch| Ok(watch.watch(object).map(|()| object)?))
                }
                None => {
                    let turn = self.turn(node);
                    let _held = lock(&turn);
                    self.watch(node)
                }
            };
            match again {
                Ok(object) => return self.is_watched(node, object),
                // What it was opened as on this connection is not open there any more.
                Err(_) if known.is_some() => self.is_forgotten(node),
                Err(Failure(Errno::NOENT)) => return,
                Err(_) => {}
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn is_forgotten(&self, node: u64) {
        if let Some(watched) = self.lock().objects.get_mut(&node) {
            watched.object = None;
        }
    }
}
