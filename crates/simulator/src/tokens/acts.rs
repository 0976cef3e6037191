//! What a thread's call and a host do.

use super::memory::{BYTES, SLEEPERS, Told, WORDS, Words};
use super::world::{Does, Thread, World};
use commonhold_primitives::between::Semaphore;
use commonhold_primitives::{Mutex, Refused, Taken, Wait, Who};
use commonhold_tokens::{Action, Event, Message, Part, Timer};
use std::time::Duration;

impl World {
    /// Does something with a machine's words; then its threads wake, and its host is to hear what it was told.
    pub(super) fn with_words<T>(&mut self, machine: usize, job: impl FnOnce(&Words<'_>) -> T) -> T {
        let sleeping =
            |word: usize| self.threads.iter().filter(|thread| thread.sleeps_on(machine, word)).count() as u32;
        let sleepers = (0..self.plan.mutexes as usize * WORDS).map(sleeping).collect();
        let ends_asleep = self.plan.semaphores;
        let words = Words::new(&self.machines[machine].words, sleepers, ends_asleep, self.began);
        let result = job(&words);
        let (told, woken) = (words.told.into_inner(), words.woken.into_inner());
        for (word, count) in woken {
            let sleeps = |number: &usize| self.threads[*number].sleeps_on(machine, word);
            let sleep: Vec<usize> = (0..self.threads.len()).filter(sleeps).take(count as usize).collect();
            sleep.into_iter().for_each(|number| self.wakes(number));
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

    /// A thread that sleeps is woken.
    pub(super) fn wakes(&mut self, number: usize) {
        let does = &mut self.threads[number].does;
        *does = match *does {
            Does::Sleeps(word) => Does::Woken(word),
            Does::Gives(word, _) => Does::Gives(word, true),
            other => other,
        };
    }

    /// A thread takes a semaphore, or gives it back.
    fn uses_semaphore(&mut self, number: usize) {
        let Thread { machine, does, index, .. } = self.threads[number].clone();
        let who = Who { member: number as u32 + 1, thread: 1 };
        if let Does::Woken(word) | Does::Gives(word, _) = does
            && word % WORDS == 0
        {
            // It has slept for the mutex, so that others may: here that is said before it looks.
            self.with_words(machine, |words| words.set(index, |word| word | SLEEPERS));
        }
        let gives = matches!(does, Does::Owns(_) | Does::Gives(..));
        let (done, slept) = self.with_words(machine, |words| {
            let semaphore = Semaphore { at: index as usize * BYTES, first: 1 };
            let done = if gives {
                semaphore.release(words, who, 1)
            } else {
                semaphore.acquire(words, who, Wait::Forever)
            };
            (done, words.slept.get())
        });
        self.threads[number].does = match (done, slept) {
            (Ok(()), _) if gives => {
                let thread = &mut self.threads[number];
                thread.left -= 1;
                thread.index = (thread.index + 1) % self.plan.mutexes;
                if thread.left == 0 { Does::Done } else { Does::Locks }
            }
            (Ok(()), _) => {
                self.locked += 1;
                Does::Owns(false)
            }
            (Err(Refused::Gone), Some((word, _))) if gives => Does::Gives(word, false),
            (Err(Refused::Gone), Some((word, _))) => Does::Sleeps(word),
            (Err(error), _) => {
                self.violation.get_or_insert_with(|| format!("thread {number}: {error:?}"));
                Does::Done
            }
        };
        // What its host heard in the same step may have changed the word, so that it does not sleep.
        if let Some((word, value)) = slept
            && self.machines[machine].words.borrow()[word] as u32 != value
        {
            self.wakes(number);
        }
    }

    pub(super) fn thread(&mut self, number: usize) {
        if self.plan.semaphores {
            return self.uses_semaphore(number);
        }
        let Thread { machine, does, index, .. } = self.threads[number].clone();
        let who = Who { member: number as u32 + 1, thread: 1 };
        if let Does::Owns(died) = does {
            let done = self.with_words(machine, |words| {
                let mended = if died { mutex(index).mend(words, who) } else { Ok(()) };
                mended.and_then(|()| mutex(index).unlock(words, who))
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
        match self.with_words(machine, |words| mutex(index).lock(words, who, until)) {
            Ok(died) => {
                if self.died.remove(&index) && !died {
                    self.violation
                        .get_or_insert_with(|| format!("nobody says that an owner of {index} died"));
                }
                self.locked += 1;
                if matches!(does, Does::Woken(_)) {
                    // It has slept, and says in the same step that others may: here that is the next call.
                    self.with_words(machine, |words| words.set(index, |word| word | SLEEPERS));
                }
                self.threads[number].does = Does::Owns(died);
            }
            Err(Refused::TimedOut) => self.threads[number].does = Does::Sleeps(index as usize * WORDS),
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
                if matches!(
                    message,
                    Message::Request { .. } | Message::Token { .. } | Message::Changed { .. }
                ) {
                    self.messages += 1;
                }
                let from = self.machines[machine].host;
                if self.machines.iter().any(|other| other.host == to && !other.lost) {
                    self.channels.entry((from, to)).or_default().push_back(message);
                }
            }
            Action::Claim { index, firmly } => self.claim(machine, index, firmly),
            Action::Give { index, died, wanted, given } => {
                let monitor = self.plan.at(index);
                let has_news = self.with_words(machine, |words| monitor.give(words, died, wanted, &given));
                if wanted {
                    self.machines[machine].timers.insert(Timer::Taken(index));
                }
                if has_news {
                    self.claim(machine, index, false);
                }
            }
            Action::Void(index) => {
                let monitor = self.plan.at(index);
                if self.with_words(machine, |words| monitor.void(words)) {
                    self.handle(machine, Event::Wanted(index));
                }
            }
            Action::Wait(timer) => _ = self.machines[machine].timers.insert(timer),
        }
    }

    pub(super) fn claim(&mut self, machine: usize, index: u32, firmly: bool) {
        let is_at_hand = |part: &Part| part.is_at_hand(index);
        if !self.machines[machine].part.as_ref().is_some_and(is_at_hand) {
            return;
        }
        let monitor = self.plan.at(index);
        let (taken, left) = self.with_words(machine, |words| monitor.take_away(words, firmly));
        match taken {
            Taken::Yes { died, sleepers } => {
                self.handle(machine, Event::Released { index, died, sleepers, left });
            }
            Taken::Owned => {}
            Taken::Reserved => _ = self.machines[machine].timers.insert(Timer::Taken(index)),
        }
    }
}

fn mutex(index: u32) -> Mutex {
    Mutex(index as usize * BYTES)
}

impl Thread {
    fn sleeps_on(&self, machine: usize, word: usize) -> bool {
        let sleeps = matches!(self.does, Does::Sleeps(at) | Does::Gives(at, false) if at == word);
        self.machine == machine && sleeps
    }
}
