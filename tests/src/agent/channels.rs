//! Lines about channels. `C` is a name that the test gives to one; a time is milliseconds, or `-`
//! for ever.
//!
//! ```text
//! create C /name bytes [wired] [mode=NNN]   open C /name      close C     most C
//! send C kind text time     fill C kind bytes time     try-send C kind text
//! receive C time            try-receive C              (kind, text or number of bytes, landing and
//! its bytes, object that came: it is called as is said before, or dropped) receive C time as=O
//! post C O offset length    withdraw C landing|all     region C kind text bytes seed time
//! object C kind text O r|rw time           by-reference C kind text O offset length time flood C entry ledger count most-bytes    (numbered messages, from what the ledger says on)
//! drain C ledger entries                   (notes what comes, until kind 0; gives how many numbers
//! were missing) hammer C ms seed                         (whatever can be asked; outcomes do not
//! matter, an end does) smash M bytes seed                       (writes anywhere in a mapping,
//! until `halt`) read-into O offset length path file-offset
//! ```

use super::{Agent, Done, activity::Start, number, wrong};
use crate::ledger::Ledger;
use crate::page;
use commonhold::{Channel, ChannelOptions, ErrorKind, Landing, Message, Translation};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn deadline(word: &str) -> Result<Option<Instant>, super::Failure> {
    Ok(if word == "-" { None } else { Some(Instant::now() + Duration::from_millis(number(word)?)) })
}

fn told(message: &Message) -> String {
    let text = match std::str::from_utf8(&message.bytes) {
        Ok(text) if text.len() < 40 => text.to_owned(),
        _ => format!("{} bytes", message.bytes.len()),
    };
    let landed = message.region.map(|region| format!(" {} {}", region.landing.number(), region.length));
    let object = message.object.as_ref().map(|object| {
        let access = if object.access().writes() { "rw" } else { "r" };
        format!(" object {} {access}", object.size_bytes())
    });
    format!("{} {text}{}{}", message.kind, landed.unwrap_or_default(), object.unwrap_or_default())
}

impl Agent {
    fn channel(&self, name: &str) -> Result<&Channel, super::Failure> {
        self.channels.get(name).ok_or_else(|| wrong(format!("no channel {name} here")))
    }

    pub(super) fn on_channels(&mut self, words: &[&str]) -> Done {
        let opened = match words {
            ["create", _, name, bytes, more @ ..] => {
                let mut options =
                    ChannelOptions { capacity_bytes: number(bytes)?, ..ChannelOptions::default() };
                for word in more {
                    match word.strip_prefix("mode=") {
                        Some(mode) => {
                            options.mode = u32::from_str_radix(mode, 8).map_err(|e| wrong(e.to_string()))?
                        }
                        None => {
                            let translation = Translation::of_word(word);
                            options.translation = translation.ok_or_else(|| wrong("no translation"))?;
                        }
                    }
                }
                Channel::create(self.host()?, name, &options)?
            }
            ["open", _, name] => Channel::open(self.host()?, name)?,
            ["close", channel] => {
                return Ok(self.channels.remove(*channel).map_or("was not open", |_| "").to_owned());
            }
            _ => return self.use_channel(words),
        };
        self.channels.insert(words[1].to_owned(), opened);
        Ok(String::new())
    }

