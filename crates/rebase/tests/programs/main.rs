//! Programs and libraries, made here by the C compiler, started with and without copies.

mod answers;
mod copies;
mod cores;
mod executables;
mod given;
mod places;
mod rig;
mod sealed;
mod starts;
mod states;
mod stores;
