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

use crate::failure::{Failure, Outcome};
use crate::fuse::Device;
use commonhold::{Heard, ObjectId, Watch};
use commonhold_keeper::StateLog;
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
    watch: Option<Arc<Watch>>,
    /// By their nodes.
    objects: HashMap<u64, Watched>,
}

/// All that is watched.
pub struct Watches {
    device: Device,
    host_directory: PathBuf,
    log: StateLog,
    state: Mutex<State>,
}

impl Watches {
    /// Nothing yet.
    pub fn new(device: Device, host_directory: PathBuf, log: StateLog) -> Arc<Watches> {
        Arc::new(Watches { device, host_directory, log, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file of that node is being opened. From the answer on, changes are told.
    pub fn add(self: &Arc<Self>, node: u64, path: &str) -> Outcome<()> {
        let known = self.note(node, path);
        if known.is_none() {
            let object = self.watch(path).inspect_err(|_| self.remove(node))?;
            self.is_watched(node, object);
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

    fn watch(self: &Arc<Self>, path: &str) -> Outcome<ObjectId> {
        let watch = self.connection()?;
        let object = watch.open(path)?;
        watch.watch(object)?;
        Ok(object)
    }

    fn is_watched(&self, node: u64, object: ObjectId) {
        if let Some(watched) = self.lock().objects.get_mut(&node) {
            watched.object = Some(object);
        }
    }

    /// The same of a file that was open when this server took over: what the kernel has of it may be old.
    pub fn inherit(self: &Arc<Self>, node: u64, path: &str) {
        self.note(node, path);
        self.changed(node);
    }

    /// A file of it was closed.
    pub fn remove(&self, node: u64) {
        let mut state = self.lock();
        let Some(watched) = state.objects.get_mut(&node) else { return };
        watched.files -= 1;
        if watched.files > 0 {
            return;
        }
        let object = state.objects.remove(&node).and_then(|watched| watched.object);
        if let (Some(watch), Some(object)) = (state.watch.clone(), object) {
            drop(state);
            let _ = watch.close(object); // a host that was lost knows of nothing that is open
        }
    }

    fn connection(self: &Arc<Self>) -> Outcome<Arc<Watch>> {
        let mut state = self.lock();
        if let Some(watch) = &state.watch {
            return Ok(watch.clone());
        }
        let watch = Arc::new(Watch::begin(&self.host_directory)?);
        state.watch = Some(watch.clone());
        drop(state);
        let (this, listening) = (self.clone(), watch.clone());
        std::thread::Builder::new().name("watch-objects".into()).spawn(move || this.listen(&listening))?;
        Ok(watch)
    }

    fn listen(self: &Arc<Self>, watch: &Arc<Watch>) {
        while let Heard::Changed(object) = watch.next() {
            let nodes: Vec<u64> = {
                let state = self.lock();
                let all = state.objects.iter().filter(|(_, watched)| watched.object == Some(object));
                all.map(|(node, _)| *node).collect()
            };
            nodes.into_iter().for_each(|node| self.changed(node));
        }
        let mut state = self.lock();
        if state.watch.as_ref().is_some_and(|current| Arc::ptr_eq(current, watch)) {
            state.watch = None;
        }
        state.objects.values_mut().for_each(|watched| watched.object = None);
        let nodes: Vec<u64> = state.objects.keys().copied().collect();
        drop(state);
        nodes.into_iter().for_each(|node| self.changed(node));
    }

    /// Tells the kernel, in a thread of its own: it waits for who uses the pages. One at a time for each object.
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
        let begun = std::thread::Builder::new().name("invalidate".into()).spawn(move || this.tell(node));
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
            self.watch_again(node, &path);
            if let Err(error) = self.device.invalidate(node, 0, 0) {
                self.log.say(&format!("the kernel was not told that {path} changed: {error}"));
            }
        }
    }

    /// Watches on, for as long as somebody has it open.
    fn watch_again(self: &Arc<Self>, node: u64, path: &str) {
        loop {
            let known = match self.lock().objects.get(&node) {
                Some(watched) => watched.object,
                None => return,
            };
            let again = match known {
                Some(object) => {
                    self.connection().and_then(|watch| Ok(watch.watch(object).map(|()| object)?))
                }
                None => self.watch(path),
            };
            match again {
                Ok(object) => return self.is_watched(node, object),
                Err(Failure(Errno::NOENT)) => return, // its name is gone: nobody elsewhere changes it
                Err(_) => std::thread::sleep(AGAIN),
            }
        }
    }
}
