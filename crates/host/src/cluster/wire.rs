//! What hosts say to each other, beside the greeting of their connection.

use super::registry::{Before, Joined, News};
use crate::shared::{Said, Seen, Told};
use commonhold_coherence::HostId;
use commonhold_object::wire::Sizing;
use commonhold_object::{
    Access, CreateOptions, Credentials, EntryInfo, Fixed, Name, ObjectInfo, Ownership, Result, Synced,
    Tagging,
};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A host of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its number: of this process; the next one has another.
    pub host: HostId,
    /// What people call it.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Numbers of the processes that were this host before it, and were members until it took their place. The registry
    /// says it.
    pub former: Vec<HostId>,
}

/// A name that everybody may open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The name.
    pub name: Name,
    /// The object's identity.
    pub object: u128,
    /// What the next home must know of it, if its home moves.
    pub moving: Option<Box<Moving>>,
    /// The addresses that it was given, and whose it is: a registry that does not know of them takes it from here.
    pub fixed: Option<(Fixed, u32)>,
}

/// What the next home of an object must know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// Its name now.
    pub name: Name,
    /// Owner, group and mode.
    pub ownership: Ownership,
    /// How it was created; the size is the size now.
    pub options: CreateOptions,
    /// Where its file is.
    pub path: PathBuf,
}

/// What a host needs to know of an object whose home is another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Its identity.
    pub object: u128,
    /// Its name now.
    pub name: Name,
    /// Owner, group and mode.
    pub ownership: Ownership,
    /// How it was created; the size is the size now.
    pub options: CreateOptions,
    /// Its loss generation; zero: not known.
    pub loss_generation: u64,
}

/// One message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Message {
    /// Between the schedulers of an object: what one had to say to the other when it was sent. The bytes of the pages lie
    /// behind it, in the same order.
    Coherence {
        /// Which object.
        object: u128,
        /// With which process of its home the sender began: under forwarding others hear nothing of an earlier time.
        home: Option<HostId>,
        /// What.
        #[serde(deserialize_with = "crate::shared::some_together")]
        messages: Vec<Said>,
    },
    /// About the mutexes of an object that hosts share.
    Tokens {
        /// Which object.
        object: u128,
        /// What.
        message: commonhold_tokens::Message,
    },
    /// About who is woken by notifications.
    Watches {
        /// Of which object.
        object: u128,
        /// What.
        message: commonhold_watches::Message,
    },
    /// To be answered.
    Call {
        /// Under which number.
        number: u64,
        /// What is asked.
        call: Call,
    },
    /// The answer; the bytes of pages that it gives back lie behind it.
    Answer {
        /// To the call of that number.
        number: u64,
        /// What it is.
        answer: Result<Answer>,
    },
    /// From the host that keeps the list: what happened.
    News(News),
    /// A part of a message that is too long for one; its bytes lie behind it.
    Part {
        /// Nothing of it came before.
        is_first: bool,
        /// No more of it follows.
        is_last: bool,
    },
}

