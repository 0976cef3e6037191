//! Checks and measures the fault schedulers of `commonhold-coherence`; no part of the product.
//!
//! A *cluster* is one value: the real state machines, the channels between them, memory, programs that use it, and a
//! sequential memory beside it that says what they must find. [`search`] takes it through every interleaving; [`clock`]
//! through one, in virtual time, that follows from a seed; [`schedule`] makes such runs, with everything that can go wrong,
//! from one number each, which is all that is needed to see one again.

pub mod clock;
pub mod configurations;
pub mod dice;
pub mod explicit;
pub mod measure;
pub mod news;
pub mod readers;
pub mod schedule;
pub mod search;
pub mod tokens;
pub mod world;
