//! Offers against a list of them, in random steps.

use commonhold_object::{Access, ErrorKind, ObjectId, SessionId};
use commonhold_offers::{MOST_IN_CHANNEL, MOST_OF_USER, MOST_TAKEN, Made, Offer, Offers, Token};

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

const IN_QUEUE: usize = 5;

/// In the order in which they came on their way.
#[derive(Default)]
struct Model {
    offers: Vec<(Token, Offer, Option<SessionId>)>,
}

impl Model {
    fn remove(&mut self, gone: impl Fn(&(Token, Offer, Option<SessionId>)) -> bool) -> Vec<(Token, Offer)> {
        let removed = self.offers.iter().filter(|one| gone(one)).map(|(token, offer, _)| (*token, *offer));
        let removed = removed.collect();
        self.offers.retain(|one| !gone(one));
        removed
    }

    fn make(&mut self, token: Token, offer: Offer) -> Option<Made> {
        if let Some((_, known, _)) = self.offers.iter().find(|(other, ..)| *other == token) {
            return (*known == offer).then_some(Made::Before);
        }
        let of_channel =
            |one: &&(Token, Offer, Option<SessionId>)| one.1.channel == offer.channel && one.2.is_none();
        let oldest: Vec<Token> = self.offers.iter().filter(of_channel).map(|(token, ..)| *token).collect();
        let pushed: Vec<Token> =
            oldest.iter().take((oldest.len() + 1).saturating_sub(IN_QUEUE)).copied().collect();
        let gone = self.remove(|(token, ..)| pushed.contains(token));
        self.offers.push((token, offer, None));
        Some(Made::New(gone))
    }

    fn take(&mut self, token: Token, channel: ObjectId, session: SessionId) -> Option<Offer> {
        let known =
            self.offers.iter_mut().find(|(other, offer, _)| *other == token && offer.channel == channel)?;
        if known.2.is_some_and(|by| by != session) {
            return None;
        }
        known.2 = Some(session);
        Some(known.1)
    }
}

fn sorted(mut offers: Vec<(Token, Offer)>) -> Vec<(Token, Offer)> {
    offers.sort_by_key(|(token, _)| *token);
    offers
}

#[test]
fn each_is_taken_once_and_holds_its_object_until_then() {
    for seed in 1..200_u64 {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut offers, mut model) = (Offers::default(), Model::default());
        for step in 0..400 {
            let token = Token::from(numbers.below(24));
            let channel = ObjectId(numbers.below(3));
            let object = ObjectId(100 + numbers.below(4));
            let session = SessionId(numbers.below(3));
            let offer = Offer { channel, object, access: Access::Read, uid: 1 };
            match numbers.below(9) {
                0..=2 => assert_eq!(offers.make(token, offer, IN_QUEUE).ok(), model.make(token, offer)),
                3 | 4 => {
                    assert_eq!(
                        offers.take(token, channel, session).ok(),
                        model.take(token, channel, session)
                    );
                }
                5 => {
                    let gone = offers.withdraw(token, channel, 1).map(|offer| (token, offer));
                    let is_it = |(other, offer, by): &(Token, Offer, Option<SessionId>)| {
                        *other == token && offer.channel == channel && by.is_none()
                    };
                    assert_eq!(gone.into_iter().collect::<Vec<_>>(), model.remove(is_it));
                }
                7 if step % 7 == 0 => {
                    let gone =
                        model.remove(|(_, offer, _)| offer.channel == channel || offer.object == object);
                    let lost = offers.lost(|id| id == channel || id == object);
                    assert_eq!(sorted(lost), sorted(gone));
                }
                6 if step % 5 == 0 => {
                    let gone = model.remove(|(_, offer, by)| offer.channel == channel && by.is_none());
                    assert_eq!(sorted(offers.ended(channel)), sorted(gone));
                }
                6 => {
                    let gone = model.remove(|(other, _, by)| *other == token && *by == Some(session));
                    let refused = offers.is_refused(token, session);
                    assert_eq!(refused.into_iter().collect::<Vec<_>>(), gone);
                }
                _ => {
                    let gone = model.remove(|(_, offer, by)| *by == Some(session) && offer.object == object);
                    assert_eq!(sorted(offers.closed(session, object)), sorted(gone));
                }
            }
            for object in (100..104).map(ObjectId) {
                let held = model.offers.iter().any(|(_, offer, by)| offer.object == object && by.is_none());
                assert_eq!(offers.holds(object), held);
            }
            assert_eq!(offers.count(), model.offers.len());
        }
    }
}

