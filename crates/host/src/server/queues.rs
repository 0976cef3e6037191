//! Queues in memory between the host and a user's pager: `docs/PAGERS.md`.

use super::Host;
use super::session::Session;
use commonhold_object::wire::Reply;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Host {
    /// Gives the pager that the session serves its queues. A thread takes the answers from there, of which nobody else waits for.
    pub(super) fn pager_queues(&self, session: &Session, give: &mut Vec<Arc<OwnedFd>>) -> Result<Reply> {
        let uid = session.credentials.uid;
        let too_many =
            || Error::new(ErrorKind::TooMany, format!("user {uid} has as many queues of pagers as one may"));
        let counted = self.queues.one_more(uid).ok_or_else(too_many)?;
        let (queues, memory) = self.pagers.queues(session.id.0)?;
        let serve = move || {
            super::lifetime::serves_all();
            let _counted = counted;
            queues.serve();
        };
        points::thread(|| std::thread::Builder::new().name("pager-answers".into()).spawn(serve))
            .map_err(|error| Error::io("starting a thread for a pager's answers", &error))?;
        give.push(Arc::new(memory));
        Ok(Reply::Queues)
    }
}
