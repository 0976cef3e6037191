//! What ends: clients, processes of hosts, machines, and the use of the object on a host.

use super::memory::{BYTES, Told};
use super::world::{Does, HOME, Machine, Thread, World};
use commonhold_coherence::HostId;
use commonhold_primitives::Taken;
use commonhold_primitives::between::{Left, free_monitors_of_the_dead};
use commonhold_tokens::{Event, Message, Part};
use std::collections::{BTreeMap, HashSet};

impl World {
    pub(super) fn client_dies(&mut self, number: usize) {
        let Thread { machine, does, index, .. } = self.threads[number].clone();
        if matches!(does, Does::Owns(_)) {
            self.died.insert(index);
        }
        self.threads[number].does = Does::Dead;
        // It may have been killed when it had let a token go, and before it said so. (What others said is looked for all the same.)
        self.machines[machine].told.retain(|(_, told)| *told != Told::Released);
        self.free_the_dead(machine);
    }

    pub(super) fn free_the_dead(&mut self, machine: usize) {
        let alive = |(_, thread): &(usize, &Thread)| thread.does != Does::Dead;
        let living: HashSet<u32> =
            self.threads.iter().enumerate().filter(alive).map(|(number, _)| number as u32 + 1).collect();
        let bytes = self.plan.mutexes as usize * BYTES;
        let kind = self.plan.kind();
        let settles = self.with_words(machine, |words| {
            free_monitors_of_the_dead(words, 0..bytes, kind, || living.clone(), None)
        });
        let plan = self.plan.clone();
        let away: Vec<bool> = self.with_words(machine, |words| {
            (0..plan.mutexes).map(|index| !plan.at(index).seen(words).here).collect()
        });
        let to_take = |part: &Part| part.to_take(|index| away[index as usize]);
        let to_take = self.machines[machine].part.as_ref().map_or_else(Vec::new, to_take);
        to_take.into_iter().for_each(|index| self.claim(machine, index, false));
        for index in settles {
            let part = self.machines[machine].part.as_ref();
            if part.is_some_and(|part| part.is_at_hand(index)) {
                self.claim(machine, index, false);
            } else {
                self.handle(machine, Event::Wanted(index));
            }
        }
    }

    /// A host's process dies: its words stay, and another reads them.
    pub(super) fn restart(&mut self, number: usize) {
        let former = self.machines[number].host;
        let host = HostId(self.next_host);
        self.next_host += 1;
        let plan = self.plan.clone();
        let seen: Vec<_> = self.with_words(number, |words| {
            (0..plan.mutexes).map(|index| (index, plan.at(index).seen(words))).collect()
        });
        let first = number == HOME;
        let changed =
            seen.into_iter().filter(|(_, seen)| seen.here != first || seen.wants || seen.left.moves > 0);
        let part = plan.part(Part::following(host, plan.mutexes, first, changed));
        let machine = &mut self.machines[number];
        let leaves = machine.leaving.take().is_some();
        (machine.host, machine.part, machine.seeks) = (host, Some(part), true);
        machine.former.push(former);
        machine.told.clear();
        machine.timers.clear();
        self.forget(former);
        if first {
            // Each hears of it some time later.
            let takes_part = |other: &Machine| other.part.is_some() || other.leaving.is_some();
            self.machines.iter_mut().skip(1).for_each(|other| other.seeks = takes_part(other));
        } else {
            self.handle(HOME, Event::Lost(former));
        }
        self.free_the_dead(number);
        if leaves {
            self.leave(number); // nobody uses the object there, so the next process leaves it again
        }
    }

    pub(super) fn machine_dies(&mut self, number: usize) {
        let host = self.machines[number].host;
        let owned = |thread: &&Thread| thread.machine == number && matches!(thread.does, Does::Owns(_));
        let owned: Vec<u32> = self.threads.iter().filter(owned).map(|thread| thread.index).collect();
        self.died.extend(owned);
        let mine = |thread: &&mut Thread| thread.machine == number && thread.does != Does::Done;
        self.threads.iter_mut().filter(mine).for_each(|thread| thread.does = Does::Dead);
        let machine = &mut self.machines[number];
        (machine.part, machine.leaving, machine.seeks, machine.lost) = (None, None, false, true);
        machine.told.clear();
        machine.timers.clear();
        self.forget(host);
        self.handle(HOME, Event::Lost(host));
    }

    /// Nothing comes from that host any more, and nothing reaches it.
    pub(super) fn forget(&mut self, host: HostId) {
        self.channels.retain(|(from, to), _| *from != host && *to != host);
    }

    pub(super) fn leave(&mut self, number: usize) {
        let plan = self.plan.clone();
        let Some(part) = self.machines[number].part.take() else { return };
        let at_hand = (0..plan.mutexes).filter(|index| part.is_at_hand(*index));
        let taken: BTreeMap<u32, (bool, Left)> = self.with_words(number, |words| {
            let take = |index| match plan.at(index).take_away(words, true) {
                (Taken::Yes { died, .. }, left) => Some((index, (died, left))),
                _ => None,
            };
            at_hand.filter_map(take).collect()
        });
        let home = part.home();
        let machine = &mut self.machines[number];
        machine.timers.clear();
        machine.leaving = Some(part.leaves(|index| taken.get(&index).copied()));
        // It is said at once, and asks anew whether the home knows.
        machine.seeks = true;
        if let Some(home) = home {
            self.say_left(number, home);
        }
    }

    /// A machine that has left says so to that home.
    pub(super) fn say_left(&mut self, number: usize, home: HostId) {
        let Machine { host, leaving: Some(leaving), .. } = &self.machines[number] else { return };
        if self.machines[HOME].host == home {
            let message = Message::Leave(leaving.clone());
            self.channels.entry((*host, home)).or_default().push_back(message);
        }
    }

    /// The home has heard that a host left. It answers the last time that it is said, unless it has not counted yet.
    pub(super) fn knows_who_left(&mut self, host: HostId, home: HostId) {
        let has_counted = self.home_part().is_some_and(Part::has_counted);
        let (is_home, answers) =
            (self.home_part().is_some_and(Part::is_home), has_counted && !self.has_said(host));
        let leaves = |machine: &&mut Machine| machine.host == host && machine.leaving.is_some();
        let Some(machine) = self.machines.iter_mut().find(leaves) else { return };
        machine.seeks |= !is_home;
        if answers && !machine.seeks {
            machine.leaving = None;
            self.channels.remove(&(home, host)); // what the home said to it comes before the answer
        }
    }

    pub(super) fn home_part(&self) -> Option<&Part> {
        self.machines[HOME].part.as_ref()
    }

    /// Whether something that a host said to the home is on its way.
    pub(super) fn has_said(&self, host: HostId) -> bool {
        self.channels.get(&(host, self.machines[HOME].host)).is_some_and(|said| !said.is_empty())
    }
}
