//! What segment hardware is: rules that a manager plans by, and descriptors that are loaded.

use crate::run::Run;
use core::ops::BitOr;

/// Names a task, the owner of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// Accesses that are allowed: a set of read, write and execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Protection(u8);

impl Protection {
    /// No access.
    pub const NONE: Protection = Protection(0);
    /// Loads.
    pub const READ: Protection = Protection(1);
    /// Stores.
    pub const WRITE: Protection = Protection(2);
    /// Instruction fetches.
    pub const EXECUTE: Protection = Protection(4);
    /// Loads and stores.
    pub const READ_WRITE: Protection = Protection(3);
    /// All accesses.
    pub const ALL: Protection = Protection(7);

    /// Whether all accesses of `other` are allowed.
    pub const fn contains(self, other: Protection) -> bool {
        self.0 & other.0 == other.0
    }

    const fn and(self, other: Protection) -> Protection {
        Protection(self.0 & other.0)
    }

    const fn without(self, other: Protection) -> Protection {
        Protection(self.0 & !other.0)
    }
}

impl BitOr for Protection {
    type Output = Protection;

    fn bitor(self, other: Protection) -> Protection {
        Protection(self.0 | other.0)
    }
}

/// Which runs of physical pages one segment can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Any base and any limit.
    Any,
    /// A power of two of pages, aligned to its size, divided into so many equal parts (a power of
    /// two); a part of less than a page does not count. Parts at either end may be left out.
    PowerOfTwo {
        /// Subregions of a region; 1 if it cannot be divided.
        parts: u32,
    },
}

impl Shape {
    /// The pages and the alignment to allocate, so that one segment can have `pages` pages and
    /// little more. None beyond 2^31 pages.
    pub fn round(self, pages: u32) -> Option<(u32, u32)> {
        match self {
            Shape::Any => Some((pages, 1)),
            Shape::PowerOfTwo { parts } => {
                let region = pages.checked_next_power_of_two()?;
                Some((pages.next_multiple_of((region / parts).max(1)), region))
            }
        }
    }

    /// The smallest run that one segment can have with all of `run` in it.
    pub fn cover(self, run: Run) -> Option<Run> {
        let Shape::PowerOfTwo { parts } = self else {
            return Some(run);
        };
        let smallest = run.pages.checked_next_power_of_two()?.ilog2();
        (smallest..u32::BITS).find_map(|log2| {
            let region = 1u64 << log2;
            let part = (region / u64::from(parts)).max(1);
            let (start, end) = (u64::from(run.start), u64::from(run.start) + u64::from(run.pages));
            if start / region != (end - 1) / region {
                return None;
            }
            let (start, end) = (start / part * part, end.next_multiple_of(part));
            Some(Run::new(start as u32, u32::try_from(end - start).ok()?))
        })
    }
}

/// What a machine's segments can do: mostly a contract, which no code can ask the hardware for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// For people.
    pub name: &'static str,
    /// Virtual segments of a task.
    pub segments: u32,
    /// Which runs a segment can have.
    pub shape: Shape,
    /// The accesses that the hardware can deny. It takes two protections for one if they differ in
    /// others alone (section 5.3: the machine-dependent comparison).
    pub enforced: Protection,
    /// Whether an access that trapped can be carried on with. If not, a task must have been stopped
    /// before a segment of it moves or is swapped out.
    pub restartable: bool,
    /// Whether a segment has a base of its own. If not, addresses are physical, and what is mapped
    /// cannot move.
    pub translates: bool,
}

