//! This host's lease: until when it may go on, and what it has written down for its keeper. The margins are those of
//! `docs/LEASES.md`.

use super::lock;
use commonhold_keeper::fence::{FENCE_KEY, FenceWord, new_fence_word};
use commonhold_keeper::{Kept, Key, Vault};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_sys::clock;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The lease.
pub struct Lease {
    state: Mutex<State>,
    changed: Condvar,
    vault: Vault,
    word: FenceWord<Arc<OwnedFd>>,
}

#[derive(Debug, Default)]
struct State {
    /// When this host fences itself; 0: it has no lease, and nothing to fence.
    fence_at: u64,
    /// When the keeper acts at the latest, where this host has begun.
    latest: u64,
    /// How long a lease is.
    length: Duration,
    fenced: bool,
}

/// What follows from a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The next renewal is sent.
    pub renew: u64,
    /// How long the attempt may take.
    pub patience: Duration,
    length: Duration,
    /// The host fences itself.
    fence: u64,
    /// The keeper does, if the host has not begun,
    keeper: u64,
    /// and if it has.
    latest: u64,
}

impl Times {
    /// Of a lease of that length whose renewal was sent then, where fencing `takes` so long: the host and its keeper act
    /// so much earlier, but not before an attempt to renew the lease could have had its answer.
    pub fn of(sent: u64, lease: Duration, takes: Duration) -> Times {
        let length = lease.as_nanos() as u64;
        let earlier = (takes.as_nanos() as u64).min(length / 3);
        Times {
            renew: sent + length / 3,
            patience: lease / 4,
            length: lease,
            fence: sent + length / 4 * 3 - earlier,
            keeper: sent + length / 8 * 7 - earlier,
            latest: sent + length / 8 * 7,
        }
    }
}

impl Lease {
    /// None yet. What the process before left to be fenced stays so until this one has taken it over.
    pub fn new(vault: &Vault, kept: &[Kept]) -> Result<Lease> {
        let fd = match kept.iter().find(|kept| kept.key.0 == FENCE_KEY).and_then(|kept| kept.fd.clone()) {
            Some(fd) => fd,
            None => {
                let fd = Arc::new(new_fence_word().doing("making the fence's word")?);
                vault.put(&Key::new(FENCE_KEY), &[], Some(fd.clone()))?;
                fd
            }
        };
        let word = FenceWord(fd);
        Ok(Lease { state: Mutex::default(), changed: Condvar::new(), vault: vault.clone(), word })
    }

    /// Nothing of a shared object is in any page table: the keeper has nothing to fence.
    pub fn nothing_to_fence(&self) -> Result<()> {
        self.word.write(0).doing("writing the fence's word")
    }

    /// The lease was renewed. False if this host has fenced itself.
    pub fn renewed(&self, times: Times) -> Result<bool> {
        let mut state = lock(&self.state);
        if state.fenced {
            return Ok(false);
        }
        // An answer that took so long is of no use: the keeper may be about to act.
        if clock::now() >= times.fence {
            return Err(Error::new(
                ErrorKind::TimedOut,
                "the registry's answer came when the lease was nearly over",
            ));
        }
        self.word.write(times.keeper).doing("writing the fence's word")?;
        if state.fence_at == 0 {
            // The keeper looks at the word when it hears of it, and then each time that it would act.
            self.vault.update_blob(&Key::new(FENCE_KEY), &[1])?;
        }
        (state.fence_at, state.latest, state.length) = (times.fence, times.latest, times.length);
        self.changed.notify_all();
        Ok(true)
    }

    /// Whether this host may do nothing with shared objects any more.
    pub fn is_fenced(&self) -> bool {
        lock(&self.state).fenced
    }

    /// Whether enough of it is left to store something: until this host would fence itself.
    pub fn allows_storing(&self) -> bool {
        let state = lock(&self.state);
        !state.fenced && clock::now() < state.fence_at
    }

