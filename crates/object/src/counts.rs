//! What a host counts of each object, and the lines of a trace (`docs/SEEING.md`). All since the host process began to
//! use the object, and of that host alone.

use crate::{Name, ObjectId, PageSize};
use commonhold_tags::Translated;
use serde::{Deserialize, Serialize};

/// How a message between hosts is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageKind {
    /// A request for a page, or for one back.
    Request,
    /// A page, or the right to use it.
    Page,
    /// An acknowledgement.
    Acknowledgement,
}

impl MessageKind {
    /// All of them.
    pub const ALL: [MessageKind; 3] = [MessageKind::Request, MessageKind::Page, MessageKind::Acknowledgement];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            MessageKind::Request => "request",
            MessageKind::Page => "page",
            MessageKind::Acknowledgement => "acknowledgement",
        }
    }
}

/// Numbers of one object at one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Touches of a page that no page table had, to read it.
    pub read_faults: u64,
    /// The same, to write it.
    pub write_faults: u64,
    /// Writes to a page that was there and protected.
    pub protection_faults: u64,
    /// Faults that waited: for another host, the pager, or room.
    pub waits: u64,
    /// How long, all together, nanoseconds.
    pub waited_ns: u64,
    /// The longest, nanoseconds.
    pub longest_wait_ns: u64,
    /// Faults that ended in SIGBUS.
    pub refused: u64,
    /// Requests of other hosts that were passed on to yet another.
    pub forwards: u64,
    /// Pages that this host got the right to write.
    pub hand_overs: u64,
    /// Pages of which it lost some right.
    pub taken: u64,
    /// Bytes of pages sent to other hosts.
    pub bytes_sent: u64,
    /// Bytes of pages that came from them.
    pub bytes_received: u64,
    /// Syncs that were sent to the home (explicit coherence).
    pub syncs: u64,
    /// Pages of them.
    pub synced_pages: u64,
    /// Those of them that another host had synced meanwhile: its version was replaced.
    pub conflicts: u64,
    /// Pages that came from hosts of other machine types.
    pub translated: Translated,
    /// Pages that were read or stored in the format of another machine type.
    pub stored_translated: Translated,
}

impl Counts {
    /// Faults of all three sorts.
    pub fn faults(&self) -> u64 {
        self.read_faults + self.write_faults + self.protection_faults
    }
}

/// Messages of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCount {
    /// As `docs/PROTOCOL.md` calls it.
    pub name: String,
    /// How it is counted.
    pub kind: MessageKind,
    /// From this host to itself, where it is client and home.
    pub local: u64,
    /// To other hosts.
    pub sent: u64,
    /// From other hosts.
    pub received: u64,
}

/// One of the pages that most happened to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCount {
    /// Which.
    pub page: u64,
    /// Faults, and messages to and from other hosts. At most `excess` too much.
    pub heat: u64,
    /// How much of `heat` may belong to pages that made room for this one.
    pub excess: u64,
    /// Touches while it was missing, to read.
    pub read_faults: u32,
    /// The same, to write.
    pub write_faults: u32,
    /// Writes while it was protected.
    pub protection_faults: u32,
    /// Messages to and from other hosts about it.
    pub messages: u32,
    /// The same by kind, in the order of [`MessageKind::ALL`].
    pub by_kind: [u32; 3],
    /// Messages about it from this host to itself, where it is client and home.
    pub local: u32,
    /// Requests of other hosts for it that were passed on to yet another.
    pub forwards: u32,
    /// Bytes of it that were sent to other hosts, and came from them.
    pub bytes: u64,
    /// How often this host got the right to write it.
    pub hand_overs: u32,
    /// Which host owns it, as far as this one knows.
    pub owner: Option<u32>,
}

/// What a host counted of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectCounts {
    /// Identity.
    pub id: ObjectId,
    /// Name; none once it was removed while in use.
    pub name: Option<Name>,
    /// Size now.
    pub size_bytes: u64,
    /// In pages of which size hosts share it.
    pub page_size: PageSize,
    /// Whether hosts share it.
    pub shared: bool,
    /// Whether its home is another host.
    pub elsewhere: bool,
    /// The numbers.
    pub counts: Counts,
    /// Messages by name.
    pub messages: Vec<MessageCount>,
    /// The hottest pages, the hottest first.
    pub pages: Vec<PageCount>,
}

impl ObjectCounts {
    /// Messages of a kind to other hosts, from them, and from this host to itself.
    pub fn of_kind(&self, kind: MessageKind) -> (u64, u64, u64) {
        let all = self.messages.iter().filter(|message| message.kind == kind);
        all.fold((0, 0, 0), |sum, m| (sum.0 + m.sent, sum.1 + m.received, sum.2 + m.local))
    }
}

/// What a host counted of several objects, at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// This host's number; 0 outside a cluster.
    pub host: u32,
    /// The process that counted: another one counts from 0 again.
    pub process: u32,
    /// When, on the clock that goes on while the machine sleeps, nanoseconds.
    pub at_ns: u64,
    /// Names of hosts, by their numbers.
    pub hosts: Vec<(u32, String)>,
    /// The objects.
    pub objects: Vec<ObjectCounts>,
    /// Whether more objects follow the last.
    pub more: bool,
}

impl Seen {
    /// What people call a host.
    pub fn called(&self, host: u32) -> String {
        let found = self.hosts.iter().find(|(number, _)| *number == host);
        found.map_or_else(|| format!("host {host}"), |(_, name)| name.clone())
    }
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceLine {
    /// Lines are numbered from 0 on.
    pub number: u64,
    /// When, nanoseconds since 1970 by this host's clock.
    pub at_ns: u64,
    /// Which host sends.
    pub from: u32,
    /// Which it is for.
    pub to: u32,
    /// Name of the message, or of the fault.
    pub what: String,
    /// Its kind; none of a fault.
    pub kind: Option<MessageKind>,
    /// First page that it is about.
    pub first_page: u32,
    /// How many.
    pub pages: u32,
    /// Bytes of pages that go along.
    pub bytes: u64,
}

/// Where a reader of a trace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracePlace {
    /// Which trace: it begins anew with another host process, and when nobody read it for a while.
    pub trace: u64,
    /// The next line.
    pub next: u64,
}

/// Lines since the last time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// In order.
    pub lines: Vec<TraceLine>,
    /// Where to go on.
    pub place: TracePlace,
    /// Lines that were lost before these, because they were not fetched in time.
    pub lost: u64,
    /// The trace that was asked for ended: what happened until this one began is not known.
    pub anew: bool,
    /// Whether there is more already.
    pub more: bool,
    /// Names of the hosts in the lines, by their numbers.
    pub hosts: Vec<(u32, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_add_up_by_kind() {
        let message =
            |name: &str, kind, sent| MessageCount { name: name.into(), kind, local: 1, sent, received: 7 };
        let messages = vec![
            message("request", MessageKind::Request, 2),
            message("recall", MessageKind::Request, 3),
            message("grant", MessageKind::Page, 5),
        ];
        let counts = ObjectCounts {
            id: ObjectId(1),
            name: None,
            size_bytes: 1,
            page_size: PageSize::SMALLEST,
            shared: true,
            elsewhere: false,
            counts: Counts { read_faults: 1, write_faults: 2, protection_faults: 4, ..Counts::default() },
            messages,
            pages: vec![],
        };
        assert_eq!(counts.of_kind(MessageKind::Request), (5, 14, 2));
        assert_eq!(counts.of_kind(MessageKind::Acknowledgement), (0, 0, 0));
        assert_eq!(counts.counts.faults(), 7);
    }
}
