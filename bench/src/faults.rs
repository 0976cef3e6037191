//! First touches, one page each, in random order, each timed on its own.

use crate::context::Random;
use crate::failure::Result;
use crate::view::{PAGE, RawMapping, View, memory_file};
use crate::worker::{self, Worker};
use crate::workers::fault_server;
use commonhold_sys::socket::{self, Wait};
use commonhold_sys::userfaultfd::{Kind, Modes, Userfaultfd};
use rand::RngExt;
use std::hint::black_box;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How a page is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// One byte is read.
    Read,
    /// One word is written.
    Write,
}

/// The pages of a fresh range, handed out in random order, each once.
#[derive(Clone)]
pub struct FreshPages {
    order: Vec<u32>,
}

impl FreshPages {
    /// All pages below `count`, shuffled, and no page right after its left neighbour: not even by accident is
    /// there a sequence to be noticed.
    pub fn new(count: usize, random: &mut Random) -> FreshPages {
        let mut order: Vec<u32> = (0..count as u32).collect();
        for n in (1..count).rev() {
            order.swap(n, random.random_range(0..=n));
        }
        for n in 1..count.saturating_sub(1) {
            if order[n] == order[n - 1] + 1 {
                order.swap(n, n + 1);
            }
        }
        FreshPages { order }
    }

    /// How many are left.
    pub fn left(&self) -> usize {
        self.order.len()
    }

    /// Takes the next `count` pages.
    pub fn take(&mut self, count: usize) -> Vec<u32> {
        self.order.split_off(self.order.len() - count.min(self.order.len()))
    }

    /// Touches the next `count` pages; nanoseconds of each touch. With a `gap`, this thread sleeps that long
    /// before each touch, and so does everybody who waits for its faults.
    pub fn touch(&mut self, view: View<'_>, count: usize, touch: Touch, gap: Option<Duration>) -> Vec<f64> {
        let start = self.order.len() - count.min(self.order.len());
        let mut times = Vec::with_capacity(count);
        for page in self.order.drain(start..) {
            if let Some(gap) = gap {
                std::thread::sleep(gap);
            }
            let offset = page as usize * PAGE;
            let before = Instant::now();
            match touch {
                Touch::Read => {
                    black_box(view.read_byte(offset));
                }
                Touch::Write => view.write_word(offset, 1),
            }
            times.push(before.elapsed().as_nanos() as f64);
        }
        times
    }
}

/// The bare server in its own process, and memory whose faults it serves.
pub struct BareService {
    uffd: Userfaultfd,
    control: RawMapping,
    /// Where protected pages are copied to.
    aside: Option<OwnedFd>,
    /// Held until the end: when it closes, the server ends.
    _socket: OwnedFd,
    _server: Worker,
}

impl BareService {
    /// Starts the server and gives it a userfaultfd of this process.
    pub fn start() -> Result<BareService> {
        let (server, socket) = worker::start_with_socket("fault-server")?;
        let (uffd, _) = Userfaultfd::create(Kind::Synchronous, None)?;
        let control_file = memory_file(PAGE)?;
        let control = RawMapping::shared(&control_file, PAGE)?;
        socket::send(&socket, &[0; 8], &[uffd.as_fd(), control_file.as_fd()], Wait::Yes)?;
        Ok(BareService { uffd, control, aside: None, _socket: socket, _server: server })
    }

    /// The same for memory whose pages, which are all there, are copied aside before they are written
    /// ([`protect`](Self::protect)).
    pub fn copying_aside(pages: usize) -> Result<(BareService, RawMapping)> {
        let (server, socket) = worker::start_with_socket("fault-server")?;
        let (uffd, _) = Userfaultfd::create(Kind::Synchronous, None)?;
        let control_file = memory_file(PAGE)?;
        let control = RawMapping::shared(&control_file, PAGE)?;
        let (memory, aside) = (memory_file(pages * PAGE)?, memory_file(pages * PAGE)?);
        let mapping = RawMapping::shared(&memory, pages * PAGE)?;
        mapping.view().write_pages();
        let modes = Modes { missing: false, minor: false, write_protect: true };
        uffd.register(mapping.address(), (pages * PAGE) as u64, modes)?;
        let descriptors = [uffd.as_fd(), control_file.as_fd(), memory.as_fd(), aside.as_fd()];
        socket::send(&socket, &mapping.address().to_le_bytes(), &descriptors, Wait::Yes)?;
        let aside = Some(aside);
        Ok((BareService { uffd, control, aside, _socket: socket, _server: server }, mapping))
    }

    /// The first write to each page of the memory is a fault from now on, and there are no copies yet.
    pub fn protect(&self, memory: &RawMapping, pages: usize) -> Result<()> {
        if let Some(aside) = &self.aside {
            commonhold_sys::frames::punch(aside, 0, (pages * PAGE) as u64)?;
        }
        Ok(self.uffd.protect(memory.address(), (pages * PAGE) as u64)?)
    }

    /// Fresh shared memory without frames, whose missing pages the server fills.
    pub fn memory(&self, pages: usize) -> Result<RawMapping> {
        let mapping = RawMapping::shared(memory_file(pages * PAGE)?, pages * PAGE)?;
        let modes = Modes { missing: true, minor: false, write_protect: false };
        self.uffd.register(mapping.address(), (pages * PAGE) as u64, modes)?;
        Ok(mapping)
    }

    /// Runs `work` while the server spins. Outside of it the server sleeps and costs nothing.
    pub fn spinning<T>(&self, work: impl FnOnce() -> T) -> T {
        self.control.view().write_word(0, fault_server::SPIN);
        let result = work();
        self.control.view().write_word(0, fault_server::SLEEP);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_page_once_and_no_sequence() {
        let mut pages = FreshPages::new(1000, &mut Random::seed_from_u64(5));
        assert!(pages.order.windows(2).take(998).all(|pair| pair[1] != pair[0] + 1));
        let mut sorted = pages.order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
        let memory = RawMapping::shared(memory_file(1000 * PAGE).unwrap(), 1000 * PAGE).unwrap();
        assert_eq!(pages.touch(memory.view(), 10, Touch::Write, None).len(), 10);
        assert_eq!(pages.left(), 990);
        assert_eq!(memory.view().sum_words(), 10);
    }
}
