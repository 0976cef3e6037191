//! Reads and writes of single words, each noted with its instants, for the check of `commonhold-linear`.

use super::activity::Start;
use super::{Agent, Done, number, wrong};
use commonhold_linear::load::{Load, Registers};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The first word of each page, one page a register.
struct FirstWords {
    start: Start,
    object: commonhold::Object,
}

impl Registers for FirstWords {
    fn read(&self, register: u32) -> u64 {
        self.start.page(register.into())[0].load(Ordering::SeqCst)
    }

    fn write(&self, register: u32, value: u64) {
        self.start.page(register.into())[0].store(value, Ordering::SeqCst);
    }

    fn sync(&self, register: u32) -> bool {
        self.object.sync(u64::from(register) * crate::PAGE as u64, crate::PAGE as u64).is_ok()
    }
}

impl Agent {
    pub(super) fn on_history(&mut self, words: &[&str]) -> Done {
        let ["record", mapping, object, registers, path, numbers @ ..] = words else {
            return Err(wrong("record M O registers path host process writes% pause-us sync-every"));
        };
        let numbers: Result<Vec<u64>, _> = numbers.iter().map(|word| number(word)).collect();
        let [host, process, writes, pause, sync] = numbers?[..] else {
            return Err(wrong("record … host process writes% pause-us sync-every"));
        };
        let load = Load {
            host: host as u8,
            process: process as u32,
            registers: number(registers)? as u32,
            writes_percent: writes as u32,
            pause: Duration::from_micros(pause),
            sync_every: sync as u32,
        };
        let words = FirstWords {
            start: Start::new(self.mapping(mapping)?.as_ptr()),
            object: self.object(object)?.clone(),
        };
        let path = Path::new(path).to_owned();
        self.go_on(move |stop| {
            load.run(&path, &words, || stop.load(Ordering::Relaxed)).map_err(|error| error.to_string())
        });
        Ok(String::new())
    }
}