#[test]
fn what_is_adopted_is_as_it_was() {
    let offer = Offer { channel: ObjectId(1), object: ObjectId(2), access: Access::ReadWrite, uid: 0 };
    let mut offers = Offers::default();
    offers.adopt(7, offer, None);
    offers.adopt(8, offer, Some(SessionId(3)));
    assert_eq!(offers.taken().collect::<Vec<_>>(), [(SessionId(3), ObjectId(2))]);
    assert_eq!(offers.take(8, ObjectId(1), SessionId(3)).unwrap(), offer);
    assert_eq!(offers.take(8, ObjectId(1), SessionId(4)).unwrap_err().kind, ErrorKind::Lost);
    assert_eq!(offers.take(7, ObjectId(9), SessionId(4)).unwrap_err().kind, ErrorKind::Lost);
    assert_eq!(offers.make(7, offer, 9).unwrap(), Made::Before);
    let other = Offer { access: Access::Read, ..offer };
    assert_eq!(offers.make(7, other, 9).unwrap_err().kind, ErrorKind::Exists);
    assert_eq!(offers.take(7, ObjectId(1), SessionId(4)).unwrap(), offer);
    assert!(!offers.holds(ObjectId(2)));
    assert_eq!(offers.closed(SessionId(3), ObjectId(2)), [(8, offer)]);
}

#[test]
fn there_are_no_more_than_so_many() {
    let mut offers = Offers::default();
    let offer =
        |channel| Offer { channel: ObjectId(channel), object: ObjectId(0), access: Access::Read, uid: 5 };
    for token in 0..MOST_OF_USER {
        offers.make(token as Token, offer(token as u64 % 8), usize::MAX).unwrap();
    }
    let refused = offers.make(Token::MAX, offer(9), usize::MAX).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TooMany);
    let others = Offer { uid: 6, ..offer(9) };
    for token in 0..MOST_IN_CHANNEL {
        offers.make((MOST_OF_USER + token) as Token, others, usize::MAX).unwrap();
    }
    let refused = offers.make(Token::MAX, others, usize::MAX).unwrap_err();
    assert!(refused.kind == ErrorKind::TooMany && refused.message.contains("receive some"), "{refused}");
    assert_eq!(offers.ended(ObjectId(9)).len(), MOST_IN_CHANNEL);
    offers.make(Token::MAX, others, usize::MAX).unwrap();
}

#[test]
fn who_takes_one_object_for_ever_keeps_the_last_that_it_took() {
    let offer = Offer { channel: ObjectId(1), object: ObjectId(2), access: Access::Read, uid: 5 };
    let mut offers = Offers::default();
    let (one, other) = (SessionId(1), SessionId(2));
    offers.make(Token::MAX, offer, 9).unwrap();
    offers.take(Token::MAX, offer.channel, other).unwrap();
    for token in 0..MOST_TAKEN as Token + 5 {
        offers.make(token, offer, 9).unwrap();
        offers.take(token, offer.channel, one).unwrap();
        let gone: Vec<Token> = offers.forget_oldest(one).into_iter().map(|(token, _)| token).collect();
        let expected = token.checked_sub(MOST_TAKEN as Token);
        assert_eq!(gone, expected.into_iter().collect::<Vec<_>>());
    }
    assert_eq!(offers.take(4, offer.channel, one).unwrap_err().kind, ErrorKind::Lost);
    assert_eq!(offers.take(5, offer.channel, one).unwrap(), offer);
    assert!(offers.forget_oldest(other).is_empty());
    assert_eq!(offers.take(Token::MAX, offer.channel, other).unwrap(), offer);
    // One that could not be given does not count.
    assert_eq!(offers.is_refused(5, one), Some((5, offer)));
    assert!(offers.forget_oldest(one).is_empty() && !offers.holds(offer.object));
    assert_eq!(offers.closed(one, offer.object).len(), MOST_TAKEN - 1);
    assert_eq!(offers.count(), 1);
}
