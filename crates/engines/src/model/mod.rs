//! Random operations in lockstep with a model that knows every page. Whatever is not so is an
//! assertion that fails.

pub mod arena;
pub mod machine;
mod real;
mod world;

use rand::RngExt;
use rand::rngs::SmallRng;

/// Operations of a random run: as many as the environment says, or so many.
pub fn operations(usual: u64) -> u64 {
    let asked = std::env::var("COMMONHOLD_SEGMENTS_OPERATIONS");
    asked.map_or(usual, |text| text.parse().expect("a number of operations"))
}

/// A size from 1 to `most`, small ones more often: uniform in its logarithm.
pub fn log_uniform(rng: &mut SmallRng, most: u32) -> u32 {
    f64::from(most).powf(rng.random_range(0.0..1.0)) as u32
}
