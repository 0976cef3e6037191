//! `recorder`: reads, writes and syncs words of a shared object, and notes all of it, until it is killed.

use crate::failure::{Result, failed};
use crate::objects;
use crate::view::{PAGE, View};
use crate::worker;
use commonhold::{Coherence, CreateOptions, Host, Mapping, Object, OnLoss, PagerKind, SyncMode};
use commonhold_linear::load::{Load, Registers};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// The first word of each page.
struct FirstWords {
    object: Object,
    mapping: Mapping,
}

impl Registers for FirstWords {
    fn read(&self, register: u32) -> u64 {
        View::of(&self.mapping).load(register as usize * PAGE)
    }

    fn write(&self, register: u32, value: u64) {
        View::of(&self.mapping).store(register as usize * PAGE, value);
    }

    fn sync(&self, register: u32) -> bool {
        self.object.sync(u64::from(register) * PAGE as u64, PAGE as u64).is_ok()
    }
}

/// Arguments: state directory, name, file to create the object on (or `-`), how it is scheduled then, registers, file for the notes, number of the
/// host, number of this process.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, name, file, scheduled, registers, notes, host, process] = arguments else {
        return failed("recorder takes eight arguments");
    };
    let object = object(Path::new(state), name, file, scheduled)?;
    let words = FirstWords { mapping: object.map(&objects::everything())?, object };
    let load = Load {
        host: host.parse()?,
        process: process.parse()?,
        registers: registers.parse()?,
        writes_percent: 40,
        pause: Duration::from_micros(500),
        sync_every: 100,
    };
    worker::say("ready")?;
    load.run(Path::new(notes), &words, || false)?;
    Ok(())
}

fn object(state: &Path, name: &str, file: &str, scheduled: &str) -> Result<Object> {
    if file != "-" {
        let file = File::options().read(true).write(true).open(file)?;
        let coherence = match scheduled {
            "central" | "central-moving" => Coherence::central(OnLoss::Revert),
            "forwarding" | "forwarding-moving" => Coherence::strict(OnLoss::Revert),
            other => {
                return failed(format!("an object is central or forwarding, and moving or not: not {other}"));
            }
        };
        let options = CreateOptions {
            pager: PagerKind::File,
            sync: SyncMode::Ordered,
            coherence,
            home_moves: scheduled.ends_with("-moving"),
            reserve: Some(false),
            ..CreateOptions::default()
        };
        return Ok(Host::connect_to(state)?.create(name, &options, Some(file.as_fd()))?);
    }
    super::open_soon(state, name)
}
