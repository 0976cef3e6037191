//! `libcommonhold_preload.so`, which `commonhold run` puts in front of programs (`docs/UNMODIFIED.md`). It is in C, `preload.c`:
//! every program that is run so loads it, and what Rust's own library brings would cost each of them more than all else.

/// The library's file name. The build puts it beside the programs.
pub const LIBRARY: &str = "libcommonhold_preload.so";
