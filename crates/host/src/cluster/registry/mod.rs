//! The registry: who belongs to the cluster, whose a name is, and who is lost. It alone decides that a host is lost.
//!
//! | file | does |
//! |---|---|
//! | `departures` | losses in order, and what both registries say. Pure |
//! | `list` | the list itself: members with leases, losses in order. Pure |
//! | `names` | whose a name is, and so many of each host. Pure |
//! | `rates` | how much one host may ask. Pure |
//! | `addresses` | which object that hosts share has which fixed address. Pure |
//! | `kept` | the list of a host that keeps it, written down before anybody is told |
//! | `embedded` | the registry in a host of the cluster, reached by calls |
//! | `etcd` | the registry in etcd (feature `etcd`) |
//! | `keys` | keys and values in etcd. Pure |
//! | `place` | where it is, as people write it |

mod addresses;
mod departures;
pub mod embedded;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod kept;
#[cfg(any(feature = "etcd", feature = "fuzzing"))]
#[cfg_attr(not(feature = "etcd"), allow(dead_code))] // the fuzz targets only read them
mod keys;
mod list;
pub(super) mod names;
pub mod place;
mod rates;

use super::Cluster;
use super::wire::{Answer, Call, Claim, Member, Moving};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Name, Result};
use commonhold_peers::HostAddress;
use commonhold_sys::clock;
use embedded::Embedded;
use kept::Kept;
#[cfg(feature = "etcd")]
use place::EtcdPlace;
use place::Place;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What all hosts hear, and in one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct News {
    /// Of which registry: one that forgot everything is another.
    pub epoch: u128,
    /// How many changes there were.
    pub number: u64,
    /// Up to this change every member has heard, and done what follows from it.
    pub settled: u64,
    /// Who belongs.
    pub members: Vec<Member>,
    /// The latest losses, each with its number.
    pub lost: Vec<(u64, HostId)>,
}

/// What a host had of its registry before, when it speaks with it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Which registry that was.
    pub epoch: u128,
    /// The last change that was heard of.
    pub heard: u64,
    /// The last change of which all that follows is done.
    pub seen: u64,
}

/// Who joins, or renews a lease.
#[derive(Clone, Debug)]
pub struct Joining {
    /// The host.
    pub member: Member,
    /// Its shared objects.
    pub claims: Vec<Claim>,
    /// What it heard before; none if it joins.
    pub before: Option<Before>,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// From the request on, on the host's own clock.
    pub lease: Duration,
    /// What happened.
    pub news: News,
    /// When this change is settled, nobody has anything of an earlier process of this host.
    pub begin_at: u64,
}

/// Where the home of an object is that moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Homed {
    /// The home, or who is about to be.
    pub home: HostId,
    /// Who scheduled last: if that is another, the home has not begun.
    pub served: HostId,
    /// How often it moved.
    pub term: u64,
    /// Hosts that have all that is stored, beside the home: one of them has what the next home needs, if the object has no
    /// file that hosts share.
    #[serde(default)]
    pub replicas: Vec<HostId>,
    /// What the next home must know.
    pub about: Moving,
}

fn does_not_move() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "home_moves needs a registry that outlives any host: start the hosts with --registry etcd://..., or leave it out",
    )
}

