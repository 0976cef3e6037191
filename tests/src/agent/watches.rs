//! Lines about watches, after `watching`:
//!
//! ```text
//! begin W O offset length       at W M offset length       end W
//! notify O offset length        notify-at M offset length
//! wait W ms                     wait-at M offset length ms      ("true" or "false"; ms `-`: for ever)
//! polled W                      (whether its descriptor is readable, and stays one)
//! many O count                  (as many as the host gives, each kept; how many that are)
//! flood O count                 (as many notifications of its first byte)
//! ```

use super::{Agent, Done, number, wrong};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};

fn deadline(ms: &str) -> Result<Option<Instant>, super::Failure> {
    if ms == "-" { Ok(None) } else { Ok(Some(Instant::now() + Duration::from_millis(number(ms)?))) }
}

impl Agent {
    pub(super) fn on_watches(&mut self, words: &[&str]) -> Done {
        match words {
            ["begin", watch, object, offset, length] => {
                let made = self.object(object)?.watch(number(offset)?, number(length)?)?;
                self.watches.insert((*watch).to_owned(), made);
                Ok(String::new())
            }
            ["at", watch, mapping, offset, length] => {
                let (offset, length) = (number(offset)? as usize, number(length)? as usize);
                let made = self.mapping(mapping)?.watch(offset, length)?;
                self.watches.insert((*watch).to_owned(), made);
                Ok(String::new())
            }
            ["end", watch] => {
                self.watches.remove(*watch).ok_or_else(|| wrong("no such watch"))?;
                Ok(String::new())
            }
            ["notify", object, offset, length] => {
                self.object(object)?.notify(number(offset)?, number(length)?)?;
                Ok(String::new())
            }
            ["notify-at", mapping, offset, length] => {
                let (offset, length) = (number(offset)? as usize, number(length)? as usize);
                self.mapping(mapping)?.notify(offset, length)?;
                Ok(String::new())
            }
            ["wait", watch, ms] => {
                let watch = self.watches.get(*watch).ok_or_else(|| wrong("no such watch"))?;
                Ok(watch.wait(deadline(ms)?)?.to_string())
            }
            ["wait-at", mapping, offset, length, ms] => {
                let (offset, length) = (number(offset)? as usize, number(length)? as usize);
                Ok(self.mapping(mapping)?.wait(offset, length, deadline(ms)?)?.to_string())
            }
            ["polled", watch] => {
                let watch = self.watches.get(*watch).ok_or_else(|| wrong("no such watch"))?;
                let mut polled = [PollFd::new(watch, PollFlags::IN)];
                let found = poll(&mut polled, Some(&Timespec::default())).map_err(std::io::Error::from)?;
                Ok((found == 1).to_string())
            }
            ["many", object, count] => {
                let from = self.watches.len();
                for nth in 0..number(count)? as usize {
                    match self.object(object)?.watch(0, 1) {
                        Ok(watch) => drop(self.watches.insert(format!("{}", from + nth), watch)),
                        Err(error) if nth == 0 => return Err(error.into()),
                        Err(_) => return Ok(nth.to_string()),
                    }
                }
                Ok((*count).to_owned())
            }
            ["flood", object, count] => {
                let object = self.object(object)?;
                (0..number(count)?).try_for_each(|_| object.notify(0, 1))?;
                Ok(String::new())
            }
            _ => Err(wrong("what about watches?")),
        }
    }
}
