//! Lines about objects that were opened movable.

use super::memory::faults;
use super::{Agent, Done, number, wrong};
use crate::page;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Agent {
    pub(super) fn on_movable(&mut self, words: &[&str]) -> Done {
        match words {
            ["open-movable", object, name, access] => {
                let opened = self.host()?.open_movable(name, super::objects::access(access))?;
                self.objects.insert((*object).to_owned(), opened);
                Ok(String::new())
            }
            ["guarded", object, what @ ("fill" | "check"), first, count, seed] => {
                let guard = self.object(object)?.guard()?;
                let seed = number(seed)?;
                for index in number(first)?..number(first)? + number(count)? {
                    let words = page::words(guard.as_ptr(), index as usize);
                    match *what {
                        "fill" => page::fill(words, index, seed),
                        _ => page::check(words, index, seed).map_err(wrong)?,
                    }
                }
                Ok(String::new())
            }
            ["guard", object] => {
                let guard = self.object(object)?.guard()?;
                let said = format!("{} {} {}", guard.as_ptr() as usize, guard.len(), guard.generation());
                guard.keep();
                Ok(said)
            }
            ["leave", object] => Ok(self.object(object)?.leave().map(|()| String::new())?),
            ["work", object, pages, ms] => self.work(object, number(pages)?, number(ms)?),
            _ => Err(wrong(format!("what is {words:?}?"))),
        }
    }

    /// Counts in each of so many pages, under a guard each round. Gives how many rounds there were, in how many generations.
    fn work(&self, object: &str, pages: u64, ms: u64) -> Done {
        let object = self.object(object)?;
        let (mut rounds, mut generations, mut last, mut faulted) = (0u64, 0u64, 0, 0);
        let until = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < until {
            let guard = object.guard()?;
            generations += u64::from(guard.generation() != last);
            last = guard.generation();
            let before = faults();
            for index in 0..pages {
                let words = page::words(guard.as_ptr(), index as usize);
                for at in [0, page::WORDS / 2, page::WORDS - 1] {
                    let found = words[at].fetch_add(1, Ordering::Relaxed);
                    if found != rounds {
                        return Err(wrong(format!("page {index} word {at} is {found}, not {rounds}")));
                    }
                }
            }
            // What the thread's own stack and code take the first time is not the object's.
            faulted += if rounds > 0 { faults() - before } else { 0 };
            rounds += 1;
        }
        match faulted {
            0 => Ok(format!("{rounds} {generations}")),
            some => Err(wrong(format!("{some} faults under guards"))),
        }
    }
}
