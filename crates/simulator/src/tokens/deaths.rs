//! What ends: clients, processes of hosts, machines, and the use of the object on a host.

use super::memory::BYTES;
use super::world::{Does, HOME, Thread, World, at};
use commonhold_coherence::HostId;
use commonhold_primitives::{Kind, Taken, free_of_the_dead};
use commonhold_tokens::{Event, Part};
use std::collections::{BTreeSet, HashSet};

impl World {
    pub(super) fn client_dies(&mut self, number: usize) {
        let Thread { machine, does, index, .. } = self.threads[number].clone();
        if matches!(does, Does::Owns(_)) {
            self.died.insert(index);
        }
        self.threads[number].does = Does::Dead;
        self.free_the_dead(machine);
    }

    pub(super) fn free_the_dead(&mut self, machine: usize) {
        let alive = |(_, thread): &(usize, &Thread)| thread.does != Does::Dead;
        let living: HashSet<u32> =
            self.threads.iter().enumerate().filter(alive).map(|(number, _)| number as u32 + 1).collect();
        let bytes = self.plan.mutexes as usize * BYTES;
        self.with_words(machine, |words| {
            free_of_the_dead(words, 0..bytes, Kind::Mutex, || living.clone(), None)
        });
        let claimed = self.machines[machine].part.as_ref().map_or_else(Vec::new, Part::claimed);
        claimed.into_iter().for_each(|index| self.claim(machine, index, false));
    }

    /// A host's process dies: its words stay, and another reads them.
    pub(super) fn restart(&mut self, number: usize) {
        let former = self.machines[number].host;
        let host = HostId(self.next_host);
        self.next_host += 1;
        let mutexes = self.plan.mutexes;
        let seen: Vec<_> = self
            .with_words(number, |words| (0..mutexes).map(|index| (index, at(index).seen(words))).collect());
        let first = number == HOME;
        let changed = seen.into_iter().filter(|(_, seen)| seen.here != first || seen.sleepers);
        let words = changed.map(|(index, seen)| (index, seen.here, seen.sleepers));
        let part = Part::following(host, mutexes, first, words);
        let machine = &mut self.machines[number];
        (machine.host, machine.part, machine.seeks) = (host, Some(part), true);
        machine.former.push(former);
        machine.told.clear();
        machine.timers.clear();
        self.forget(former);
        if first {
            // Each hears of it some time later.
            self.machines.iter_mut().skip(1).for_each(|other| other.seeks = other.part.is_some());
        } else {
            self.handle(HOME, Event::Lost(former));
        }
        self.free_the_dead(number);
    }

    pub(super) fn machine_dies(&mut self, number: usize) {
        let host = self.machines[number].host;
        let owned = |thread: &&Thread| thread.machine == number && matches!(thread.does, Does::Owns(_));
        let owned: Vec<u32> = self.threads.iter().filter(owned).map(|thread| thread.index).collect();
        self.died.extend(owned);
        let mine = |thread: &&mut Thread| thread.machine == number && thread.does != Does::Done;
        self.threads.iter_mut().filter(mine).for_each(|thread| thread.does = Does::Dead);
        let machine = &mut self.machines[number];
        (machine.part, machine.seeks, machine.lost) = (None, false, true);
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
        let mutexes = self.plan.mutexes;
        let died: BTreeSet<u32> = self.with_words(number, |words| {
            let died =
                |index: &u32| matches!(at(*index).take_away(words, true), Taken::Yes { died: true, .. });
            (0..mutexes).filter(died).collect()
        });
        let machine = &mut self.machines[number];
        let Some(part) = machine.part.take() else { return };
        machine.timers.clear();
        let host = machine.host;
        if let Some(home) = part.home() {
            self.channels
                .entry((host, home))
                .or_default()
                .push_back(part.leaves(|index| died.contains(&index)));
        }
    }
}
