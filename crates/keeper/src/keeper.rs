//! The keeper's process: one loop (and, while no host serves, a thread that ends late faults). It starts the host,
//! watches it by pidfd, keeps what it is told to keep, and when the host ends starts the next and hands all to it.
//!
//! No wait here has to end for another to: what the host does not read is sent later, and a host that is stopped
//! (SIGSTOP) or slow is not dead.

mod conversation;

use crate::backoff::{Backoff, Ending, Next, decide};
use crate::config::{KeeperConfig, Serves};
use crate::fence::Fence;
use crate::hosted::{Hosted, Sending};
use crate::kept::{Generation, Key, LOCK_KEY, STUCK_PART};
use crate::log::StateLog;
use crate::protocol::{MESSAGE_BYTES, TELLS_OF_ENDED};
use crate::store::{Store, Thing};
use crate::waits::Waits;
use crate::{filter, limits, lock, waits};
use commonhold_sys::{process, socket};
use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long sending pauses when too many descriptors are under way (ETOOMANYREFS): nothing announces its end.
const SENDING_PAUSE: Duration = Duration::from_millis(2);

/// Runs a keeper until its host asks it to end. With `inherited`, the living host at the other end started this keeper
/// in place of one that died; without, the keeper starts its first host. `lock` is the state directory's.
///
/// This is a process's main function: it takes the process over (session, signals, limits, working directory).
/// SIGTERM is passed on to the host, whose orderly end then ends the keeper; SIGINT and SIGHUP do nothing.
pub fn run_keeper(
    config: KeeperConfig,
    inherited: Option<OwnedFd>,
    host_pid: Option<u32>,
    lock: OwnedFd,
) -> io::Result<()> {
    let config = KeeperConfig {
        state_directory: std::path::absolute(&config.state_directory)?,
        program: std::path::absolute(&config.program)?,
        ..config
    };
    let log = StateLog::new(&config.state_directory, "keeper");
    // The server of a mount acts for users, and mounts.
    let filtered = if config.serves == Serves::Host { filter::refuse_calls() } else { Ok(()) };
    if let Err(error) = filtered {
        log.say(&format!("system calls that nobody here makes are not refused: {error}"));
    }
    let keeper = Keeper::new(config, log.clone(), lock, inherited, host_pid);
    // The lock goes after the last word: from then on the directory is another's.
    let (outcome, held) = match keeper {
        Ok(mut keeper) => (keeper.run(), Some(keeper)),
        Err(error) => (Err(error), None),
    };
    match &outcome {
        Ok(()) => log.say("ended"),
        Err(error) => log.say(&format!("ended by an error: {error}")),
    }
    drop(held);
    outcome
}

struct Keeper {
    config: KeeperConfig,
    log: StateLog,
    store: Store,
    generation: Generation,
    /// Whether `store` holds all that the host wished kept.
    complete: bool,
    /// A host of this keeper has served. Until one has there is nothing to keep, and nobody who waits.
    served: bool,
    /// The present host serves.
    serving: bool,
    /// Whoever waits too long while none does.
    waits: Waits,
    /// What is shared with other machines, and for how long.
    fence: Fence,
    /// Program of the next host.
    program: PathBuf,
    /// Program to return to if `program`, asked for by the last host, dies young and not ready.
    previous: Option<PathBuf>,
    host: Option<Hosted>,
    /// What is left of hosts that were killed and cannot end; reaped when they have.
    stuck: Vec<Child>,
    /// When to start the next host, while there is none.
    start_at: Instant,
    backoff: Backoff,
    /// Readable when SIGTERM came.
    signals: UnixStream,
    /// Before this keeper lowered its own; for the hosts it starts.
    oom_score: Option<String>,
    buffer: Vec<u8>,
    over: bool,
}

