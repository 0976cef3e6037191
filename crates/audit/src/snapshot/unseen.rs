//! What was not seen: gathered by reason, so that ten thousand hidden processes are one line.

use super::Unseen;
use std::collections::BTreeMap;

/// Names that a line gives; the rest are counted. Files have more: each of them is a place to look at.
const PROCESSES_NAMED: usize = 3;
const FILES_NAMED: usize = 12;

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Processes.
    Process,
    /// Files.
    File,
    /// Frame numbers or hashes of something.
    Other,
}

#[derive(Default)]
struct Line {
    count: u64,
    named: Vec<String>,
}

/// Gathers what was not seen.
#[derive(Default)]
pub struct Gathered {
    lines: BTreeMap<(Kind, String), Line>,
}

impl Gathered {
    /// Notes one thing. `why` is what things are gathered by.
    pub fn add(&mut self, kind: Kind, what: impl Into<String>, why: impl Into<String>) {
        let line = self.lines.entry((kind, why.into())).or_default();
        let what = what.into();
        if line.named.contains(&what) {
            return;
        }
        line.count += 1;
        let most = if kind == Kind::File { FILES_NAMED } else { PROCESSES_NAMED };
        if line.named.len() < most {
            line.named.push(what);
        }
    }

    /// One line for each reason.
    pub fn finish(self) -> Vec<Unseen> {
        self.lines.into_iter().map(|((kind, why), line)| Unseen { what: line.what(kind), why }).collect()
    }
}

impl Line {
    fn what(&self, kind: Kind) -> String {
        let names = self.named.join(", ");
        if self.count == 1 {
            return if kind == Kind::Process { format!("process {names}") } else { names };
        }
        let things = match kind {
            Kind::Process => "processes",
            Kind::File => "files",
            Kind::Other => "things",
        };
        let rest = if self.count > self.named.len() as u64 { ", …" } else { "" };
        format!("{} {things} ({names}{rest})", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_each_reason_with_a_count_and_few_names() {
        let mut unseen = Gathered::default();
        for pid in 0..10_000 {
            unseen.add(Kind::Process, format!("{pid} (sh)"), "permission denied");
        }
        unseen.add(Kind::Process, "7 (gone)", "ended while it was read");
        unseen.add(Kind::File, "/mnt/far", "did not answer");
        unseen.add(Kind::File, "/mnt/far", "did not answer");
        let lines = unseen.finish();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].what, "process 7 (gone)");
        assert_eq!(lines[1].what, "10000 processes (0 (sh), 1 (sh), 2 (sh), …)");
        assert_eq!(lines[2].what, "/mnt/far");
    }
}
