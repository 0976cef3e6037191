//! What a host tells of its objects, mappings and itself.

use crate::{CreateOptions, MappingId, Name, ObjectId, Ownership, Protection, Sharing};
use commonhold_tags::Translated;
use serde::{Deserialize, Deserializer, Serialize};

/// State of one page (Shirriff, section 6, mincore).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageState {
    /// Past the end of the object.
    Invalid,
    /// Not in memory: paged out, or never touched.
    Absent,
    /// In memory, and equal to what is stored.
    Clean,
    /// In memory (or spilled), and newer than what is stored.
    Dirty,
    /// Of an object that hosts share: its newest version was lost with a host, and whoever touches it gets SIGBUS until
    /// the object is reverted.
    Lost,
}

impl PageState {
    /// One byte on the wire: the state in the low bits, bit 7 for a page-holding lock.
    pub fn encode(self, locked: bool) -> u8 {
        let state = match self {
            PageState::Invalid => 0,
            PageState::Absent => 1,
            PageState::Clean => 2,
            PageState::Dirty => 3,
            PageState::Lost => 4,
        };
        state | if locked { 0x80 } else { 0 }
    }

    /// The reverse of [`PageState::encode`]; `None` for a byte that no host sends.
    pub fn decode(byte: u8) -> Option<(PageState, bool)> {
        let state = match byte & 0x7f {
            0 => PageState::Invalid,
            1 => PageState::Absent,
            2 => PageState::Clean,
            3 => PageState::Dirty,
            4 => PageState::Lost,
            _ => return None,
        };
        Some((state, byte & 0x80 != 0))
    }
}

/// All there is to know of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// Identity.
    pub id: ObjectId,
    /// The same on all hosts of a cluster, and of no other object: nobody chooses it.
    pub uuid: u128,
    /// Name; `None` once it was removed while in use.
    pub name: Option<Name>,
    /// Owner, group and mode.
    pub ownership: Ownership,
    /// What it was created with; `size_bytes` is the size now.
    pub options: CreateOptions,
    /// Whether the host serves its faults.
    pub controlled: bool,
    /// Where the backing file was when it was opened, for people; empty without one.
    pub file_path: String,
    /// Bytes of memory its frames take now.
    pub resident_bytes: u64,
    /// Bytes newer than what is stored, as far as the host knows without asking (controlled objects).
    pub dirty_bytes: u64,
    /// Bytes in the host's spill file.
    pub spilled_bytes: u64,
    /// Mappings, of all clients.
    pub mappings: u64,
    /// Sessions that have it open.
    pub opens: u64,
    /// Which control group pays for its frames, in words.
    pub charged_to: String,
    /// Something a person should know: a backing file that was replaced, pages lost; empty if nothing.
    pub warning: String,
    /// What its home is called: the host that keeps its name and what is stored. Empty outside of a cluster.
    pub home: String,
    /// Whether that is another host than the one that was asked.
    pub is_elsewhere: bool,
    /// Of an object that hosts share.
    pub losses: Losses,
    /// Of an object with shared page tables: how many tables map each of its pages at most, the host's two among them. Zero: the
    /// kernel does not tell this host (it says so to root).
    pub page_tables: u64,
    /// When a direct object was last written by a call, resized or given another time, in nanoseconds since 1970. Zero: the
    /// host does not know.
    pub modified_ns: u64,
    /// Of a wired object in an arena. None: it has memory of its own.
    pub place: Option<Place>,
    /// What this host has translated of it, from other hosts or of what is stored.
    pub translated: Translated,
}

/// Where a wired object lies: the descriptor of whoever opens it is its arena's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The object whose memory it is a part of.
    pub arena: ObjectId,
    /// Where in that it begins: a multiple of the page size, bytes.
    pub offset_bytes: u64,
    /// How long that is.
    pub arena_bytes: u64,
}

/// What an object that hosts share has lost with hosts, as far as its home knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Pages whose newest version is lost: who touches one gets SIGBUS until the object is reverted.
    pub lost_pages: u64,
    /// Pages of which an older version serves because the newest was lost, since the home's process began with the object.
    pub reverted_pages: u64,
    /// The *loss generation*: another number whenever newest versions of pages were lost, or older ones began to serve. It is
    /// another too when a home begins without the memory of the process before. Whoever maps the object compares it with
    /// what it was before. Zero: the object is not one that hosts share page by page, or its home cannot be asked now, and it
    /// is not known whether it is another.
    pub generation: u64,
}

/// What a sync did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synced {
    /// Pages that were stored.
    pub pages: u64,
    /// [`Losses::generation`] of the object when they were stored: if it is not what it was when the caller opened the
    /// object, what was written before may have been lost, and is not stored.
    pub loss_generation: u64,
}

/// One line of `ls`: an object, or a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryInfo {
    /// An object.
    Object(Box<ObjectInfo>),
    /// A directory.
    Directory {
        /// Its name.
        name: Name,
        /// Owner, group and mode.
        ownership: Ownership,
    },
}

