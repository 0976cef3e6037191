//! The example pagers as processes, serving real hosts, and killed, stopped and damaged in the middle.
//!
//! | file | does |
//! |---|---|
//! | `harness` | hosts, pager processes, programs that touch a page |
//! | `zstd` | a compressed file read through a mapping |
//! | `store` | chunks in a directory: round trips, deaths of pager and host |
//! | `s3` | chunks in a real S3 server process |
//! | `hangs` | a pager that hangs harms nobody else |
//! | `in_c` | the pager written in C |

mod hangs;
mod harness;
mod in_c;
#[path = "../../../tests/left_out.rs"]
mod left_out;
#[path = "../../../tests/limit.rs"]
mod limit;
mod s3;
mod store;
mod zstd;
