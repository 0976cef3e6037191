//! What happens to a scheduler, and what it wants done.

use crate::span::{HostId, Span};
use serde::{Deserialize, Serialize};

/// What a host may do with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Access {
    /// Nothing.
    None,
    /// Read it, as others may.
    Read,
    /// Read and write it, alone.
    Write,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event<M> {
    /// A process of this host touched these pages.
    Fault {
        /// The pages, already rounded to the host's own page size.
        span: Span,
        /// What for.
        access: Access,
        /// Whether that process may write the pages, too: then they may come to be written at once (forwarding).
        may_write: bool,
    },
    /// Processes of this host have written these pages since they came, were synced, or this was said last. Only
    /// schedulers that do not stop writers want to know, and before each message and sync.
    Written {
        /// The pages.
        span: Span,
    },
    /// A process of this host wants these pages to be what everybody sees.
    Sync {
        /// The pages, in order.
        pages: Vec<u32>,
    },
    /// These pages stay as they are here until they are unlocked.
    Lock {
        /// The pages.
        span: Span,
    },
    /// The end of [`Event::Lock`].
    Unlock {
        /// The pages.
        span: Span,
    },
    /// This host wants the frame of a page back: it is short of memory.
    Evict {
        /// The page.
        page: u32,
    },
    /// A message came.
    Message {
        /// From whom; this host itself for the local half of the conversation.
        from: HostId,
        /// What it says.
        message: M,
    },
    /// A page has been held for the minimum time.
    HoldOver {
        /// The page.
        page: u32,
    },
    /// A host is lost: nothing comes from it any more.
    Lost {
        /// Which.
        host: HostId,
        /// The next process of the same machine, which has what that one had newest. Only forwarding wants to know:
        /// elsewhere the home is told when it has asked for that.
        followed_by: Option<HostId>,
    },
    /// This host begins to use the object (forwarding: it makes itself known to those who use it already). A fault does it
    /// too; said beforehand, the first fault need not wait for it.
    Join,
    /// No process of this host uses the object any more. What it has newest goes to the object's home, copies go; the next
    /// fault ends it. Only forwarding wants to know: elsewhere evictions say it page by page.
    Leave,
    /// Pages whose newest version was lost are to be what they were before (forwarding; the home of a centrally scheduled
    /// object is told by a call).
    Revert,
}

impl<M> Event<M> {
    /// The same about another kind of message. None if the message is not of that kind.
    pub fn map<N>(self, other: impl FnOnce(M) -> Option<N>) -> Option<Event<N>> {
        Some(match self {
            Event::Fault { span, access, may_write } => Event::Fault { span, access, may_write },
            Event::Written { span } => Event::Written { span },
            Event::Sync { pages } => Event::Sync { pages },
            Event::Lock { span } => Event::Lock { span },
            Event::Unlock { span } => Event::Unlock { span },
            Event::Evict { page } => Event::Evict { page },
            Event::Message { from, message } => Event::Message { from, message: other(message)? },
            Event::HoldOver { page } => Event::HoldOver { page },
            Event::Lost { host, followed_by } => Event::Lost { host, followed_by },
            Event::Join => Event::Join,
            Event::Leave => Event::Leave,
            Event::Revert => Event::Revert,
        })
    }
}

/// Something to be done, in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action<M> {
    /// Send a message; one that carries pages takes their bytes from the frames as they are now.
    Send {
        /// To whom; to this host itself where it plays both parts.
        to: HostId,
        /// What.
        message: M,
    },
    /// Let processes of this host use these pages. `with_data`: the bytes came with the message being handled; else the
    /// frames have them already.
    Install {
        /// The pages.
        span: Span,
        /// What for.
        access: Access,
        /// Whether the message being handled holds their bytes.
        with_data: bool,
    },
    /// From now on processes of this host may do no more than this with the page: writers are stopped before the next
    /// action. `None`: its frame may go after the actions of this event.
    Restrict {
        /// The page.
        page: u32,
        /// What is left.
        access: Access,
    },
    /// Save the next page of the bytes that came with the message being handled, or were taken (`save(data)`).
    Save {
        /// The page.
        page: u32,
    },
    /// Keep the bytes that came with the message being handled, behind those that are kept already.
    Keep,
    /// Take the oldest bytes that are kept: the next actions are about them.
    TakeKept,
    /// This host owns the page from now on, by that hand-over. What the next process of this host is to know is noted before
    /// the next action: an `Install` follows.
    Own {
        /// The page.
        page: u32,
        /// The number of the hand-over.
        number: u64,
    },
    /// Keep the bytes of this page's frame as they are, apart from the frame and in the place of what was kept of the page
    /// before: it is being handed over. (The frame itself may serve, as long as nothing else comes into it.)
    KeepSent {
        /// The page.
        page: u32,
        /// The number of the hand-over.
        number: u64,
        /// To whom.
        to: HostId,
    },
    /// Keep the bytes that came with the message being handled, as [`Action::KeepSent`] does.
    KeepCame {
        /// The page.
        page: u32,
        /// The version.
        number: u64,
    },
    /// At the home: this page was here to be read, and is kept as it is, in the place of what was kept of it before.
    KeepRead {
        /// The page.
        page: u32,
        /// By which hand-over its owner had it.
        number: u64,
    },
    /// What is kept of this page is older than what others have: it arrived where it was sent.
    KeepOld {
        /// The page.
        page: u32,
    },
    /// What was kept of this page is not needed any more.
    DropKept {
        /// The page.
        page: u32,
    },
    /// The newest version of this page is lost: what was kept of it becomes its frame's content, and is kept no more.
    /// An `Install` follows.
    Restore {
        /// The page.
        page: u32,
    },
    /// At the home: the newest version of this page is lost. Programs can learn of it.
    NewestLost {
        /// The page.
        page: u32,
        /// An older version serves from now on; else touching the page is an error.
        older_serves: bool,
    },
    /// Say [`Event::HoldOver`] when the object's minimum hold is over.
    Hold {
        /// The page.
        page: u32,
    },
    /// The oldest sync of this host that was not done yet is done: whoever touches its pages from now on sees them.
    Synced {
        /// How many pages were sent.
        pages: u32,
        /// How many of them another host had synced since they came here: its version is replaced.
        conflicts: u32,
    },
    /// The oldest sync of this host that was not done yet cannot be: what it sent counts as written here, and not sent.
    SyncFailed {
        /// Why.
        why: Why,
    },
    /// Whoever waits for this page waits in vain: SIGBUS.
    Fail {
        /// The page.
        page: u32,
        /// Why.
        why: Why,
    },
}

