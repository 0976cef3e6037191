//! The load of Ko & Yoo, section 6: a bank. Each operation reads an account at random, changes it, and changes its teller and
//! its branch by the same; for each transaction a second of its scale a bank has 1 branch, 10 tellers and 100,000 accounts.
//!
//! Its processes run in a control group that has memory for the data and one set of tables, and a tenth more. With tables of
//! each process's own the tables take the place of data, which is read from the disk again: today's page-table stealing.

pub mod client;
mod runs;

pub use runs::{Bank, Figures, Tables};

use crate::context::Random;
use crate::view::{PAGE, View};
use rand::RngExt;

/// Bytes of a branch, a teller, an account; the first word is its balance.
const RECORD: usize = 128;
const TELLERS: usize = 10;
const ACCOUNTS: usize = 100_000;

/// Where everything is.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Branches: transactions a second of the bank's scale.
    pub scale: usize,
}

impl Layout {
    /// The largest bank that fits in so many bytes.
    pub fn within(bytes: usize) -> Layout {
        Layout { scale: bytes / (RECORD * (1 + TELLERS + ACCOUNTS)) }
    }

    /// Bytes that it takes, whole pages.
    pub fn bytes(self) -> usize {
        (RECORD * self.scale * (1 + TELLERS + ACCOUNTS)).next_multiple_of(PAGE)
    }

    fn branch(branch: usize) -> usize {
        RECORD * branch
    }

    fn teller(self, teller: usize) -> usize {
        RECORD * (self.scale + teller)
    }

    fn account(self, account: usize) -> usize {
        RECORD * (self.scale * (1 + TELLERS) + account)
    }

    /// One operation. Gives what was in the account.
    pub fn operate(self, view: View<'_>, random: &mut Random) -> u64 {
        let account = random.random_range(0..self.scale * ACCOUNTS);
        let branch = account / ACCOUNTS;
        let teller = branch * TELLERS + random.random_range(0..TELLERS);
        let had = view.load(self.account(account));
        view.increment(self.account(account));
        view.increment(self.teller(teller));
        view.increment(Layout::branch(branch));
        had
    }

    /// The sums of all balances: of branches, tellers and accounts. They are equal when nobody is at work.
    pub fn sums(self, view: View<'_>) -> [u64; 3] {
        let sum =
            |count: usize, place: &dyn Fn(usize) -> usize| (0..count).map(|n| view.load(place(n))).sum();
        [
            sum(self.scale, &Layout::branch),
            sum(self.scale * TELLERS, &|n| self.teller(n)),
            sum(self.scale * ACCOUNTS, &|n| self.account(n)),
        ]
    }
}
