//! `locker`: a client of one host of a cluster that locks one mutex which hosts share, line by line.

use super::FOUND_WITHIN;
use crate::failure::{Result, failed};
use crate::worker;
use commonhold::{Host, Mutex, SyncOptions, Wait};
use commonhold_sys::clock;
use std::path::Path;
use std::time::{Duration, Instant};

/// Arguments: state directory, the mutex's name, `create` or `open`. Lines: `lock`; `unlock`; `turns COUNT HOLD_US`, which locks so
/// often, holds it for so long each time, and says when it got it and let it go, in nanoseconds.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, name, how] = arguments else { return failed("locker takes three arguments") };
    let mutex = found(&Host::connect_to(Path::new(state))?, name, how == "create")?;
    worker::say("ready")?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        worker::say(&act(&mutex, &words)?)?;
    }
    Ok(())
}

fn found(host: &Host, name: &str, create: bool) -> Result<Mutex> {
    if create {
        let options = SyncOptions { between_hosts: true, ..SyncOptions::default() };
        return Ok(Mutex::create(host, name, &options)?);
    }
    let deadline = Instant::now() + FOUND_WITHIN;
    loop {
        match Mutex::open(host, name) {
            Ok(mutex) => return Ok(mutex),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn act(mutex: &Mutex, words: &[&str]) -> Result<String> {
    match words {
        ["lock"] => mutex.acquire(Wait::Forever)?,
        ["unlock"] => mutex.release()?,
        ["turns", count, hold] => {
            let hold = Duration::from_micros(hold.parse()?);
            let mut times = String::new();
            for _ in 0..count.parse()? {
                mutex.acquire(Wait::Forever)?;
                let got = clock::now();
                std::thread::sleep(hold);
                let let_go = clock::now();
                mutex.release()?;
                times += &format!("{got} {let_go} ");
            }
            return Ok(times);
        }
        _ => return failed(format!("locker cannot {words:?}")),
    }
    Ok("done".into())
}
