//! Of which kind a new file is.

use commonhold::{Coherence, CreateOptions, OnLoss};

/// What a program that makes a file gets. All are anonymous, sparse, and grow as they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewFiles {
    /// Memory that the kernel maps by itself.
    #[default]
    Direct,
    /// Memory whose faults the host serves, which may so lie on its disk.
    Controlled,
    /// Of all hosts, who see what is written after a sync.
    Explicit,
    /// Of all hosts, who see what is written at once.
    Strict,
}

impl NewFiles {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            NewFiles::Direct => "direct",
            NewFiles::Controlled => "controlled",
            NewFiles::Explicit => "explicit",
            NewFiles::Strict => "strict",
        }
    }

    /// How such a file is created.
    pub(crate) fn options(self, mode: u32) -> CreateOptions {
        let options = CreateOptions { mode: mode & 0o777, reserve: Some(false), ..CreateOptions::default() };
        match self {
            NewFiles::Direct => options,
            NewFiles::Controlled => CreateOptions { controlled: true, ..options },
            NewFiles::Explicit => CreateOptions { coherence: Coherence::Explicit, ..options },
            NewFiles::Strict => options.strict(OnLoss::Error),
        }
    }
}
