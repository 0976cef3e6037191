//! One way in which a register may have come to where it is, and what the next operation does to it.

use crate::arena::{Arena, Version};
use crate::history::OnLoss;

/// What of an operation matters to a register. Values are numbers of writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Read {
        value: u32,
        host: u8,
    },
    Write {
        value: u32,
        host: u8,
    },
    Sync,
    Failed,
    Revert,
    /// `about_to_write`: such a host may have had the page for writing without having written.
    Loss {
        hosts: u64,
        start: u64,
        about_to_write: bool,
    },
}

/// Which of the operations under way have happened, and what the register is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Configuration {
    /// A bit for each operation under way.
    pub happened: u64,
    pub version: Version,
    /// Whether touching it is an error.
    pub lost: bool,
}

/// What steps look up.
pub(crate) struct Rules<'a> {
    pub on_loss: OnLoss,
    /// Host of each write; of the first value, none.
    pub writers: &'a [Option<u8>],
    /// When the last read of each write's value ended.
    pub last_read: &'a [u64],
}

impl Rules<'_> {
    /// What the register may be after a step; nothing if the step cannot be now.
    pub fn after(&self, arena: &mut Arena, from: Configuration, step: Step) -> Vec<Configuration> {
        let Configuration { version, lost, .. } = from;
        let same = |version| vec![Configuration { version, ..from }];
        match step {
            Step::Read { value, host } if !lost && arena.write(version) == value => {
                let elsewhere = self.writers[value as usize] != Some(host);
                same(if elsewhere { arena.kept(version) } else { version })
            }
            Step::Write { value, host } if !lost => {
                let follows =
                    arena.is_uncertain(version) && self.writers[arena.write(version) as usize] == Some(host);
                let before = if follows { version } else { arena.kept(version) };
                same(arena.newer(before, value))
            }
            Step::Read { .. } | Step::Write { .. } => Vec::new(),
            Step::Sync if lost => same(version),
            Step::Sync => same(arena.kept(version)),
            Step::Failed if lost => same(version),
            Step::Failed => Vec::new(),
            Step::Revert if lost => {
                let mut all = self.taken_back(arena, Configuration { lost: false, ..from }, 0);
                all.push(Configuration { version: arena.kept(version), lost: false, ..from });
                all
            }
            Step::Revert => same(version),
            Step::Loss { hosts, start, about_to_write } => {
                let writer = self.writers[arena.write(version) as usize];
                let of_them =
                    arena.is_uncertain(version) && writer.is_some_and(|host| hosts & (1 << host) != 0);
                match self.on_loss {
                    OnLoss::Revert if of_them && !lost => self.taken_back(arena, from, start),
                    OnLoss::Error if of_them || about_to_write => {
                        vec![Configuration { lost: true, ..from }]
                    }
                    _ => Vec::new(),
                }
            }
        }
    }

    /// Versions that may come back. Those that nobody reads after `since` are left out, but the last: a register
    /// that nobody reads is the same with any value, and without a loss.
    fn taken_back(&self, arena: &mut Arena, from: Configuration, since: u64) -> Vec<Configuration> {
        let read_later = |arena: &Arena, version| self.last_read[arena.write(version) as usize] >= since;
        let before: Vec<Version> = arena.before(from.version).collect();
        let last = before.last().copied();
        let wanted =
            before.into_iter().filter(|version| Some(*version) == last || read_later(arena, *version));
        // What came back is what the home had: it is taken back by nothing.
        wanted
            .collect::<Vec<_>>()
            .into_iter()
            .map(|version| Configuration { version: arena.kept(version), ..from })
            .collect()
    }
}
