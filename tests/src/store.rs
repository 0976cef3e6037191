//! A pager in this process, that can be told to hang or to fail.

use crate::{TestHost, Worker, page};
use commonhold::Pager;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// What it stores, and how it answers.
#[derive(Clone, Default)]
pub struct Store {
    /// What it has.
    pub bytes: Arc<Mutex<Vec<u8>>>,
    /// Whether it refuses whatever it is asked.
    pub fails: Arc<AtomicBool>,
    hangs: Arc<(Mutex<bool>, Condvar)>,
    /// How often it was asked.
    pub asked: Arc<AtomicU64>,
    /// How often it was about to answer.
    pub answered: Arc<AtomicU64>,
}

impl Store {
    /// One that has those bytes.
    pub fn of(bytes: Vec<u8>) -> Store {
        Store { bytes: Arc::new(Mutex::new(bytes)), ..Store::default() }
    }

    /// Serves under that name until the host ends the connection.
    pub fn serve(&self, host: &TestHost, name: &'static str) -> JoinHandle<()> {
        let (store, connection) = (self.clone(), host.connect());
        std::thread::spawn(move || drop(connection.serve_pager(name, store)))
    }

    /// Answers nothing, or (false) all it was asked.
    pub fn hang(&self, hangs: bool) {
        *self.hangs.0.lock().expect("nobody panicked") = hangs;
        self.hangs.1.notify_all();
    }

    fn is_asked(&self) -> io::Result<()> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        drop(
            self.hangs
                .1
                .wait_while(self.hangs.0.lock().expect("nobody panicked"), |hangs| *hangs)
                .expect("nobody panicked"),
        );
        self.answered.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) { Err(io::Error::other("no such square")) } else { Ok(()) }
    }
}

impl Pager for Store {
    fn page_in(&mut self, _object: &str, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.is_asked()?;
        let bytes = self.bytes.lock().expect("nobody panicked");
        for (at, byte) in (offset as usize..).zip(buffer) {
            *byte = bytes.get(at).copied().unwrap_or(0);
        }
        Ok(())
    }

    fn page_out(&mut self, _object: &str, offset: u64, data: &[u8]) -> io::Result<()> {
        self.is_asked()?;
        let mut bytes = self.bytes.lock().expect("nobody panicked");
        let (first, end) = (offset as usize, offset as usize + data.len());
        let length = bytes.len().max(end);
        bytes.resize(length, 0);
        bytes[first..end].copy_from_slice(data);
        Ok(())
    }
}

/// A file of so many pages, filled.
pub fn file(host: &TestHost, name: &str, pages: u64, seed: u64) -> PathBuf {
    host.scratch().file_of(name, &page::bytes(0, pages, seed))
}

/// Refuses a file that is not so.
#[track_caller]
pub fn assert_file(path: &Path, pages: u64, seed: u64) {
    assert!(std::fs::read(path).expect("the file") == page::bytes(0, pages, seed), "{}", path.display());
}

/// Both die, nobody has what is asked for, and the next host serves.
pub fn kill_both(host: &TestHost, worker: &Worker) {
    let pid = host.status().host_pid;
    host.kill_both();
    host.start_again().expect("the host starts");
    host.wait_for_other_host(pid);
    worker.eventually("list /");
}
