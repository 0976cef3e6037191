//! Network namespaces of a row's own: nothing in them is seen from the machine's network, and they are gone when the
//! last process and descriptor of theirs is.

use crate::failure::{Doing, Result, failed};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

/// A network namespace, held by its descriptor.
#[derive(Debug)]
pub struct Namespace(File);

/// The namespace that this thread is in now.
fn current() -> Result<Namespace> {
    let path = "/proc/thread-self/ns/net";
    Ok(Namespace(File::open(path).doing(format!("opening {path}"))?))
}

/// Brings this thread back, whatever happened meanwhile.
struct Return(Namespace);

impl Drop for Return {
    fn drop(&mut self) {
        if let Err(error) = move_into_link_name_space((self.0.0).as_fd(), Some(LinkNameSpaceType::Network)) {
            // To go on in another network than everybody believes would measure something else.
            eprintln!("commonhold-bench: this thread cannot return to its network: {error}");
            std::process::abort();
        }
    }
}

impl Namespace {
    /// A new one, with its loopback device up.
    pub fn create() -> Result<Namespace> {
        let back = Return(current()?);
        // SAFETY: the network namespace alone is left; memory, descriptors and directories stay shared with the other
        // threads of this process.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
            .doing("making a network namespace")?;
        let own = current()?;
        drop(back);
        own.ip(&["link", "set", "lo", "up"])?;
        Ok(own)
    }

    /// Does `work` inside: sockets and processes that it makes stay there, this thread returns.
    pub fn inside<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let back = Return(current()?);
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
            .doing("entering a network namespace")?;
        let result = work();
        drop(back);
        result
    }

    /// Where other programs find it while this process lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs the command `ip` inside.
    pub fn ip(&self, words: &[&str]) -> Result<()> {
        self.inside(|| {
            let output = Command::new("ip").args(words).output().doing("starting `ip` (package iproute2)")?;
            if output.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&output.stderr);
            failed(format!("`ip {}` said: {}", words.join(" "), said.trim()))
        })
    }
}
