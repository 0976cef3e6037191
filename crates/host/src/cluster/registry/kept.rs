//! The list of the host that keeps it: each change is written down before anybody is told, so that the next process
//! knows who may still have a lease.

use super::News;
use super::list::{List, Saved};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A list, and the file that it is in.
pub(super) struct Kept {
    list: Mutex<List>,
    path: PathBuf,
}

impl Kept {
    /// The list that was kept in the state directory, or a new one.
    pub fn open(state: &Path, lease: Duration, now: u64) -> Result<Kept> {
        let path = state.join("members");
        let lease_ns = lease.as_nanos() as u64;
        let list = match std::fs::read(&path) {
            Ok(bytes) => {
                let saved: Saved = postcard::from_bytes(&bytes).map_err(|_| {
                    Error::new(
                        ErrorKind::Corrupt,
                        format!(
                            "{} holds no list of members: stop all hosts of the cluster and remove it",
                            path.display()
                        ),
                    )
                })?;
                List::restored(saved, lease_ns, now)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let mut epoch = [0; 16];
                rustix::rand::getrandom(&mut epoch, rustix::rand::GetRandomFlags::empty())
                    .map_err(std::io::Error::from)
                    .doing("choosing the registry's epoch")?;
                List::new(u128::from_le_bytes(epoch), lease_ns)
            }
            Err(error) => return Err(Error::io("reading the list of members", &error)),
        };
        Ok(Kept { list: list.into(), path })
    }

    /// The list as it is.
    pub fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the list. What cannot be written down is not changed. Gives the news if there are any for the others.
    pub fn change<T>(&self, change: impl FnOnce(&mut List) -> Result<T>) -> Result<(T, Option<News>)> {
        let mut list = self.list();
        let mut next = list.clone();
        let outcome = change(&mut next)?;
        // Who waits for all to have heard of a loss is told that they have.
        let settles = list.settled() < next.last_loss() && next.settled() >= next.last_loss();
        if next.number() != list.number() {
            self.write(&next.saved()).doing("writing the list of members")?;
        } else if !settles {
            *list = next;
            return Ok((outcome, None));
        }
        let news = next.news();
        *list = next;
        Ok((outcome, Some(news)))
    }

    fn write(&self, saved: &Saved) -> std::io::Result<()> {
        let fresh = self.path.with_extension("new");
        let mut file = std::fs::File::create(&fresh)?;
        file.write_all(&postcard::to_stdvec(saved).map_err(std::io::Error::other)?)?;
        file.sync_data()?;
        std::fs::rename(fresh, &self.path)?;
        // The directory too: what others were told must not be forgotten by a power cut.
        match self.path.parent() {
            Some(state) => std::fs::File::open(state)?.sync_all(),
            None => Ok(()),
        }
    }
}
