//! Who is connected: at most one session and one connection for each host, and the order in which handlers hear of
//! them.

use crate::certificate::PeerRights;
use crate::channel::lock;
use crate::greeting::{Greeting, Introduction, Standing};
use crate::handler::Handler;
use crate::handshake::{DEADLINE, End, Talk};
use crate::hello::Hello;
use crate::judge::{self, Known, Present, Verdict};
use crate::link::Link;
use crate::random;
use crate::session::Session;
use crate::standing::{Chosen, Present as Standings};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

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
    /// The session that connections carry, one after the other.
    standings: Standings,
    /// Somebody here is about to connect to it: others wait.
    dialing: bool,
    /// And has found a way: of two connections one is to yield.
    greeting: bool,
    /// One that it began was accepted, and is about to be the connection: who would connect waits for that. Without
    /// this, each end could accept the other's and keep its own.
    settling: bool,
    /// The newest incarnation that came, and under which name: another host's says nothing of this one's.
    newest: u64,
    name: String,
    last: u64,
    barred: Option<u64>,
    /// Held while a connection takes the place of another: one at a time.
    settle: Arc<Mutex<()>>,
}

impl Slot {
    fn live(&self) -> Option<&Arc<Link>> {
        self.link.as_ref().filter(|link| link.is_live())
    }

    /// What is known of the host of this name.
    fn known(&self, name: &str) -> Known {
        let present = self.live().map(|link| Present {
            incarnation: link.session.hello.incarnation,
            link: link.id,
            begun_by_peer: link.begun_by_peer,
        });
        let newest = if self.name == name { self.newest } else { 0 };
        Known { present, dialing: self.greeting, newest, barred: self.barred }
    }

    /// Refuses who comes under the number of another that has a session: whatever it says its incarnation is, it takes
    /// nobody's place.
    fn check_name(&self, hello: &Hello) -> Result<()> {
        match self.standings.session.as_ref().map(|session| (session, &session.hello)) {
            Some((session, other)) if session.is_open() && other.name != hello.name => Err(Error::new(
                ErrorKind::Exists,
                format!("{} comes under a number that is {}'s: it is not let in", hello.who(), other.name),
            )),
            _ => Ok(()),
        }
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
    /// Until when its certificate is good.
    pub good_until: Option<SystemTime>,
    /// Which end this is, and where the ends stand.
    pub end: Ends,
}

/// Where the ends stand in their session.
pub enum Ends {
    /// This one began; what it said, and what was answered.
    Began(Standing, Standing),
    /// This one answers; what the other said.
    Answers(Standing),
}

impl Ends {
    fn end(&self) -> End {
        match self {
            Ends::Began(..) => End::Begins,
            Ends::Answers(_) => End::Answers,
        }
    }
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

    /// The session with a host; it may be over, or without a connection.
    pub fn session(&self, host: HostId) -> Result<Arc<Session>> {
        let inner = lock(&self.inner);
        let session = inner.slots.get(&host).and_then(|slot| slot.standings.session.clone());
        session.ok_or_else(|| Error::new(ErrorKind::Disconnected, format!("{host} is not connected")))
    }

