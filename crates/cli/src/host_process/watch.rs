//! `host start --foreground`: a process that is there for as long as there is a host, for systemd and the like. It is
//! neither host nor keeper, which replace each other and may each end while the other lives; it only watches both.

use super::ask::{ask, end_keeper, why_none_serves};
use commonhold::{Error, ErrorKind, HostStatus, Result};
use commonhold_keeper::lock_state_directory;
use commonhold_object::error::Doing;
use commonhold_sys::process;
use rustix::event::{PollFd, PollFlags};
use rustix::process::WaitOptions;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long nobody may answer before host and keeper are taken for gone.
const PATIENCE: Duration = Duration::from_secs(3);
/// The host's socket in its state directory.
const SOCKET: &str = "host.sock";

/// Watches until the host ends. SIGTERM stops it; SIGINT stops it unless that loses something, a second one always.
///
/// # Errors
/// When host and keeper ended and were not stopped: what they left waits for the next start.
pub fn watch(directory: &Path, first: HostStatus) -> Result<()> {
    let signals = Signals::take().doing("cannot watch for signals")?;
    let mut status = first;
    let mut interrupted = false;
    loop {
        match signals.wait(&[status.host_pid, status.keeper_pid]).doing("cannot watch the host")? {
            Event::Ended => {
                let next = answer(directory);
                // The first keeper is a child of this process.
                while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
                match next {
                    Some(next) => status = next,
                    // Its keeper goes on trying, and signals are heard between two tries.
                    None if lock_state_directory(directory).is_err() => {}
                    None => return end(directory),
                }
            }
            Event::Terminate => stop(directory, true),
            Event::Interrupt => {
                stop(directory, interrupted);
                interrupted = true;
            }
        }
    }
}

/// No connection is kept: it would be a client, for whose sake the host refuses to stop.
fn stop(directory: &Path, force: bool) {
    let stopped = match ask(directory) {
        Ok((host, _)) => host.stop(force),
        Err(_) if force && why_none_serves(directory).is_some() => end_keeper(directory),
        Err(error) => Err(error),
    };
    if let Err(error) = stopped {
        let again = if force { "" } else { "; interrupt again to stop it all the same" };
        eprintln!("commonhold: {error}{again}");
    }
}

/// The state of the host that answers now. Between two hosts the keeper holds the socket, and connections wait.
fn answer(directory: &Path) -> Option<HostStatus> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // First a pause: who looks at once may reach a host that is about to die too, and then waits for long.
        std::thread::sleep(Duration::from_millis(50));
        if !directory.join(SOCKET).exists() {
            return None;
        }
        // A bare connection tells at once that nobody listens; the client's library would wait for the next host.
        let somebody_listens = commonhold_sys::socket::connect(directory, SOCKET).is_ok();
        if somebody_listens && let Ok((_, status)) = ask(directory) {
            return Some(status);
        }
        if Instant::now() > deadline {
            return None;
        }
    }
}

/// A host that ends in order takes its socket away.
fn end(directory: &Path) -> Result<()> {
    if !directory.join(SOCKET).exists() {
        return Ok(());
    }
    let place = directory.display();
    Err(Error::new(
        ErrorKind::Disconnected,
        format!(
            "host and keeper in {place} both died: `commonhold host start --state {place}` takes over what they left"
        ),
    ))
}

enum Event {
    Ended,
    Interrupt,
    Terminate,
}

struct Signals {
    interrupt: UnixStream,
    terminate: UnixStream,
}

impl Signals {
    fn take() -> std::io::Result<Self> {
        Ok(Signals { interrupt: Self::one(SIGINT)?, terminate: Self::one(SIGTERM)? })
    }

    fn one(signal: i32) -> std::io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(signal, theirs)?;
        Ok(ours)
    }

    /// Sleeps until a signal comes or one of the processes ends.
    fn wait(&self, processes: &[u32]) -> std::io::Result<Event> {
        // A process that cannot be opened has ended.
        let Ok(pidfds) =
            processes.iter().map(|pid| process::pidfd(*pid)).collect::<std::io::Result<Vec<OwnedFd>>>()
        else {
            return Ok(Event::Ended);
        };
        let mut polled =
            vec![PollFd::new(&self.terminate, PollFlags::IN), PollFd::new(&self.interrupt, PollFlags::IN)];
        polled.extend(pidfds.iter().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
        loop {
            match rustix::event::poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            if Self::came(&self.terminate) {
                return Ok(Event::Terminate);
            }
            if Self::came(&self.interrupt) {
                return Ok(Event::Interrupt);
            }
            if pidfds.iter().any(process::has_ended) {
                return Ok(Event::Ended);
            }
        }
    }

    fn came(mut stream: &UnixStream) -> bool {
        let mut bytes = [0; 16];
        matches!(stream.read(&mut bytes), Ok(n) if n > 0)
    }
}