    /// How much of it is left until this host fences itself.
    pub fn left(&self) -> Duration {
        let state = lock(&self.state);
        let until = if state.fenced { 0 } else { state.fence_at };
        Duration::from_nanos(until.saturating_sub(clock::now()))
    }

    /// How long leases are, if this host has one.
    pub fn length(&self) -> Duration {
        lock(&self.state).length
    }

    /// This host is at it: the keeper, which would begin anew, lets it go on as long as there is time.
    pub fn is_being_fenced(&self) -> Result<()> {
        match lock(&self.state).latest {
            0 => Ok(()),
            latest => self.word.write(latest).doing("writing the fence's word"),
        }
    }

    /// From now on. False if that was so.
    pub fn fence(&self) -> bool {
        let mut state = lock(&self.state);
        self.changed.notify_all();
        !std::mem::replace(&mut state.fenced, true)
    }

    /// Waits until the host has to fence itself, by the clock; false if it has by another's word.
    pub fn wait_for_its_end(&self) -> bool {
        loop {
            let mut state = lock(&self.state);
            while state.fence_at == 0 && !state.fenced {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.fenced {
                return false;
            }
            let at = state.fence_at;
            if at <= commonhold_sys::clock::now() {
                state.fenced = true;
                return true;
            }
            drop(state);
            commonhold_sys::clock::sleep_until(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_over_before_the_lease_is() {
        let (sent, lease) = (5_000, Duration::from_secs(10));
        let times = Times::of(sent, lease, Duration::ZERO);
        let end = sent + lease.as_nanos() as u64;
        assert!(sent < times.renew && times.renew < times.fence);
        assert!(times.fence < times.keeper && times.keeper < end);
        // Two attempts to renew fit in before it is too late.
        assert!(times.renew + 2 * times.patience.as_nanos() as u64 >= times.fence);
        assert!(times.renew + times.patience.as_nanos() as u64 <= times.fence);
        // Where there is much to fence both act earlier, and still not before the next renewal is under way.
        let (second, much) = (Duration::from_secs(1), Duration::from_secs(3600));
        let more = Times::of(sent, lease, second);
        assert_eq!((more.fence, more.keeper), (times.fence - 1_000_000_000, times.keeper - 1_000_000_000));
        let most = Times::of(sent, lease, much);
        assert!(most.renew < most.fence && most.fence < most.keeper);
        assert!(most.keeper < most.latest && most.latest == times.keeper && times.latest == times.keeper);
    }

    #[test]
    fn who_has_fenced_itself_renews_nothing() {
        let lease = Lease::new(&Vault::alone().unwrap(), &[]).unwrap();
        let times = Times::of(commonhold_sys::clock::now(), Duration::from_secs(3600), Duration::ZERO);
        assert!(!lease.allows_storing() && lease.left().is_zero());
        assert!(lease.renewed(times).unwrap());
        assert!(lease.allows_storing() && lease.left() > Duration::from_secs(1800));
        assert_eq!(lease.word.read(), Some(times.keeper));
        let late = Times::of(1, Duration::from_nanos(8), Duration::ZERO);
        assert_eq!(
            lease.renewed(late).unwrap_err().kind,
            ErrorKind::TimedOut,
            "the keeper may be about to act"
        );
        assert_eq!(lease.word.read(), Some(times.keeper));
        // A lease whose end comes while nobody looks.
        let brief = Times::of(commonhold_sys::clock::now(), Duration::from_secs(2), Duration::ZERO);
        assert!(lease.renewed(brief).unwrap());
        assert!(lease.wait_for_its_end() && lease.is_fenced() && !lease.allows_storing());
        lease.is_being_fenced().unwrap();
        assert!(lease.left().is_zero());
        assert!(!lease.renewed(times).unwrap());
        assert_eq!(lease.word.read(), Some(brief.keeper), "until what is to be done is done");
        lease.nothing_to_fence().unwrap();
        assert_eq!(lease.word.read(), Some(0));
        assert!(!lease.fence() && !lease.wait_for_its_end());
    }
}