/// What one host asks of another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Call {
    /// Of the host that keeps the list: the caller belongs to the cluster, with these names.
    Join {
        /// The caller.
        member: Member,
        /// Its shared objects.
        #[serde(deserialize_with = "super::registry::names::so_many")]
        claims: Vec<Claim>,
        /// What it had of the registry before.
        before: Option<Before>,
    },
    /// Of the same: the caller renews its lease.
    Renew(Before),
    /// Of the same: the caller ends in order.
    Resign,
    /// Of the same: nobody else may have this name.
    Claim(Claim),
    /// Of the same: these are all the names that the caller has now.
    Names(#[serde(deserialize_with = "super::registry::names::so_many")] Vec<Claim>),
    /// Of the same: an object of the caller's, whose name it has claimed, is to have addresses that no other has.
    Addresses {
        /// Which object.
        object: u128,
        /// How many bytes.
        room_bytes: u64,
        /// Whose the object is.
        uid: u32,
    },
    /// Of the same: whose is it?
    Lookup(Name),
    /// Of an object's home: a process of the caller's opens it.
    Open {
        /// The name.
        name: Name,
        /// Who.
        who: Credentials,
        /// What for.
        access: Access,
    },
    /// Of the same: which host is the home of the object with that identity?
    WhereIs(u128),
    /// Of an object's home: a host that has it in use begins (again) to speak with its scheduler.
    Use {
        /// Which object.
        object: u128,
        /// Whose process has it open.
        who: Credentials,
        /// What for.
        access: Access,
        /// Of what the caller says of beginning and ending: what is older than what was heard last is not done.
        number: u64,
        /// How often tags of its pages were changed, as far as the caller knows.
        types: u32,
    },
    /// Of an object's home, or of the list's host if the home cannot be reached: that host gave up all it had of the
    /// object, because messages may be lost.
    GaveUp {
        /// The home.
        home: HostId,
        /// Which object.
        object: u128,
        /// Which host.
        former: HostId,
        /// As in `Use`; the greatest there is, if the caller says it for its process before.
        number: u64,
    },
    /// By an object's home: what that process had newest of these pages, which is the one asked or the one before it.
    GiveBack {
        /// Which object.
        object: u128,
        /// Which process of the host that is asked.
        former: HostId,
        /// The process of the home that lent them, if it is known: what was begun with another is older.
        lent_by: Option<HostId>,
        /// Which pages, and by which stamps they were granted.
        pages: Vec<(u32, u64)>,
    },
    /// By the next home of an object that moves: frames that were valid copies here when that home was lost, 512 at most.
    Valid {
        /// Which object.
        object: u128,
        /// Which home was lost.
        lost: HostId,
        /// From this page on.
        from_page: u32,
    },
    /// By the home of an object that replicas keep: the host that is asked is one of them.
    Keep {
        /// Which object.
        object: u128,
        /// Of what that home asks of this host: what is older than what was done last is not done.
        number: u64,
        /// What.
        what: Keep,
    },
    /// By the next home of such an object: what is kept here.
    Kept {
        /// Which object.
        object: u128,
        /// From this page on.
        from_page: u32,
    },
    /// Of an object's home: answered when it has dealt with all that the caller's scheduler said before.
    HasCome {
        /// Which object.
        object: u128,
    },
    /// Of an object's home: no process of the caller's has it open any more.
    Leave {
        /// Which object.
        object: u128,
        /// As in `Use`.
        number: u64,
        /// What it had of the object's tokens, if processes of the caller's used locks in it.
        tokens: Option<commonhold_tokens::Leaving>,
    },
    /// Of an object's home: store these pages (bytes, as `sync`).
    Sync {
        /// Which object.
        object: u128,
        /// From where on.
        offset: u64,
        /// How much.
        length: u64,
        /// As they are at one instant.
        freeze: bool,
    },
    /// Of an object's home: it is to have another size.
    Resize {
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
        /// The size.
        size_bytes: u64,
        /// How that is meant.
        sizing: Sizing,
        /// Only of that object.
        of: Option<u128>,
    },
    /// From an object's home: what its size is. Answered when it holds here, and what lay past a smaller end is at the
    /// home.
    Size {
        /// Which object.
        object: u128,
        /// What.
        told: Told,
    },
    /// Of an object's home: a process is to hold these pages. Answered when no other host does.
    Lock {
        /// Which object.
        object: u128,
        /// Whose it is to be, and what.
        lock: super::locks::Said,
    },
    /// Of the same: a process holds these pages no more.
    Unlock {
        /// Which object.
        object: u128,
        /// Whose it was, and what.
        lock: super::locks::Said,
        /// It holds what it holds, and waits for these pages no more.
        only_waits: bool,
    },
    /// Of a home that is found (again): all that processes of the caller's hold.
    Locks {
        /// Which object.
        object: u128,
        /// What.
        locks: Vec<super::locks::Said>,
    },
    /// Of an object's home, by who uses it: whether that host takes part.
    TakesPart {
        /// Which object.
        object: u128,
        /// Which host.
        host: HostId,
    },
    /// Of an object's home: what is to be known of it, for a process of the caller's that has it open.
    About(u128),
    /// Of the same: which of these pages of 4 KiB (first, count) have lost their newest version.
    Lost {
        /// Which object.
        object: u128,
        /// Which pages.
        pages: (u64, u64),
    },
    /// What the host that is asked has of that name itself: an object of which it is the home, or a directory.
    Look {
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
    },
    /// The same of all names in a directory.
    List {
        /// Which.
        directory: Name,
        /// Those after this one.
        after: Option<Name>,
        /// Who asks.
        who: Credentials,
    },
    /// Of an object's home: what is in pages of it.
    Tag {
        /// The name.
        name: Name,
        /// Who says it.
        who: Credentials,
        /// Only of that object.
        of: Option<u128>,
        /// What, where.
        tagging: Tagging,
    },
    /// Of an object's home: whoever watches any of these bytes, on any host but the caller's, is to be woken.
    Notify {
        /// Which object.
        object: u128,
        /// Where.
        range: commonhold_watches::Range,
    },
    /// Of the home of an object that hosts share: its name goes.
    Remove {
        /// The name.
        name: Name,
        /// Who asks.
        who: Credentials,
        /// Only of that object.
        of: Option<u128>,
    },
}

