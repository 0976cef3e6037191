//! Free memory that is really there. The pages that a virtual machine has not used for a while its hypervisor may have taken
//! back, and the first touch of such a page costs many times what filling it does. Which side of a comparison gets them
//! is chance; so where a side fills much fresh memory, some is touched right before, and left to whoever comes next.

use crate::failure::Result;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

const PAGE: usize = 4096;

/// Touches so many bytes of memory and gives them back.
pub fn touch(bytes: usize) -> Result<()> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping at a place that the kernel chooses.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }?;
    for offset in (0..bytes).step_by(PAGE) {
        // SAFETY: within the mapping, which nobody else knows.
        unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
    }
    // SAFETY: the whole mapping, of which no reference exists.
    Ok(unsafe { munmap(start, bytes) }?)
}
