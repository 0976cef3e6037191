//! Points at which tests inject faults (`docs/FAULTS.md`).
//!
//! A call that may fail is made through the function of its kind, as `pwrite(|| file.write_all_at(bytes, at))`. In a build
//! without the feature `on` that is the call, and nothing else. With it each place in the sources that calls such a
//! function is a *point*, named by its file and line. A driver tells points, through a file that all processes map (the
//! board), to fail, to wait, or to kill their process. It reads there how often each was passed, and what each did.

#[cfg(feature = "on")]
mod board;
#[cfg(feature = "on")]
mod effect;
#[cfg(feature = "on")]
pub mod scan;

#[cfg(feature = "on")]
pub use board::{Board, Point, spare_this_process};
#[cfg(feature = "on")]
pub use effect::Effect;

/// What kind of call a point guards: it decides which errors are injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Pages are protected, or their protection is lifted.
    Protect,
    /// Frames are given back.
    Punch,
    /// Pages are made from bytes.
    Copy,
    /// Pages that exist are mapped.
    Continue,
    /// Pages are made an error.
    Poison,
    /// Bytes are written to a file or to memory.
    Pwrite,
    /// A file is made durable.
    Fsync,
    /// A pager supplies bytes.
    PageIn,
    /// A pager stores bytes.
    PageOut,
    /// Memory is mapped.
    Mmap,
    /// A thread is started.
    Thread,
    /// A message is sent to a process of this machine.
    Send,
    /// A message of a process of this machine is received.
    Receive,
    /// Bytes are sent to another host.
    SendFar,
    /// Bytes of another host are received.
    ReceiveFar,
}

macro_rules! calls {
    ($($(#[$about:meta])* $name:ident $kind:ident,)*) => {$(
        $(#[$about])*
        #[cfg(not(feature = "on"))]
        #[inline(always)]
        pub fn $name<T, E>(call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
            call()
        }

        $(#[$about])*
        #[cfg(feature = "on")]
        #[track_caller]
        pub fn $name<T, E: From<rustix::io::Errno>>(call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
            match board::passed(Kind::$kind, std::panic::Location::caller()) {
                None => call(),
                Some(effect) => effect.around(Kind::$kind, call),
            }
        }
    )*};
}

calls! {
    /// Protects pages, or lifts their protection.
    protect Protect,
    /// Gives frames back.
    punch Punch,
    /// Makes pages from bytes.
    copy Copy,
    /// Maps pages that exist.
    continue_ Continue,
    /// Makes pages an error.
    poison Poison,
    /// Writes bytes to a file or to memory.
    pwrite Pwrite,
    /// Makes a file durable.
    fsync Fsync,
    /// Has a pager supply bytes.
    page_in PageIn,
    /// Has a pager store bytes.
    page_out PageOut,
    /// Maps memory.
    mmap Mmap,
    /// Starts a thread.
    thread Thread,
    /// Sends a message to a process of this machine.
    send Send,
    /// Receives a message of a process of this machine.
    receive Receive,
    /// Sends bytes to another host.
    send_far SendFar,
    /// Receives bytes of another host.
    receive_far ReceiveFar,
}

/// Whether the deliberate defect of that name is chosen, by the variable `COMMONHOLD_MUTANT`: never in what is shipped.
#[cfg(not(feature = "on"))]
#[inline(always)]
pub fn mutant(_name: &str) -> bool {
    false
}

/// Whether the deliberate defect of that name is chosen, by the variable `COMMONHOLD_MUTANT`.
#[cfg(feature = "on")]
pub fn mutant(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("COMMONHOLD_MUTANT").ok()).as_deref() == Some(name)
}
