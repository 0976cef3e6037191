//! What was repaired, for `host status`: the last lines of it. There may be as many as there are objects, and an answer
//! has a length; the log has all of them.

use super::{Host, lock};
use std::collections::VecDeque;
use std::sync::Mutex;

/// Lines that are told.
const TOLD: usize = 100;

/// The last repairs of this process.
#[derive(Default)]
pub struct Repairs {
    lines: Mutex<(VecDeque<String>, usize)>,
}

impl Repairs {
    pub(super) fn note(&self, line: String) {
        let mut noted = lock(&self.lines);
        if noted.0.len() >= TOLD {
            noted.0.pop_front();
            noted.1 += 1;
        }
        noted.0.push_back(line);
    }

    pub(super) fn told(&self) -> Vec<String> {
        let noted = lock(&self.lines);
        let earlier = (noted.1 > 0).then(|| format!("{} more before these: see the log", noted.1));
        earlier.into_iter().chain(noted.0.iter().cloned()).collect()
    }
}

impl Host {
    /// One line for the log, which `host status` shows too.
    pub fn repaired(&self, line: String) {
        self.machine.log(&line);
        self.repairs.note(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_told_and_how_many_there_were_before() {
        let repairs = Repairs::default();
        (0..TOLD).for_each(|n| repairs.note(n.to_string()));
        assert_eq!((repairs.told().len(), repairs.told()[0].as_str()), (TOLD, "0"));
        (0..7).for_each(|n| repairs.note(format!("more {n}")));
        let told = repairs.told();
        assert_eq!(told.len(), TOLD + 1);
        assert_eq!((told[0].as_str(), told[1].as_str()), ("7 more before these: see the log", "7"));
        assert_eq!(told[TOLD], "more 6");
    }
}
