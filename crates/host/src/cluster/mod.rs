//! The other hosts: who they are, what is asked of them, and what they say about shared objects.
//!
//! | file | does |
//! |---|---|
//! | `wire` | the messages |
//! | `calls` | questions and answers |
//! | `names` | the list of hosts and names that one host keeps for all |
//! | `members` | joining, and losses |
//! | `rights` | what another host may do here |
//! | `link` | the connections that carry all this |
//! | `carry` | messages about shared objects, to hosts that may not be connected yet |
//! | `objects` | objects whose home is another host, and those that others use here |

mod calls;
mod carry;
pub mod link;
mod members;
mod names;
mod objects;
mod rights;
pub mod wire;

pub use calls::PATIENCE;
pub use objects::options_here;

use crate::server::Host;
use crate::shared::{Carrier, Driver, Holds};
use calls::Calls;
use commonhold_coherence::HostId;
use commonhold_object::{Access, Error, ErrorKind, Result};
use names::Names;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use wire::{Answer, Call, Member, Message};

/// Bytes behind a message.
#[derive(Default)]
pub struct Payload<'p>(pub &'p [u8]);

/// Moves messages between hosts: once and in order, until it says that a host is lost.
pub trait Transport: Send + Sync {
    /// Sends a message with the bytes behind it.
    fn send(&self, to: HostId, message: &[u8], payload: &[u8]) -> Result<()>;
    /// Makes sure that there is a connection with a host, which listens at that address.
    fn connect(&self, host: HostId, address: SocketAddr) -> Result<()>;
    /// Who listens at an address.
    fn who(&self, address: SocketAddr) -> Result<HostId>;
}

/// This host's part of its cluster.
pub struct Cluster {
    /// This host, as the others know it.
    pub me: Member,
    /// Where the list is kept, unless it is kept here.
    join: Option<SocketAddr>,
    host: Weak<Host>,
    transport: OnceLock<Arc<dyn Transport>>,
    /// Who keeps the list, if it is known.
    list: Mutex<Option<HostId>>,
    names: Mutex<Names>,
    members: RwLock<HashMap<HostId, Member>>,
    shared: RwLock<HashMap<u128, Arc<Driver>>>,
    /// Objects whose last user here has just gone: what is newest here is on its way home.
    leaving: Mutex<HashSet<u128>>,
    /// Hosts that may change nothing.
    readers: RwLock<HashSet<HostId>>,
    /// For what other hosts have opened this host's objects.
    admitted: RwLock<HashMap<(u128, HostId), Access>>,
    calls: Calls,
    /// What is to be sent to hosts as soon as there is a connection.
    waiting: carry::Waiting,
    holds: Arc<Holds>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// This host's part. Without `join` it keeps the list.
    pub fn new(host: &Arc<Host>, me: Member, join: Option<SocketAddr>) -> std::io::Result<Arc<Cluster>> {
        let list = join.is_none().then_some(me.host);
        let cluster = Cluster {
            me,
            join,
            host: Arc::downgrade(host),
            transport: OnceLock::new(),
            list: list.into(),
            names: Mutex::default(),
            members: RwLock::default(),
            shared: RwLock::default(),
            leaving: Mutex::default(),
            readers: RwLock::default(),
            admitted: RwLock::default(),
            calls: Calls::default(),
            waiting: carry::Waiting::default(),
            holds: Holds::start()?,
        };
        Ok(Arc::new(cluster))
    }

    /// From now on messages are moved by this.
    pub fn begin(self: &Arc<Self>, transport: Arc<dyn Transport>) {
        let _ = self.transport.set(transport);
        self.stay_a_member();
    }

    /// One line for the log.
    pub fn report(&self, line: std::fmt::Arguments<'_>) {
        if let Ok(host) = self.host() {
            host.machine.log(line);
        }
    }

    fn host(&self) -> Result<Arc<Host>> {
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

    fn send(&self, to: HostId, message: &Message, payload: &Payload<'_>) -> Result<()> {
        let bytes = postcard::to_stdvec(message)
            .map_err(|e| Error::new(ErrorKind::Protocol, format!("a message cannot be encoded: {e}")))?;
        self.transport()?.send(to, &bytes, payload.0)
    }

    /// A message came. An error is the sender's fault: its connection is to end.
    pub fn received(self: &Arc<Self>, from: HostId, message: &[u8], payload: Vec<u8>) -> Result<()> {
        let message = postcard::from_bytes(message)
            .map_err(|e| Error::new(ErrorKind::Protocol, format!("{from} sent what is no message: {e}")))?;
        match message {
            Message::Coherence { object, message } => {
                let Some(driver) = self.driver(object) else {
                    // Not in use here (any more): whoever waits for an answer gets it.
                    if let Some(answer) = message.answer_of_nobody() {
                        Carrier::send(&**self, from, object, &answer, &[]);
                    }
                    return Ok(());
                };
                self.check_may_say(&driver, from, &message)?;
                driver.message(from, message, payload)
            }
            Message::Answer { number, answer } => {
                self.answered(from, number, answer);
                Ok(())
            }
            Message::Call { number, call } => {
                let this = self.clone();
                // What others wait for may take long here.
                self.host()?.machine.workers.run(move || {
                    let answer = this.answer(from, call);
                    let _ = this.send(from, &Message::Answer { number, answer }, &Payload::default());
                });
                Ok(())
            }
            Message::Members(members) => {
                if *lock(&self.list) == Some(from) {
                    self.now_members(members);
                }
                Ok(())
            }
        }
    }

    /// What another host, or this one, asks.
    fn answer(self: &Arc<Self>, from: HostId, call: Call) -> Result<Answer> {
        let keeps_list = *lock(&self.list) == Some(self.me.host);
        let names = || {
            if keeps_list { Ok(lock(&self.names)) } else { Err(self.keeps_no_list()) }
        };
        match call {
            Call::Join { member, claims } => {
                if member.host != from {
                    return Err(Error::new(ErrorKind::Protocol, "a host joins for itself alone"));
                }
                names()?.join(member, claims)?;
                self.tell_members();
                Ok(Answer::Done)
            }
            Call::Claim(claim) => {
                self.check_may_change(from)?;
                names()?.claim(from, claim).map(|()| Answer::Done)
            }
            Call::Names(claims) => {
                names()?.replace(from, claims);
                Ok(Answer::Done)
            }
            Call::Lookup(name) => {
                let home = names()?.lookup(&name);
                home.map(Answer::Home).ok_or_else(|| {
                    Error::new(ErrorKind::NotFound, format!("there is no {name}, here or on another host"))
                })
            }
            Call::WhereIs(object) => {
                let home = names()?.home_of(object);
                let none = || Error::new(ErrorKind::NotFound, "no host has the object (any more)");
                home.map(Answer::Home).ok_or_else(none)
            }
            Call::Use { object, who, access } => self.use_for_other(from, object, &who, access),
            Call::Leave(object) => {
                self.dismiss(object, from);
                self.host()?.settle_removed();
                Ok(Answer::Done)
            }
            Call::Open { name, who, access } => self.open_for_other(from, &name, &who, access),
            Call::Sync { object, offset, length } => self.sync_for_other(from, object, offset, length),
        }
    }

    fn keeps_no_list(&self) -> Error {
        Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} does not keep the cluster's list: join the host that was started without --join",
                self.me.name
            ),
        )
    }

    /// The driver of an object, if it is in use here.
    pub fn driver(&self, object: u128) -> Option<Arc<Driver>> {
        self.shared.read().unwrap_or_else(PoisonError::into_inner).get(&object).cloned()
    }
}