impl Keeper {
    fn new(
        config: KeeperConfig,
        log: StateLog,
        lock: OwnedFd,
        inherited: Option<OwnedFd>,
        host_pid: Option<u32>,
    ) -> io::Result<Self> {
        let signals = take_signals()?;
        // Refused where we lead a session already, which is as good.
        let _ = rustix::process::setsid();
        rustix::process::chdir("/")?;
        let oom_score = limits::be_killed_last();
        let mut store = Store::new(limits::keepable(limits::raise_descriptor_limit()));
        lock::write_pid(&lock)?;
        store.put(Key::new(LOCK_KEY), Thing { blob: Vec::new(), fd: Some(Arc::new(lock)) });
        let complete = inherited.is_none();
        let served = !complete;
        let host = inherited.map(|socket| Hosted::inherited(socket, host_pid)).transpose()?;
        log.say(&match &host {
            None => format!("started for {}", config.state_directory.display()),
            Some(host) => format!("started by host {} in place of another keeper", host.pid),
        });
        Ok(Keeper {
            backoff: Backoff::new(config.restart),
            program: config.program.clone(),
            previous: None,
            generation: 0,
            complete,
            served,
            serving: served,
            waits: Waits::new(log.clone()),
            fence: Fence::new()?,
            start_at: Instant::now(),
            buffer: vec![0; MESSAGE_BYTES],
            over: false,
            config,
            log,
            store,
            host,
            stuck: Vec::new(),
            signals,
            oom_score,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        while !self.over {
            self.fence_if_due();
            if self.host.is_none() && Instant::now() >= self.start_at {
                self.start_host();
                continue;
            }
            let ready = self.wait()?;
            if ready.signal {
                self.on_sigterm();
            }
            if ready.readable {
                self.read_some();
            }
            if ready.writable {
                self.send_some();
            }
            if ready.waits_ended {
                self.sweep_waits();
            }
            if let Some(host) = &mut self.host {
                host.look();
            }
            if !self.over && self.host.as_ref().is_some_and(Hosted::has_ended) {
                self.on_host_ended();
            }
        }
        Ok(())
    }

    /// Sleeps until there is something to do.
    fn wait(&mut self) -> io::Result<Ready> {
        let (socket, pidfd) = match &self.host {
            Some(host) => (host.socket.as_ref(), host.pidfd()),
            None => (None, None),
        };
        let sending = self.host.as_ref().is_some_and(Hosted::has_more_to_send);
        let paused = sending && self.host.as_ref().is_some_and(|host| host.sending_paused);
        let mut polled = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if let Some(socket) = socket {
            let out = if sending && !paused { PollFlags::OUT } else { PollFlags::empty() };
            polled.push(PollFd::new(socket, PollFlags::IN | out));
        }
        if let Some(pidfd) = &pidfd {
            polled.push(PollFd::new(pidfd, PollFlags::IN));
        }
        polled.push(self.fence.wait_for(&self.store)?);
        let others = polled.len();
        if self.serving || self.host.is_none() {
            polled.extend(self.waits.leaving().map(|life| PollFd::from_borrowed_fd(life, PollFlags::IN)));
        }
        let at_most = match &self.host {
            None => Some(self.start_at.saturating_duration_since(Instant::now())),
            Some(host) if host.has_ended() => Some(Duration::ZERO),
            Some(_) if paused => Some(SENDING_PAUSE),
            Some(host) => Some(host.next_look()),
        };
        let at_most = at_most
            .map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) });
        match rustix::event::poll(&mut polled, at_most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let signal = !polled[0].revents().is_empty();
        let events = if socket.is_some() { polled[1].revents() } else { PollFlags::empty() };
        Ok(Ready {
            signal,
            readable: events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
            writable: paused || events.contains(PollFlags::OUT),
            waits_ended: polled[others..].iter().any(|life| !life.revents().is_empty()),
        })
    }

    /// The host's lease is about to end, and it did not say that it did what then must be done: it is dead, stopped or hung.
    fn fence_if_due(&mut self) {
        if self.fence.killing || !self.fence.is_due(&self.store) {
            return;
        }
        match &self.host {
            None => self.fence.act(&self.store, &self.log),
            Some(host) => {
                self.fence.killing = true; // and when it is gone, the same
                self.log.say(&format!("host {} lets its lease run out: killing it", host.pid));
                host.kill();
            }
        }
    }

    /// What the keeper's own thread did to late faults is known now: a host that serves is told.
    fn sweep_waits(&mut self) {
        if !self.waits.sweep(&mut self.store) || !self.serving {
            return;
        }
        if let Some(host) = &mut self.host
            && host.version >= TELLS_OF_ENDED
            && matches!(host.sending, Sending::Done | Sending::More(_))
        {
            let keys = waits::ended_keys(&self.store);
            host.sending = if keys.is_empty() { Sending::Done } else { Sending::More(keys) };
        }
    }