/// What a replica is to do with what it keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keep {
    /// Goes on, or begins: answered by `Keeps`.
    Begin {
        /// The object's size.
        size_bytes: u64,
        /// Begins with nothing.
        anew: bool,
    },
    /// Keeps the pages whose bytes lie behind the message, from this one on.
    Pages(u32),
    /// These runs of pages (first, count) may be newer than what is kept, or are not any more.
    Newer {
        /// Which.
        runs: Vec<(u32, u32)>,
        /// Whether they are.
        are: bool,
    },
    /// These runs of pages and those said so before since the last `Begin` or `is_last` may be newer, and if `is_last`, no others.
    OnlyNewer {
        /// Which.
        runs: Vec<(u32, u32)>,
        /// Those were all.
        is_last: bool,
    },
    /// The object has that size.
    Resize(u64),
    /// The object is no more, or this host none of its replicas.
    Forget,
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Done.
    Done,
    /// A lease, and what happened.
    Joined(Box<Joined>),
    /// The home of an object.
    Home(HostId),
    /// Whose a name is.
    Named {
        /// The home of the object that has it.
        home: HostId,
        /// That object.
        object: u128,
    },
    /// The first address that an object was given.
    Addresses(u64),
    /// An object.
    Opened(Box<Shared>),
    /// To `Sync`.
    Synced(Synced),
    /// Of what was held, this another host holds by now.
    Locks(Vec<super::locks::Said>),
    /// The object may be used, and has this size.
    Used(Told),
    /// Frames that are valid; their bytes lie behind the message.
    Valid {
        /// Which.
        pages: Vec<u32>,
        /// Whether there are more behind them.
        more: bool,
        /// The loss generation that was told last here.
        loss_generation: u64,
    },
    /// Whether it has all that it was ever told to keep: else it has nothing.
    Keeps(bool),
    /// What is kept; the pages' bytes lie behind the message.
    Kept {
        /// Which.
        pages: Vec<u32>,
        /// Of all pages up to `next`, or to the end: those that may be newer.
        newer: Vec<u32>,
        /// From where on there is more.
        next: Option<u32>,
    },
    /// An object, for who has it open.
    About(Box<ObjectInfo>),
    /// Runs of pages of 4 KiB (first, count), in order.
    Lost(Vec<(u64, u64)>),
    /// What has a name.
    Entry(Box<EntryInfo>),
    /// What is in a directory, in order.
    Entries {
        /// What.
        entries: Vec<EntryInfo>,
        /// Whether more follow the last.
        more: bool,
    },
    /// Of the pages that were asked for.
    GivenBack {
        /// Those whose bytes lie behind the message.
        pages: Vec<u32>,
        /// Those whose grant never came: nobody wrote them.
        untouched: Vec<u32>,
        /// Of forwarding, those that were handed over and are kept, whose bytes lie behind those: by which hand-over, and to whom,
        /// if it may not have come.
        kept: Vec<(u32, u64, Option<HostId>)>,
        /// By which hand-over any was here, or left, last. None: that is not known here.
        seen: Option<Seen>,
    },
}
