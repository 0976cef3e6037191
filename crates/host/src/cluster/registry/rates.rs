//! How much one host may ask of the list: token buckets, one for each host and kind. Pure: the time is told to it.
//!
//! They are kept by name. A number costs nothing, and a host's name is that of its certificate.

use commonhold_object::{Error, ErrorKind, Result};
use std::collections::HashMap;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A lease is renewed.
    Renewal,
    /// A host joins or goes: each is written down, and told to everybody.
    Joining,
    /// Any other question.
    Question,
    /// Names that are told, each of them one.
    Names,
}

impl Kind {
    /// At once, and more each second.
    fn limits(self) -> (u64, u64) {
        match self {
            Kind::Renewal => (256, 64),
            Kind::Joining => (64, 2),
            Kind::Question => (32_000, 8000),
            // At once twice all that one host may have: an honest one tells all of them when it removes one.
            Kind::Names => (2 * super::names::MOST_NAMES as u64, 100_000),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Kind::Renewal => "renewals of its lease",
            Kind::Joining => "times that it joins or goes",
            Kind::Question => "questions",
            Kind::Names => "names",
        }
    }
}

/// Hosts that are told apart. A bucket that is full again says no more than none.
const HOSTS: usize = 4096;
const SECOND_NS: u64 = 1_000_000_000;

/// What is left of one host's.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Up to when what was taken is paid back: no later than now if it is full.
    paid_at: u64,
}

/// All hosts' buckets.
#[derive(Debug, Default)]
pub(super) struct Rates {
    buckets: HashMap<(String, Kind), Bucket>,
}

impl Rates {
    /// That host asks for so many. `Busy`: it has to wait.
    pub fn take(&mut self, host: &str, kind: Kind, count: u64, now: u64) -> Result<()> {
        let (at_once, each_second) = kind.limits();
        if self.buckets.len() >= HOSTS {
            self.buckets.retain(|_, bucket| bucket.paid_at > now);
        }
        let bucket = self.buckets.entry((host.to_owned(), kind)).or_insert(Bucket { paid_at: now });
        let paid_at = bucket.paid_at.max(now).saturating_add(count.saturating_mul(SECOND_NS / each_second));
        if paid_at - now > at_once.saturating_mul(SECOND_NS / each_second) {
            let words = kind.words();
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "the cluster's list takes {each_second} {words} a second of one host: try again later"
                ),
            ));
        }
        bucket.paid_at = paid_at;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_without_end_waits_and_nobody_else_does() {
        let (mut rates, now) = (Rates::default(), 7 * SECOND_NS);
        for kind in [Kind::Renewal, Kind::Joining, Kind::Question, Kind::Names] {
            let (at_once, each_second) = kind.limits();
            assert!((0..at_once).all(|_| rates.take("evil", kind, 1, now).is_ok()), "{kind:?}");
            assert_eq!(rates.take("evil", kind, 1, now).unwrap_err().kind, ErrorKind::Busy);
            rates.take("honest", kind, at_once, now).unwrap();
            // A second later it may ask for as many as a second gives, and an hour later for no more than at once.
            let later = now + SECOND_NS;
            assert!((0..each_second).all(|_| rates.take("evil", kind, 1, later).is_ok()), "{kind:?}");
            assert!(rates.take("evil", kind, 2, later).is_err());
            let hour = now + 3600 * SECOND_NS;
            assert!(rates.take("evil", kind, at_once + 1, hour).is_err());
            rates.take("evil", kind, at_once, hour).unwrap();
        }
        assert!(rates.take("evil", Kind::Names, u64::MAX, 9000 * SECOND_NS).is_err());
    }

    #[test]
    fn hosts_that_ask_for_nothing_any_more_are_forgotten() {
        let mut rates = Rates::default();
        for number in 0..3 * HOSTS as u64 {
            rates.take(&number.to_string(), Kind::Question, 1, number * SECOND_NS).unwrap();
        }
        assert!(rates.buckets.len() <= HOSTS);
    }
}
