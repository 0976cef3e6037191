//! Huge pages for one test at a time.

use crate::TestHost;
use crate::wait::until;
use commonhold_tables::{HUGE, Pool};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Nobody else who asks so changes the pool.
pub struct Alone {
    _machine: Option<File>,
    _here: MutexGuard<'static, ()>,
}

/// So many huge pages more, for as long as it lives.
pub struct HugePages {
    /// What the machine had free before: taken, so that the test has just what it asked for.
    _rest: Option<OwnedFd>,
    pool: Pool,
    _alone: Alone,
}

impl HugePages {
    /// None where this is not root, or the machine has no room for them; it says so.
    pub fn more(pages: u64) -> Option<HugePages> {
        let alone = HugePages::unchanged();
        let taken = Pool::more(pages).and_then(|pool| {
            let rest = pool.free()?.saturating_sub(pages);
            let rest =
                (rest > 0).then(|| commonhold_tables::make("commonhold-rest", rest * HUGE)).transpose()?;
            Ok((pool, rest))
        });
        match taken {
            Ok((pool, rest)) => Some(HugePages { _rest: rest, pool, _alone: alone }),
            Err(error) => {
                crate::left_out(&format!("{pages} huge pages: {error}"));
                None
            }
        }
    }

    /// No test makes the pool larger meanwhile: for one that wants no page of it.
    pub fn unchanged() -> Alone {
        let here = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // The pool is the machine's: tests of other programs wait as well. Who may not have the file is not kept from trying.
        let path = std::env::temp_dir().join("commonhold-tests-huge-pages.lock");
        let file = File::options().create(true).truncate(false).write(true).open(path).ok();
        let machine = file.filter(|file| file.lock().is_ok());
        Alone { _machine: machine, _here: here }
    }

    /// How many pages of the pool nobody has taken.
    pub fn free(&self) -> u64 {
        self.pool.free().expect("the kernel tells how many huge pages are free")
    }
}

/// No arena is left, no note of a place, nothing on disk, and all pages of the pool are free.
pub fn nothing_is_left(host: &TestHost, pool: &HugePages, pages: u64) {
    let worker = host.worker();
    until("the arenas are gone", || (!worker.ok("list /").contains(".arena-")).then_some(()));
    until("the pages come back", || (pool.free() >= pages).then_some(()));
    for folder in ["live", "spill"] {
        let left: Vec<_> = std::fs::read_dir(host.state().join(folder))
            .expect("a folder of the state")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with(|first: char| first.is_ascii_digit()))
            .collect();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
}
