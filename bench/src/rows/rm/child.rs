//! A fork child that measures, and says what it found.

use crate::failure::{Result, failed};
use crate::view::{PAGE, RawMapping, View, memory_file};

/// Figures that a child can say.
pub const FIGURES: usize = 2;

/// A page by which a child says what it found.
pub struct Saying(RawMapping);

impl Saying {
    /// One for any number of children, one after the other.
    pub fn new() -> Result<Saying> {
        let page = RawMapping::shared(memory_file(PAGE)?, PAGE)?;
        page.view().write_pages();
        Ok(Saying(page))
    }

    /// The page, for a child to touch before it counts: what its own code and stack take is taken
    /// then.
    pub fn page(&self) -> View<'_> {
        self.0.view()
    }

    /// What a child finds, which ends then. This waits for its end.
    pub fn of_child(&self, find: impl FnOnce() -> [u64; FIGURES]) -> Result<[u64; FIGURES]> {
        let view = self.0.view();
        // SAFETY: the library's handlers make the child whole; it measures, writes to a page that
        // it shares with this process, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            for (n, figure) in find().into_iter().enumerate() {
                view.write_word(n * 8, figure);
            }
            // SAFETY: nothing of the parent is to be ended in order.
            unsafe { libc::_exit(0) };
        }
        wait_for(child)?;
        Ok(std::array::from_fn(|n| view.read_word(n * 8)))
    }
}

/// Waits until a child has ended in order.
fn wait_for(child: libc::pid_t) -> Result<()> {
    let mut status = 0;
    // SAFETY: waits for that child.
    let waited = child > 0 && unsafe { libc::waitpid(child, &raw mut status, 0) } == child;
    if waited && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        return Ok(());
    }
    failed("a child did not end in order")
}
