//! One way in which a register may have come to where it is, and what the next operation does to it.

use crate::arena::{Arena, Version};
use crate::history::{EVERYBODY, Kept, OnLoss};

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
    /// `about_to_write`: such a host may have had the page for writing without having written. `wanted`: somebody wanted to
    /// write it, whose copies or those of others may be gone for that.
    Loss {
        hosts: u64,
        start: u64,
        about_to_write: bool,
        wanted: bool,
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
    pub kept: Kept,
    /// Host of each write; of the first value, none.
    pub writers: &'a [Option<u8>],
    /// Whether somebody reads it after a loss that may bring it back.
    pub matters: &'a [bool],
    /// When the last read of each write's value ended.
    pub last_read: &'a [u64],
    /// Of each host a write that nobody ever reads, which stands for all others: nobody can tell them apart.
    pub unread: [Option<u32>; 64],
    /// The instant that was come to: nobody reads any more what was read last before that.
    pub now: u64,
}

impl Rules<'_> {
    /// What the register may be after a step; nothing if the step cannot be now.
    pub fn after(&self, arena: &mut Arena, from: Configuration, step: Step) -> Vec<Configuration> {
        let Configuration { version, lost, .. } = from;
        let same = |version| vec![Configuration { version, ..from }];
        match step {
            Step::Read { value, host } if !lost && arena.write(version) == value => {
                let elsewhere = self.writers[value as usize] != Some(host);
                same(if elsewhere { self.known_elsewhere(arena, version) } else { version })
            }
            Step::Write { value, host } if !lost => same(self.written(arena, version, value, host)),
            Step::Read { .. } | Step::Write { .. } => Vec::new(),
            Step::Sync if lost => same(version),
            Step::Sync => {
                let write = arena.write(version);
                same(arena.certain(write))
            }
            Step::Failed if lost => same(version),
            Step::Failed => Vec::new(),
            Step::Revert if lost => {
                let from = Configuration { lost: false, ..from };
                let mut all = self.taken_back(arena, from, 0, self.kept != Kept::AtHome);
                all.push(Configuration { version: self.known_elsewhere(arena, version), ..from });
                all
            }
            Step::Revert => same(version),
            Step::Loss { hosts, start, about_to_write, wanted } => {
                let writer = self.writers[arena.write(version) as usize];
                let forwarded = matches!(self.kept, Kept::WhatHomeHad(_));
                let by_them = writer.is_some_and(|host| hosts & (1 << host) != 0);
                let of_them = arena.is_alone(version) && by_them;
                // Who had read it may have dropped the copy, for whom it was about to be handed over to.
                let dropped = wanted && by_them && forwarded;
                let of_all = self.concerns_all(hosts) && !arena.before(version, true).is_empty();
                // Of one alone, by forwarding: what it wrote since it had the page, also what others had read before it wrote again.
                let is_more_than_a_run = !forwarded || hosts.count_ones() > 1;
                match self.on_loss {
                    OnLoss::Revert if lost => Vec::new(),
                    OnLoss::Revert if of_all || of_them && is_more_than_a_run => {
                        self.taken_back(arena, from, start, of_all || forwarded)
                    }
                    OnLoss::Revert if of_them || dropped => self.run_taken_back(arena, from, start, hosts),
                    OnLoss::Error if of_them || of_all || about_to_write || dropped => {
                        vec![Configuration { lost: true, ..from }]
                    }
                    _ => Vec::new(),
                }
            }
        }
    }

    /// Whether the home is lost, so that the others drop what they have, or the next home has to ask for it.
    fn concerns_all(&self, hosts: u64) -> bool {
        match self.kept {
            Kept::AtHome => false,
            Kept::WhatHomeHad(home) => hosts == !(1 << home),
            Kept::Synced => hosts == EVERYBODY,
        }
    }

    fn written(&self, arena: &mut Arena, version: Version, value: u32, host: u8) -> Version {
        if self.kept == Kept::WhatHomeHad(host) {
            return arena.certain(value); // it keeps that when it hands the page over
        }
        let follows = arena.is_alone(version) && self.writers[arena.write(version) as usize] == Some(host);
        let before = if follows { version } else { self.known_elsewhere(arena, version) };
        let is_read = self.last_read[value as usize] >= self.now;
        let value = if is_read { value } else { self.unread(value) };
        arena.newer(before, value, |write| self.is_to_come(write))
    }

    /// What stands for a write that nobody reads any more.
    fn unread(&self, write: u32) -> u32 {
        let host = self.writers[write as usize];
        host.and_then(|host| self.unread[usize::from(host)]).unwrap_or(write)
    }

    /// Whether somebody may read it yet after a loss that brings it back.
    fn is_to_come(&self, write: u32) -> bool {
        self.matters[write as usize] && self.last_read[write as usize] >= self.now
    }

    /// Another host has the version: where hand-overs go by way of the home nothing before it comes back any more.
    fn known_elsewhere(&self, arena: &mut Arena, version: Version) -> Version {
        match self.kept {
            Kept::WhatHomeHad(_) | Kept::Synced => {
                let mut run = Some(self.writers[arena.write(version) as usize]);
                // What another host wrote before the last run ends it, also where nobody reads that.
                let mut ends_it =
                    |write: u32| run.take_if(|host| *host != self.writers[write as usize]).is_some();
                let kept = |write| ends_it(write) || self.is_to_come(write);
                let stands_for = |write| if self.is_to_come(write) { write } else { self.unread(write) };
                arena.elsewhere(version, kept, stands_for)
            }
            Kept::AtHome => {
                let write = arena.write(version);
                arena.certain(write)
            }
        }
    }

    /// Versions that may come back. Those that nobody reads after `since` are left out, but the last: a register
    /// that nobody reads is the same with any value, and without a loss.
    fn taken_back(
        &self,
        arena: &mut Arena,
        from: Configuration,
        since: u64,
        all: bool,
    ) -> Vec<Configuration> {
        let before = arena.before(from.version, all);
        self.back_to(arena, from, since, before)
    }

    /// Versions that may come back if the last writes of those hosts are gone, also those that others had read. (Where what
    /// another host wrote between is not known any more, because nobody read it, some are older than could be.)
    fn run_taken_back(
        &self,
        arena: &mut Arena,
        from: Configuration,
        since: u64,
        hosts: u64,
    ) -> Vec<Configuration> {
        let mut before = arena.before(from.version, true);
        let is_theirs = |version: &Version| {
            self.writers[arena.write(*version) as usize].is_some_and(|host| hosts & (1 << host) != 0)
        };
        let theirs = before.iter().take_while(|version| is_theirs(version)).count();
        before.truncate(theirs + 1);
        self.back_to(arena, from, since, before)
    }

    fn back_to(
        &self,
        arena: &mut Arena,
        from: Configuration,
        since: u64,
        mut before: Vec<Version>,
    ) -> Vec<Configuration> {
        let last = before.last().copied();
        before.retain(|version| {
            Some(*version) == last || self.last_read[arena.write(*version) as usize] >= since
        });
        let back = |version| Configuration { version: self.known_elsewhere(arena, version), ..from };
        before.into_iter().map(back).collect()
    }
}