impl Rules {
    /// One segment a task, base and limit alone.
    pub const ONE: Rules = Rules {
        name: "one segment",
        segments: 1,
        shape: Shape::Any,
        enforced: Protection::NONE,
        restartable: false,
        translates: true,
    };
    /// A Cray: text and data (section 2).
    pub const CRAY: Rules = Rules { name: "Cray", segments: 2, enforced: Protection::WRITE, ..Rules::ONE };
    /// What the paper's server needs: text, data and stack (section 6).
    pub const SERVER: Rules = Rules { name: "the paper's server", segments: 3, ..Rules::CRAY };
    /// What the paper's commands need: text, data and stack, their own and the emulator's.
    pub const COMMANDS: Rules = Rules { name: "the paper's commands", segments: 6, ..Rules::CRAY };
    /// The memory protection unit of a Cortex-M (ARMv7-M): 8 regions of 8 subregions.
    pub const CORTEX_M: Rules = Rules {
        name: "Cortex-M",
        segments: 8,
        shape: Shape::PowerOfTwo { parts: 8 },
        enforced: Protection::ALL,
        restartable: false,
        translates: false,
    };
    /// As many segments as a task likes, of any protection.
    pub const UNLIMITED: Rules = Rules {
        name: "unlimited",
        segments: u32::MAX,
        shape: Shape::Any,
        enforced: Protection::ALL,
        restartable: true,
        translates: true,
    };
    /// All presets.
    pub const PRESETS: [Rules; 6] =
        [Rules::ONE, Rules::CRAY, Rules::SERVER, Rules::COMMANDS, Rules::CORTEX_M, Rules::UNLIMITED];

    /// The accesses that get through where `protection` is asked for.
    pub const fn effective(&self, protection: Protection) -> Protection {
        Protection(protection.0 | Protection::ALL.without(self.enforced).0)
    }

    /// Whether the hardware takes the two for one.
    pub const fn equal(&self, a: Protection, b: Protection) -> bool {
        a.and(self.enforced).0 == b.and(self.enforced).0
    }
}

/// One virtual segment as the hardware has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Page number of its first address.
    pub start: u64,
    /// The physical pages: base and limit.
    pub run: Run,
    /// The accesses that it allows.
    pub protection: Protection,
}

/// Segment hardware, or what stands for it. Whoever carries actions out loads it.
pub trait Hardware {
    /// Why a descriptor cannot be loaded.
    type Error;

    /// What it can do. It never changes.
    fn rules(&self) -> &Rules;

    /// Makes a segment of a task valid, or replaces it. `slot` is below [`Rules::segments`].
    fn load(&mut self, task: TaskId, slot: u32, descriptor: Descriptor) -> Result<(), Self::Error>;

    /// Makes a segment of a task invalid. No access through it is under way when this returns.
    fn unload(&mut self, task: TaskId, slot: u32) -> Result<(), Self::Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const MPU: Shape = Shape::PowerOfTwo { parts: 8 };

    #[test]
    fn a_region_is_rounded_to_its_subregions() {
        assert_eq!(MPU.round(1), Some((1, 1)));
        assert_eq!(MPU.round(5), Some((5, 8)));
        assert_eq!(MPU.round(33), Some((40, 64)));
        assert_eq!(MPU.round(u32::MAX), None);
        assert_eq!(Shape::PowerOfTwo { parts: 1 }.round(5), Some((8, 8)));
        assert_eq!(Shape::Any.round(5), Some((5, 1)));
    }

    #[test]
    fn what_was_rounded_is_covered_by_itself() {
        for pages in 1..500 {
            let (rounded, align) = MPU.round(pages).unwrap();
            let run = Run::new(align * 3, rounded);
            assert_eq!(MPU.cover(run), Some(run));
        }
    }

    #[test]
    fn a_cover_is_the_smallest_possible() {
        assert_eq!(MPU.cover(Run::new(3, 2)), Some(Run::new(3, 2)), "two parts of a region of 8");
        assert_eq!(MPU.cover(Run::new(7, 2)), Some(Run::new(6, 4)), "16 pages in parts of 2");
        assert_eq!(MPU.cover(Run::new(0, 20)), Some(Run::new(0, 20)));
        assert_eq!(MPU.cover(Run::new(1, 20)), Some(Run::new(0, 24)));
    }

    #[test]
    fn the_papers_protections() {
        let rw = Protection::READ_WRITE;
        assert!(Rules::SERVER.equal(rw, Protection::ALL), "section 5.3");
        assert!(!Rules::SERVER.equal(rw, Protection::READ));
        assert!(Rules::ONE.equal(rw, Protection::READ));
        assert!(!Rules::CORTEX_M.equal(rw, Protection::ALL));
        assert_eq!(Rules::ONE.effective(Protection::NONE), Protection::ALL);
    }
}
