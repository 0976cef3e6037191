//! A program that makes, opens and drops ephemeral objects until it is killed: `STATE SEED`.

use crate::failure::{Result, failed};
use commonhold::{Access, CreateOptions, ErrorKind, Host, MapOptions};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::path::Path;

/// So many names: several programs often have one in common.
const NAMES: u32 = 6;

pub(super) fn run(arguments: &[String]) -> Result<()> {
    let [state, seed] = arguments else { return failed("the worker takes a state directory and a seed") };
    let host = Host::connect_to(Path::new(state))?;
    let mut random = SmallRng::seed_from_u64(seed.parse()?);
    let mut held = Vec::new();
    println!("ready");
    loop {
        let number = random.random_range(0..NAMES);
        let name = format!("/ephemeral-{number}");
        let options = CreateOptions {
            size_bytes: 16384,
            controlled: number % 2 == 1,
            ephemeral_ms: Some(if number < 4 { 0 } else { 20 }),
            ..CreateOptions::default()
        };
        let opened = match host.open(&name, Access::ReadWrite) {
            Err(error) if error.kind == ErrorKind::NotFound => host.create(&name, &options, None),
            other => other,
        };
        match opened {
            Ok(object) => {
                let mapping = object.map(&MapOptions::default())?;
                object.write_at(&[1], random.random_range(0..16384))?;
                held.push((object, mapping));
            }
            // It was made, or went, in between.
            Err(error) if matches!(error.kind, ErrorKind::Exists | ErrorKind::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        if held.len() > 3 {
            held.swap_remove(random.random_range(0..held.len()));
        }
    }
}
