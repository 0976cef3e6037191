//! What processes did to registers, and when; and which hosts were struck meanwhile.

use std::fmt;

/// What was done to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It was read, and had that value.
    Read(u64),
    /// That value was written.
    Write(u64),
    /// A sync of it returned without an error: what was written before is taken back by no loss.
    Sync,
    /// It was touched, and that was an error (SIGBUS).
    Failed,
    /// Its error was ended: the version before serves again.
    Revert,
}

/// One operation of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Which register.
    pub register: u32,
    /// The host of the process, less than 64.
    pub host: u8,
    /// What was done.
    pub act: Act,
    /// An instant before.
    pub start: u64,
    /// An instant after; none: it may or may not have happened.
    pub end: Option<u64>,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { register, host, act, start, end } = self;
        write!(f, "host{host} {act:x?} of register {register}, {start}..")?;
        end.map_or(Ok(()), |end| write!(f, "{end}"))
    }
}

/// Something that may have cost the newest versions that some hosts alone had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// One bit for each host whose writes may be gone.
    pub hosts: u64,
    /// An instant before it.
    pub start: u64,
    /// An instant when all that it costs was gone; none: it may come any time.
    pub end: Option<u64>,
}

/// The hosts of a loss that concerns what any of them had.
pub const EVERYBODY: u64 = u64::MAX;

/// What an object was told to do about losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// The version before serves at once.
    Revert,
    /// Touching the page is an error.
    Error,
}

/// A whole history.
#[derive(Clone, Debug)]
pub struct History {
    /// What was done, in any order.
    pub operations: Vec<Operation>,
    /// What was lost meanwhile.
    pub losses: Vec<Loss>,
    /// What the object does about that.
    pub on_loss: OnLoss,
    /// Who keeps versions.
    pub kept: Kept,
}

/// Which versions are somewhere else than with the host that wrote them, and what a loss can take therefore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Hosts hand pages over by way of the home, which stays: it has whatever another host has read.
    AtHome,
    /// Hosts hand pages over without its help (forwarding). That host, the home, keeps what it had last itself, and that is
    /// what comes back if no newer version is left anywhere.
    WhatHomeHad(u8),
    /// The role of the home moves: what was synced is stored, and with a home that is lost ([`EVERYBODY`])
    /// all else may be, whoever has read it.
    Synced,
}