impl<M> Action<M> {
    /// The same about another kind of message.
    pub fn map<N>(self, other: impl FnOnce(M) -> N) -> Action<N> {
        match self {
            Action::Send { to, message } => Action::Send { to, message: other(message) },
            Action::Install { span, access, with_data } => Action::Install { span, access, with_data },
            Action::Restrict { page, access } => Action::Restrict { page, access },
            Action::Save { page } => Action::Save { page },
            Action::Keep => Action::Keep,
            Action::TakeKept => Action::TakeKept,
            Action::Hold { page } => Action::Hold { page },
            Action::Synced { pages, conflicts } => Action::Synced { pages, conflicts },
            Action::SyncFailed { why } => Action::SyncFailed { why },
            Action::Fail { page, why } => Action::Fail { page, why },
            Action::Own { page, number } => Action::Own { page, number },
            Action::KeepSent { page, number, to } => Action::KeepSent { page, number, to },
            Action::KeepCame { page, number } => Action::KeepCame { page, number },
            Action::KeepRead { page, number } => Action::KeepRead { page, number },
            Action::KeepOld { page } => Action::KeepOld { page },
            Action::DropKept { page } => Action::DropKept { page },
            Action::Restore { page } => Action::Restore { page },
            Action::NewestLost { page, older_serves } => Action::NewestLost { page, older_serves },
        }
    }
}

/// The bytes that go along with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// None.
    Nothing,
    /// Of these pages, from the frames that the sender's processes use.
    Frames(Vec<u32>),
    /// Of these pages, from the home's saved copies. Under the central scheduler these are the frames of the home's own
    /// host; explicit coherence keeps them apart.
    Saved(Vec<u32>),
}

impl Carried {
    /// The pages.
    pub fn pages(self) -> Vec<u32> {
        match self {
            Carried::Nothing => Vec::new(),
            Carried::Frames(pages) | Carried::Saved(pages) => pages,
        }
    }
}

/// Why a page cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Why {
    /// Its newest version was lost with a host (`on_loss = error`).
    NewestLost,
    /// The home is lost.
    HomeLost,
    /// The home could not store it: what was sent is what everybody sees, and not durable.
    NotStored,
    /// The home could not read it.
    NotRead,
}

/// What becomes of a message of the home whose pages could not be read there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRead<M> {
    /// What is said in its place.
    pub told: Option<M>,
    /// What the home hears then, and from whom: it counts the pages as gone.
    pub heard: Vec<(HostId, M)>,
}

impl<M> NotRead<M> {
    /// The same about another kind of message.
    pub fn map<N>(self, other: impl Fn(M) -> N) -> NotRead<N> {
        let heard = self.heard.into_iter().map(|(from, message)| (from, other(message))).collect();
        NotRead { told: self.told.map(&other), heard }
    }
}

/// How messages are counted: the paper's figures are of requests and pages alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A request for a page, or for one back.
    Request,
    /// A page, or the right to use it.
    Page,
    /// An acknowledgement.
    Acknowledgement,
}

/// One host's part in the coherence of one object.
pub trait Scheduler {
    /// What hosts say to each other.
    type Message;
    /// How a message is counted.
    fn kind(message: &Self::Message) -> Kind;
    /// The pages whose bytes go along with a message, and where the sender takes them from.
    fn carries(message: &Self::Message) -> Carried;
    /// At the home `me`: the pages of a message to that host could not be read. None: it carries none of the home's.
    fn not_read(message: &Self::Message, me: HostId, to: HostId) -> Option<NotRead<Self::Message>>;
    /// Something happened; what is to be done is added to `actions`.
    fn handle(&mut self, event: Event<Self::Message>, actions: &mut Vec<Action<Self::Message>>);
    /// What processes of this host may do with a page.
    fn access(&self, page: u32) -> Access;
    /// Whether anybody's request waits here, this host's own included.
    fn is_waiting(&self) -> bool;
    /// The next process of this host, `me`, if this one ends now: with what it has to know of this one. None: it begins with
    /// nothing, and whoever schedules asks for what it has.
    fn next_process(&self, _me: HostId) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}
