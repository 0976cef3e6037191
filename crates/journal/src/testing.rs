//! What tests need, here and in the host: a simulated disk that records and fails, the replayer that
//! cuts the power at every point, and the entry for fuzzing.

mod disk;
mod fuzz;
mod memory;
mod power;
mod rng;

pub use disk::{Event, Fault, FaultOp, Recording, SimDisk, SimFile};
pub use fuzz::{fuzz_recover, sample_files};
pub use memory::MemoryStorage;
pub use power::{Crash, PowerLoss};
pub use rng::Rng;

/// Computes the checksum of a 4096-byte header slot or part header again, after a test has changed it.
/// Returns false, and does nothing, for any other block.
pub fn reseal(block: &mut [u8]) -> bool {
    if crate::header::is_header(block) {
        crate::header::seal(block);
        return true;
    }
    if crate::part::is_part(block) {
        crate::part::seal(block);
        return true;
    }
    false
}
