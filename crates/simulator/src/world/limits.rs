//! What hosts do in a run, and how often what may happen.

use super::{Op, Shape};
use commonhold_coherence::central::OnLoss;

/// How a run is bounded.
#[derive(Clone, Debug)]
pub struct Limits {
    /// What the program of each host does.
    pub scripts: Vec<Vec<Op>>,
    /// Pages of the object.
    pub pages: u32,
    /// How many pages may be given up unasked.
    pub evictions: u8,
    /// How many hosts may die.
    pub losses: u8,
    /// How many processes of hosts may, that others follow.
    pub restarts: u8,
    /// How often a host may be told of a loss that it knows of.
    pub lessons: u8,
    /// How often a host may stop using the object.
    pub leaves: u8,
    /// How often somebody may want lost pages back.
    pub reverts: u8,
    /// How often the home may not be able to read what it is to send.
    pub unreadable: u8,
    /// Whether the home may be among those that die.
    pub home_may_die: bool,
    /// What a loss means; it is the schedulers' too.
    pub on_loss: OnLoss,
    /// How many losses may take nothing that somebody else has read (forwarding).
    pub replicas: u32,
    /// What kind of scheduler it is.
    pub shape: Shape,
}

impl Limits {
    /// Hosts that do this to pages of an object; nothing happens to them.
    pub fn new(shape: Shape, scripts: Vec<Vec<Op>>, pages: u32) -> Limits {
        Limits {
            scripts,
            pages,
            evictions: 0,
            losses: 0,
            restarts: 0,
            lessons: 0,
            leaves: 0,
            reverts: 0,
            unreadable: 0,
            home_may_die: false,
            on_loss: OnLoss::Error,
            replicas: 0,
            shape,
        }
    }
}
