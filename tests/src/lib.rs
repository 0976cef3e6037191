//! Whole-system tests: hosts, keepers and clients as real processes, which are killed, starved and lied to.
//!
//! | file | does |
//! |---|---|
//! | `host` | starts a host in a directory of its own, kills parts of it, and leaves nothing behind |
//! | `cluster` | several hosts that share objects, and a client of each |
//! | `etcd` | three members of etcd, and hosts whose registry they are |
//! | `worker` | a client process, driven line by line |
//! | `agent` | what that process does with a line |
//! | `applications` | the four applications of `bench/applications`, compiled for a test |
//! | `contended` | a mutex that threads of several hosts want, and who had it when |
//! | `crash` | a job that goes on while things are killed |
//! | `cut` | cuts the connections between hosts |
//! | `network` | hosts in network name spaces of their own, which can be cut off |
//! | `mounted` | objects as files, and a file that is mapped |
//! | `moving` | which host becomes the home of an object that moves, and what was lost |
//! | `field` | a cluster whose clients note what they read and write, while hosts are struck |
//! | `page` | what pages are filled with, so that a lost, stale or torn one is noticed |
//! | `left_out` | says what cannot be tried here |
//! | `limit` | a limit of time for each test |
//! | `ledger` | what a client had done, known to others after it was killed |
//! | `raw` | a connection that says whatever a test wants said |
//! | `stranger` | a host made by hand, which says whatever a test wants said |
//! | `fuse` | a file system that falls silent |
//! | `huge` | huge pages for a test, which are given back |
//! | `lingering` | sockets whose close waits |
//! | `lease` | files whose opening waits |
//! | `unmodified` | a program that knows nothing of us, with a library before it |
//! | `user` | is another user for a moment |
//! | `stuck` | locks of the kernel that are held for as long as a test likes |
//! | `typed` | pages of numbers, as machines of each type have them |
//! | `scratch` | directories on a real disk, and small file systems that fill up |
//! | `wait` | waiting for a condition, with a deadline |
//!
//! The tests lie in `tests/`, by topic. Nothing in them depends on time: they wait for conditions, and a
//! deadline is only there to fail.

pub mod agent;
pub mod applications;
pub mod c_program;
pub mod cluster;
pub mod contended;
pub mod crash;
pub mod cut;
pub mod etcd;
pub mod field;
pub mod fuse;
pub mod host;
pub mod huge;
pub mod lease;
pub mod ledger;
#[path = "../left_out.rs"]
pub mod left_out;
#[path = "../limit.rs"]
pub mod limit;
pub mod lingering;
pub mod machines;
pub mod mounted;
pub mod moving;
pub mod network;
pub mod page;
pub mod raw;
pub mod scratch;
pub mod store;
pub mod stranger;
pub mod stuck;
pub mod typed;
pub mod unmodified;
pub mod user;
pub mod wait;
pub mod worker;

pub use host::TestHost;
pub use left_out::{is_root, left_out};
pub use scratch::Scratch;
pub use worker::Worker;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;