impl EntryInfo {
    /// The name of the entry. Listed objects always have one.
    pub fn name(&self) -> Option<&Name> {
        match self {
            EntryInfo::Object(info) => info.name.as_ref(),
            EntryInfo::Directory { name, .. } => Some(name),
        }
    }
}

/// One mapping of one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingInfo {
    /// The client's number for it.
    pub mapping: MappingId,
    /// Process, as the host sees it.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Address in that process.
    pub address: u64,
    /// Bytes.
    pub length_bytes: u64,
    /// Offset in the object, bytes.
    pub offset_bytes: u64,
    /// What it may be used for.
    pub protection: Protection,
    /// Who sees its writes.
    pub sharing: Sharing,
    /// Faults served for it so far (0 for direct objects: the kernel serves them).
    pub faults: u64,
}

/// What messages of this version did not have from the beginning stands at their end: whoever does not know it reads as far as
/// there, and in a message of who did not know it there is nothing.
pub(crate) fn late<'d, T: Default + Deserialize<'d>, D: Deserializer<'d>>(
    from: D,
) -> std::result::Result<T, D::Error> {
    Ok(T::deserialize(from).unwrap_or_default())
}

/// State of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Version of the host's program.
    pub version: String,
    /// Process of the host.
    pub host_pid: u32,
    /// Process of the keeper.
    pub keeper_pid: u32,
    /// User it runs as.
    pub uid: u32,
    /// State directory.
    pub state_directory: String,
    /// Milliseconds since this host process began to serve.
    pub uptime_ms: u64,
    /// How many host processes this keeper has started.
    pub generation: u64,
    /// Objects that exist.
    pub objects: u64,
    /// Clients connected.
    pub clients: u64,
    /// Mappings of controlled objects.
    pub mappings: u64,
    /// Bytes of frames of controlled objects in memory.
    pub resident_bytes: u64,
    /// Budget for those frames, bytes.
    pub budget_bytes: u64,
    /// Faults served since start.
    pub faults: u64,
    /// Pages brought in by those faults.
    pub pages_installed: u64,
    /// Pages evicted.
    pub pages_evicted: u64,
    /// Syncs done.
    pub syncs: u64,
    /// Whether the kernel's own accesses to missing pages are served (needs a privileged host).
    pub kernel_faults: bool,
    /// Quota of reserved memory and disk for each user (of a host of root: other than root), bytes; the most there is: none.
    pub quota_bytes: u64,
    /// The last lines of what was repaired at start.
    pub repairs: Vec<String>,
    /// Its machine type: byte order and format of floats.
    pub machine: String,
    /// Pages that came from hosts of other machine types.
    pub translated: Translated,
    /// Pages that were read or stored in the format of another machine type.
    pub stored_translated: Translated,
    /// Bytes of memory that direct objects without a file have, beside the budget.
    #[serde(deserialize_with = "late")]
    pub direct_bytes: u64,
    /// Its place in a cluster; none: it is in none.
    #[serde(deserialize_with = "late")]
    pub cluster: Option<ClusterStatus>,
}

/// How a host stands in its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// What the others call it.
    pub name: String,
    /// Where it listens for them.
    pub address: std::net::SocketAddr,
    /// Where the registry is, as it was given; empty: in this host.
    pub registry: String,
    /// It belongs, and has a lease.
    pub joined: bool,
    /// Why it does not, or why it cannot renew its lease.
    pub trouble: Option<Trouble>,
}

/// Why a host is not where it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// Of what kind the last failure is.
    pub kind: crate::ErrorKind,
    /// What it was.
    pub why: String,
    /// For how long nothing but failures came, milliseconds.
    pub for_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_states_survive_the_wire() {
        let states =
            [PageState::Invalid, PageState::Absent, PageState::Clean, PageState::Dirty, PageState::Lost];
        for state in states {
            for locked in [false, true] {
                assert_eq!(PageState::decode(state.encode(locked)), Some((state, locked)));
            }
        }
        assert_eq!(PageState::decode(9), None);
    }
}

/// A host of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterHost {
    /// What it is called.
    pub name: String,
    /// Its number: of this process; the next one has another.
    pub number: u32,
    /// Where it listens for other hosts.
    pub address: std::net::SocketAddr,
    /// It is the one that was asked.
    pub is_this: bool,
    /// It keeps the cluster's list of hosts and names.
    pub keeps_list: bool,
    /// There is no connection with it at the moment; it is not lost.
    pub is_unreachable: bool,
    /// The host that was asked cannot reach it itself, began a connection with it, and speaks with it through this one.
    pub through: Option<String>,
    /// It does not belong to the cluster yet, or not any more: objects that hosts share wait.
    pub waits: bool,
    /// Why it cannot be reached, or waits. In a message it stands behind all hosts: an older program reads as far as there.
    #[serde(skip)]
    pub trouble: Option<Trouble>,
}
