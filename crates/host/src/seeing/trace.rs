//! The trace of one object: a ring of lines, kept only while somebody fetches them. Off, it costs one relaxed load.

use commonhold_object::limits::{TRACE_LINES, TRACE_LINES_AT_ONCE};
use commonhold_object::{TraceLine, TracePlace, Traced};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long it goes on when nobody fetches lines.
const UNREAD: Duration = Duration::from_secs(5);

/// Traces of a process have different numbers; those of different processes too, nearly always.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The trace of an object.
#[derive(Debug, Default)]
pub struct Trace {
    is_on: AtomicBool,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    trace: u64,
    lines: VecDeque<TraceLine>,
    next: u64,
    fetched: Option<Instant>,
}

impl Trace {
    /// Something happened: a line for it, if anybody wants to know.
    pub fn note(&self, line: impl FnOnce() -> TraceLine) {
        if self.is_on.load(Ordering::Relaxed) {
            self.write(line());
        }
    }

    fn write(&self, mut line: TraceLine) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.fetched.is_none_or(|at| at.elapsed() > UNREAD) {
            self.is_on.store(false, Ordering::Relaxed);
            *ring = Ring::default();
            return;
        }
        if ring.lines.len() == TRACE_LINES {
            ring.lines.pop_front();
        }
        line.number = ring.next;
        ring.next += 1;
        ring.lines.push_back(line);
    }

    /// The lines from a place on; the trace goes on from now.
    pub fn fetch(&self, place: Option<TracePlace>) -> Traced {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.fetched.is_none() {
            let process = u64::from(std::process::id()) << 32;
            ring.trace = process + NEXT.fetch_add(1, Ordering::Relaxed) + 1;
        }
        ring.fetched = Some(Instant::now());
        self.is_on.store(true, Ordering::Relaxed);
        let known = place.filter(|place| place.trace == ring.trace && place.next <= ring.next);
        let oldest = ring.next - ring.lines.len() as u64;
        // Whoever is new sees what comes, not what others asked for.
        let wanted = known.map_or(ring.next, |place| place.next);
        let first = wanted.max(oldest);
        let lines: Vec<TraceLine> =
            ring.lines.iter().skip((first - oldest) as usize).take(TRACE_LINES_AT_ONCE).cloned().collect();
        let next = first + lines.len() as u64;
        Traced {
            place: TracePlace { trace: ring.trace, next },
            lost: first - wanted,
            anew: place.is_some() && known.is_none(),
            more: next < ring.next,
            hosts: Vec::new(),
            lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(page: u32) -> TraceLine {
        TraceLine {
            number: 0,
            at_ns: 1,
            from: 1,
            to: 2,
            what: "grant".into(),
            kind: None,
            first_page: page,
            pages: 1,
            bytes: 0,
        }
    }

    #[test]
    fn nothing_is_kept_until_somebody_asks_and_nothing_is_lost_in_silence() {
        let trace = Trace::default();
        trace.note(|| panic!("nobody asked"));
        let begin = trace.fetch(None);
        assert!(begin.lines.is_empty() && !begin.anew && begin.lost == 0);
        for page in 0..10 {
            trace.note(|| line(page));
        }
        let ten = trace.fetch(Some(begin.place));
        assert_eq!(ten.lines.iter().map(|l| (l.number, l.first_page)).collect::<Vec<_>>(), {
            (0..10).map(|n| (n, n as u32)).collect::<Vec<_>>()
        });
        let many = TRACE_LINES as u32 + 100;
        for page in 0..many {
            trace.note(|| line(page));
        }
        let (mut place, mut lines, mut lost) = (ten.place, Vec::new(), 0);
        loop {
            let part = trace.fetch(Some(place));
            place = part.place;
            lost += part.lost;
            lines.extend(part.lines);
            if !part.more {
                break;
            }
        }
        assert_eq!((lines.len(), lost), (TRACE_LINES, 100));
        assert_eq!(lines[0].first_page, 100);
        assert!(lines.is_sorted_by(|a, b| a.number + 1 == b.number));
    }

    #[test]
    fn it_ends_when_nobody_reads_and_says_so_to_who_comes_late() {
        let trace = Trace::default();
        let place = trace.fetch(None).place;
        trace.note(|| line(1));
        trace.ring.lock().unwrap().fetched = Instant::now().checked_sub(UNREAD * 2);
        trace.note(|| line(2));
        trace.note(|| panic!("it has ended"));
        let late = trace.fetch(Some(place));
        assert!(late.anew && late.lines.is_empty());
        assert_ne!(late.place.trace, place.trace);
        trace.note(|| line(3));
        assert_eq!(trace.fetch(Some(late.place)).lines[0].first_page, 3);
    }
}
