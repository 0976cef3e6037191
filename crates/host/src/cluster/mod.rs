//! The other hosts: who they are, what is asked of them, and what they say about shared objects.
//!
//! | file | does |
//! |---|---|
//! | `wire` | the messages |
//! | `calls` | questions and answers |
//! | `pools` | the threads that answer |
//! | `asked` | how much of them one host has |
//! | `long` | messages that go in parts |
//! | `registry` | who belongs, whose a name is, and who is lost |
//! | `lease` | until when this host may go on |
//! | `members` | joining, staying, and hearing what happens |
//! | `losses` | hosts that cannot be reached or are lost, this one too |
//! | `give_back` | pages that were newest with others when this home's process, or theirs, became another |
//! | `notices` | who is told of notifications |
//! | `moving` | homes that move to another host when they are lost |
//! | `replicas` | hosts that keep what the home of such an object has stored |
//! | `beginnings` | where one use of an object by a host ends, and the next begins |
//! | `typed` | machine types of other hosts, and tags of objects that they have |
//! | `using` | who uses objects of others here, as their homes are told |
//! | `leaving` | objects of others that nobody here uses any more |
//! | `rights` | what another host may do here |
//! | `refusals` | which refused connections the log tells |
//! | `link` | the connections that carry all this |
//! | `carry` | messages about shared objects, to hosts that may not be connected yet |
//! | `dealt_with` | what their homes have dealt with of what they were sent |
//! | `sizes` | their sizes |
//! | `locks` | which host holds which pages of them |
//! | `tokens` | which host has which of the mutexes that they share |
//! | `looking` | what hosts tell each other for people to see |
//! | `objects` | objects whose home is another host, and those that others use here |
//! | `opening` | who is believed about them |

mod asked;
mod beginnings;
mod calls;
mod carry;
pub mod claims;
mod dealt_with;
mod fencing;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod give_back;
pub mod lease;
mod leaving;
pub mod link;
mod locks;
mod long;
mod looking;
mod losses;
mod members;
mod moving;
mod notices;
mod objects;
mod opening;
mod pools;
mod refusals;
pub mod registry;
mod replicas;
mod rights;
mod sizes;
#[doc(hidden)]
pub mod specimens;
mod threads;
mod tokens;
mod trouble;
mod typed;
mod using;
pub mod wire;

pub use calls::PATIENCE;
pub use objects::options_here;

use crate::clock::Clock;
use crate::server::Host;
use crate::shared::{About, Carrier, Driver, Loan};
use crate::waiting::serves_all;
use calls::Calls;
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, PageSize, Result};
use commonhold_peers::MAX_MESSAGE_BYTES;
use commonhold_sys::idle_poll::IdlePoll;
use lease::Lease;
use members::Heard;
use registry::Registry;
use registry::place::Place;
use rights::Admission;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};
use wire::{Answer, Call, Member, Message};

/// Moves messages between hosts: once and in order, until it says that the session with a host is over.
pub trait Transport: Send + Sync {
    /// Sends a message with the bytes behind it, whose buffer it may take; it waits if the connection is broken.
    fn send(&self, to: HostId, message: &[u8], payload: &mut Vec<u8>) -> Result<()>;
    /// Makes sure that there is a connection with a host, which listens at that address. Waits no longer than `within` for it,
    /// nor than some seconds.
    fn connect(&self, host: HostId, address: SocketAddr, within: Duration) -> Result<()>;
    /// An answer of a host is late: its connection breaks now if its machine does not answer either. What is on its way arrives
    /// by the next.
    fn doubt(&self, host: HostId);
    /// Ends the session with a host: what is on its way may be lost.
    fn disconnect(&self, host: HostId, why: &str);
    /// Who passes on what is said with a host, if that cannot be reached from here.
    fn through(&self, host: HostId) -> Option<HostId>;
    /// Who listens at one of these addresses, and at which.
    fn who(&self, addresses: &[SocketAddr]) -> Result<(HostId, SocketAddr)>;
}