    fn use_channel(&mut self, words: &[&str]) -> Done {
        if let ["smash", mapping, bytes, seed] = words {
            let (start, bytes, seed) =
                (Start::new(self.mapping(mapping)?.as_ptr()), number(bytes)?, number(seed)?);
            self.go_on(move |stop| {
                let mut random = seed;
                while !stop.load(Ordering::Relaxed) {
                    random = page::mix(random, 3);
                    let word = random % (bytes / 8);
                    let value = if random & 1 << 40 == 0 { random >> 20 } else { random >> 58 };
                    start.page(word / page::WORDS as u64)[(word % page::WORDS as u64) as usize]
                        .store(value, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_micros(random >> 32 & 0xff));
                }
                Ok(0)
            });
            return Ok(String::new());
        }
        if let ["read-into", object, offset, length, path, file_offset] = words {
            let file = std::fs::File::open(path)?;
            let (object, numbers) =
                (self.object(object)?, [number(file_offset)?, number(offset)?, number(length)?]);
            let read = object.read_into(file, numbers[0], numbers[1], numbers[2])?;
            return Ok(format!("{} {}", read.bytes, read.direct_bytes));
        }
        let [_, name, ..] = words else { return Err(wrong("which channel?")) };
        let channel = self.channel(name)?;
        match words {
            ["most", _] => Ok(channel.most_bytes().to_string()),
            ["send", _, kind, text, time] => Ok(channel
                .send(number(kind)? as u32, text.as_bytes(), deadline(time)?)
                .map(|()| String::new())?),
            ["fill", _, kind, bytes, time] => {
                let bytes = vec![number(kind)? as u8; number(bytes)? as usize];
                Ok(channel.send(number(kind)? as u32, &bytes, deadline(time)?).map(|()| String::new())?)
            }
            ["try-send", _, kind, text] => {
                Ok(channel.try_send(number(kind)? as u32, text.as_bytes())?.to_string())
            }
            ["receive", _, time] => Ok(told(&channel.receive(deadline(time)?)?)),
            ["receive", _, time, name] => {
                let message = channel.receive(deadline(time)?)?;
                let name = name.strip_prefix("as=").ok_or_else(|| wrong("as what?"))?.to_owned();
                let said = told(&message);
                self.objects.insert(name, message.object.ok_or_else(|| wrong(format!("{said}: no object")))?);
                Ok(said)
            }
            ["object", _, kind, text, object, access, time] => {
                let (object, access) = (self.object(object)?, super::objects::access(access));
                let (kind, time) = (number(kind)? as u32, deadline(time)?);
                Ok(channel
                    .send_object(kind, text.as_bytes(), object, access, time)
                    .map(|()| String::new())?)
            }
            ["by-reference", _, kind, text, object, offset, length, time] => {
                let (object, range) = (self.object(object)?, (number(offset)?, number(length)?));
                let (kind, time) = (number(kind)? as u32, deadline(time)?);
                let sent = channel.send_by_reference(kind, text.as_bytes(), object, range, time);
                Ok(sent.map(|()| channel.copied_bytes().to_string())?)
            }
            ["try-receive", _] => {
                Ok(channel.try_receive()?.map_or("nothing".to_owned(), |message| told(&message)))
            }
            ["post", _, object, offset, length] => {
                let landing = channel.post(self.object(object)?, number(offset)?, number(length)?)?;
                Ok(landing.number().to_string())
            }
            ["withdraw", _, "all"] => Ok(channel.withdraw_all()?.to_string()),
            ["withdraw", _, landing] => {
                Ok(channel.withdraw(Landing::of_number(number(landing)?)).map(|()| String::new())?)
            }
            ["region", _, kind, text, bytes, seed, time] => {
                let region = vec![number(seed)? as u8; number(bytes)? as usize];
                let sent =
                    channel.send_region(number(kind)? as u32, text.as_bytes(), &region, deadline(time)?);
                Ok(sent.map(|()| channel.copied_bytes().to_string())?)
            }
            ["flood", _, entry, ledger, count, most] => {
                let ledger = Ledger::open(Path::new(ledger), number(entry)? as usize + 1);
                flood(channel, number(entry)?, &ledger, number(count)?, number(most)? as usize)
            }
            ["drain", _, ledger, entries] => {
                drain(channel, &Ledger::open(Path::new(ledger), number(entries)? as usize))
            }
            ["hammer", _, ms, seed] => hammer(channel, Duration::from_millis(number(ms)?), number(seed)?),
            _ => Err(wrong(format!("what is {words:?}?"))),
        }
    }
}

/// Of message `number` of a sender: how long it is, and what it is filled with.
fn shape(entry: u64, number: u64, most: usize) -> (usize, u8) {
    let random = page::mix(entry << 32 | number, 5);
    // Half of them are small.
    let most = if random & 2 == 0 { 64 } else { most };
    (24 + (random >> 8) as usize % (most - 23), random as u8)
}

fn flood(channel: &Channel, entry: u64, ledger: &Ledger, count: u64, most: usize) -> Done {
    let (_, begun) = ledger.get(entry as usize);
    for number in begun + 1..=begun + count {
        let (length, fill) = shape(entry, number, most);
        let mut bytes = vec![fill; length];
        for (at, word) in [entry, number, most as u64].into_iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
        }
        ledger.begin(entry as usize, number);
        channel.send(1, &bytes, None)?;
        ledger.done(entry as usize, number);
    }
    Ok(String::new())
}

/// Each sender's messages are whole, come in their order and never twice. Entry 0 counts those that
/// were missing.
fn drain(channel: &Channel, ledger: &Ledger) -> Done {
    let mut bytes = Vec::new();
    loop {
        let kind = channel.receive_into(&mut bytes, None)?.kind;
        match kind {
            0 => return Ok(ledger.get(0).0.to_string()),
            1 => {}
            _ => continue, // none of a flood's
        }
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]));
        let [entry, number, most] = [0, 1, 2].map(word);
        let (length, fill) = shape(entry, number, most as usize);
        if bytes.len() != length || bytes[24..] != vec![fill; length - 24] {
            return Err(wrong(format!("message {number} of sender {entry} is torn")));
        }
        let (before, _) = ledger.get(entry as usize);
        if number <= before {
            return Err(wrong(format!("message {number} of sender {entry} came after {before}")));
        }
        ledger.done(0, ledger.get(0).0 + (number - before - 1));
        ledger.done(entry as usize, number);
    }
}

fn hammer(channel: &Channel, time: Duration, seed: u64) -> Done {
    let (end, mut random) = (Instant::now() + time, seed);
    let (mut done, mut damaged) = (0_u64, 0_u64);
    while Instant::now() < end {
        random = page::mix(random, 4);
        let soon = Some(Instant::now() + Duration::from_millis(random >> 8 & 3));
        let outcome = match random >> 4 & 7 {
            0..=2 => channel.send(random as u32, &vec![7; (random >> 16) as usize % 300], soon),
            3 => channel.try_send(3, b"").map(drop),
            4 => channel.try_receive().map(drop),
            5 => channel.send_region(1, b"", &[1; 64], soon),
            6 => channel.withdraw_all().map(drop),
            _ => channel.receive(soon).map(drop),
        };
        done += 1;
        match outcome {
            Err(error) if error.kind == ErrorKind::Corrupt => damaged += 1,
            _ => {}
        }
    }
    Ok(format!("{done} {damaged}"))
}
