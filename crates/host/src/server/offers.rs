//! Offers: objects on their way to whoever receives a message (`docs/MESSAGES.md`, "Handles"; the rules are in
//! `commonhold_offers`).
//!
//! `live/<id of the object>.offer-<number>` says of each what the next host must know. Its first bytes are who has taken it.

use super::nameless::first_name;
use super::session::Session;
use super::{Host, lock};
use commonhold_channel::most_offered;
use commonhold_object::error::Doing;
use commonhold_object::wire::{Offered, Reply, SnapshotRequest};
use commonhold_object::{Access, CreateOptions, Error, ErrorKind, ObjectId, Result, SessionId};
use commonhold_offers::{Made, Offer, Token, lost};
use commonhold_registry::{Prepared, Registry};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

/// What a note has after its first eight bytes, which are the number of the session that has taken it, plus one, or zero.
#[derive(Serialize, Deserialize)]
struct Noted {
    boot_id: String,
    channel: ObjectId,
    object: ObjectId,
    access: Access,
    uid: u32,
}

const TAKEN_BYTES: usize = 8;

fn taken(by: Option<SessionId>) -> [u8; TAKEN_BYTES] {
    by.map_or(0, |session| session.0.wrapping_add(1)).to_le_bytes()
}

impl Host {
    fn offer_path(&self, token: Token, object: ObjectId) -> PathBuf {
        self.machine.path("live", object).with_extension(format!("offer-{token:032x}"))
    }

    fn note_offer(&self, token: Token, offer: &Offer) -> Result<()> {
        let Offer { channel, object, access, uid } = *offer;
        let noted = Noted { boot_id: self.machine.boot_id.clone(), channel, object, access, uid };
        let bytes = postcard::to_extend(&noted, taken(None).to_vec());
        let bytes = bytes.map_err(|_| Error::invalid("the note of an offer"))?;
        std::fs::write(self.offer_path(token, object), bytes).doing("noting an offer")
    }

    fn note_taken(&self, token: Token, object: ObjectId, by: SessionId) -> Result<()> {
        let note = File::options().write(true).open(self.offer_path(token, object));
        note.and_then(|note| note.write_all_at(&taken(Some(by)), 0)).doing("noting that an offer is taken")
    }

