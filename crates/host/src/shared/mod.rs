//! Objects that hosts share: between the scheduler (crate `coherence`), the cache of the object here, and the other hosts.
//!
//! One fault, from the processor to the pager and back:
//! `faults/service` takes it from userfaultfd, `cache/fault` finds that this host has not the right, `driver` tells the
//! scheduler, which wants a message sent; [`Carrier`] sends it. The answer comes back through the carrier to
//! `driver`, the scheduler wants the page installed, `cache/coherent` puts it into its frame and into the page table of
//! whoever waited. At the other end the same files give the page up.
//!
//! | file | does |
//! |---|---|
//! | `driver` | one object: events to its scheduler |
//! | `arrivals` | what other hosts say of it |
//! | `homing` | where the object's home is |
//! | `part` | which of the three schedulers that is, and what they say |
//! | `turn` | what the scheduler wants done |
//! | `size` | what a host was told of the object's size |
//! | `users` | what the home was told of those who use the object here |
//! | `give_back` | what hosts have newest, when the home is another process or messages were lost |
//! | `moving` | what was valid here when the home was lost, for the next home |
//! | `syncs` | explicit coherence: syncs, and when they are done |
//! | `held_here` | pages that are held here stay here, but not for ever |
//! | `losses` | what the object has lost with hosts, for people and programs |
//! | `late` | pages that came when the object had shrunk |
//! | `locks` | at the home: which host holds which pages |
//! | `freezing` | a true instant of all of it |
//! | `leaving` | pages that go unasked, no faster than their home takes them |
//! | `dealt_with` | what the home has dealt with of what it was sent |
//! | `inbox` | what waits to happen, where a turn waits for other hosts |
//! | `outbox` | messages on their way out |
//! | `sizes` | what the pages of scheduler and host are in frames |
//! | `typed` | bytes that come from machines of other types |
//! | `holds` | minimum holds |

mod arrivals;
mod dealt_with;
mod driver;
mod freezing;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod give_back;
mod held_here;
mod holds;
mod homing;
mod inbox;
mod insist;
mod keeping;
mod late;
mod leaving;
pub mod locks;
mod losses;
mod moving;
mod outbox;
mod part;
mod size;
mod sizes;
mod syncs;
mod turn;
mod typed;
mod users;

pub use driver::{Driver, Plan};
pub use give_back::{Back, Loan, Seen};
pub use inbox::Touch;
pub use insist::insist;
#[cfg(test)]
pub(crate) use part::MOST_TOGETHER;
pub(crate) use part::some_together;
pub use part::{How, Kept, Said};
pub use size::Told;
pub use sizes::Sizes;
pub use users::UsersTold;

use commonhold_coherence::HostId;
use commonhold_object::{PageRange, SessionId};

/// What the frames are that processes of a host map, beside that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The saved copies: of the home, centrally scheduled.
    Saved,
    /// Where every page begins: its content comes from the pager until another host has had it.
    Origin,
    /// Copies; where this host may write, the newest version.
    Copies,
    /// This host's own versions, until it syncs them.
    Own,
}

/// What messages are about.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The object's identity.
    pub object: u128,
    /// The process of its home with which the sender began.
    pub home: Option<HostId>,
}

/// What carries messages about shared objects to other hosts. Between two hosts they arrive once and in order until one
/// is declared lost.
pub trait Carrier: Send + Sync {
    /// Sends messages about an object as one, with the bytes of the pages that they carry. A host that
    /// cannot be reached is lost sooner or later, and whoever waits for it learns it then. It may take the buffer.
    fn send(&self, to: HostId, about: About, messages: Vec<Said>, pages: &mut Vec<u8>);

    /// What the object's scheduler wants cannot be done here: this host gives up all it has of it, and begins anew.
    fn begin_again(&self, _object: u128) {}

    /// A process of this host holds these pages of the object no more.
    fn unlocked(&self, object: u128, session: SessionId, pages: PageRange);

    /// The type of a host's machine; none of one that was never connected: it has sent nothing.
    fn machine_of(&self, _host: HostId) -> Option<commonhold_tags::Machine> {
        None
    }

    /// Homes are to be asked what they have dealt with of the pages that are on their way to them. Does not wait.
    fn ask_what_has_come(&self) {}

    /// Whether what is sent to that host may wait, or be lost: nothing is sent that can stay here.
    fn is_away(&self, _host: HostId) -> bool {
        false
    }
}