/// This host's part of its cluster.
pub struct Cluster {
    /// This host, as the others know it.
    pub me: Member,
    /// In pages of which size processes here use shared objects.
    page_size: PageSize,
    /// Where the registry is.
    place: Place,
    host: Weak<Host>,
    transport: OnceLock<Arc<dyn Transport>>,
    registry: OnceLock<Arc<dyn Registry>>,
    lease: Arc<Lease>,
    heard: Mutex<Heard>,
    /// How long a renewal may take.
    patience: Mutex<Option<Duration>>,
    /// A renewal is due before its time.
    nudged: Mutex<bool>,
    nudge: Condvar,
    /// How long clients that are expected back are waited for before this host joins.
    returning: Duration,
    made: Instant,
    /// The homes here schedule.
    begun: Mutex<bool>,
    begins: Condvar,
    members: RwLock<HashMap<HostId, Member>>,
    shared: RwLock<HashMap<u128, Arc<Driver>>>,
    /// Objects whose last user here has just gone: what is newest here is on its way home.
    leaving: Mutex<HashMap<u128, Option<tokens::Left>>>,
    /// This host was admitted for reading alone.
    reads_alone: OnceLock<()>,
    /// Hosts that may change nothing.
    readers: RwLock<HashSet<HostId>>,
    /// Of which machine type hosts are that were connected.
    machines: RwLock<HashMap<HostId, commonhold_tags::Machine>>,
    /// What connected hosts are called: over TLS, as their certificates say.
    names: RwLock<HashMap<HostId, String>>,
    /// For what other hosts have opened this host's objects.
    admitted: RwLock<HashMap<(u128, HostId), Admission>>,
    /// Hosts whose connection broke, and that are not lost.
    unreachable: Mutex<HashMap<HostId, trouble::Attempts>>,
    /// To join, or to renew the lease.
    attempts: Mutex<trouble::Attempts>,
    /// Hosts whose session is over, with what was on its way, and that were not reached since.
    spoiled: Mutex<HashSet<HostId>>,
    /// Those of them that are being connected to.
    reaching: Mutex<HashSet<HostId>>,
    /// Numbers of hosts that are lost.
    gone: RwLock<HashSet<HostId>>,
    beginnings: beginnings::Beginnings,
    /// Of objects of others that are used here.
    homes: opening::Homes,
    /// Of hosts that are lost, the processes that follow them.
    followers: RwLock<HashMap<HostId, HostId>>,
    calls: Calls,
    pools: pools::Pools,
    /// News on their way to the thread that does what follows.
    news: members::NewsQueue,
    parts: long::Parts,
    asked: asked::Asked,
    claims: claims::Claims,
    /// This host ends: it begins with nothing any more.
    ending: AtomicBool,
    /// Keeps a processor from halting while pages are awaited.
    idle_poll: IdlePoll,
    /// What is to be sent to hosts as soon as there is a connection.
    waiting: carry::Waiting,
    /// Whom it is asked what they have dealt with.
    asking_homes: dealt_with::Asking,
    /// Does later what waits for nobody.
    pub clock: Arc<Clock>,
    /// Changes of the sizes of this host's objects.
    size_changes: AtomicU64,
    locks: locks::AllLocks,
    /// Of objects of this home, notifications that are on their way to other hosts.
    notices: notices::Notices,
    /// What other hosts have this one keep.
    kept_here: replicas::KeptHere,
    /// Objects of this home that others keep.
    replicated: Mutex<HashMap<u128, Arc<replicas::Home>>>,
    /// When it is looked whether they still do.
    looking: Arc<replicas::Looking>,
    /// What replicas were asked for so far.
    keep_asked: AtomicU64,
}

fn busy(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Busy, text)
}