    /// Where this end, which begins a connection, stands in its session with the other. A connection that has broken is
    /// waited for: what it brought counts.
    pub fn propose(&self, hello: &Hello) -> Result<Standing> {
        let fresh = random_number()?;
        let slot_link = {
            let inner = lock(&self.inner);
            inner.slots.get(&hello.host).and_then(|slot| slot.link.clone())
        };
        make_room(slot_link.filter(|link| !link.is_live()).as_slice(), hello)?;
        let mut inner = lock(&self.inner);
        Ok(inner.slots.entry(hello.host).or_default().standings.propose(hello, fresh))
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

    /// There is a way to the host. Whether it is still needed: the host may have connected meanwhile. Before this nothing that
    /// the host begins yields to a connection that may never be.
    pub fn begin_greeting(&self, host: HostId) -> bool {
        let mut inner = lock(&self.inner);
        let slot = inner.slots.entry(host).or_default();
        slot.greeting = slot.live().is_none() && !slot.settling;
        slot.greeting
    }

    /// The connecting is done, one way or the other.
    pub fn end_dialing(&self, host: HostId) {
        let mut inner = lock(&self.inner);
        let slot = inner.slots.entry(host).or_default();
        (slot.dialing, slot.greeting) = (false, false);
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
        let Candidate { mut talk, introduction, rights, good_until, end: ends } = candidate;
        let (host, end) = (introduction.hello.host, ends.end());
        let settle = lock(&self.inner).slots.entry(host).or_default().settle.clone();
        let _turn = lock(&settle);
        let _settled = Settled(self, host);
        let made_room = self.decide(&introduction, end).and_then(|decided| match decided {
            None => talk.say(&Greeting::Yield).map(|()| None),
            Some(old) => {
                end_sessions(&old.sessions, &introduction.hello)?;
                make_room(&old.links, &introduction.hello)?;
                let (chosen, standing) = self.choose(&introduction, &ends)?;
                if let Some(standing) = standing {
                    talk.say(&Greeting::Accepted(standing))?;
                }
                Ok(Some(chosen))
            }
        });
        let chosen = match made_room {
            Ok(Some(chosen)) => chosen,
            Ok(None) => {
                talk.end();
                return Ok(Verdict::Yield);
            }
            Err(error) => {
                self.forget_blank(host);
                match end {
                    // To the other end the connection stands: messages may follow, and nothing else.
                    End::Begins => talk.end(),
                    End::Answers => talk.refuse(&error),
                }
                return Err(error);
            }
        };
        let (their_received, begun_by_peer) = match ends {
            Ends::Began(_, theirs) => (theirs.received, false),
            Ends::Answers(theirs) => (theirs.received, true),
        };
        let (session, is_new) = match chosen {
            Chosen::GoOn(session) => (session, false),
            Chosen::Begin(number) => (self.begin(&introduction.hello, number)?, true),
        };
        let link = Link::new(talk.into_stream(), session, introduction.link, begun_by_peer, good_until);
        // Of a new session nothing was sent.
        self.install(&link, rights, is_new, if is_new { 0 } else { their_received })?;
        Ok(Verdict::Accept)
    }

    /// Who was not let in leaves nothing behind, however many numbers it comes under.
    fn forget_blank(&self, host: HostId) {
        let mut inner = lock(&self.inner);
        let blank = |slot: &Slot| {
            let idle = slot.link.is_none() && slot.standings.session.is_none() && !slot.dialing;
            idle && slot.newest == 0 && slot.barred.is_none() && Arc::strong_count(&slot.settle) <= 2
        };
        if inner.slots.get(&host).is_some_and(blank) {
            inner.slots.remove(&host);
        }
    }

    /// The session that the new connection carries, and what the other end is told of it. If that is a new one the last
    /// one is over, and the handler knows it.
    fn choose(&self, introduction: &Introduction, ends: &Ends) -> Result<(Chosen, Option<Standing>)> {
        let hello = &introduction.hello;
        let standings = lock(&self.inner).slots.entry(hello.host).or_default().standings.clone();
        let (chosen, answer) = match ends {
            Ends::Began(ours, theirs) => (standings.follow(hello, *ours, *theirs)?, None),
            Ends::Answers(theirs) => {
                let (chosen, ours) = standings.answer(hello, *theirs, random_number()?)?;
                (chosen, Some(ours))
            }
        };
        if let (Chosen::Begin(_), Some(last)) = (&chosen, standings.session) {
            end_sessions(&[last], hello)?;
        }
        Ok((chosen, answer))
    }

    fn begin(&self, hello: &Hello, number: u64) -> Result<Arc<Session>> {
        let mut inner = lock(&self.inner);
        if inner.stopped {
            return Err(stopped());
        }
        Ok(inner.slots.entry(hello.host).or_default().standings.begin(hello, number, &self.handler))
    }

    /// What must end for a new connection; none if that is to yield. From here on the new one counts.
    fn decide(&self, peer: &Introduction, end: End) -> Result<Option<Old>> {
        let hello = &peer.hello;
        self.handler.may_come(hello)?;
        let mut inner = lock(&self.inner);
        if inner.stopped {
            return Err(stopped());
        }
        // Of earlier processes of the host, what is over and told is not needed any more.
        inner.slots.retain(|number, slot| {
            let is_over = |session: &Arc<Session>| session.hello.name == hello.name && !session.is_open();
            let over = slot.standings.session.as_ref().is_some_and(is_over) && slot.barred.is_none();
            !over || *number == hello.host || slot.link.is_some() || slot.dialing || slot.settling
        });
        let mut old = Old::default();
        for slot in inner.slots.values() {
            let Some(session) = &slot.standings.session else { continue };
            let other = &session.hello;
            if other.name != hello.name || other.host == hello.host {
                continue;
            }
            // Of one that lives the connection ends before its successor comes, or soon after if its machine died. A
            // namesake takes nobody's place.
            if slot.live().is_none() && other.incarnation < hello.incarnation {
                old.sessions.push(session.clone());
                old.links.extend(slot.link.clone());
            } else if slot.live().is_some() {
                let words = format!(
                    "two hosts have one name: {} is connected already, and {} comes",
                    other.who(),
                    hello.who()
                );
                return Err(Error::new(ErrorKind::Exists, words));
            }
        }
        let slot = inner.slots.entry(hello.host).or_default();
        slot.check_name(hello)?;
        let known = slot.known(&hello.name);
        match end {
            End::Begins => judge::check_incarnation(hello, &known)?,
            End::Answers => {
                if judge::judge(&self.me, peer, &known)? == Verdict::Yield {
                    return Ok(None);
                }
                slot.settling = true;
            }
        }
        old.links.extend(slot.link.clone());
        old.sessions.extend(slot.standings.session.clone().filter(|session| !session.is_with(hello)));
        slot.newest = hello.incarnation;
        slot.name.clone_from(&hello.name);
        slot.last = peer.link;
        Ok(Some(old))
    }

    fn install(
        self: &Arc<Self>,
        link: &Arc<Link>,
        rights: PeerRights,
        is_new: bool,
        their_received: u64,
    ) -> Result<()> {
        let session = &link.session;
        {
            let mut inner = lock(&self.inner);
            if inner.stopped {
                return Err(stopped());
            }
            session.attach(link, their_received)?;
            inner.slots.entry(session.hello.host).or_default().link = Some(link.clone());
        }
        if is_new {
            self.handler.connected(&session.hello, rights);
        } else {
            self.handler.resumed(&session.hello, rights);
        }
        let table = self.clone();
        let started = link.start(move |link| table.forget(link));
        if let Err(error) = &started {
            link.fail(error.clone());
            link.is_over(|link| self.forget(link));
        }
        self.changed.notify_all();
        started
    }

    fn forget(&self, link: &Arc<Link>) {
        let mut inner = lock(&self.inner);
        if let Some(slot) = inner.slots.get_mut(&link.session.hello.host) {
            slot.link.take_if(|present| Arc::ptr_eq(present, link));
        }
        self.changed.notify_all();
    }

    /// Lets incarnations up to this one in no more, and ends their session.
    pub fn bar(&self, host: HostId, incarnation: u64) {
        let session = {
            let mut inner = lock(&self.inner);
            let slot = inner.slots.entry(host).or_default();
            slot.barred = slot.barred.max(Some(incarnation));
            slot.standings.session.clone()
        };
        if let Some(session) = session.filter(|session| session.hello.incarnation <= incarnation) {
            session.dismiss("it was shut out of the cluster");
        }
    }

    /// Ends all sessions; no other begins. Returns when the handler has heard of all, but at most after `longest`.
    pub fn stop(&self, longest: Duration) {
        let sessions: Vec<_> = {
            let mut inner = lock(&self.inner);
            inner.stopped = true;
            let sessions = inner.slots.values().filter_map(|slot| {
                let is_own = slot.link.as_ref().is_some_and(|link| link.is_own_thread());
                Some((slot.standings.session.clone()?, slot.link.clone(), is_own))
            });
            sessions.collect()
        };
        self.changed.notify_all();
        sessions.iter().for_each(|(session, ..)| session.dismiss("this host stops"));
        let deadline = Instant::now() + longest;
        let left = || deadline.saturating_duration_since(Instant::now());
        for (session, link, _) in sessions.iter().filter(|(.., is_own)| !is_own) {
            session.wait_told(left());
            link.iter().for_each(|link| _ = link.wait_over(left()));
        }
    }
}

/// What must end for a connection.
#[derive(Default)]
struct Old {
    /// Connections. Their sessions may go on.
    links: Vec<Arc<Link>>,
    /// Sessions with earlier processes of the host.
    sessions: Vec<Arc<Session>>,
}

/// Ends the settling, whatever came of it.
struct Settled<'a>(&'a Table, HostId);

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        if let Some(slot) = lock(&self.0.inner).slots.get_mut(&self.1) {
            slot.settling = false;
        }
        self.0.changed.notify_all();
    }
}

