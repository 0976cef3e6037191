//! The kernel interfaces that Commonhold stands on, each in a small file: userfaultfd, page map scans, frames,
//! sockets that carry descriptors, processes. Nearly all unsafe code of host and client is here.

pub mod alarm;
pub mod bits;
pub mod cgroup;
pub mod claims;
pub mod clock;
pub mod closing;
pub mod disk;
pub mod environment;
pub mod file_lock;
pub mod frames;
pub mod idle_poll;
pub mod inspect;
pub mod kernel;
pub mod maps;
pub mod memory;
pub mod mounts;
pub mod one_mapping;
pub mod own_memory;
pub mod ownership;
pub mod pagemap;
pub mod plain;
pub mod process;
pub mod reflink;
pub mod shared;
pub mod slice;
pub mod socket;
pub mod spin;
pub mod system_v;
pub mod tcp;
pub mod userfaultfd;
