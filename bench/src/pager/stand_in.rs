//! A stand-in of UMap's shape: a program that serves its own faults. One thread reads them, and as many as there are
//! processors fill pages from a store and put them in their place.

use crate::failure::{Result, failed};
use crate::view::{PAGE, RawMapping, View, memory_file};
use commonhold_sys::userfaultfd::{Fault, Kind, Modes, Userfaultfd};
use rustix::event::{PollFd, PollFlags};
use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Addresses of pages that are wanted; None at the end.
#[derive(Default)]
struct Queue {
    wanted: Mutex<VecDeque<Option<u64>>>,
    more: Condvar,
}

impl Queue {
    fn push(&self, wanted: impl Iterator<Item = Option<u64>>) {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).extend(wanted);
        self.more.notify_all();
    }

    fn pop(&self) -> Option<u64> {
        let mut all = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match all.pop_front() {
                Some(next) => return next,
                None => all = self.more.wait(all).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// Memory whose missing pages this process fills itself.
pub struct StandIn {
    memory: RawMapping,
    end: Option<UnixStream>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl StandIn {
    /// Memory of that size, and a store as large.
    pub fn new(size_bytes: usize) -> Result<StandIn> {
        let (uffd, _) = Userfaultfd::create(Kind::Synchronous, None)?;
        uffd.set_nonblocking()?;
        let memory = RawMapping::shared(memory_file(size_bytes)?, size_bytes)?;
        uffd.register(
            memory.address(),
            size_bytes as u64,
            Modes { missing: true, minor: false, write_protect: false },
        )?;
        let (uffd, queue, store) =
            (Arc::new(uffd), Arc::new(Queue::default()), Arc::new(vec![1; size_bytes]));
        let (end, ended) = UnixStream::pair()?;
        let fillers = std::thread::available_parallelism()?.get();
        let start = memory.address();
        let mut threads = Vec::new();
        for _ in 0..fillers {
            let (uffd, queue, store) = (uffd.clone(), queue.clone(), store.clone());
            threads.push(std::thread::spawn(move || fill(&uffd, &queue, &store, start)));
        }
        threads.push(std::thread::spawn(move || read(&uffd, &queue, &ended, fillers)));
        Ok(StandIn { memory, end: Some(end), threads })
    }

    /// The memory.
    pub fn view(&self) -> View<'_> {
        self.memory.view()
    }

    /// Ends all threads.
    pub fn end(mut self) -> Result<()> {
        self.end = None;
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(done) => done?,
                Err(_) => return failed("a thread of the stand-in panicked"),
            }
        }
        Ok(())
    }
}

fn read(uffd: &Userfaultfd, queue: &Queue, ended: &UnixStream, fillers: usize) -> Result<()> {
    let mut faults: Vec<Fault> = Vec::new();
    loop {
        let mut waits = [PollFd::new(uffd, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        rustix::event::poll(&mut waits, None)?;
        if !waits[1].revents().is_empty() {
            queue.push((0..fillers).map(|_| None));
            return Ok(());
        }
        uffd.read_faults(&mut faults)?;
        queue.push(faults.iter().map(|fault| Some(fault.address)));
    }
}

fn fill(uffd: &Userfaultfd, queue: &Queue, store: &[u8], start: u64) -> Result<()> {
    let mut page = [0; PAGE];
    while let Some(address) = queue.pop() {
        let at = (address - start) as usize;
        page.copy_from_slice(&store[at..at + PAGE]);
        match uffd.copy(address, &page, false).stopped_by {
            None | Some(rustix::io::Errno::EXIST) => {}
            Some(errno) => return failed(format!("UFFDIO_COPY: {errno}")),
        }
    }
    Ok(())
}
