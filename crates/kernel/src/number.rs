//! The numbers of the calls on x86-64, as in the kernel's `syscall_64.tbl`.

#![allow(missing_docs, reason = "they are the kernel's own names")]

pub const READ: usize = 0;
pub const WRITE: usize = 1;
pub const CLOSE: usize = 3;
pub const FSTAT: usize = 5;
pub const MMAP: usize = 9;
pub const MPROTECT: usize = 10;
pub const MUNMAP: usize = 11;
pub const PREAD: usize = 17;
pub const NANOSLEEP: usize = 35;
pub const GETPID: usize = 39;
pub const EXECVE: usize = 59;
pub const READLINK: usize = 89;
pub const GETUID: usize = 102;
pub const GETGID: usize = 104;
pub const GETEUID: usize = 107;
pub const GETEGID: usize = 108;
pub const PRCTL: usize = 157;
pub const GETTID: usize = 186;
pub const FUTEX: usize = 202;
pub const EXIT_GROUP: usize = 231;
pub const OPENAT: usize = 257;
pub const NEWFSTATAT: usize = 262;
pub const READLINKAT: usize = 267;
