//! What a point does when it is told to.

use crate::Kind;
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use std::time::Duration;

/// What is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// The call is not made, and fails: the number chooses among the errors of its kind.
    Error(u16),
    /// So many microseconds pass before the call.
    Delay(u16),
    /// The process is killed before the call.
    KillBefore,
    /// The process is killed after the call.
    KillAfter,
}

impl Effect {
    /// How many sorts there are.
    pub const SORTS: usize = 4;

    /// A small number for its sort.
    pub fn sort(self) -> usize {
        match self {
            Effect::Error(_) => 0,
            Effect::Delay(_) => 1,
            Effect::KillBefore => 2,
            Effect::KillAfter => 3,
        }
    }

    pub(crate) fn to_word(self) -> u64 {
        let argument = match self {
            Effect::Error(argument) | Effect::Delay(argument) => argument,
            Effect::KillBefore | Effect::KillAfter => 0,
        };
        (self.sort() as u64 + 1) << 16 | u64::from(argument)
    }

    pub(crate) fn from_word(word: u64) -> Option<Effect> {
        let argument = word as u16;
        match word >> 16 & 0xff {
            1 => Some(Effect::Error(argument)),
            2 => Some(Effect::Delay(argument)),
            3 => Some(Effect::KillBefore),
            4 => Some(Effect::KillAfter),
            _ => None,
        }
    }

    pub(crate) fn around<T, E: From<Errno>>(
        self,
        kind: Kind,
        call: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        match self {
            Effect::Error(choice) => Err(error_of(kind, choice).into()),
            Effect::Delay(microseconds) => {
                std::thread::sleep(Duration::from_micros(microseconds.into()));
                call()
            }
            Effect::KillBefore => die(),
            Effect::KillAfter => {
                let _ = call();
                die()
            }
        }
    }
}

/// Only errors after which what the kernel would have done is not done, and which say nothing that is not so. ENOENT of a
/// protect, for example, would say that nothing is mapped there: whoever believes that is right.
fn error_of(kind: Kind, choice: u16) -> Errno {
    let all: &[Errno] = match kind {
        Kind::Protect | Kind::Continue | Kind::Poison => &[Errno::NOMEM, Errno::AGAIN],
        Kind::Copy => &[Errno::NOMEM, Errno::AGAIN, Errno::NOSPC],
        Kind::Punch => &[Errno::NOMEM, Errno::INTR],
        Kind::Pwrite | Kind::PageOut => &[Errno::NOSPC, Errno::IO],
        Kind::Fsync => &[Errno::IO, Errno::NOSPC],
        Kind::PageIn => &[Errno::IO, Errno::NOMEM],
        Kind::Mmap => &[Errno::NOMEM],
        Kind::Thread => &[Errno::AGAIN],
        Kind::Send | Kind::Receive => &[Errno::NOBUFS, Errno::NOMEM],
        Kind::SendFar | Kind::ReceiveFar => &[Errno::CONNRESET, Errno::TIMEDOUT],
    };
    all[choice as usize % all.len()]
}

fn die() -> ! {
    let _ = kill_process(getpid(), Signal::KILL); // this process may always be killed by itself
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_read_back_from_their_words() {
        for effect in [Effect::Error(7), Effect::Delay(65_535), Effect::KillBefore, Effect::KillAfter] {
            assert_eq!(Effect::from_word(effect.to_word()), Some(effect));
        }
        assert_eq!(Effect::from_word(0), None);
    }

    #[test]
    fn an_error_is_one_of_its_kind_and_the_call_is_not_made() {
        let outcome: Result<(), Errno> =
            Effect::Error(3).around(Kind::Fsync, || panic!("the call must not be made"));
        assert_eq!(outcome, Err(Errno::NOSPC));
        let outcome: Result<u8, Errno> = Effect::Delay(1).around(Kind::Fsync, || Ok(5));
        assert_eq!(outcome, Ok(5));
    }
}
