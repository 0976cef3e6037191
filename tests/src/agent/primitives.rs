//! Lines about locks by name. `X` is a name that the test gives to one; a time is milliseconds, `0`
//! not at all, `-` for ever.
//!
//! ```text
//! open X kind /name        create X kind /name [number] [count=N] [mode=NNN]      at X index as=Y     close X
//! lock X time     mend X time (gives whether its owner died)     unlock X     wait X mutex time     signal X     broadcast X
//! read X time     write X time     end X     acquire X time     release X number     value X
//! arrive X time (gives whether it was last)     abort X     add X number     while X value time
//! work X M rounds (adds one to the first word of a mapping, under the mutex)
//! contend /name path M (until all are to end, or `-` for no mapping: see `contended`)
//! tickets X number path (writes each down)
//! ```

use super::{Agent, Done, Failure, number, wrong};
use crate::contended::{self, Notes};
use crate::page;
use commonhold::{Barrier, Condition, Counter, Mutex, RwLock, Semaphore, SyncOptions, Wait};
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[derive(Clone)]
pub enum Primitive {
    Mutex(Mutex),
    RwLock(RwLock),
    Condition(Condition),
    Semaphore(Semaphore),
    Barrier(Barrier),
    Counter(Counter),
}

use Primitive as P;

fn until(word: &str) -> Result<Wait, Failure> {
    Ok(match word {
        "-" => Wait::Forever,
        "0" => Wait::No,
        _ => deadline(word)?.into(),
    })
}

fn deadline(word: &str) -> Result<Option<Instant>, Failure> {
    Ok(if word == "-" { None } else { Some(Instant::now() + Duration::from_millis(number(word)?)) })
}

impl Agent {
    fn primitive(&self, name: &str) -> Result<&P, Failure> {
        self.primitives.get(name).ok_or_else(|| wrong(format!("no primitive {name} here")))
    }

    fn mutex(&self, name: &str) -> Result<&Mutex, Failure> {
        match self.primitive(name)? {
            P::Mutex(mutex) => Ok(mutex),
            _ => Err(wrong(format!("{name} is no mutex"))),
        }
    }

    pub(super) fn on_primitives(&mut self, words: &[&str]) -> Done {
        let done = |done: commonhold::Result<()>| -> Done { Ok(done.map(|()| String::new())?) };
        match words {
            ["open", name, kind, path] => {
                let opened = self.open_primitive(kind, path)?;
                self.primitives.insert((*name).to_owned(), opened);
                Ok(String::new())
            }
            ["create", name, kind, path, more @ ..] => {
                let created = self.create_primitive(kind, path, more)?;
                self.primitives.insert((*name).to_owned(), created);
                Ok(String::new())
            }
            ["at", name, index, other] => {
                let index = number(index)? as u32;
                let found = match self.primitive(name)? {
                    P::Mutex(it) => P::Mutex(it.at(index)?),
                    P::RwLock(it) => P::RwLock(it.at(index)?),
                    P::Condition(it) => P::Condition(it.at(index)?),
                    P::Semaphore(it) => P::Semaphore(it.at(index)?),
                    P::Barrier(it) => P::Barrier(it.at(index)?),
                    P::Counter(it) => P::Counter(it.at(index)?),
                };
                self.primitives.insert(other.trim_start_matches("as=").to_owned(), found);
                Ok(String::new())
            }
            ["close", name] => Ok(self.primitives.remove(*name).map_or("was not open", |_| "").to_owned()),
            ["wait", name, mutex, time] => match self.primitive(name)? {
                P::Condition(it) => done(it.wait_with(self.mutex(mutex)?, until(time)?)),
                _ => Err(wrong("no condition")),
            },
            ["work", name, mapping, rounds] => {
                let mutex = self.mutex(name)?;
                let word = &page::words(self.mapping(mapping)?.as_ptr(), 0)[0];
                for _ in 0..number(rounds)? {
                    let _guard = mutex.lock(None)?;
                    // Not atomic: the mutex is what makes it right.
                    word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                }
                Ok(String::new())
            }
            ["contend", name, path, mapping] => {
                let guarded = match *mapping {
                    "-" => None,
                    mapping => Some(&page::words(self.mapping(mapping)?.as_ptr(), 0)[0]),
                };
                let notes = Notes::open(Path::new(path));
                Ok(contended::contend(self.host()?, name, &notes, guarded)?.to_string())
            }
            [verb, name, rest @ ..] => use_primitive(verb, self.primitive(name)?, rest),
            _ => Err(wrong(format!("what is {words:?}?"))),
        }
    }

