//! Which session two ends go on with. Each says in its greeting where it stands; who answers chooses.

use crate::greeting::Standing;
use crate::handler::Handler;
use crate::hello::Hello;
use crate::session::Session;
use commonhold_object::{Error, ErrorKind, Result};
use std::sync::Arc;

/// What one end has with a host.
#[derive(Clone, Default)]
pub struct Present {
    /// The last session; it may be over.
    pub session: Option<Arc<Session>>,
    /// The number that this end proposed for a new session with that incarnation. It does not propose another one,
    /// because the other end may have taken it up, and sent by it, without this end having heard so.
    proposed: Option<(u64, u64)>,
}

/// What both ends agree on.
pub enum Chosen {
    /// They go on.
    GoOn(Arc<Session>),
    /// They begin one of that number; what was before is over.
    Begin(u64),
}

impl Present {
    fn open_with(&self, hello: &Hello) -> Option<Arc<Session>> {
        self.session.clone().filter(|session| session.is_with(hello) && session.is_open())
    }

    /// Of who begins a connection.
    pub fn propose(&mut self, hello: &Hello, fresh: u64) -> Standing {
        if let Some(session) = self.open_with(hello) {
            return Standing { session: session.id, is_new: false, received: session.received() };
        }
        let proposed = self.proposed.filter(|(incarnation, _)| *incarnation == hello.incarnation);
        let (_, session) = *self.proposed.insert(proposed.unwrap_or((hello.incarnation, fresh)));
        Standing { session, is_new: true, received: 0 }
    }

    /// Of who answers: chooses. An impossible proposal ends the session that it is for.
    pub fn answer(&self, hello: &Hello, theirs: Standing, fresh: u64) -> Result<(Chosen, Standing)> {
        if let Some(session) = self.open_with(hello).filter(|session| session.id == theirs.session) {
            let ours = Standing { session: session.id, is_new: false, received: session.received() };
            if theirs.is_new && ours.received > 0 {
                return Err(
                    session.over(impossible("it has sent messages of a session, and says that it begins"))
                );
            }
            check(&session, theirs)?;
            return Ok((Chosen::GoOn(session), ours));
        }
        let takes_theirs = theirs.is_new || self.proposed == Some((hello.incarnation, theirs.session));
        if takes_theirs && theirs.received > 0 {
            return Err(impossible("it has received messages of a session that begins"));
        }
        let session = if takes_theirs { theirs.session } else { fresh };
        Ok((Chosen::Begin(session), Standing { session, is_new: !takes_theirs, received: 0 }))
    }

    /// Of who began: what follows from the answer to its own proposal.
    pub fn follow(&self, hello: &Hello, ours: Standing, theirs: Standing) -> Result<Chosen> {
        let open = self.open_with(hello).filter(|session| session.id == theirs.session && !theirs.is_new);
        if let Some(session) = open {
            check(&session, theirs)?;
            if session.received() != ours.received {
                let words = "another connection carried the session meanwhile: try again";
                return Err(Error::new(ErrorKind::Busy, words));
            }
            return Ok(Chosen::GoOn(session));
        }
        if !theirs.is_new && (!ours.is_new || ours.session != theirs.session) {
            return Err(Error::new(
                ErrorKind::Disconnected,
                "the other end goes on with a session that is over here: try again",
            ));
        }
        if theirs.received > 0 {
            return Err(impossible("it has received messages of a session that begins"));
        }
        Ok(Chosen::Begin(theirs.session))
    }

    /// The session that was chosen. Whatever was before must be over.
    pub fn begin(&mut self, hello: &Hello, number: u64, handler: &Arc<dyn Handler>) -> Arc<Session> {
        self.proposed = None;
        self.session.insert(Session::new(hello.clone(), number, handler.clone())).clone()
    }
}

/// Refuses to go on with what the other end says; what it can never have received ends the session.
fn check(session: &Arc<Session>, theirs: Standing) -> Result<()> {
    session.check_received(theirs.received).map_err(|error| match error.kind {
        ErrorKind::Busy => error,
        _ => session.over(error),
    })
}

fn impossible(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("the other end's greeting makes no sense: {what}"))
}
