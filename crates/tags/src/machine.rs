//! What a machine's memory means.

use std::fmt;

/// In which order the bytes of a number lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The least significant first.
    Little,
    /// The most significant first.
    Big,
}

/// In which format a machine keeps floating point numbers of 32 and 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Floats {
    /// IEEE 754.
    Ieee,
    /// VAX F and D.
    Vax,
}

/// A type of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    /// Of all numbers but VAX floats, which have an order of their own.
    pub order: ByteOrder,
    /// Of floats.
    pub floats: Floats,
}

impl Machine {
    /// x86-64, ARM and RISC-V as Linux has them.
    pub const LITTLE: Machine = Machine { order: ByteOrder::Little, floats: Floats::Ieee };
    /// s390x, SPARC, the 68000s and the IBM RT.
    pub const BIG: Machine = Machine { order: ByteOrder::Big, floats: Floats::Ieee };
    /// The VAX.
    pub const VAX: Machine = Machine { order: ByteOrder::Little, floats: Floats::Vax };

    /// All that are known.
    pub const ALL: [Machine; 3] = [Machine::LITTLE, Machine::BIG, Machine::VAX];

    /// That of this program.
    pub const HERE: Machine = if cfg!(target_endian = "big") { Machine::BIG } else { Machine::LITTLE };

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Machine::LITTLE => "little-ieee",
            Machine::BIG => "big-ieee",
            Machine { floats: Floats::Vax, .. } => "vax",
        }
    }

    /// The names of all that are known, for who gave another.
    pub fn words() -> String {
        Machine::ALL.map(Machine::word).join(", ")
    }

    /// The machine of a name; `None`: it is not known, and what it would mean neither.
    pub fn of_word(word: &str) -> Option<Machine> {
        Machine::ALL.into_iter().find(|machine| machine.word() == word)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