fn unexpected() -> Error {
    Error::new(ErrorKind::Protocol, "the other host answers something else than was asked")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// This host's part. `returning`: how long clients of a host that died
    /// with its keeper are waited for before it joins; none if it is in no cluster.
    pub fn new(
        host: &Arc<Host>,
        me: Member,
        place: Place,
        lease: Lease,
        returning: Option<Duration>,
        page_size: PageSize,
        idle_poll: Duration,
    ) -> std::io::Result<Arc<Cluster>> {
        let cluster = Cluster {
            me,
            page_size,
            place,
            host: Arc::downgrade(host),
            transport: OnceLock::new(),
            registry: OnceLock::new(),
            lease: Arc::new(lease),
            heard: Mutex::default(),
            patience: Mutex::default(),
            nudged: Mutex::default(),
            nudge: Condvar::new(),
            returning: returning.unwrap_or_default(),
            made: Instant::now(),
            begun: returning.is_none().into(),
            begins: Condvar::new(),
            members: RwLock::default(),
            shared: RwLock::default(),
            leaving: Mutex::default(),
            reads_alone: OnceLock::new(),
            readers: RwLock::default(),
            machines: RwLock::default(),
            names: RwLock::default(),
            admitted: RwLock::default(),
            unreachable: Mutex::default(),
            attempts: Mutex::default(),
            spoiled: Mutex::default(),
            reaching: Mutex::default(),
            gone: RwLock::default(),
            beginnings: beginnings::Beginnings::default(),
            homes: opening::Homes::default(),
            followers: RwLock::default(),
            calls: Calls::default(),
            pools: pools::Pools::new(),
            news: members::NewsQueue::default(),
            parts: long::Parts::default(),
            asked: asked::Asked::default(),
            claims: claims::Claims::default(),
            ending: AtomicBool::new(false),
            idle_poll: IdlePoll::new(idle_poll),
            waiting: carry::Waiting::default(),
            asking_homes: dealt_with::Asking::default(),
            clock: Clock::start()?,
            size_changes: AtomicU64::default(),
            locks: locks::AllLocks::default(),
            notices: notices::Notices::default(),
            kept_here: replicas::KeptHere::default(),
            replicated: Mutex::default(),
            looking: Arc::default(),
            keep_asked: AtomicU64::new(1),
        };
        Ok(Arc::new(cluster))
    }

    /// From now on messages are moved by this, and that registry decides.
    pub fn begin(self: &Arc<Self>, transport: Arc<dyn Transport>, registry: Arc<dyn Registry>) -> Result<()> {
        let _ = self.transport.set(transport);
        let _ = self.registry.set(registry);
        self.note_early_objects();
        self.stay_a_member();
        Ok(())
    }

    /// This host was admitted for reading alone: it is the home of nothing that others use, whoever keeps the registry.
    pub fn note_reads_alone(&self) {
        let _ = self.reads_alone.set(());
    }

    fn reads_alone(&self) -> bool {
        self.reads_alone.get().is_some()
    }

    /// Whether clients that are expected back may still be waited for.
    fn wait_for_returning(&self) -> bool {
        self.made.elapsed() < self.returning
    }

    /// This process has taken everything over: no page table has anything of a shared object.
    pub fn nothing_to_fence(&self) -> Result<()> {
        self.lease.nothing_to_fence()
    }

    /// Whether a host's connection is broken, and the host not lost.
    pub fn is_unreachable(&self, host: HostId) -> bool {
        lock(&self.unreachable).contains_key(&host)
    }

    /// Who passes on what is said with a host, if that cannot be reached from here.
    pub fn through(&self, host: HostId) -> Option<HostId> {
        self.transport.get()?.through(host)
    }

    /// One line for the log.
    pub fn report(&self, line: std::fmt::Arguments<'_>) {
        if let Ok(host) = self.host() {
            host.machine.log(line);
        }
    }

    /// The host whose part this is.
    pub fn host(&self) -> Result<Arc<Host>> {
        self.host.upgrade().ok_or_else(|| Error::new(ErrorKind::Disconnected, "this host is ending"))
    }

    /// A host's name, for people.
    pub fn called(&self, host: HostId) -> String {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        members.get(&host).map_or_else(|| host.to_string(), |member| member.name.clone())
    }

    /// Whether there may be other hosts.
    pub fn is_up(&self) -> bool {
        self.transport.get().is_some()
    }

    fn transport(&self) -> Result<&Arc<dyn Transport>> {
        self.transport.get().ok_or_else(|| Error::new(ErrorKind::Disconnected, "the cluster is not up yet"))
    }

    /// The payload's buffer is taken if it is sent.
    fn send(&self, to: HostId, message: &Message, payload: &mut Vec<u8>) -> Result<()> {
        // Most are some tens of bytes long, and on the way of a fault.
        if let Ok(bytes) = postcard::to_slice(message, &mut [0; 192]) {
            return self.transport()?.send(to, bytes, payload);
        }
        let bytes = postcard::to_stdvec(message)
            .map_err(|e| Error::new(ErrorKind::Protocol, format!("a message cannot be encoded: {e}")))?;
        if bytes.len() > MAX_MESSAGE_BYTES && payload.is_empty() {
            return self.send_long(to, &bytes);
        }
        self.transport()?.send(to, &bytes, payload)
    }

    /// A message came. An error is the sender's fault: its connection is to end.
    pub fn received(self: &Arc<Self>, from: HostId, message: &[u8], payload: Vec<u8>) -> Result<()> {
        let _serves_all = serves_all();
        let message = postcard::from_bytes(message)
            .map_err(|e| Error::new(ErrorKind::Protocol, format!("{from} sent what is no message: {e}")))?;
        match message {
            Message::Part { is_first, is_last } => match self.part_came(from, is_first, is_last, &payload)? {
                Some(message) => self.said(from, message, Vec::new()),
                None => Ok(()),
            },
            message => self.said(from, message, payload),
        }
    }

    /// A whole message is there.
    fn said(self: &Arc<Self>, from: HostId, message: Message, payload: Vec<u8>) -> Result<()> {
        match message {
            Message::Part { .. } => Err(Error::new(ErrorKind::Protocol, "a part of a part of a message")),
            Message::Coherence { object, home, messages } => {
                self.idle_poll.heard();
                self.check_not_lost(from)?;
                let Some(driver) = self.driver(object) else {
                    // Not in use here (any more): whoever waits for an answer gets it.
                    let answers: Vec<_> =
                        messages.iter().flat_map(|message| message.answer_of_nobody()).collect();
                    if !answers.is_empty() {
                        Carrier::send(&**self, from, About { object, home }, answers, &mut Vec::new());
                    }
                    return Ok(());
                };
                // Who follows a host that took part is spoken to before it knows who is a member, and begins without that.
                if driver.goes_on() && driver.home().is_none() {
                    return Ok(());
                }
                messages.iter().try_for_each(|message| self.check_may_say(&driver, from, message))?;
                driver.messages(from, home, messages, payload)
            }
            Message::Tokens { object, message } => self.tokens_said(from, object, message),
            Message::Watches { object, message } => self.watches_said(from, object, message),
            Message::Answer { number, answer } => {
                if let Some(Ok(Answer::Opened(shared))) = self.answered(from, number, answer, payload) {
                    self.opened_late(from, shared.object);
                }
                Ok(())
            }
            Message::Call { number, call: Call::Lock { object, lock } } => {
                self.check_not_lost(from)?;
                let this = Arc::downgrade(self);
                let reply = move |answer| {
                    if let Some(this) = this.upgrade() {
                        let _ = this.send(from, &Message::Answer { number, answer }, &mut Vec::new());
                    }
                };
                self.lock_asked(from, object, lock, Box::new(reply));
                Ok(())
            }
            // In the order in which they are said.
            Message::Call { number, call: call @ (Call::Unlock { .. } | Call::Locks { .. }) } => {
                self.check_not_lost(from)?;
                let (this, answer) = (self.clone(), self.locks_said(from, &call));
                self.pools.short.run(move || {
                    let _ = this.send(from, &Message::Answer { number, answer }, &mut Vec::new());
                });
                Ok(())
            }
            Message::Call { number, call } => {
                let this = self.clone();
                // What others wait for may take long here.
                let pool = self.pools.of(&call).clone();
                let answering = move || {
                    let (answer, mut bytes) = match this.answer(from, call, &payload) {
                        Ok((answer, bytes)) => (Ok(answer), bytes),
                        Err(error) => (Err(error), Vec::new()),
                    };
                    let _ = this.send(from, &Message::Answer { number, answer }, &mut bytes);
                };
                if let Err(too_many) = self.run_for(from, &pool, answering) {
                    let answer = Message::Answer { number, answer: Err(too_many) };
                    let _ = self.send(from, &answer, &mut Vec::new());
                }
                Ok(())
            }
            Message::News(news) => {
                if self.list_kept_by() == Some(from) {
                    self.heard(news);
                }
                Ok(())
            }
        }
    }

    /// What another host, or this one, asks; and the bytes that go with the answer.
    fn answer(self: &Arc<Self>, from: HostId, call: Call, bytes: &[u8]) -> Result<(Answer, Vec<u8>)> {
        if let Call::Keep { .. } | Call::Kept { .. } = call {
            return self.replica_asked(from, call, bytes);
        }
        if let Call::GiveBack { object, former, lent_by, pages } = call {
            self.check_not_lost(from)?;
            return self.give_back(from, object, Loan { to: former, by: lent_by }, &pages);
        }
        if let Call::Valid { object, lost, from_page } = call {
            self.check_not_lost(from)?;
            return self.valid_here(from, object, lost, from_page);
        }
        self.answer_alone(from, call).map(|answer| (answer, Vec::new()))
    }

    fn answer_alone(self: &Arc<Self>, from: HostId, call: Call) -> Result<Answer> {
        if !matches!(call, Call::Join { .. } | Call::Renew(_)) {
            self.check_not_lost(from)?; // those two are told that they are by the list
        }
        match call {
            Call::Join { .. }
            | Call::Renew(_)
            | Call::Resign
            | Call::Claim(_)
            | Call::Names(_)
            | Call::Addresses { .. }
            | Call::Lookup(_)
            | Call::WhereIs(_) => self.registry()?.answer(from, call),
            Call::GaveUp { home, object, former, number } => {
                self.other_gave_up(from, home, object, former, number)
            }
            Call::Use { object, who, access, number, types } => {
                self.check_knows_types(object, types)?;
                self.use_for_other(from, object, &who, access, number)
            }
            Call::Lock { .. } | Call::Unlock { .. } | Call::Locks { .. } => self.locks_said(from, &call),
            Call::Leave { object, number, tokens } => self.left_by_other(from, object, number, tokens),
            Call::HasCome { object } => self.deal_with(from, object),
            Call::Notify { object, range } => self.notified(from, object, range),
            Call::TakesPart { object, host } => self.takes_part_here(from, object, host),
            Call::About(_) | Call::Lost { .. } | Call::Look { .. } | Call::List { .. } => {
                self.seen_by_other(from, call)
            }
            Call::Open { name, who, access } => self.open_for_other(from, &name, &who, access),
            Call::Sync { object, offset, length, freeze } => {
                self.sync_for_other(from, object, offset, length, freeze)
            }
            Call::Resize { name, who, size_bytes, sizing, of } => {
                self.resize_for_other(from, &name, &who, size_bytes, (sizing, of))
            }
            Call::Tag { name, who, of, tagging } => self.tag_for_other(from, &name, &who, of, &tagging),
            Call::Remove { name, who, of } => {
                self.check_may_change(from)?;
                self.host()?.remove_for_other(&name, &who, of).map(|()| Answer::Done)
            }
            Call::Size { object, told } => self.heard_size(from, object, told, false),
            Call::GiveBack { .. } | Call::Valid { .. } | Call::Keep { .. } | Call::Kept { .. } => {
                Err(Error::new(ErrorKind::Protocol, "pages are given back by another way"))
            }
        }
    }

    /// The driver of an object, if it is in use here.
    pub fn driver(&self, object: u128) -> Option<Arc<Driver>> {
        self.shared.read().unwrap_or_else(PoisonError::into_inner).get(&object).cloned()
    }
}
