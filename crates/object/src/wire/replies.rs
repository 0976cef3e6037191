//! What a host says.

use crate::info::late;
use crate::{
    Access, ClusterHost, EntryInfo, Error, HostStatus, MappingInfo, ObjectId, ObjectInfo, Seen, SessionId,
    Synced, Traced, Trouble,
};
use serde::{Deserialize, Serialize};

/// What a host sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromHost {
    /// The answer to the request of the same number.
    Reply(Result<Reply, Error>),
    /// Something the client did not ask for.
    Event(Event),
}

/// What a host says unasked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A new host process took over: repeat what was not answered.
    HostReplaced {
        /// Its generation, for the headers of all requests from now on.
        generation: u64,
    },
    /// Bring in bytes of an object this connection is the pager of.
    PageIn {
        /// To be repeated in the answer.
        call: u64,
        /// Name of the object.
        object: String,
        /// First byte.
        offset: u64,
        /// Bytes; at most [`crate::limits::PAGER_BYTES`].
        length: u64,
    },
    /// Store bytes durably.
    PageOut {
        /// To be repeated in the answer.
        call: u64,
        /// Name of the object.
        object: String,
        /// First byte.
        offset: u64,
        /// The bytes.
        #[serde(with = "super::bytes")]
        data: Vec<u8>,
    },
    /// These addresses failed with SIGBUS and may be had again: the client drops its page table entries
    /// (MADV_DONTNEED) so that the next touch asks anew.
    Heal {
        /// First address.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// Of an object of explicit coherence that the client watches: a process of this host has synced, or another host's sync
    /// ended pages of it here. Who has copies of them reads anew, and watches anew before that.
    Changed {
        /// Which.
        object: ObjectId,
    },
    /// The client is to give a place up, by `Released`, as soon as it can. Until it has asked anew it does not know where the
    /// object lies.
    Revoke {
        /// Which object's.
        object: ObjectId,
        /// The number that the client got with the place.
        given: u64,
    },
}

/// What came of a request. In brackets: the descriptors that travel with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// To a `Map` with in-thread service. [claim words, one byte a page]
    Claims,
    /// To `Hello`. [/dev/userfaultfd, if the host can give it]
    Hello(HelloReply),
    /// To `Create` and `Open`. [frames of a controlled object, the file or memfd of a direct one]
    Opened(Box<OpenReply>),
    /// To `Stat` and `StatObject`.
    Entry(Box<EntryInfo>),
    /// To `List`.
    Entries {
        /// In order.
        entries: Vec<EntryInfo>,
        /// Whether more follow the last.
        more: bool,
    },
    /// To `Incore`: one byte a page ([`crate::PageState::decode`]).
    PageStates(#[serde(with = "super::bytes")] Vec<u8>),
    /// To `Sync`.
    Synced(Synced),
    /// To `Revert`: pages that were dropped.
    Pages(u64),
    /// To `Lock`.
    Locked {
        /// Whether the pages are pinned against swap too.
        pinned: bool,
    },
    /// To `MapInfo`.
    Mappings(Vec<MappingInfo>),
    /// To `Status`.
    Status(Box<HostStatus>),
    /// To `Hosts`: with the trouble of each.
    Hosts(Vec<ClusterHost>, #[serde(deserialize_with = "late")] Vec<Option<Trouble>>),
    /// To `Counts`.
    Counts(Box<Seen>),
    /// To `Trace`.
    Traced(Box<Traced>),
    /// To `Place`. [the arena's memory]
    Placed {
        /// As to `Open`.
        opened: Box<OpenReply>,
        /// A number for this place, larger than those before.
        given: u64,
    },
    /// To `Member`: never 0.
    Member(u32),
    /// To `WatchRange`. [the end on which a byte comes whenever the watch is woken]
    Watching {
        /// For `Unwatch`.
        number: u64,
        /// A page of the range that this host does not have: of others' syncs it hears from when it was read on.
        to_read: Option<u64>,
    },
    /// To `PagerQueues`. \[their memory, as `commonhold-queues` lays it out\]
    Queues,
}

/// A new session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloReply {
    /// The client's session, named again after host and keeper both died.
    pub session: SessionId,
    /// Version of the host's program.
    pub version: String,
    /// The host can serve the kernel's own accesses.
    pub kernel_faults: bool,
}

/// An object that was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenReply {
    /// What it is.
    pub info: ObjectInfo,
    /// How it was opened.
    pub access: Access,
}
