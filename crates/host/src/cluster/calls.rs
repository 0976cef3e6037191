//! Questions to other hosts, and the answers.

use super::wire::{Answer, Call, Message};
use super::{Cluster, lock};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long another host may take for what needs no pages.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// An answer, and the bytes behind it.
type Answered = Result<(Answer, Vec<u8>)>;

/// Who was asked, and who waits for the answer.
type Pending = (HostId, Sender<Answered>);

/// A question that was asked.
pub(super) struct Asked {
    host: HostId,
    number: u64,
    answer: Result<Receiver<Answered>>,
}

/// Calls that are not answered yet.
#[derive(Default)]
pub(super) struct Calls {
    next: AtomicU64,
    pending: Mutex<HashMap<u64, Pending>>,
}

impl Calls {
    /// A number that no other call has.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

impl Cluster {
    /// Asks another host, or this one, and waits for the answer.
    pub fn ask(self: &std::sync::Arc<Self>, host: HostId, call: Call, within: Duration) -> Result<Answer> {
        if host == self.me.host {
            return self.answer(host, call, &[]).map(|(answer, _)| answer);
        }
        self.ask_for_bytes(host, call, within).map(|(answer, _)| answer)
    }

    /// Asks another host for an answer with bytes behind it.
    pub(super) fn ask_for_bytes(
        &self,
        host: HostId,
        call: Call,
        within: Duration,
    ) -> Result<(Answer, Vec<u8>)> {
        let asked = self.begin_to_ask(host, call, &[]);
        self.answer_to(asked, within)
    }

    /// Asks another host, with these bytes. Whoever asked waits by [`answer_to`](Self::answer_to).
    pub(super) fn begin_to_ask(&self, host: HostId, call: Call, bytes: &[u8]) -> Asked {
        let number = self.calls.number();
        let (sender, answer) = channel();
        lock(&self.calls.pending).insert(number, (host, sender));
        let sent = self.send(host, &Message::Call { number, call }, &mut bytes.to_vec());
        Asked { host, number, answer: sent.map(|()| answer) }
    }

    /// Waits for the answer to what was asked.
    pub(super) fn answer_to(&self, asked: Asked, within: Duration) -> Result<(Answer, Vec<u8>)> {
        let Asked { host, number, answer } = asked;
        let result = answer.and_then(|answer| {
            answer.recv_timeout(within).unwrap_or_else(|why| {
                let host = self.called(host);
                Err(match why {
                    RecvTimeoutError::Timeout => Error::new(
                        ErrorKind::TimedOut,
                        format!("{host} does not answer within {} s", within.as_secs_f32()),
                    ),
                    RecvTimeoutError::Disconnected => Error::new(
                        ErrorKind::Disconnected,
                        format!("{host} has not answered, and {} begins anew: try again", self.me.name),
                    ),
                })
            })
        });
        lock(&self.calls.pending).remove(&number);
        result
    }

    /// This host does nothing any more with what was asked: nobody waits for an answer.
    pub(super) fn ask_no_more(&self) {
        lock(&self.calls.pending).clear();
    }

    /// An answer came. From anybody but who was asked it is none. Gives it back if nobody waits for it (any more).
    pub(super) fn answered(
        &self,
        from: HostId,
        number: u64,
        answer: Result<Answer>,
        bytes: Vec<u8>,
    ) -> Option<Result<Answer>> {
        let mut pending = lock(&self.calls.pending);
        if pending.get(&number).is_none_or(|(host, _)| *host != from) {
            return Some(answer);
        }
        if let Some((_, sender)) = pending.remove(&number) {
            let _ = sender.send(answer.map(|answer| (answer, bytes)));
        }
        None
    }

    /// Nothing comes from that host any more.
    pub(super) fn not_answered_by(&self, host: HostId) {
        let lost = |name: String| Error::new(ErrorKind::Disconnected, format!("{name} is lost"));
        let name = self.called(host);
        lock(&self.calls.pending).retain(|_, (asked, sender)| {
            if *asked == host {
                let _ = sender.send(Err(lost(name.clone())));
            }
            *asked != host
        });
    }
}