    fn open_primitive(&self, kind: &str, path: &str) -> Result<P, Failure> {
        let host = self.host()?;
        Ok(match kind {
            "mutex" => P::Mutex(Mutex::open(host, path)?),
            "rwlock" => P::RwLock(RwLock::open(host, path)?),
            "condition" => P::Condition(Condition::open(host, path)?),
            "semaphore" => P::Semaphore(Semaphore::open(host, path)?),
            "barrier" => P::Barrier(Barrier::open(host, path)?),
            "counter" => P::Counter(Counter::open(host, path)?),
            _ => return Err(wrong(format!("what is a {kind}?"))),
        })
    }

    fn create_primitive(&self, kind: &str, path: &str, more: &[&str]) -> Result<P, Failure> {
        let (mut options, mut first) = (SyncOptions::default(), 0);
        for word in more {
            if let Some(count) = word.strip_prefix("count=") {
                options.count = number(count)? as u32;
            } else if let Some(mode) = word.strip_prefix("mode=") {
                options.mode = u32::from_str_radix(mode, 8).map_err(|error| wrong(error.to_string()))?;
            } else if *word == "hosts" {
                options.between_hosts = true;
            } else {
                first = number(word)? as u32;
            }
        }
        let host = self.host()?;
        Ok(match kind {
            "mutex" => P::Mutex(Mutex::create(host, path, &options)?),
            "rwlock" => P::RwLock(RwLock::create(host, path, &options)?),
            "condition" => P::Condition(Condition::create(host, path, &options)?),
            "semaphore" => P::Semaphore(Semaphore::create(host, path, first, &options)?),
            "barrier" => P::Barrier(Barrier::create(host, path, first, &options)?),
            "counter" => P::Counter(Counter::create(host, path, &options)?),
            _ => return Err(wrong(format!("what is a {kind}?"))),
        })
    }
}

fn use_primitive(verb: &str, primitive: &P, rest: &[&str]) -> Done {
    let done = |done: commonhold::Result<()>| -> Done { Ok(done.map(|()| String::new())?) };
    match (primitive, verb, rest) {
        (P::Mutex(it), "lock", [time]) => done(it.acquire(until(time)?)),
        (P::Mutex(it), "mend", [time]) => {
            let died = it.acquire_marked(until(time)?)?;
            if died {
                it.consistent()?;
            }
            Ok(died.to_string())
        }
        (P::Mutex(it), "unlock", []) => done(it.release()),
        (P::RwLock(it), "read", [time]) => done(it.acquire_read(until(time)?)),
        (P::RwLock(it), "write", [time]) => done(it.acquire_write(until(time)?)),
        (P::RwLock(it), "mend", [time]) => {
            let died = it.acquire_write_marked(until(time)?)?;
            if died {
                it.consistent()?;
            }
            Ok(died.to_string())
        }
        (P::RwLock(it), "end", []) => done(it.release()),
        (P::Condition(it), "signal", []) => done(it.signal()),
        (P::Condition(it), "broadcast", []) => done(it.broadcast()),
        (P::Semaphore(it), "acquire", [time]) => done(it.acquire_with(until(time)?)),
        (P::Semaphore(it), "release", [more]) => done(it.release(number(more)? as u32)),
        (P::Semaphore(it), "value", []) => Ok(it.value()?.to_string()),
        (P::Barrier(it), "arrive", [time]) => Ok(it.wait(deadline(time)?)?.to_string()),
        (P::Barrier(it), "abort", []) => done(it.abort()),
        (P::Counter(it), "add", [more]) => Ok(it.add(number(more)?)?.to_string()),
        (P::Counter(it), "value", []) => Ok(it.value()?.to_string()),
        (P::Counter(it), "while", [value, time]) => {
            Ok(it.wait_while(number(value)?, deadline(time)?)?.to_string())
        }
        (P::Counter(it), "tickets", [count, path]) => {
            let mut all = String::new();
            for _ in 0..number(count)? {
                let _ = writeln!(all, "{}", it.add(1)?); // into memory
            }
            std::fs::write(path, all)?;
            Ok(String::new())
        }
        _ => Err(wrong(format!("what is {verb} of that?"))),
    }
}
