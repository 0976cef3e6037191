//! What hosts said to each other about an object.

use crate::failure::{Result, failed};
use commonhold::{Host, MessageKind};
use std::time::{Duration, Instant};

/// How long a count may take until what one host sent the other has received.
const DEADLINE: Duration = Duration::from_secs(10);

/// Between two instants, of all hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests and pages between hosts, or tokens.
    pub messages: u64,
    /// Acknowledgements.
    pub acknowledgements: u64,
    /// Of pages.
    pub bytes: u64,
    /// Accesses that waited for another host, or for the hold.
    pub waits: u64,
}

impl Traffic {
    /// What was said about an object so far, when all of it has arrived.
    pub fn of(clients: &[Host], name: &str) -> Result<Traffic> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let (traffic, received) = counted(clients, name);
            if traffic.messages == received {
                return Ok(traffic);
            }
            if Instant::now() > deadline {
                let messages = traffic.messages;
                return failed(format!("{messages} messages were sent and {received} received"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What was said since then.
    pub fn since(self, before: Traffic) -> Traffic {
        Traffic {
            messages: self.messages - before.messages,
            acknowledgements: self.acknowledgements - before.acknowledgements,
            bytes: self.bytes - before.bytes,
            waits: self.waits - before.waits,
        }
    }
}

/// So far; and how many messages were received.
fn counted(clients: &[Host], name: &str) -> (Traffic, u64) {
    let (mut all, mut received) = (Traffic::default(), 0);
    for client in clients {
        let Ok(seen) = client.counts(name, 0) else { continue }; // it takes no part
        for object in seen.objects.iter().filter(|object| object.shared) {
            for kind in [MessageKind::Request, MessageKind::Page] {
                let (sent, came, _) = object.of_kind(kind);
                all.messages += sent;
                received += came;
            }
            all.acknowledgements += object.of_kind(MessageKind::Acknowledgement).0;
            all.bytes += object.counts.bytes_sent;
            all.waits += object.counts.waits;
        }
    }
    (all, received)
}
