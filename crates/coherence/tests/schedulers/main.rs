//! The schedulers, driven through every interleaving of small clusters, and through random ones of larger ones.

mod central;
mod exhaustive;
mod explicit;
mod forwarding;
mod random;
mod world;
