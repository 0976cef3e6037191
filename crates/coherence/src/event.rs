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
    },
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
    /// Save the bytes that came with the message being handled (the paper's `save(data)`).
    Save {
        /// The page.
        page: u32,
    },
    /// Say [`Event::HoldOver`] when the object's minimum hold is over.
    Hold {
        /// The page.
        page: u32,
    },
    /// Whoever waits for this page waits in vain: SIGBUS.
    Fail {
        /// The page.
        page: u32,
        /// Why.
        why: Why,
    },
}

/// Why a page cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Why {
    /// Its newest version was lost with a host (`on_loss = error`).
    NewestLost,
    /// The home is lost.
    HomeLost,
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
    /// The pages whose bytes go along with a message.
    fn carries(message: &Self::Message) -> Option<Span>;
    /// Something happened; what is to be done is added to `actions`.
    fn handle(&mut self, event: Event<Self::Message>, actions: &mut Vec<Action<Self::Message>>);
    /// What processes of this host may do with a page.
    fn access(&self, page: u32) -> Access;
    /// Whether anybody's request waits here, this host's own included.
    fn is_waiting(&self) -> bool;
}