/// Of a connection or a session.
pub fn random_number() -> Result<u64> {
    Ok(u64::from_le_bytes(random::bytes()?).max(1))
}

fn end_sessions(sessions: &[Arc<Session>], hello: &Hello) -> Result<()> {
    for session in sessions {
        let is_newer = session.hello.incarnation < hello.incarnation;
        let words = match is_newer {
            true => format!("a newer connection with {} takes its place", hello.who()),
            false => "the other end knows nothing of this session (any more), and begins another".to_owned(),
        };
        session.over(Error::new(ErrorKind::Disconnected, words));
        if !session.wait_told(DEADLINE) {
            return Err(still_dealt_with(&session.hello));
        }
    }
    Ok(())
}

fn still_dealt_with(hello: &Hello) -> Error {
    let words = format!("the earlier connection with {} is still being dealt with: try again", hello.who());
    Error::new(ErrorKind::Busy, words)
}

fn make_room(replaced: &[Arc<Link>], hello: &Hello) -> Result<()> {
    for old in replaced {
        old.fail(Error::new(
            ErrorKind::Disconnected,
            format!("a newer connection with {} takes its place", hello.who()),
        ));
        if !old.wait_over(DEADLINE) {
            return Err(still_dealt_with(&old.session.hello));
        }
    }
    Ok(())
}

fn stopped() -> Error {
    Error::new(ErrorKind::Disconnected, "this host takes part in no cluster any more: it stops")
}
