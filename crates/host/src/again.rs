//! What may fail for a moment, because memory, descriptors, threads or a disk's room are short, and is not to be given up for
//! that: tried a few times.

use commonhold_object::{Error, ErrorKind, Result};
use std::time::Duration;

const ATTEMPTS: u32 = 5;
const BETWEEN: Duration = Duration::from_millis(50);

/// Whether it may be otherwise in a moment.
fn may_pass(error: &Error) -> bool {
    use ErrorKind::{Corrupt, Invalid, Lost, NotFound, Permission, Protocol, Unsupported, Version};
    !matches!(error.kind, Corrupt | Invalid | Lost | NotFound | Permission | Protocol | Unsupported | Version)
}

/// Tries it until it is done, or fails as it will always, or often enough. `say` hears of each attempt that failed and is
/// followed by another.
pub fn and_again<T>(say: impl Fn(&Error), mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if may_pass(&error) => {
                say(&error);
                std::thread::sleep(BETWEEN);
            }
            outcome => return outcome,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn only_what_may_pass_is_tried_again() {
        for (kind, times, attempts) in [
            (ErrorKind::Io, 2, 3),
            (ErrorKind::NoSpace, 4, 5),
            (ErrorKind::Io, 9, ATTEMPTS),
            (ErrorKind::Lost, 2, 1),
            (ErrorKind::Corrupt, 1, 1),
        ] {
            let (made, said) = (Cell::new(0), Cell::new(0));
            let outcome = and_again(
                |_| said.set(said.get() + 1),
                || {
                    made.set(made.get() + 1);
                    if made.get() > times { Ok(()) } else { Err(Error::new(kind, "it fails")) }
                },
            );
            assert_eq!((made.get(), said.get()), (attempts, attempts - 1), "{kind:?}");
            assert_eq!(outcome.is_ok(), made.get() > times, "{kind:?}");
        }
    }
}
