//! How much of the code that a format reaches its inputs have been through: the compiler has put a
//! counter at each edge between two parts of a function, and a table of their places, in which
//! functions are told apart.

use crate::formats::Format;
use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

unsafe extern "C" {
    static __start___sancov_cntrs: u8;
    static __stop___sancov_cntrs: u8;
    static __start___sancov_pcs: Edge;
}

/// An entry of the table.
#[repr(C)]
struct Edge {
    _address: usize,
    /// 1: a function begins.
    flags: usize,
}

/// Edges that were passed, and all that the functions have in which they are.
pub struct Covered {
    /// Passed.
    pub edges: usize,
    /// All of those functions.
    pub of: usize,
}

fn count() -> usize {
    // SAFETY: both are addresses, of the beginning and the end of one part of this program.
    unsafe { (&raw const __stop___sancov_cntrs).offset_from_unsigned(&raw const __start___sancov_cntrs) }
}

/// Sets the counters to zero, and gives the places of those that were not.
fn take(passed: &mut BTreeSet<usize>) {
    let first = (&raw const __start___sancov_cntrs).cast_mut();
    for place in 0..count() {
        // SAFETY: within that part, which is writable: compiled code counts there, in this thread alone.
        let counter = unsafe { first.add(place) };
        // SAFETY: as above.
        if unsafe { counter.replace(0) } != 0 {
            passed.insert(place);
        }
    }
}

/// What the inputs in a directory pass.
pub fn of(format: &Format, directory: &Path) -> io::Result<Covered> {
    let (mut before, mut passed) = (BTreeSet::new(), BTreeSet::new());
    // A failure is told by who finds it.
    std::panic::set_hook(Box::new(|_| {}));
    for entry in std::fs::read_dir(directory)? {
        let bytes = std::fs::read(entry?.path())?;
        take(&mut before);
        let _ = catch_unwind(AssertUnwindSafe(|| (format.check)(&bytes))); // as above
        take(&mut passed);
    }
    let (mut covered, mut function) = (Covered { edges: 0, of: 0 }, Covered { edges: 0, of: 0 });
    for place in 0..=count() {
        // SAFETY: the table has an entry for each counter.
        let begins =
            place == count() || unsafe { (&raw const __start___sancov_pcs).add(place).read() }.flags & 1 != 0;
        if begins {
            if function.edges > 0 {
                covered.edges += function.edges;
                covered.of += function.of;
            }
            function = Covered { edges: 0, of: 0 };
        }
        function.edges += usize::from(passed.contains(&place));
        function.of += 1;
    }
    Ok(covered)
}
