//! Offers: rights to objects that are on their way to whoever receives a message of a channel, as
//! port rights are in Mach. A value: what it says is carried out, and written down, by the host.
//! `docs/MESSAGES.md`, "Handles".
//!
//! An offer is made before its message is sent, and taken after that was received. Its number, of
//! 128 bits, is drawn by the sender, and stands in the message. From when it is made until it is
//! taken it holds its object, so that its sender may die. Once it is taken it is kept for the
//! taker alone, as long as that has the object: a request that no host answered is asked again.

use commonhold_object::{Access, Error, ErrorKind, ObjectId, Result, SessionId};
use std::collections::{BTreeMap, HashMap};

/// So many may be on their way through one channel.
pub const MOST_IN_CHANNEL: usize = 1024;
/// So many of one user may be on their way, through all channels together.
pub const MOST_OF_USER: usize = 4096;

/// So many that a session has taken are kept for it: as many requests as it may have under way, for no other is asked again.
pub const MOST_TAKEN: usize = 1024;

/// Which offer.
pub type Token = u128;

/// What is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The channel that its message goes through.
    pub channel: ObjectId,
    /// What its taker gets.
    pub object: ObjectId,
    /// With which right.
    pub access: Access,
    /// Who made it.
    pub uid: u32,
}

/// Whether an offer is a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// It is. Those that it pushed out, whose messages cannot be in the queue any more.
    New(Vec<(Token, Offer)>),
    /// The request was repeated.
    Before,
}

/// All offers of a host.
#[derive(Debug, Default)]
pub struct Offers {
    offers: HashMap<Token, Known>,
    /// Those on their way through each channel, in the order in which they were made.
    on_their_way: HashMap<ObjectId, BTreeMap<u64, Token>>,
    /// How many on their way hold each object.
    holding: HashMap<ObjectId, usize>,
    of_user: HashMap<u32, usize>,
    taken: HashMap<(SessionId, ObjectId), Vec<Token>>,
    /// The same in the order in which a session took them.
    in_order: HashMap<SessionId, BTreeMap<u64, Token>>,
    /// Counts what is made and what is taken.
    made: u64,
}

#[derive(Debug)]
struct Known {
    offer: Offer,
    number: u64,
    taken_by: Option<Taken>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    session: SessionId,
    number: u64,
}

/// What who asks for an offer is told that is not there.
pub fn lost() -> Error {
    Error::new(
        ErrorKind::Lost,
        "what the message offers is not there any more: another has taken it, or it was lost with host and keeper",
    )
}

impl Offers {
    /// Makes an offer. `in_queue`: the most messages that can be in the channel behind each other.
    /// An offer that as many newer ones follow is not in the queue: whoever made it, or received
    /// its message, died.
    pub fn make(&mut self, token: Token, offer: Offer, in_queue: usize) -> Result<Made> {
        if let Some(known) = self.offers.get(&token) {
            let text = "an offer of that number is on its way already: draw another";
            return if known.offer == offer {
                Ok(Made::Before)
            } else {
                Err(Error::new(ErrorKind::Exists, text))
            };
        }
        let on_their_way = self.on_their_way.get(&offer.channel).map_or(0, BTreeMap::len);
        if on_their_way < in_queue && on_their_way >= MOST_IN_CHANNEL {
            let text =
                format!("{on_their_way} objects are on their way through the channel: receive some first");
            return Err(Error::new(ErrorKind::TooMany, text));
        }
        if self.of_user.get(&offer.uid).is_some_and(|count| *count >= MOST_OF_USER) {
            let text = format!(
                "{MOST_OF_USER} objects of this user are on their way through channels: receive some first"
            );
            return Err(Error::new(ErrorKind::TooMany, text));
        }
        let too_many = (on_their_way + 1).saturating_sub(in_queue.max(1));
        let oldest = self.on_their_way.get(&offer.channel);
        let oldest: Vec<Token> =
            oldest.into_iter().flatten().take(too_many).map(|(_, token)| *token).collect();
        let pushed_out = oldest.into_iter().filter_map(|token| self.remove(token)).collect();
        let number = self.made;
        self.made += 1;
        self.offers.insert(token, Known { offer, number, taken_by: None });
        self.is_on_its_way(token, offer, number);
        Ok(Made::New(pushed_out))
    }

    /// Whether that user has made it, for that channel: the request is repeated.
    pub fn is_made(&self, token: Token, channel: ObjectId, uid: u32) -> bool {
        self.offers.get(&token).is_some_and(|known| known.offer.channel == channel && known.offer.uid == uid)
    }

    /// What is offered to who has the channel open.
    pub fn offered(&self, token: Token, channel: ObjectId) -> Result<Offer> {
        let known = self.offers.get(&token).filter(|known| known.offer.channel == channel);
        known.map(|known| known.offer).ok_or_else(lost)
    }

    /// Makes it again as a host before this one wrote it down, in any order.
    pub fn adopt(&mut self, token: Token, offer: Offer, taken_by: Option<SessionId>) {
        if self.offers.contains_key(&token) {
            return;
        }
        let number = self.made;
        self.made += 1;
        self.offers.insert(token, Known { offer, number, taken_by: None });
        match taken_by {
            Some(session) => self.is_taken(token, offer, session),
            None => self.is_on_its_way(token, offer, number),
        }
    }

    fn is_on_its_way(&mut self, token: Token, offer: Offer, number: u64) {
        self.on_their_way.entry(offer.channel).or_default().insert(number, token);
        *self.holding.entry(offer.object).or_default() += 1;
        *self.of_user.entry(offer.uid).or_default() += 1;
    }

