//! Who is connected: at most one connection for each host, and the order in which handlers hear of them.

use crate::certificate::PeerRights;
use crate::channel::lock;
use crate::frame::Kind;
use crate::greeting::{Greeting, Introduction};
use crate::handler::Handler;
use crate::handshake::{DEADLINE, End, Talk};
use crate::hello::Hello;
use crate::judge::{self, Known, Present, Verdict};
use crate::link::Link;
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// All connections of a host.
pub struct Table {
    pub me: Hello,
    pub handler: Arc<dyn Handler>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    slots: HashMap<HostId, Slot>,
    stopped: bool,
}

/// One host.
#[derive(Default)]
struct Slot {
    link: Option<Arc<Link>>,
    /// Somebody here is about to connect to it.
    dialing: bool,
    /// One that it began was accepted, and is about to be the connection: who would connect waits for that. Without
    /// this, each end could accept the other's and keep its own.
    settling: bool,
    newest: u64,
    last: u64,
    barred: Option<u64>,
    /// Held while a connection takes the place of another: one at a time.
    settle: Arc<Mutex<()>>,
}

impl Slot {
    fn live(&self) -> Option<&Arc<Link>> {
        self.link.as_ref().filter(|link| link.is_live())
    }

    fn known(&self) -> Known {
        let present = self.live().map(|link| Present {
            incarnation: link.hello.incarnation,
            link: link.id,
            begun_by_peer: link.begun_by_peer,
        });
        Known { present, dialing: self.dialing, newest: self.newest, barred: self.barred }
    }
}

/// A peer that both ends agree on.
pub struct Candidate {
    /// How to speak with it.
    pub talk: Talk,
    /// What it said; its number of the connection is this end's too.
    pub introduction: Introduction,
    /// What it may do.
    pub rights: PeerRights,
    /// Which end this is.
    pub end: End,
}

/// Whether this thread is to connect.
pub enum Turn {
    /// There is a connection.
    Connected,
    /// Yes; and the number of the last connection.
    Dial(u64),
}

impl Table {
    /// Nobody yet.
    pub fn new(me: Hello, handler: Arc<dyn Handler>) -> Arc<Table> {
        Arc::new(Table { me, handler, inner: Mutex::default(), changed: Condvar::new() })
    }

    /// The connection with a host.
    pub fn link(&self, host: HostId) -> Result<Arc<Link>> {
        let inner = lock(&self.inner);
        let link = inner.slots.get(&host).and_then(|slot| slot.live().cloned());
        link.ok_or_else(|| Error::new(ErrorKind::Disconnected, format!("{host} is not connected")))
    }

    /// The number of the last connection with a host, 0 for none.
    pub fn last(&self, host: HostId) -> u64 {
        lock(&self.inner).slots.get(&host).map_or(0, |slot| slot.last)
    }

