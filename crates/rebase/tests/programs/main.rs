//! Programs and libraries, made here by the C compiler, started with and without copies.

mod altered;
mod answers;
mod copies;
mod cores;
mod executables;
mod found;
mod given;
#[path = "../../../../tests/left_out.rs"]
mod left_out;
#[path = "../../../../tests/limit.rs"]
mod limit;
mod loaders;
mod not_understood;
mod occupied;
mod order;
mod places;
mod rig;
mod rights;
mod sanitizers;
mod sealed;
mod starts;
mod states;
mod stores;
mod tools;
mod unresolved;
