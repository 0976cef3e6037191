//! Which addresses are for what. They were tried with programs of every kind: free in position-independent, fixed and
//! static ones and under AddressSanitizer; blocked under ThreadSanitizer.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// For which processor an image is. Each has addresses of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Arch {
    /// x86-64 with four levels of page tables.
    X86_64,
    /// aarch64 with 48 bits of addresses.
    Aarch64,
}

impl Arch {
    /// This machine's.
    pub const fn here() -> Arch {
        if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 }
    }
}

/// Whose registry it is. The machine's and the users' have different addresses, so a process includes images of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Owner {
    /// All users'.
    Machine,
    /// One user's. Those of two users may overlap.
    User,
}

/// The part of the addresses (Govindan, section 6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Region {
    /// No two images overlap.
    Homogeneous,
    /// Images that are declared never to be in one process may overlap.
    Heterogeneous,
}

const TIB: u64 = 1 << 40;

impl Region {
    /// How it is called.
    pub fn name(self) -> &'static str {
        match self {
            Region::Homogeneous => "homogeneous",
            Region::Heterogeneous => "heterogeneous",
        }
    }

    /// Its addresses, in the registry of an owner.
    pub fn addresses(self, owner: Owner) -> Range<u64> {
        // From 0x3000_0000_0000 to 0x5000_0000_0000: 32 TiB, in four parts.
        let part = match (self, owner) {
            (Region::Homogeneous, Owner::Machine) => 0,
            (Region::Homogeneous, Owner::User) => 1,
            (Region::Heterogeneous, Owner::Machine) => 2,
            (Region::Heterogeneous, Owner::User) => 3,
        };
        let first = 48 * TIB + part * 8 * TIB;
        first..first + 8 * TIB
    }
}
