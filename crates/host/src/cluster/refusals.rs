//! Which refused connections the log tells: whoever reaches the port could fill a disk with them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Lines at once about one address, and about all.
const AT_ONCE: u32 = 16;
const AT_ONCE_OF_ALL: u32 = 64;
/// After these there may be another.
const EACH: Duration = Duration::from_secs(10);
const EACH_OF_ALL: Duration = Duration::from_secs(2);
/// Longest reason, in characters: part of it is the other end's own words.
const LONGEST: usize = 400;
/// Addresses that are told apart.
const ADDRESSES: usize = 256;

/// How much may be said.
#[derive(Clone, Copy, Debug)]
struct Room {
    left: u32,
    since: Instant,
}

impl Room {
    fn new(most: u32, now: Instant) -> Room {
        Room { left: most, since: now }
    }

    /// What has come back by now.
    fn refill(&mut self, most: u32, each: Duration, now: Instant) {
        let more = now.saturating_duration_since(self.since).as_nanos() / each.as_nanos();
        if more > 0 {
            self.left = most.min(self.left.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)));
            self.since = now;
        }
    }
}

/// What was said of late.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    all: Option<Room>,
    of: HashMap<IpAddr, Room>,
    untold: u64,
}

impl Refusals {
    /// The line about a connection that was refused, if it is to be said.
    pub fn line(&mut self, from: SocketAddr, why: &str, now: Instant) -> Option<String> {
        let ip = from.ip().to_canonical();
        if self.of.len() >= ADDRESSES && !self.of.contains_key(&ip) {
            // Forgetting all of them lets nobody say more than all may.
            self.of.clear();
        }
        let all = self.all.get_or_insert_with(|| Room::new(AT_ONCE_OF_ALL, now));
        let one = self.of.entry(ip).or_insert_with(|| Room::new(AT_ONCE, now));
        all.refill(AT_ONCE_OF_ALL, EACH_OF_ALL, now);
        one.refill(AT_ONCE, EACH, now);
        if all.left == 0 || one.left == 0 {
            self.untold += 1;
            return None;
        }
        all.left -= 1;
        one.left -= 1;
        let why: String = why.chars().take(LONGEST).collect();
        let before = match std::mem::take(&mut self.untold) {
            0 => String::new(),
            untold => format!(" (and {untold} before it that are not told)"),
        };
        Some(format!("a connection from {from} was refused{before}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_connects_without_end_fills_no_log() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let from = |a: u8, port: u16| SocketAddr::from(([10, 0, 0, a], port));
        let told = |refusals: &mut Refusals, times: u16, a: fn(u16) -> u8, now: Instant| {
            (0..times).filter(|n| refusals.line(from(a(*n), *n), &"x".repeat(9000), now).is_some()).count()
        };
        assert_eq!(told(&mut refusals, 10_000, |_| 1, now), AT_ONCE as usize);
        // Another address is heard all the same; of all together there is a limit.
        assert!(refusals.line(from(2, 1), "else", now).unwrap().contains("and 9984 before it"));
        assert_eq!(told(&mut refusals, 10_000, |n| n as u8, now), (AT_ONCE_OF_ALL - AT_ONCE - 1) as usize);
        let later = now + Duration::from_secs(3600);
        let line = refusals.line(from(1, 1), &"x".repeat(9000), later).unwrap();
        assert!(line.len() < 600, "{line}");
        assert_eq!(told(&mut refusals, 10_000, |_| 1, later), AT_ONCE as usize - 1);
    }
}
