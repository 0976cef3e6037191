//! The schedulers, transition by transition, beside the figures of the paper. Their interleavings are searched and drawn by
//! `commonhold-simulator`.

mod central;
mod forwarding;
mod locks;
mod losses;
mod not_read;
mod replicas;
mod unasked;
