//! Who answers other hosts' questions: threads of their own for each sort, so that none waits for what takes longer. A host
//! whose lease is not renewed because others sync would be taken for lost, and a page that is asked back would not come because
//! others wait for it.

use super::wire::Call;
use crate::workers::Workers;
use std::sync::Arc;

/// The threads.
pub(super) struct Pools {
    /// Leases that are renewed: they wait for nothing, and for no other question.
    leases: Arc<Workers>,
    /// Other questions to the list: it writes at most some bytes.
    registry: Arc<Workers>,
    /// Pages that a home asks back: read from frames.
    giving: Arc<Workers>,
    /// What another host has given up is asked for and settled: others wait for that.
    settling: Arc<Workers>,
    /// What waits for pages of other hosts, or for other hosts.
    pub waiting: Arc<Workers>,
    /// A size that a home tells: what lies past it goes home first.
    sizes: Arc<Workers>,
    /// What others have this host keep: written to files, and waited for by all who use an object.
    keeping: Arc<Workers>,
    /// Other hosts get what they are to keep of this host's objects.
    pub filling: Arc<Workers>,
    /// Hosts that are connected to, because messages wait for them: it takes some seconds with one that is away.
    pub connecting: Arc<Workers>,
    /// What this host asks others for people to see.
    pub looking: Arc<Workers>,
    /// Everything else: waits some seconds at most.
    pub short: Arc<Workers>,
}

impl Pools {
    pub fn new() -> Pools {
        Pools {
            leases: Workers::new(16),
            registry: Workers::new(8),
            giving: Workers::new(16),
            settling: Workers::new(32),
            waiting: Workers::new(64),
            sizes: Workers::new(32),
            keeping: Workers::new(32),
            filling: Workers::new(64),
            connecting: Workers::new(64),
            looking: Workers::new(64),
            short: Workers::new(64),
        }
    }

    /// Those for a question.
    pub fn of(&self, call: &Call) -> &Arc<Workers> {
        match call {
            Call::Renew(_) => &self.leases,
            Call::Join { .. }
            | Call::Resign
            | Call::Claim(_)
            | Call::Names(_)
            | Call::Addresses { .. }
            | Call::Lookup(_)
            | Call::WhereIs(_) => &self.registry,
            Call::GiveBack { .. } | Call::Valid { .. } => &self.giving,
            Call::GaveUp { .. } | Call::HasCome { .. } => &self.settling,
            Call::Keep { .. } | Call::Kept { .. } => &self.keeping,
            Call::Sync { .. } | Call::Resize { .. } | Call::Tag { .. } => &self.waiting,
            Call::Size { .. } => &self.sizes,
            Call::Open { .. }
            | Call::Notify { .. }
            | Call::TakesPart { .. }
            | Call::About(_)
            | Call::Lost { .. }
            | Call::Look { .. }
            | Call::List { .. }
            | Call::Remove { .. }
            | Call::Use { .. }
            | Call::Leave { .. }
            | Call::Lock { .. }
            | Call::Unlock { .. }
            | Call::Locks { .. } => &self.short,
        }
    }
}
