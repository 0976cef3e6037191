//! Tokens of mutexes that hosts share (`docs/PRIMITIVES.md`, "Between hosts"): what hosts say about them, and what follows for them
//! when hosts come, go and are lost. Where a token is `commonhold-tokens` decides.

use super::wire::{Call, Message};
use super::{Cluster, PATIENCE, lock};
use crate::server::tokens::Tokens;
use crate::shared::Driver;
use commonhold_coherence::HostId;
use commonhold_object::{Access, Credentials, Result};
use commonhold_tokens as tokens;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// While so many hosts are being connected, nothing is said to one that nobody knows.
const MOST_UNKNOWN: usize = 16;

/// How often tokens can have been counted by now: each time takes more than a microsecond. A host that says more would leave
/// no numbers for the counts to come.
fn most_counts() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX / 2)
}

/// What this host had of an object's tokens, until a home has answered that it knows.
pub(super) struct Left {
    leaving: tokens::Leaving,
    /// To which home it was said already, unless that did not live to hear it.
    home: Option<HostId>,
    /// A user for whom processes here locked: a home that does not know of that is told first.
    user: Option<Credentials>,
}

impl Cluster {
    /// A host said something about an object's tokens. Nothing is said to who has no part in them (any more).
    pub(super) fn tokens_said(
        self: &Arc<Self>,
        from: HostId,
        object: u128,
        mut message: tokens::Message,
    ) -> Result<()> {
        self.check_not_lost(from)?;
        let (Some(driver), Some(part)) = (self.driver(object), self.tokens(object)) else { return Ok(()) };
        self.check_takes_part(&driver, from)?;
        driver.seen().heard(from, self.me.host, &message);
        match &mut message {
            // It was lost while this was on its way, or there is no such host: a token would go to nobody.
            tokens::Message::Request { by, .. } if !self.may_ask(&driver, *by) => return Ok(()),
            tokens::Message::Join { count, .. } => *count = (*count).min(most_counts()),
            _ => {}
        }
        self.hears_of_tokens(from, &part, message);
        Ok(())
    }

    fn hears_of_tokens(&self, from: HostId, part: &Arc<Tokens>, message: tokens::Message) {
        let comes_or_goes = matches!(message, tokens::Message::Join { .. } | tokens::Message::Leave(_));
        part.hear(tokens::Event::Said { from, message });
        if comes_or_goes {
            for former in self.followed_by(from) {
                part.hear(tokens::Event::Follows { former, by: from });
            }
        }
    }

    /// No process here uses an object's locks any more, and this host had that of their tokens. It is said at once to a home that is
    /// known, and kept until one has heard it.
    pub fn leave_tokens(
        &self,
        object: u128,
        home: Option<HostId>,
        leaving: tokens::Leaving,
        user: Option<Credentials>,
    ) {
        if let Some(home) = home {
            self.say_of_tokens(home, object, tokens::Message::Leave(leaving.clone()));
        }
        lock(&self.leaving).insert(object, Some(Left { leaving, home, user }));
    }

    /// The home hears that this host has left the object, and what it had of its tokens: unless it knew of that before it counts
    /// them, and answers when it has.
    pub(super) fn say_left_with_tokens(self: &Arc<Self>, home: HostId, driver: &Driver) -> Result<()> {
        let object = driver.plan().object;
        let left = |left: &Left| (left.home == Some(home), left.leaving.clone(), left.user.clone());
        let left = lock(&self.leaving).get(&object).and_then(Option::as_ref).map(left);
        let Some((is_known, leaving, user)) = left else {
            return self.ask(home, self.left(object), PATIENCE).map(drop);
        };
        if let Some(user) = user.filter(|_| !is_known) {
            let (number, types) = (self.beginnings.next(), driver.types_version());
            let (who, access) = (user, Access::ReadWrite);
            self.ask(home, Call::Use { object, who, access, number, types }, PATIENCE)?;
        }
        let call = Call::Leave { object, number: self.beginnings.next(), tokens: Some(leaving) };
        self.ask(home, call, PATIENCE).map(drop)
    }

    /// At the home: a host has left the object, and had that of its tokens. Whether they have been counted since.
    pub(super) fn has_counted_without(&self, from: HostId, object: u128, leaving: tokens::Leaving) -> bool {
        let is_admitted = self.check_admitted(object, from, true).is_ok();
        let Some(part) = self.tokens(object).filter(|_| is_admitted) else { return true };
        if part.home() == Some(self.me.host) {
            self.hears_of_tokens(from, &part, tokens::Message::Leave(leaving));
        }
        part.has_counted()
    }

    /// Whether a host may want a token, as far as this one can tell without waiting.
    fn may_ask(&self, driver: &Driver, host: HostId) -> bool {
        let takes_part =
            || self.check_admitted(driver.plan().object, host, false).is_ok() || driver.has_member(host);
        self.check_not_lost(host).is_ok() && (!driver.is_home() || takes_part())
    }

    fn tokens(&self, object: u128) -> Option<Arc<Tokens>> {
        self.host().ok()?.tokens_in_use(object)
    }

    fn all_tokens(&self) -> Vec<Arc<Tokens>> {
        self.host().map_or_else(|_| Vec::new(), |host| host.all_tokens())
    }

    /// The home of an object is found, or it was known when its tokens came into use here.
    pub fn tokens_find_home(&self, object: u128) {
        let home = self.driver(object).and_then(|driver| driver.home());
        if let (Some(home), Some(part)) = (home, self.tokens(object)) {
            part.hear(tokens::Event::Home(home));
        }
    }

    /// A host is lost.
    pub(super) fn tokens_of_lost(&self, host: HostId) {
        for part in self.all_tokens() {
            part.hear(if part.home() == Some(host) {
                tokens::Event::HomeIsAway
            } else {
                tokens::Event::Lost(host)
            });
        }
    }

    /// To another host, in order with all else that is said to it. One that this host has not heard of may have joined just
    /// now; of many that is not believed, because each is looked for some seconds.
    pub fn say_of_tokens(&self, to: HostId, object: u128, message: tokens::Message) {
        if self.member(to).is_none() && lock(&self.waiting).len() >= MOST_UNKNOWN {
            return;
        }
        if let Some(driver) = self.driver(object) {
            driver.seen().said(self.me.host, to, &message);
        }
        self.carry(to, Message::Tokens { object, message }, &mut Vec::new());
    }

    /// Whether there was an object of that identity when this process began, or it moved here: others may have its tokens.
    pub fn was_there_before(&self, object: u128) -> bool {
        self.locks.were_there_before(object)
    }
}
