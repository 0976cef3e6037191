//! What a home has to write down, or to put into its place, before it goes on: nobody else hears that it could not, and what was
//! there before would be taken for it.

use crate::cache::Cache;
use crate::waiting::may_wait;
use commonhold_object::Result;
use std::time::Duration;

/// Attempts, and the time between two of them.
const MOST_ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// Tries until it is done. A host that cannot do it for a second ends, and the next process decides anew, from what the others
/// have (`docs/LEASES.md`, "Giving back").
pub fn insist(cache: &Cache, what: impl FnMut() -> Result<()>) {
    if !tried(cache, what) {
        std::process::abort(); // the keeper starts the next
    }
}

fn tried(cache: &Cache, mut what: impl FnMut() -> Result<()>) -> bool {
    for attempt in 0..MOST_ATTEMPTS {
        let Err(error) = what() else { return true };
        may_wait("a second attempt");
        if attempt == 0 || attempt + 1 == MOST_ATTEMPTS {
            cache.report(&error);
        }
        std::thread::sleep(PAUSE);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::kept::tests::{Memory, cache};
    use commonhold_object::{Error, ErrorKind};

    #[test]
    fn it_is_tried_for_a_second() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::new();
        let cache = cache(directory.path(), &memory);
        let mut attempts = 0;
        let mut fails = |times: u32| {
            attempts = 0;
            let done = tried(&cache, || {
                attempts += 1;
                if attempts > times { Ok(()) } else { Err(Error::new(ErrorKind::Lost, "no memory")) }
            });
            (done, attempts)
        };
        assert_eq!(fails(0), (true, 1));
        assert_eq!(fails(7), (true, 8));
        assert_eq!(fails(u32::MAX), (false, MOST_ATTEMPTS));
    }
}
