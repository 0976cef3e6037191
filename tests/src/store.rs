//! A pager in this process, that can be told to hang or to fail.

use crate::TestHost;
use commonhold::Pager;
use std::io;
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
