//! What a client says.

use crate::{
    Access, CreateOptions, MapFlags, MappingId, Name, ObjectId, Protection, SessionId, Sharing, Tagging,
    TracePlace,
};
use serde::{Deserialize, Serialize};

/// What a client asks of its host. In brackets: the descriptors that travel with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// First message of a connection.
    Hello {
        /// What the client calls itself, for people (`argv[0]`).
        program: String,
    },
    /// After both host and keeper died: a client returns to the next host, with all it has. Followed by one
    /// `Reattach` for each object and one `Map` for each mapping, `repeated` set. Said once more when that was all.
    Return {
        /// Its session with the host that died.
        session: SessionId,
    },
    /// An object of a returning client. \[frames\]
    Reattach {
        /// Which.
        object: ObjectId,
        /// How it was opened.
        access: Access,
    },
    /// Create an object. [the backing file, with a file pager]
    Create {
        /// Its name.
        name: Name,
        /// What it shall be.
        options: CreateOptions,
        /// Only in a directory that is there; else those that are missing are made.
        in_directory: bool,
        /// Chosen at random by the client: a repeated request with the same nonce finds its own object.
        nonce: u128,
    },
    /// Open an object.
    Open {
        /// Its name.
        name: Name,
        /// What for.
        access: Access,
    },
    /// The client no longer needs the object; its mappings stay.
    Close {
        /// Which.
        object: ObjectId,
    },
    /// What is known of a name.
    Stat {
        /// The name; a directory's is allowed.
        name: Name,
    },
    /// What is known of an open object, named or not.
    StatObject {
        /// Which.
        object: ObjectId,
    },
    /// The entries of a directory, in order, after `after`.
    List {
        /// The directory.
        directory: Name,
        /// Last name of the answer before.
        after: Option<Name>,
    },
    /// Change the size.
    Resize {
        /// The object's name.
        name: Name,
        /// Only if the name is that object's.
        of: Option<u128>,
        /// New size, bytes.
        size_bytes: u64,
    },
    /// Free the name now, the memory when the last mapping goes.
    Remove {
        /// The object's, or an empty directory's, name.
        name: Name,
        /// Only if the name is that object's.
        of: Option<u128>,
    },
    /// Another name for the same object.
    Rename {
        /// Present name.
        from: Name,
        /// New name.
        to: Name,
        /// What has the new name loses it; else it must be free.
        replace: bool,
        /// Only if the present name is that object's.
        of: Option<u128>,
    },
    /// Make a directory, in one that is there.
    MakeDirectory {
        /// Its name.
        name: Name,
        /// Its mode bits.
        mode: u32,
    },
    /// Change the size of an object that the client has open for writing, named or not.
    ResizeOpened {
        /// Which.
        object: ObjectId,
        /// New size, bytes.
        size_bytes: u64,
        /// How that is meant.
        sizing: Sizing,
    },
    /// Change when a direct object was last modified: its owner, or root.
    SetModified {
        /// Which.
        name: Name,
        /// Only if the name is that object's.
        of: Option<u128>,
        /// Nanoseconds since 1970.
        modified_ns: u64,
    },
    /// Change the mode bits of an object or a directory.
    SetMode {
        /// Which.
        name: Name,
        /// Only if the name is that object's (its identity).
        of: Option<u128>,
        /// New bits.
        mode: u32,
    },
    /// Change owner or group.
    SetOwner {
        /// Which.
        name: Name,
        /// Only if the name is that object's.
        of: Option<u128>,
        /// New owner, if it changes.
        uid: Option<u32>,
        /// New group, if it changes.
        gid: Option<u32>,
    },
    /// Map part of a controlled object that the client has already mapped into its address space; the host
    /// registers it for fault service. [userfaultfd and pagemap, where the client sends the kind's first; the
    /// claim words it has, where it repeats a mapping with in-thread service]
    Map(MapRequest),
    /// Take addresses out of the client's address map; the client unmaps them after the answer.
    Unmap {
        /// First address.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// Make the range of the object what is stored.
    Sync {
        /// Which.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Hold all writers for a true instant (freezable objects).
        freeze: bool,
    },
    /// Hold pages: in memory, and away from the pager.
    Lock {
        /// Which.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Let them go.
    Unlock {
        /// Which.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// State of each page.
    Incore {
        /// Which.
        object: ObjectId,
        /// First page.
        first_page: u64,
        /// Pages; at most [`crate::limits::INCORE_PAGES`].
        pages: u64,
    },
    /// Begin to bring pages in; answered at once.
    Prefetch {
        /// Which.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Drop what was not synced.
    Revert {
        /// Which.
        name: Name,
    },
    /// The mappings of an object.
    MapInfo {
        /// Which.
        name: Name,
    },
    /// State of the host.
    Status,
    /// The hosts of the cluster.
    Hosts,
    /// End host and keeper.
    Stop {
        /// Even with clients or anonymous objects.
        force: bool,
    },
    /// Replace the host process by a new one, of another program if given; keeper too when `keeper`.
    Replace {
        /// Path of the new program; `None`: the same.
        program: Option<String>,
        /// Replace the keeper as well.
        keeper: bool,
    },
    /// From now on this connection serves a pager: host sends [`Event::PageIn`] and [`Event::PageOut`].
    ServePager {
        /// Under which name.
        pager: Name,
    },
    /// The answer to a [`Event::PageIn`] or [`Event::PageOut`]; not answered.
    PagerAnswer {
        /// Number the host gave.
        call: u64,
        /// What came of it.
        result: PagerReply,
    },
    /// What was counted of an object, or of all that the client may read.
    Counts {
        /// Which; none: all.
        name: Option<Name>,
        /// Of all: those after this one.
        after: Option<ObjectId>,
        /// How many of the hottest pages of each.
        hottest: u32,
    },
    /// Lines of the trace of an object, which is kept while somebody asks for it again and again.
    Trace {
        /// Which object.
        name: Name,
        /// Where the reader is; none: at the beginning.
        place: Option<TracePlace>,
    },
    /// As `Revert`, of an object that the client has open for writing.
    RevertOpened {
        /// Which.
        object: ObjectId,
    },
    /// Tell once, by [`Event::Changed`], when pages of an open object are not what they were.
    Watch {
        /// Which.
        object: ObjectId,
    },
    /// Create an object that has the pages of an open one as they are at one instant. Answered as `Open`.
    Snapshot(SnapshotRequest),
    /// Tell where an open wired object lies. From then on it may move once this client has said `Released`, which it says when
    /// it is asked by [`Event::Revoke`].
    Place {
        /// Which.
        object: ObjectId,
    },
    /// This client does not use the place any more that it was given under that number; not answered.
    Released {
        /// Which object's.
        object: ObjectId,
        /// The number; 0: it uses none, and lets the object move, of which the host may not know.
        given: u64,
    },
    /// Create an object that never has a name. Answered as `Open`.
    CreateNameless {
        /// What it is to be.
        options: CreateOptions,
        /// Chosen at random by the client: a repeated request finds its own object.
        nonce: u128,
    },
    /// Keep an object for whoever receives a message of a channel, which the client has open for writing.
    Offer {
        /// Which channel.
        channel: ObjectId,
        /// Drawn at random by the client; it stands in the message.
        token: u128,
        /// What.
        what: Offered,
    },
    /// The message of an offer was not sent.
    WithdrawOffer {
        /// Of which channel.
        channel: ObjectId,
        /// Which.
        token: u128,
    },
    /// Open what a message of a channel offers. Answered as `Open`.
    TakeOffer {
        /// Which channel; the client has it open for writing.
        channel: ObjectId,
        /// What stands in the message.
        token: u128,
    },
    /// By which number this client's process is named in the locks that it has.
    Member,
    /// The memory in which this client locks mutexes that hosts share. [the memory]
    Words {
        /// What holds them.
        object: ObjectId,
    },
    /// About the token of one of them; needs no answer.
    Token {
        /// What holds them.
        object: ObjectId,
        /// Which.
        index: u32,
        /// A thread waits for it; else one has let it go, and another host waits.
        wanted: bool,
    },
    /// Say what is in pages of an object.
    Tag {
        /// The object's name.
        name: Name,
        /// Only if the name is that object's.
        of: Option<u128>,
        /// What, where.
        tagging: Tagging,
    },
    /// The same of an object that the client has open for writing, named or not.
    TagOpened {
        /// Which.
        object: ObjectId,
        /// What, where.
        tagging: Tagging,
    },
    /// Wake this client when somebody notifies of these bytes of an open object, or another host's sync changes them. Answered
    /// by `Watching`.
    WatchRange {
        /// Which.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// That watch is over; needs no answer.
    Unwatch {
        /// Its number.
        number: u64,
    },
    /// Wake whoever watches any of these bytes, on all hosts.
    Notify {
        /// Which.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// From now on page-ins of the pager that this connection serves may come by queues in memory, and the answers go there.
    PagerQueues,
}

/// What is offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Offered {
    /// An open object, with no more rights than the client has.
    Object {
        /// Which.
        object: ObjectId,
        /// With which right.
        access: Access,
    },
    /// Pages of an open object as they are at one instant, for reading.
    Pages {
        /// Of which object. The client has it open for writing, unless nobody writes to it.
        of: ObjectId,
        /// First byte, of a page.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}

/// A snapshot that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRequest {
    /// Of which object. The client has it open for writing, unless nobody writes to it.
    pub of: ObjectId,
    /// First byte, of a page.
    pub offset: u64,
    /// Bytes; 0: all from there on.
    pub length: u64,
    /// Its name.
    pub name: Name,
    /// Its mode bits.
    pub mode: u32,
    /// It may be written.
    pub writable: bool,
    /// It has all of its pages soon, whether they are written or not.
    pub whole: bool,
    /// Chosen at random by the client: a repeated request finds its own snapshot.
    pub nonce: u128,
}

/// How another size is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sizing {
    /// That size.
    Exactly,
    /// That size, unless it is larger already.
    AtLeast,
    /// The same, for a call that writes there at once: the memory gets longer by that, so that nobody reads zeros in between.
    BeforeWrite,
}

/// A mapping that host and client shall have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapRequest {
    /// Chosen by the client.
    pub mapping: MappingId,
    /// Of which object.
    pub object: ObjectId,
    /// Where the client has mapped it.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// First byte of the object.
    pub offset: u64,
    /// What for.
    pub protection: Protection,
    /// Who sees its writes.
    pub sharing: Sharing,
    /// Further wishes.
    pub flags: MapFlags,
    /// The userfaultfd and pagemap descriptors of this kind travel with the message.
    pub with_descriptors: bool,
    /// Claim words travel with the message, after those.
    pub with_claims: bool,
}

/// What an external pager answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PagerReply {
    /// The bytes asked for, exactly as many.
    Data(#[serde(with = "super::bytes")] Vec<u8>),
    /// They are durable.
    Stored,
    /// It could not, and why.
    Failed(String),
}
