//! What went wrong, counted.

use serde_json::{Value, json};
use std::ops::AddAssign;

/// Counts of the ways in which a trial can fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// A mixture of old and new, in the stored object or in memory; or something stored without a sync.
    pub torn: u64,
    /// Something older than what was acknowledged or done, or zeros that nobody wrote.
    pub lost: u64,
    /// Somebody who had nothing to do with the death did not go on in time.
    pub hung: u64,
    /// A page said to be clean that is not what is stored.
    pub wrongly_clean: u64,
    /// A process that nobody killed, dead.
    pub died: u64,
}

impl Tally {
    /// All together.
    pub fn total(self) -> u64 {
        self.torn + self.lost + self.hung + self.wrongly_clean + self.died
    }

    /// As a line says it.
    pub fn to_json(self) -> Value {
        json!({
            "torn": self.torn,
            "lost": self.lost,
            "hung": self.hung,
            "wrongly_clean": self.wrongly_clean,
            "died": self.died,
        })
    }

    /// The reverse.
    pub fn from_json(value: &Value) -> Tally {
        let count = |name: &str| value[name].as_u64().unwrap_or(0);
        Tally {
            torn: count("torn"),
            lost: count("lost"),
            hung: count("hung"),
            wrongly_clean: count("wrongly_clean"),
            died: count("died"),
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.torn += other.torn;
        self.lost += other.lost;
        self.hung += other.hung;
        self.wrongly_clean += other.wrongly_clean;
        self.died += other.died;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_carry_all_counts() {
        let mut tally = Tally { torn: 1, lost: 2, hung: 3, wrongly_clean: 4, died: 5 };
        assert_eq!(Tally::from_json(&tally.to_json()), tally);
        tally += tally;
        assert_eq!(tally.total(), 30);
    }
}
