//! A new keeper for a living host: started, and filled from the mirror while the host goes on.

use super::{State, Vault};
use crate::config::{KeeperCommand, check_program};
use crate::kept::{Key, LOCK_KEY};
use crate::link::{self, Covered, Link};
use crate::protocol::ToKeeper;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_sys::{process, socket};
use std::os::fd::AsFd;
use std::process::Child;

/// Things told to the new keeper before others may use the vault again.
const BATCH: usize = 256;
/// How long a keeper that was told to retire may take.
const RETIRE_MS: u64 = 1000;

impl Vault {
    /// Starts a keeper in place of the one that is gone, or of the living one (`commonhold host upgrade`), and fills
    /// it. Takes milliseconds, seconds for very many things; other calls go on meanwhile. Until it returns, the host's
    /// death loses what was not yet told ([`Inheritance::complete`](super::Inheritance::complete)). After an error
    /// there is no keeper, unless it was an error in `command`: log it, pause, and try again.
    pub fn replace_keeper(&self, command: &KeeperCommand) -> Result<()> {
        self.replace_if(command, |_| true)
    }

    /// The same in place of one that is gone ([`KeeperEvent::Gone`](super::KeeperEvent::Gone)),
    /// unless another has come since. That one must stay: the host may have told it already to
    /// start the next host, and be about to exit.
    pub fn replace_gone_keeper(&self, command: &KeeperCommand) -> Result<()> {
        self.replace_if(command, |state| state.link.is_none())
    }

    fn replace_if(&self, command: &KeeperCommand, wanted: impl FnOnce(&State) -> bool) -> Result<()> {
        check_program(&command.program)?;
        let mut state = self.lock();
        if state.replacing {
            return Err(Error::new(ErrorKind::Busy, "the keeper is being replaced already: wait for that"));
        }
        if !wanted(&state) {
            return Ok(());
        }
        state.replacing = true;
        drop(state);
        let outcome = self.retire().and_then(|()| self.start_and_fill(command));
        self.lock().replacing = false;
        outcome
    }

    /// Ends the living keeper, if there is one. It is gone when this returns: two would start two hosts.
    fn retire(&self) -> Result<()> {
        let mut state = self.lock();
        self.tell(&mut state, &ToKeeper::Retire);
        if let Some(link) = &state.link {
            process::readable_within(&link.pidfd, RETIRE_MS).doing("cannot wait for the keeper's end")?;
            self.inner.lose(&mut state, "it is being replaced".to_owned());
        }
        Ok(())
    }

    fn start_and_fill(&self, command: &KeeperCommand) -> Result<()> {
        let lock = self.get(&Key::new(LOCK_KEY)).and_then(|kept| kept.fd);
        let Some(lock) = lock else {
            return Err(Error::invalid(format!(
                "a keeper cannot be started: put the lock under {LOCK_KEY:?} first"
            )));
        };
        let lock = lock.try_clone().doing("cannot hand on the lock")?;
        let (ours, theirs) = socket::pair().doing("cannot make a socket for the keeper")?;
        let program = command.program.display();
        let mut child =
            command.start_for_me(theirs, lock).doing(format_args!("cannot start the keeper {program}"))?;
        let outcome = self.greet(ours, &child).and_then(|()| self.fill());
        if outcome.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        outcome
    }

    fn greet(&self, ours: std::os::fd::OwnedFd, child: &Child) -> Result<()> {
        let pidfd = process::pidfd(child.id()).doing("cannot watch the new keeper")?;
        let handed = link::receive_all(&ours)?;
        let mut state = self.lock();
        if state.store.descriptors() > handed.descriptors {
            return Err(Error::new(
                ErrorKind::TooMany,
                format!(
                    "the new keeper can hold {} descriptors and there are {}: raise the limit on open files",
                    handed.descriptors,
                    state.store.descriptors()
                ),
            ));
        }
        state.store.descriptor_limit = handed.descriptors;
        let link = Link { socket: ours, pidfd, pid: child.id(), covered: Covered::UpTo(None) };
        self.install(&mut state, link).doing("cannot watch the new keeper")?;
        let generation = state.generation;
        self.tell(&mut state, &ToKeeper::Fill { generation });
        Ok(())
    }

    fn fill(&self) -> Result<()> {
        while self.fill_some(&mut self.lock())? {}
        Ok(())
    }

    /// Tells the next things; false when that was all.
    fn fill_some(&self, state: &mut State) -> Result<bool> {
        for _ in 0..BATCH {
            let Some(Link { covered: Covered::UpTo(after), .. }) = &state.link else {
                let message = "the new keeper ended while it was being filled";
                return Err(Error::new(ErrorKind::Disconnected, message));
            };
            let Some((key, thing)) = state.store.after(after.as_ref()) else {
                self.tell(state, &ToKeeper::Filled);
                if let Some(link) = &mut state.link {
                    link.covered = Covered::All;
                }
                return Ok(false);
            };
            let (key, blob, fd) = (key.clone(), thing.blob.clone(), thing.fd.clone());
            let message = ToKeeper::Put { key: &key.0, blob: &blob, fd: fd.is_some() };
            self.inner.send(state, &message, fd.as_ref().map(|fd| fd.as_fd()));
            if let Some(link) = &mut state.link {
                link.covered = Covered::UpTo(Some(key));
            }
        }
        Ok(true)
    }
}