    /// Whether [`Table::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        lock(&self.inner).stopped
    }

    /// Waits while another thread connects to the host; then tells whether this one is to.
    pub fn begin_dialing(&self, host: HostId, deadline: Instant) -> Result<Turn> {
        let mut inner = lock(&self.inner);
        loop {
            if inner.stopped {
                return Err(stopped());
            }
            let slot = inner.slots.entry(host).or_default();
            if slot.live().is_some() {
                return Ok(Turn::Connected);
            }
            if slot.link.as_ref().is_some_and(|link| link.is_own_thread()) {
                let words = format!(
                    "{host} cannot be connected to from the call that tells its loss: do it after that"
                );
                return Err(Error::new(ErrorKind::Busy, words));
            }
            if !slot.dialing && !slot.settling {
                slot.dialing = true;
                return Ok(Turn::Dial(slot.last));
            }
            inner = self.wait(inner, host, deadline)?;
        }
    }

    /// The connecting is done, one way or the other.
    pub fn end_dialing(&self, host: HostId) {
        lock(&self.inner).slots.entry(host).or_default().dialing = false;
        self.changed.notify_all();
    }

    /// Waits until a host is connected that is about to connect itself.
    pub fn wait_connected(&self, host: HostId, deadline: Instant) -> Result<()> {
        let mut inner = lock(&self.inner);
        while inner.slots.get(&host).is_none_or(|slot| slot.live().is_none()) {
            if inner.stopped {
                return Err(stopped());
            }
            inner = self.wait(inner, host, deadline)?;
        }
        Ok(())
    }

    fn wait<'a>(
        &self,
        inner: MutexGuard<'a, Inner>,
        host: HostId,
        deadline: Instant,
    ) -> Result<MutexGuard<'a, Inner>> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let words = format!("{host} was not connected in {} s", DEADLINE.as_secs());
            return Err(Error::new(ErrorKind::TimedOut, words));
        }
        Ok(self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Makes a connection of it, if it is the one to stay. An error was told to the other end.
    pub fn conclude(self: &Arc<Self>, candidate: Candidate) -> Result<Verdict> {
        let Candidate { mut talk, introduction, rights, end } = candidate;
        let host = introduction.hello.host;
        let settle = lock(&self.inner).slots.entry(host).or_default().settle.clone();
        let _turn = lock(&settle);
        let _settled = Settled(self, host);
        let made_room = self.decide(&introduction, end).and_then(|decided| match decided {
            None => talk.say(&Greeting::Yield).map(|()| Verdict::Yield),
            Some(replaced) => {
                make_room(&replaced, &introduction.hello)?;
                if end == End::Answers {
                    talk.say(&Greeting::Accepted)?;
                }
                Ok(Verdict::Accept)
            }
        });
        match made_room {
            Ok(Verdict::Accept) => {}
            Ok(Verdict::Yield) => {
                talk.end();
                return Ok(Verdict::Yield);
            }
            Err(error) => {
                talk.refuse(&error);
                return Err(error);
            }
        }
        let begun_by_peer = end == End::Answers;
        let link =
            Link::new(talk.into_stream(), introduction.hello, rights, introduction.link, begun_by_peer);
        self.install(&link)?;
        Ok(Verdict::Accept)
    }

    /// Which connections must end for a new one; none if that is to yield. From here on the new one counts.
    fn decide(&self, peer: &Introduction, end: End) -> Result<Option<Vec<Arc<Link>>>> {
        let hello = &peer.hello;
        let mut inner = lock(&self.inner);
        if inner.stopped {
            return Err(stopped());
        }
        let mut replaced = Vec::new();
        for slot in inner.slots.values() {
            let Some(link) = slot.live() else { continue };
            if link.hello.name != hello.name || link.hello.host == hello.host {
                continue;
            }
            if link.hello.incarnation >= hello.incarnation {
                let words = format!(
                    "two hosts have one name: {} is connected already, and {} comes",
                    link.hello.who(),
                    hello.who()
                );
                return Err(Error::new(ErrorKind::Exists, words));
            }
            replaced.push(link.clone());
        }
        let slot = inner.slots.entry(hello.host).or_default();
        match end {
            End::Begins => judge::check_incarnation(hello, &slot.known())?,
            End::Answers => {
                if judge::judge(&self.me, peer, &slot.known())? == Verdict::Yield {
                    return Ok(None);
                }
                slot.settling = true;
            }
        }
        replaced.extend(slot.link.clone());
        slot.newest = hello.incarnation;
        slot.last = peer.link;
        Ok(Some(replaced))
    }

    fn install(self: &Arc<Self>, link: &Arc<Link>) -> Result<()> {
        let host = link.hello.host;
        {
            let mut inner = lock(&self.inner);
            if inner.stopped {
                return Err(stopped());
            }
            inner.slots.entry(host).or_default().link = Some(link.clone());
        }
        self.handler.connected(&link.hello, link.rights);
        let table = self.clone();
        let started = link.start(&self.handler, move |link| table.forget(link));
        if let Err(error) = &started {
            link.fail(error.clone());
            self.handler.lost(host, link.hello.incarnation, error);
            self.forget(link);
        }
        self.changed.notify_all();
        started
    }

    fn forget(&self, link: &Arc<Link>) {
        let mut inner = lock(&self.inner);
        if let Some(slot) = inner.slots.get_mut(&link.hello.host) {
            slot.link.take_if(|present| Arc::ptr_eq(present, link));
        }
        self.changed.notify_all();
    }

    /// Lets incarnations up to this one in no more, and ends their connection.
    pub fn bar(&self, host: HostId, incarnation: u64) {
        let link = {
            let mut inner = lock(&self.inner);
            let slot = inner.slots.entry(host).or_default();
            slot.barred = slot.barred.max(Some(incarnation));
            slot.live().cloned()
        };
        if let Some(link) = link.filter(|link| link.hello.incarnation <= incarnation) {
            dismiss(&link, "it was shut out of the cluster");
        }
    }

    /// Ends all connections; no other begins. Returns when the handler has heard of all, but at most after `longest`.
    pub fn stop(&self, longest: Duration) {
        let links: Vec<_> = {
            let mut inner = lock(&self.inner);
            inner.stopped = true;
            inner.slots.values().filter_map(|slot| slot.link.clone()).collect()
        };
        self.changed.notify_all();
        links.iter().for_each(|link| dismiss(link, "this host stops"));
        let deadline = Instant::now() + longest;
        for link in links.iter().filter(|link| !link.is_own_thread()) {
            link.wait_over(deadline.saturating_duration_since(Instant::now()));
        }
    }
}

/// Ends the settling, whatever came of it.
struct Settled<'a>(&'a Table, HostId);

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        lock(&self.0.inner).slots.entry(self.1).or_default().settling = false;
        self.0.changed.notify_all();
    }
}

/// Ends a connection and tells the other end why.
pub fn dismiss(link: &Link, why: &str) {
    let end = (0..=why.len().min(1024)).rev().find(|at| why.is_char_boundary(*at)).unwrap_or(0);
    let reason = Error::new(ErrorKind::Disconnected, format!("disconnected here: {why}"));
    // Before the peer hears of it: it may have closed its end before this thread goes on.
    link.will_end(reason.clone());
    // It is ended in any case.
    let _ = link.send(Kind::Goodbye, &why.as_bytes()[..end], &[]);
    link.fail(reason);
}

fn make_room(replaced: &[Arc<Link>], hello: &Hello) -> Result<()> {
    for old in replaced {
        old.fail(Error::new(
            ErrorKind::Disconnected,
            format!("a newer connection with {} takes its place", hello.who()),
        ));
        if !old.wait_over(DEADLINE) {
            let words = format!(
                "the earlier connection with {} is still being dealt with: try again",
                old.hello.who()
            );
            return Err(Error::new(ErrorKind::Busy, words));
        }
    }
    Ok(())
}

fn stopped() -> Error {
    Error::new(ErrorKind::Disconnected, "this host takes part in no cluster any more: it stops")
}