    fn is_no_more_on_its_way(&mut self, offer: Offer, number: u64) {
        if let Some(of_channel) = self.on_their_way.get_mut(&offer.channel) {
            of_channel.remove(&number);
            if of_channel.is_empty() {
                self.on_their_way.remove(&offer.channel);
            }
        }
        count_down(&mut self.holding, offer.object);
        count_down(&mut self.of_user, offer.uid);
    }

    /// Takes it for a session, which has the channel open. The same session may ask again.
    pub fn take(&mut self, token: Token, channel: ObjectId, session: SessionId) -> Result<Offer> {
        let known = self.offers.get_mut(&token).filter(|known| known.offer.channel == channel);
        let known = known.ok_or_else(lost)?;
        let (offer, number) = (known.offer, known.number);
        match known.taken_by {
            Some(by) if by.session == session => return Ok(offer),
            Some(_) => return Err(lost()),
            None => {}
        }
        self.is_no_more_on_its_way(offer, number);
        self.is_taken(token, offer, session);
        Ok(offer)
    }

    fn is_taken(&mut self, token: Token, offer: Offer, session: SessionId) {
        let number = self.made;
        self.made += 1;
        if let Some(known) = self.offers.get_mut(&token) {
            known.taken_by = Some(Taken { session, number });
        }
        self.taken.entry((session, offer.object)).or_default().push(token);
        self.in_order.entry(session).or_default().insert(number, token);
    }

    /// Those that a session took first of more than it may ask for again: who has an object open could take it for ever. Gives
    /// what is gone.
    pub fn forget_oldest(&mut self, session: SessionId) -> Vec<(Token, Offer)> {
        let Some(taken) = self.in_order.get(&session) else { return Vec::new() };
        let too_many = taken.len().saturating_sub(MOST_TAKEN);
        let oldest: Vec<Token> = taken.values().take(too_many).copied().collect();
        oldest.into_iter().filter_map(|token| self.remove(token)).collect()
    }

    /// It could not be given to who took it, who drops its message: nobody else knows its number.
    /// Gives what is gone.
    pub fn is_refused(&mut self, token: Token, session: SessionId) -> Option<(Token, Offer)> {
        let is_its = self
            .offers
            .get(&token)
            .is_some_and(|known| known.taken_by.as_ref().is_some_and(|by| by.session == session));
        if is_its { self.remove(token) } else { None }
    }

    fn is_not_taken(&mut self, token: Token, Taken { session, number }: Taken, object: ObjectId) {
        if let Some(in_order) = self.in_order.get_mut(&session) {
            in_order.remove(&number);
            if in_order.is_empty() {
                self.in_order.remove(&session);
            }
        }
        if let Some(tokens) = self.taken.get_mut(&(session, object)) {
            tokens.retain(|other| *other != token);
            if tokens.is_empty() {
                self.taken.remove(&(session, object));
            }
        }
    }

    /// Its message was not sent. Gives the offer, if nobody has taken it.
    pub fn withdraw(&mut self, token: Token, channel: ObjectId, uid: u32) -> Option<Offer> {
        let known = self.offers.get(&token)?;
        let is_its = known.offer.channel == channel && known.offer.uid == uid && known.taken_by.is_none();
        if is_its { self.remove(token).map(|(_, offer)| offer) } else { None }
    }

    /// Its object has ended all the same.
    pub fn remove(&mut self, token: Token) -> Option<(Token, Offer)> {
        let Known { offer, number, taken_by } = self.offers.remove(&token)?;
        match taken_by {
            Some(taken) => self.is_not_taken(token, taken, offer.object),
            None => self.is_no_more_on_its_way(offer, number),
        }
        Some((token, offer))
    }

    /// A session has closed an object: what it took of it is not asked for again. Gives what is
    /// gone.
    pub fn closed(&mut self, session: SessionId, object: ObjectId) -> Vec<(Token, Offer)> {
        let tokens = self.taken.get(&(session, object)).cloned().unwrap_or_default();
        tokens.into_iter().filter_map(|token| self.remove(token)).collect()
    }

    /// A channel has ended, and with it what was on its way through it. Gives what is gone.
    pub fn ended(&mut self, channel: ObjectId) -> Vec<(Token, Offer)> {
        let tokens = self.on_their_way.get(&channel);
        let tokens: Vec<Token> = tokens.into_iter().flatten().map(|(_, token)| *token).collect();
        tokens.into_iter().filter_map(|token| self.remove(token)).collect()
    }

    /// Objects and channels are lost. Gives what is gone with them.
    pub fn lost(&mut self, is_lost: impl Fn(ObjectId) -> bool) -> Vec<(Token, Offer)> {
        let goes = |known: &Known| is_lost(known.offer.object) || is_lost(known.offer.channel);
        let tokens: Vec<Token> =
            self.offers.iter().filter(|(_, known)| goes(known)).map(|(token, _)| *token).collect();
        tokens.into_iter().filter_map(|token| self.remove(token)).collect()
    }

    /// Whether an offer on its way holds the object.
    pub fn holds(&self, object: ObjectId) -> bool {
        self.holding.contains_key(&object)
    }

    /// Those that are taken, and by whom.
    pub fn taken(&self) -> impl Iterator<Item = (SessionId, ObjectId)> {
        self.taken.keys().copied()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.offers.len()
    }
}

fn count_down<K: Copy + Eq + std::hash::Hash>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
