//! The suite of attacks: what a hostile user, a hostile member of a cluster and damaged files try, and that nothing
//! of it gets through.
//!
//! | file | does |
//! |---|---|
//! | `scene` | a host with the rights of the shipped unit, two users who do not trust each other, or a cluster of three |
//! | `bystander` | another user who goes on working, and how long each of their steps takes |
//! | `run` | runs one attack, and judges it |
//! | `by_hand` | a client without the library |
//! | `attacks` | the attacks, by what they reach for |
//!
//! An attack is a function that panics if it got through. Afterwards host and keeper must be the same processes, and
//! the bystander must have lost nothing. `cargo test -p commonhold-attacks` runs all; words choose some of them.
//! The attacks that have mended a defect, each with its history, lie in `tests/tests/attacks_*.rs`.

pub mod attacks;
pub mod by_hand;
pub mod bystander;
pub mod run;
pub mod scene;

use scene::{Local, Members};

/// One attack.
pub struct Attack {
    /// Its name, for ever: `topic.what`.
    pub id: &'static str,
    /// What it tries, in one line.
    pub tries: &'static str,
    /// Who tries it, and how.
    pub how: How,
}

/// Who attacks.
#[derive(Clone, Copy)]
pub enum How {
    /// A user of the machine, against a host that root runs.
    User(fn(&Local)),
    /// A host with a valid certificate, against a cluster of three.
    Member(fn(&Members)),
}

/// All attacks, in the order of their names.
pub fn all() -> Vec<&'static Attack> {
    let mut all: Vec<_> = attacks::TOPICS.iter().flat_map(|topic| topic.iter()).collect();
    all.sort_by_key(|attack| attack.id);
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_attacks_have_one_name() {
        let all = super::all();
        assert!(all.windows(2).all(|pair| pair[0].id < pair[1].id));
    }
}
