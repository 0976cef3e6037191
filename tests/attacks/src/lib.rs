//! The suite of attacks: what a hostile user, a hostile member of a cluster and damaged files try, and that nothing
//! of it gets through.
//!
//! | file | does |
//! |---|---|
//! | `scene` | a host with the rights of the shipped unit, users who do not trust each other, or a cluster |
//! | `bystander` | another user who goes on working, and how long each of their steps takes |
//! | `held` | what host and keeper hold, of which nothing may stay when an attacker is gone |
//! | `by_hand` | a client without the library |
//! | `run` | runs one attack in a process of its own, and judges it |
//! | `attacks` | the attacks, by what they reach for |
//!
//! An attack is a function that panics if it got through. Afterwards host and keeper must be the
//! same processes (unless the attack itself kills some), hold what they held before, and the
//! bystander must have lost nothing. `cargo test -p commonhold-attacks` runs all; words choose some
//! of them.

pub mod attacks;
pub mod by_hand;
pub mod bystander;
pub mod held;
pub mod run;
pub mod scene;

use scene::{Cluster, Local, Machine, Members};

/// One attack.
pub struct Attack {
    /// Its name, for ever: `topic.what`.
    pub id: &'static str,
    /// What it tries, in one line.
    pub tries: &'static str,
    /// Who tries it, and how.
    pub how: How,
}

/// Who attacks, and where.
#[derive(Clone, Copy)]
pub enum How {
    /// A user of the machine, against a host that root runs.
    User(Machine, fn(&Local)),
    /// A host with a valid certificate, against a cluster.
    Member(Cluster, fn(&Members)),
    /// Nobody can go on meanwhile: no host runs, or none that starts.
    Alone(fn()),
}

/// All attacks, in the order of their names.
pub fn all() -> Vec<&'static Attack> {
    let mut all: Vec<_> = attacks::TOPICS.iter().flat_map(|topic| topic.iter()).collect();
    all.sort_by_key(|attack| attack.id);
    all
}

/// Ends an attack that cannot be tried on this machine, and says why.
pub fn leave_out(why: impl Into<String>) -> ! {
    std::panic::resume_unwind(Box::new(LeftOut(why.into())))
}

/// Why an attack was not tried.
struct LeftOut(String);

#[cfg(test)]
mod tests {
    use super::all;
    use std::path::Path;

    #[test]
    fn no_two_attacks_have_one_name() {
        let all = all();
        assert!(all.windows(2).all(|pair| pair[0].id < pair[1].id));
    }

    #[test]
    fn documents_name_attacks_that_there_are_and_security_each_topic() {
        let topics = |id: &'static str| id.split_once('.').map_or(id, |(topic, _)| topic);
        let all = all();
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut named = Vec::new();
        for page in ["SECURITY.md", "BAD_INPUT.md"] {
            let text = std::fs::read_to_string(docs.join(page)).unwrap();
            for word in text.split('`') {
                let Some((topic, what)) = word.split_once('.') else { continue };
                if all.iter().any(|attack| topics(attack.id) == topic) {
                    let is = |id: &str| what == "*" || id == word;
                    assert!(all.iter().any(|attack| is(attack.id)), "{page}: there is no attack {word}");
                    named.push(topic.to_owned());
                }
            }
        }
        assert!(all.iter().all(|attack| named.iter().any(|topic| topic == topics(attack.id))));
    }
}