    /// They are gone, and what they held may end.
    fn are_gone(self: &Arc<Self>, gone: Vec<(Token, Offer)>) {
        for (token, offer) in gone {
            let path = self.offer_path(token, offer.object);
            match std::fs::remove_file(&path) {
                // The next host takes it for an offer still, of an object that goes with its channel.
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    self.machine.log(format_args!("removing {}: {error}", path.display()));
                }
                _ => {}
            }
            self.settle_object(offer.object);
        }
    }

    /// The channel that a session has open for writing, as all that use it have. Gives its bytes.
    fn check_channel(&self, session: &Session, channel: ObjectId) -> Result<u64> {
        let writes = session.access(channel)?.writes();
        let (is_channel, size_bytes) = {
            let object = self.object(channel)?;
            let record = object.record();
            (record.options.is_channel(), record.options.size_bytes)
        };
        if !is_channel || !writes {
            let text = "objects are offered through a channel, which who sends and who receives have open for writing";
            return Err(Error::new(ErrorKind::Permission, text));
        }
        Ok(size_bytes)
    }

    pub(super) fn offer(
        self: &Arc<Self>,
        session: &Arc<Session>,
        channel: ObjectId,
        token: Token,
        what: Offered,
    ) -> Result<Reply> {
        let in_queue = most_offered(self.check_channel(session, channel)?);
        if lock(&self.offers).is_made(token, channel, session.credentials.uid) {
            return Ok(Reply::Done); // the request was repeated
        }
        let through = self.object(channel)?;
        // What is offered through a channel that has ended would never be gone.
        let offered =
            through.hold().and_then(|_held| self.offer_through(session, (channel, in_queue), token, what));
        self.settle_object(channel); // its last user may have gone meanwhile
        offered.map(|()| Reply::Done)
    }

    fn offer_through(
        self: &Arc<Self>,
        session: &Arc<Session>,
        (channel, in_queue): (ObjectId, usize),
        token: Token,
        what: Offered,
    ) -> Result<()> {
        let uid = session.credentials.uid;
        let mut pushed_out = Vec::new();
        let mut make = |object: ObjectId, access: Access| {
            let offer = Offer { channel, object, access, uid };
            let made = lock(&self.offers).make(token, offer, in_queue)?;
            if let Made::New(gone) = made {
                pushed_out = gone;
            }
            Ok(offer)
        };
        let made = match what {
            Offered::Object { object, access } => self.offer_object(session, object, access, &mut make),
            Offered::Pages { of, offset, length } => {
                self.offer_pages(session, (of, offset, length), token, &mut make)
            }
        };
        let noted = made.and_then(|offer| self.note_offer(token, &offer).map(|()| offer));
        match &noted {
            // Withdrawn or pushed out while it was made: whoever did that found no note yet, and an object that was held.
            Ok(offer) if !lock(&self.offers).is_made(token, channel, uid) => {
                self.are_gone(vec![(token, *offer)]);
            }
            Ok(offer) => self.settle_object(offer.object), // taken, and closed, by now
            Err(_) => self.withdraw(channel, token, uid),
        }
        self.are_gone(pushed_out);
        noted.map(drop)
    }

    fn offer_object(
        self: &Arc<Self>,
        session: &Session,
        object: ObjectId,
        access: Access,
        make: &mut impl FnMut(ObjectId, Access) -> Result<Offer>,
    ) -> Result<Offer> {
        self.check_offered(session, object, access)?;
        let offered = self.object(object)?;
        let made = offered.hold().and_then(|_held| make(object, access));
        if made.is_err() {
            self.settle_object(object); // it may have been closed while it was held
        }
        made
    }

    /// Nobody offers more rights than he has.
    fn check_offered(&self, session: &Session, object: ObjectId, access: Access) -> Result<()> {
        let has = session.access(object)?;
        if access.writes() && !has.writes() {
            let text =
                "the object is offered for writing, and open for reading: open it for writing, or offer less";
            return Err(Error::new(ErrorKind::Permission, text));
        }
        let options = self.object(object)?.record().options.clone();
        let refused = |text: &str| Err(Error::new(ErrorKind::Unsupported, text));
        // Two in each other's queues would hold each other for ever, and of a chain of them each would end within the one before.
        if options.is_channel() {
            return refused(
                "a channel is not sent through a channel: send its name, and give it a mode of those who may use it",
            );
        }
        // All wired objects of its class would come with it, for who may open none of them.
        if super::tables::is_arena(&options) {
            return refused("an arena is not sent: send the wired objects in it");
        }
        Ok(())
    }

    /// A snapshot without a name, which the offer alone holds.
    fn offer_pages(
        self: &Arc<Self>,
        session: &Arc<Session>,
        (of, offset, length): (ObjectId, u64, u64),
        token: Token,
        make: &mut impl FnMut(ObjectId, Access) -> Result<Offer>,
    ) -> Result<Offer> {
        let name = first_name()?;
        let asked = SnapshotRequest {
            of,
            offset,
            length,
            name: name.clone(),
            mode: 0o600,
            writable: false,
            whole: false,
            nonce: token,
        };
        let mut offer = None;
        let prepare = |registry: &mut Registry, options: CreateOptions, charged| {
            let new = registry.prepare_nameless(&session.credentials, name, options, token, charged)?;
            // From now on it does not end for lack of users.
            match make(new.record().id, Access::Read) {
                Ok(made) => offer = Some(made),
                Err(error) => {
                    registry.abandon_create(new);
                    return Err(error);
                }
            }
            Ok(Prepared::New(new))
        };
        self.make_snapshot(session, &asked, prepare)?;
        offer.ok_or_else(|| Error::new(ErrorKind::NotFound, "the object has ended"))
    }

    fn withdraw(self: &Arc<Self>, channel: ObjectId, token: Token, uid: u32) {
        let withdrawn = lock(&self.offers).withdraw(token, channel, uid);
        self.are_gone(withdrawn.map(|offer| (token, offer)).into_iter().collect());
    }

    pub(super) fn withdraw_offer(
        self: &Arc<Self>,
        session: &Session,
        channel: ObjectId,
        token: Token,
    ) -> Result<()> {
        session.access(channel)?;
        self.withdraw(channel, token, session.credentials.uid);
        Ok(())
    }

    pub(super) fn take_offer(
        self: &Arc<Self>,
        session: &Arc<Session>,
        channel: ObjectId,
        token: Token,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        self.check_channel(session, channel)?;
        let offered = lock(&self.offers).offered(token, channel)?;
        let Ok(object) = self.object(offered.object) else {
            // Its memory was lost with host and keeper.
            let gone = lock(&self.offers).remove(token);
            self.are_gone(gone.into_iter().collect());
            return Err(lost());
        };
        // Before it is not held any more.
        let held = object.hold()?;
        let taken = lock(&self.offers).take(token, channel, session.id);
        let mut refused = None;
        let given = taken.and_then(|offer| {
            let given = self.note_taken(token, offer.object, session.id);
            let given = given.and_then(|()| self.give(session, &object, offer.access, give));
            // Who is refused drops the message, and nobody else has the number.
            given.inspect_err(|_| refused = lock(&self.offers).is_refused(token, session.id))
        });
        drop(held);
        self.are_gone(refused.into_iter().collect());
        self.settle_object(object.id);
        let forgotten = lock(&self.offers).forget_oldest(session.id);
        self.are_gone(forgotten);
        given
    }

    /// A session does not have an object any more.
    pub(super) fn forget_taken(self: &Arc<Self>, session: &Session, object: ObjectId) {
        let gone = lock(&self.offers).closed(session.id, object);
        if gone.is_empty() {
            return;
        }
        let this = self.clone();
        session.share.run(&self.machine.workers, move || this.are_gone(gone));
    }

    /// A channel has ended.
    pub(super) fn forget_offered(self: &Arc<Self>, channel: ObjectId) {
        let gone = lock(&self.offers).ended(channel);
        self.are_gone(gone);
    }

    /// Objects and channels are lost, and with them what was on its way.
    pub(super) fn forget_offers_of_lost(self: &Arc<Self>) {
        let is_lost = |id| self.object(id).is_err();
        let gone = lock(&self.offers).lost(is_lost);
        if !gone.is_empty() {
            let this = self.clone();
            self.machine.workers.run(move || this.are_gone(gone));
        }
    }

    /// What the host before noted. Sessions and objects are there again.
    pub(super) fn adopt_offers(self: &Arc<Self>) -> Result<()> {
        let folder = self.machine.directory.join("live");
        let mut adopted = Vec::new();
        for entry in std::fs::read_dir(&folder).doing(format!("reading {}", folder.display()))?.flatten() {
            let path = entry.path();
            let Some(token) = number_of(&path) else { continue };
            let made = entry.metadata().and_then(|note| note.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            match token.and_then(|token| self.noted_offer(&path, token)) {
                Some((token, offer, by)) => adopted.push((made, token, offer, by)),
                // Of an earlier boot, cut off when it was written, or of somebody who is gone.
                None => std::fs::remove_file(&path).doing(format!("removing {}", path.display()))?,
            }
        }
        // The oldest are the first that more of them push out.
        adopted.sort_by_key(|(made, token, ..)| (*made, *token));
        let mut offers = lock(&self.offers);
        adopted.into_iter().for_each(|(_, token, offer, by)| offers.adopt(token, offer, by));
        Ok(())
    }

    /// What a note says, if its object and channel are there, and who has taken it.
    fn noted_offer(&self, path: &Path, token: Token) -> Option<(Token, Offer, Option<SessionId>)> {
        let bytes = std::fs::read(path).ok()?;
        let (by, noted) = bytes.split_first_chunk::<TAKEN_BYTES>()?;
        let Noted { boot_id, channel, object, access, uid } = postcard::from_bytes(noted).ok()?;
        let by = u64::from_le_bytes(*by).checked_sub(1).map(SessionId);
        let is_there = boot_id == self.machine.boot_id
            && self.offer_path(token, object) == path
            && [channel, object].iter().all(|id| self.object(*id).is_ok());
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let by = by.map(|by| sessions.get(&by));
        let is_wanted = is_there && !matches!(by, Some(None));
        // Who had not got it yet when the host died asks again, and until then it holds its object.
        let has_it = by.flatten().filter(|taker| lock(&taker.opened).contains_key(&object));
        let by = has_it.map(|taker| taker.id);
        is_wanted.then_some((token, Offer { channel, object, access, uid }, by))
    }
}

/// Of the note of an offer, which; within: none that can be read.
pub(super) fn number_of(path: &Path) -> Option<Option<Token>> {
    let token = path.extension()?.to_str()?.strip_prefix("offer-")?;
    Some(Token::from_str_radix(token, 16).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::is_of_the_state;

    #[test]
    fn notes_are_those_of_their_version() {
        let boot_id = "boot".to_owned();
        let (channel, object) = (ObjectId(2), ObjectId(3));
        is_of_the_state("offer", &Noted { boot_id, channel, object, access: Access::ReadWrite, uid: 4 });
        assert_eq!(taken(Some(SessionId(7))), 8_u64.to_le_bytes());
    }
}
