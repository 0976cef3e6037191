//! What host and keeper write for each other about fault deadlines.
//!
//! For every region of memory whose faults must not wait for ever the host keeps a [`FaultDeadline`], under a key with
//! the part [`DEADLINE_PART`]. While no host serves, the keeper ends waits that are too long (`waits`),
//! and keeps under the same key with [`ENDED_PART`] which pages of the region it did that to ([`EndedFaults`]), until
//! the host that has healed them forgets it.
//!
//! Host and keeper may be of different programs, so both blobs begin with a version. One of another version is passed
//! over: then that region has no deadline while no host serves.

use serde::{Deserialize, Serialize};

/// In the key of a region's deadline: `session/17/deadline/7f0000000000`.
pub const DEADLINE_PART: &str = "/deadline/";
/// In the key of the region's ended faults, in place of it.
pub const ENDED_PART: &str = "/ended/";

/// First byte of both blobs.
const VERSION: u8 = 1;
const PAGE_BYTES: u64 = 4096;
/// Ranges told of one region; where there were more, one that covers them all.
const RANGES: usize = 64;

/// A region of a client's memory in which no fault shall wait longer than this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultDeadline {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Longest wait.
    pub deadline_ms: u32,
    /// Key of the userfaultfd that it is registered with.
    pub userfaultfd: String,
    /// Only a write to a page without protection goes unasked: protection must stay where it is.
    pub synchronous: bool,
    /// Whose it is, for the log.
    pub whose: String,
}

impl FaultDeadline {
    /// As a blob.
    pub fn to_blob(&self) -> Vec<u8> {
        encode(self)
    }

    /// From a blob, if it is one of a version known here.
    pub fn from_blob(blob: &[u8]) -> Option<FaultDeadline> {
        decode(blob)
    }
}

/// Pages of one region whose touch raises SIGBUS until they are healed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedFaults {
    /// First address and bytes of each run, in order; in between there may be pages to which nothing was done.
    pub ranges: Vec<(u64, u64)>,
}

impl EndedFaults {
    /// As a blob.
    pub fn to_blob(&self) -> Vec<u8> {
        encode(self)
    }

    /// From a blob, if it is one of a version known here.
    pub fn from_blob(blob: &[u8]) -> Option<EndedFaults> {
        decode(blob)
    }

    /// Adds a page.
    pub(crate) fn add_page(&mut self, address: u64) {
        self.add(address, PAGE_BYTES);
    }

    /// Adds all of others.
    pub fn add_all(&mut self, others: &EndedFaults) {
        others.ranges.iter().for_each(|(address, length)| self.add(*address, *length));
    }

    fn add(&mut self, mut start: u64, length: u64) {
        let mut end = start.saturating_add(length);
        // Those that touch the new one become part of it.
        self.ranges.retain(|(first, length)| {
            let last = first.saturating_add(*length);
            let apart = last < start || *first > end;
            if !apart {
                (start, end) = (start.min(*first), end.max(last));
            }
            apart
        });
        let at = self.ranges.partition_point(|(first, _)| *first < start);
        self.ranges.insert(at, (start, end - start));
        if self.ranges.len() > RANGES
            && let (Some((first, _)), Some((last, length))) = (self.ranges.first(), self.ranges.last())
        {
            self.ranges = vec![(*first, last.saturating_add(*length).saturating_sub(*first))];
        }
    }
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Plain data of known kinds: the only failure would be one of memory, which ends the process.
    postcard::to_extend(value, vec![VERSION]).unwrap_or_default()
}

fn decode<'a, T: Deserialize<'a>>(blob: &'a [u8]) -> Option<T> {
    match blob.split_first() {
        Some((&VERSION, rest)) => crate::protocol::decode(rest).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;

    #[test]
    fn blobs_survive_and_others_are_passed_over() {
        let deadline = FaultDeadline {
            address: 0x7f00_0000_0000,
            length: 8192,
            deadline_ms: 300,
            userfaultfd: "session/17/uffd/0".into(),
            synchronous: true,
            whose: "object 7 in process 1234".into(),
        };
        let mut blob = deadline.to_blob();
        assert_eq!(FaultDeadline::from_blob(&blob), Some(deadline));
        blob.push(0);
        assert_eq!(FaultDeadline::from_blob(&blob), None);
        blob.pop();
        blob[0] = 2;
        assert_eq!(FaultDeadline::from_blob(&blob), None);
        assert_eq!(FaultDeadline::from_blob(&[]), None);
    }

    #[test]
    fn pages_become_ranges_and_ranges_never_too_many() {
        let mut ended = EndedFaults::default();
        for page in [5, 3, 4, 9, 4] {
            ended.add_page(page * PAGE_BYTES);
        }
        assert_eq!(ended.ranges, [(3 * PAGE_BYTES, 3 * PAGE_BYTES), (9 * PAGE_BYTES, PAGE_BYTES)]);
        let again = EndedFaults::from_blob(&ended.to_blob()).unwrap();
        ended.add_all(&again);
        assert_eq!(ended, again);
        for page in (20..).step_by(2).take(RANGES) {
            ended.add_page(page * PAGE_BYTES);
        }
        assert!(ended.ranges.len() <= RANGES);
        let covers = |page: u64| {
            ended.ranges.iter().any(|(first, length)| (*first..first + length).contains(&(page * PAGE_BYTES)))
        };
        assert!((3..6).chain([9]).chain((20..).step_by(2).take(RANGES)).all(covers));
    }

    #[test]
    fn blobs_are_those_of_their_version() {
        let deadline = FaultDeadline {
            address: 1 << 40,
            length: 8192,
            deadline_ms: 300,
            userfaultfd: "session/17/uffd/0".into(),
            synchronous: true,
            whose: "a".into(),
        };
        let ended = EndedFaults { ranges: vec![(1 << 40, 4096), (1 << 41, 8192)] };
        let all = golden::together(&[deadline.to_blob(), ended.to_blob()]);
        let kept = golden::check(env!("CARGO_MANIFEST_DIR"), "deadlines", VERSION.into(), &all);
        let kept = golden::apart(&kept);
        assert_eq!(FaultDeadline::from_blob(&kept[0]), Some(deadline));
        assert_eq!(EndedFaults::from_blob(&kept[1]), Some(ended));
    }
}