/// What the cluster needs of a registry. Calls may wait for it, but for what is said of `within` no longer than they must.
/// Changes are told by `Cluster::heard`, as they happen.
pub trait Registry: Send + Sync {
    /// Joins, or renews the lease. `NotFound`: this host is lost, as far as the registry knows. Any other error: it could
    /// not be asked, or refuses this host.
    fn join(&self, joining: &Joining, within: Duration) -> Result<Joined>;
    /// This host goes, in order: nobody has to wait for the end of its lease.
    fn leave(&self);
    /// Nobody else may have this name.
    fn claim(&self, claim: Claim) -> Result<()>;
    /// These are all the names of this host now.
    fn replace(&self, claims: Vec<Claim>) -> Result<()>;
    /// Gives an object, whose name this host has claimed, so many bytes of addresses that no other object of the cluster has.
    /// They are its own until this host tells all its names, and none of them is the object's.
    fn give_addresses(&self, object: u128, room_bytes: u64, uid: u32) -> Result<u64>;
    /// Whose a name is, and the identity of the object that has it.
    fn look_up(&self, name: &Name) -> Result<(HostId, u128)>;
    /// Which host is the home of an object.
    fn where_is(&self, object: u128) -> Result<HostId>;
    /// Tells a home that cannot be reached that this host gave up all it had of an object, under that number.
    fn pass_given_up(&self, home: HostId, object: u128, number: u64) -> Result<()>;
    /// The connection with a host is broken.
    fn broken(&self, host: HostId);
    /// Which host keeps the list, if one does and it is known.
    fn kept_by(&self) -> Option<HostId>;
    /// Where an object is whose home moves; none: it is none of those.
    fn homed(&self, _object: u128) -> Result<Option<Homed>> {
        Ok(None)
    }
    /// The same for an object of that name, with its identity.
    fn homed_as(&self, _name: &Name) -> Result<Option<(u128, Homed)>> {
        Ok(None)
    }
    /// Takes the place of a home that is lost. Whether this host is the home now.
    fn take_home(&self, _object: u128, _of: &Homed) -> Result<bool> {
        Err(does_not_move())
    }
    /// This host took the place of a home that is lost, and cannot be the home.
    fn return_home(&self, _object: u128, _of: &Homed) -> Result<()> {
        Err(does_not_move())
    }
    /// This host, which is the home, is about to schedule.
    fn schedules(&self, _object: u128) -> Result<()> {
        Err(does_not_move())
    }
    /// This host, which is the home, counts on these replicas from now on, and no longer on those. `Busy`: it is not, or it
    /// counts on others.
    fn count_on(&self, _object: u128, _before: &[HostId], _now: &[HostId], _within: Duration) -> Result<()> {
        Err(does_not_move())
    }
    /// Another host's question to the list that is kept here.
    fn answer(&self, from: HostId, call: Call) -> Result<Answer>;
}

/// The registry at that place.
pub fn open(cluster: &Arc<Cluster>, ready: Ready, lease: Duration) -> Result<Arc<dyn Registry>> {
    Ok(match ready.0 {
        Needed::Here(kept) => Embedded::new(cluster, None, Some(*kept), lease)?,
        Needed::Host(address) => Embedded::new(cluster, Some(address), None, lease)?,
        #[cfg(feature = "etcd")]
        Needed::Etcd(client, place) => etcd::Etcd::new(cluster, *client, &place, lease)?,
    })
}

/// Refuses what is kept in a state directory, if it is of another version.
pub(crate) fn check_kept(state: &Path) -> Result<()> {
    kept::check(state)
}

/// A registry that a host can use: the list of members, or the files for etcd, have been read.
pub struct Ready(Needed);

enum Needed {
    Here(Box<Kept>),
    Host(HostAddress),
    #[cfg(feature = "etcd")]
    Etcd(Box<etcd::Client>, EtcdPlace),
}

impl Ready {
    /// Reads what the registry needs. An error says what is missing, and the host must not begin to serve.
    pub fn new(place: &Place, state: &Path, lease: Duration) -> Result<Ready> {
        Ok(Ready(match place {
            Place::Here => Needed::Here(Box::new(Kept::open(state, lease, clock::now())?)),
            Place::Host(address) => Needed::Host(address.clone()),
            #[cfg(feature = "etcd")]
            Place::Etcd(place, files) => {
                Needed::Etcd(Box::new(etcd::Client::new(place, files.as_ref())?), place.clone())
            }
            #[cfg(not(feature = "etcd"))]
            Place::Etcd(place, _) => return Err(place::without_etcd(place)),
        }))
    }
}

/// What is not kept cannot be asked for.
pub(super) fn keeps_no_list(name: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{name} does not keep the cluster's list: join the host that was started without --join"),
    )
}

/// Nobody knows the registry now.
pub(super) fn out_of_reach() -> Error {
    Error::new(
        ErrorKind::Disconnected,
        "this host has not joined its cluster's registry, or cannot reach it: what is mapped goes on until its lease ends; \
         try again later",
    )
}
