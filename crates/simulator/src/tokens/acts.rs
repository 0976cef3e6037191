//! What a thread's call and a host do.

use super::memory::{SLEEPERS, Told, Words};
use super::world::{Does, Thread, World, at};
use commonhold_primitives::{Refused, Taken, Wait, Who};
use commonhold_tokens::{Action, Event, Message, Timer};
use std::time::Duration;

impl World {
    /// Does something with a machine's words; then its threads wake, and its host is to hear what it was told.
    pub(super) fn with_words<T>(&mut self, machine: usize, job: impl FnOnce(&Words<'_>) -> T) -> T {
        let sleeping = |index: usize| {
            let sleeps = |thread: &&Thread| {
                thread.machine == machine && thread.does == Does::Sleeps && thread.index == index as u32
            };
            self.threads.iter().filter(sleeps).count() as u32
        };
        let sleepers = (0..self.plan.mutexes as usize).map(sleeping).collect();
        let words = Words::new(&self.machines[machine].words, sleepers, self.began);
        let result = job(&words);
        let (told, woken) = (words.told.into_inner(), words.woken.into_inner());
        for (index, count) in woken {
            let sleeps = |thread: &&mut Thread| {
                thread.machine == machine && thread.does == Does::Sleeps && thread.index == index as u32
            };
            self.threads
                .iter_mut()
                .filter(sleeps)
                .take(count as usize)
                .for_each(|thread| thread.does = Does::Woken);
        }
        let waiting = &mut self.machines[machine].told;
        for told in told.into_iter().map(|(index, told)| (index as u32, told)) {
            // What is told twice before it is heard is no more than told once: so the states are finitely many.
            if !waiting.contains(&told) {
                waiting.push_back(told);
            }
        }
        while self.plan.is_short
            && let Some((index, told)) = self.machines[machine].told.pop_front()
        {
            self.hears(machine, index, told);
        }
        result
    }

    pub(super) fn thread(&mut self, number: usize) {
        let Thread { machine, does, index, .. } = self.threads[number].clone();
        let who = Who { member: number as u32 + 1, thread: 1 };
        if let Does::Owns(died) = does {
            let done = self.with_words(machine, |words| {
                let mended = if died { at(index).mend(words, who) } else { Ok(()) };
                mended.and_then(|()| at(index).unlock(words, who))
            });
            if let Err(error) = done {
                self.violation.get_or_insert_with(|| format!("thread {number} lost its mutex: {error:?}"));
            }
            let thread = &mut self.threads[number];
            thread.left -= 1;
            thread.index = (thread.index + 1) % self.plan.mutexes;
            thread.does = if thread.left == 0 { Does::Done } else { Does::Locks };
            return;
        }
        let until = Wait::Until(self.began + Duration::from_millis(1));
        match self.with_words(machine, |words| at(index).lock(words, who, until)) {
            Ok(died) => {
                if self.died.remove(&index) && !died {
                    self.violation
                        .get_or_insert_with(|| format!("nobody says that an owner of {index} died"));
                }
                self.locked += 1;
                if does == Does::Woken {
                    // It has slept, and says in the same step that others may: here that is the next call.
                    self.with_words(machine, |words| words.set(index, |word| word | SLEEPERS));
                }
                self.threads[number].does = Does::Owns(died);
            }
            Err(Refused::TimedOut) => self.threads[number].does = Does::Sleeps,
            Err(error) => {
                self.violation.get_or_insert_with(|| format!("thread {number} cannot lock: {error:?}"));
            }
        }
    }

    pub(super) fn hears(&mut self, machine: usize, index: u32, told: Told) {
        match told {
            Told::Wanted => self.handle(machine, Event::Wanted(index)),
            Told::Released => self.claim(machine, index, false),
        }
    }

    pub(super) fn handle(&mut self, machine: usize, event: Event) {
        let mut actions = Vec::new();
        let Some(part) = &mut self.machines[machine].part else { return };
        part.handle(event, &mut actions);
        for action in actions {
            self.act(machine, action);
        }
    }

    pub(super) fn act(&mut self, machine: usize, action: Action) {
        match action {
            Action::Send(to, message) => {
                if matches!(message, Message::Request { .. } | Message::Token { .. }) {
                    self.messages += 1;
                }
                let from = self.machines[machine].host;
                if self.machines.iter().any(|other| other.host == to && !other.lost) {
                    self.channels.entry((from, to)).or_default().push_back(message);
                }
            }
            Action::Claim { index, firmly } => self.claim(machine, index, firmly),
            Action::Give { index, died, wanted } => {
                self.with_words(machine, |words| at(index).give(words, died, wanted));
                if wanted {
                    self.machines[machine].timers.insert(Timer::Taken(index));
                }
            }
            Action::Void(index) => {
                if self.with_words(machine, |words| at(index).void(words)) {
                    self.handle(machine, Event::Wanted(index));
                }
            }
            Action::Wait(timer) => _ = self.machines[machine].timers.insert(timer),
        }
    }

    pub(super) fn claim(&mut self, machine: usize, index: u32, firmly: bool) {
        match self.with_words(machine, |words| at(index).take_away(words, firmly)) {
            Taken::Yes { died, sleepers } => self.handle(machine, Event::Released { index, died, sleepers }),
            Taken::Owned => {}
            Taken::Reserved => _ = self.machines[machine].timers.insert(Timer::Taken(index)),
        }
    }
}
