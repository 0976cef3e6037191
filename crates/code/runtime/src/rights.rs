//! Whether the program may do what who started it may not.

use crate::system;
use core::mem::MaybeUninit;

/// setuid, setgid, file capabilities: as the kernel told the loader, whatever the program has done since.
#[cold]
#[inline(never)]
pub fn are_foreign() -> bool {
    const SECURE: u64 = 23;
    let mut room = [const { MaybeUninit::uninit() }; 128];
    for pair in system::told(&mut room).as_chunks::<2>().0 {
        if pair[0] == SECURE {
            return pair[1] != 0;
        }
    }
    // An older kernel does not say: what follows from it is looked at.
    !system::is_plainly_ours()
}