    fn start_host(&mut self) {
        self.generation += 1;
        let started = socket::pair().and_then(|(ours, theirs)| {
            let child = self.config.start_host(&self.program, theirs)?;
            Hosted::started(child, ours)
        });
        match started {
            Ok(host) => {
                if let Some(score) = &self.oom_score {
                    limits::give_score(host.pid, score);
                }
                let (pid, program, generation) = (host.pid, self.program.display(), self.generation);
                self.log.say(&format!("started host {pid}, generation {generation}, program {program}"));
                self.host = Some(host);
            }
            Err(error) => {
                let pause = self.backoff.after_death(Duration::ZERO);
                let program = self.program.display();
                self.log
                    .say(&format!("cannot start {program}: {error}; next try in {} ms", pause.as_millis()));
                self.start_at = Instant::now() + pause;
                self.return_to_previous_program();
            }
        }
    }

    /// What is left of a killed host that cannot end. The next one is told, and when it has ended.
    fn keep_stuck(&mut self, left: Child) {
        match process::pidfd(left.id()) {
            Ok(pidfd) => {
                let thing = Thing { blob: Vec::new(), fd: Some(Arc::new(pidfd)) };
                drop(self.store.put(Key(format!("{STUCK_PART}{}", left.id())), thing));
            }
            Err(error) => {
                self.log.say(&format!("the next host does not hear of process {}: {error}", left.id()))
            }
        }
        self.stuck.push(left);
    }

    fn on_host_ended(&mut self) {
        let Some(mut host) = self.host.take() else { return };
        self.read_to_the_end(&mut host);
        if self.over {
            return; // its last word was that another keeper takes our place
        }
        self.serving = false;
        if self.fence.killing {
            self.fence.act(&self.store, &self.log);
        }
        let (ending, lived) = (host.ending(), host.lived());
        self.stuck.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let left = host.stuck();
        let how = match ending {
            _ if left.is_some() => "killed, and cannot end: it waits for a client".to_owned(),
            Ending::Code(code) => format!("exit code {code}"),
            Ending::Signal(signal) => format!("signal {signal}"),
            Ending::Unknown => "not our child: cause unknown".to_owned(),
        };
        if let Some(left) = left {
            self.keep_stuck(left);
        }
        let pid = host.pid;
        let what_next = match decide(&host.asked, host.told_to_stop, ending, lived, &mut self.backoff) {
            Next::End => {
                self.over = true;
                self.fence.end(&self.store, &self.log);
                "as asked, and so do I".to_owned()
            }
            Next::StartAfter(_) if !self.served && matches!(ending, Ending::Code(code) if code != 0) => {
                // It said why, and the next would say the same: state of another version, a full disk.
                self.over = true;
                "it never served, and so I end too".to_owned()
            }
            Next::StartAfter(pause) => {
                if host.asked == crate::backoff::Asked::Nothing {
                    if self.backoff.young(lived) {
                        self.return_to_previous_program();
                    } else {
                        self.previous = None;
                    }
                }
                self.waits.no_host(&self.store);
                self.start_at = Instant::now() + pause;
                format!("the next starts in {} ms", pause.as_millis())
            }
        };
        let lived = lived.as_millis();
        self.log.say(&format!("host {pid} ended after {lived} ms ({how}); {what_next}"));
    }

    /// The program that the last host asked for is not up to it.
    fn return_to_previous_program(&mut self) {
        if let Some(previous) = self.previous.take() {
            let (failed, back) = (self.program.display(), previous.display());
            self.log.say(&format!("{failed} ended before it was ready: returning to {back}"));
            self.program = previous;
        }
    }

    fn on_sigterm(&mut self) {
        let mut bytes = [0; 64];
        while matches!((&self.signals).read(&mut bytes), Ok(n) if n > 0) {}
        match &mut self.host {
            Some(host) => {
                let told = host.tell_to_stop();
                let pid = host.pid;
                self.log.say(&match told {
                    Ok(()) => format!("asked to stop (SIGTERM): passed on to host {pid}"),
                    Err(error) => format!("asked to stop (SIGTERM), but host {pid} cannot be told: {error}"),
                });
            }
            None => {
                self.log.say("asked to stop (SIGTERM) while no host lives");
                self.fence.end(&self.store, &self.log);
                self.over = true;
            }
        }
    }
}

struct Ready {
    signal: bool,
    readable: bool,
    writable: bool,
    waits_ended: bool,
}

/// SIGTERM becomes readable, SIGINT and SIGHUP nothing. By handlers, not by ignoring or blocking: those would be
/// inherited by the host.
fn take_signals() -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGTERM, theirs)?;
    for signal in [SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(ours)
}
