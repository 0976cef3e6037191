//! The machine's pool of huge pages.

use std::io;
use std::time::{Duration, Instant};

const NUMBER: &str = "/proc/sys/vm/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// What processes that have just ended had comes back within that.
const COMES_BACK: Duration = Duration::from_secs(5);

/// The pool, larger for as long as this lives: for tests and measurements. (Root's to change.)
#[derive(Debug)]
pub struct Pool {
    before: u64,
}

impl Pool {
    /// Makes the pool so many pages larger, all of which are free then. Where it cannot, the pool is as it was.
    pub fn more(pages: u64) -> io::Result<Pool> {
        let before = number_in(NUMBER)?;
        let pool = Pool { before };
        let begun = Instant::now();
        loop {
            std::fs::write(NUMBER, (before + pages).to_string())?;
            let free = number_in(FREE)?;
            if free >= pages {
                return Ok(pool);
            }
            if begun.elapsed() > COMES_BACK {
                let text = format!(
                    "the machine has no memory for {pages} huge pages in one piece each: {free} are free"
                );
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// How many pages of the pool nobody has taken.
    pub fn free(&self) -> io::Result<u64> {
        number_in(FREE)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Only root gets here, whom nothing keeps from it; pages that are in use leave the pool when they are given back.
        let _ = std::fs::write(NUMBER, self.before.to_string());
    }
}

/// A number in a file of the kernel's.
pub(crate) fn number_in(path: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{path} says {text:?}")))
}
