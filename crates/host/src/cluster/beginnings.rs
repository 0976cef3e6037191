//! Where one use of an object by a host ends and the next begins. Calls may arrive late: whoever asked stopped waiting, and
//! asked again, or by another way. So what a host says of beginning and ending carries a number that grows, and the home does
//! nothing for what is older than what it heard last: a host that gave up what it had, and has pages again, is not taken for one
//! that has none.

use super::lock;
use commonhold_coherence::HostId;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number under which a host gives up for its process before: that begins nothing any more.
pub(super) const FOR_EVER: u64 = u64::MAX;

/// What this host says of the objects of others, and hears of its own.
#[derive(Default)]
pub(super) struct Beginnings {
    said: AtomicU64,
    /// Objects of which everything here was given up, and whose homes do not know it yet; under which number.
    given_up: Mutex<HashMap<u128, u64>>,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    /// Of objects of this host, the number that another host said last.
    last: HashMap<(u128, HostId), u64>,
    /// Objects, and hosts that are asked for what they had newest of them.
    asking: HashSet<(u128, HostId)>,
}

/// What becomes of a call.
pub(super) enum Turn<'b> {
    /// It is done, and nobody else's of that host meanwhile.
    Now(Asking<'b>),
    /// The host is being asked for what it had newest.
    Later,
    /// It was done before, or something later was.
    Over,
}

/// Until it is dropped that host is asked for what it had newest of the object.
pub(super) struct Asking<'b>(&'b Beginnings, (u128, HostId));

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        lock(&self.0.heard).asking.remove(&self.1);
    }
}

impl Beginnings {
    /// The number of what this host says next.
    pub fn next(&self) -> u64 {
        self.said.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Everything here of an object is given up: its home is to hear it.
    pub fn gave_up(&self, object: u128) {
        let number = self.next();
        lock(&self.given_up).insert(object, number);
    }

    /// Under which number, if the home has not heard it yet.
    pub fn given_up(&self, object: u128) -> Option<u64> {
        lock(&self.given_up).get(&object).copied()
    }

    /// The home has heard it, or need not.
    pub fn home_knows(&self, object: u128, number: Option<u64>) {
        let mut given_up = lock(&self.given_up);
        if number.is_none_or(|number| given_up.get(&object) == Some(&number)) {
            given_up.remove(&object);
        }
    }

    /// At the home: a host says under this number that it gave up what it had, or is lost (no number).
    pub fn ends(&self, object: u128, host: HostId, number: Option<u64>) -> Turn<'_> {
        let mut heard = lock(&self.heard);
        if heard.asking.contains(&(object, host)) {
            return Turn::Later;
        }
        if number.is_some_and(|number| number != FOR_EVER && !heard.is_news(object, host, number)) {
            return Turn::Over;
        }
        heard.asking.insert((object, host));
        Turn::Now(Asking(self, (object, host)))
    }

    /// At the home: a host says under this number that it begins, or (in order) that it ends. Whether that is so; then `job` is
    /// done before anything later is heard of that host.
    pub fn says(&self, object: u128, host: HostId, number: u64, job: impl FnOnce()) -> bool {
        let mut heard = lock(&self.heard);
        let is_news = !heard.asking.contains(&(object, host)) && heard.is_news(object, host, number);
        if is_news {
            job();
        }
        is_news
    }

    /// At the home: whether that host is being asked for what it had newest.
    pub fn is_asked(&self, object: u128, host: HostId) -> bool {
        lock(&self.heard).asking.contains(&(object, host))
    }

    /// A host is lost: it says nothing any more.
    pub fn forget(&self, host: HostId) {
        lock(&self.heard).last.retain(|(_, other), _| *other != host);
    }
}

impl Heard {
    fn is_news(&mut self, object: u128, host: HostId, number: u64) -> bool {
        let last = self.last.entry((object, host)).or_default();
        let news = *last < number;
        *last = number.max(*last);
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const HOST: HostId = HostId(7);

    #[test]
    fn what_comes_late_or_twice_is_not_done() {
        let home = Beginnings::default();
        assert!(home.says(1, HOST, 4, || ()), "it begins");
        assert!(matches!(home.ends(1, HOST, Some(3)), Turn::Over), "said before it began");
        assert!(matches!(home.ends(1, HOST, Some(4)), Turn::Over));
        let Turn::Now(asking) = home.ends(1, HOST, Some(5)) else { panic!("it ends") };
        assert!(home.says(2, HOST, 1, || ()), "another object");
        assert!(matches!(home.ends(1, HOST, Some(5)), Turn::Later), "asked twice at once");
        assert!(!home.says(1, HOST, 6, || ()), "it begins when it has been asked");
        drop(asking);
        assert!(matches!(home.ends(1, HOST, Some(5)), Turn::Over), "done");
        assert!(!home.says(1, HOST, 4, || ()), "a beginning of before");
        assert!(home.says(1, HOST, 6, || ()));
        assert!(matches!(home.ends(1, HOST, None), Turn::Now(_)), "lost, whatever it said");
        assert!(matches!(home.ends(1, HOST, Some(FOR_EVER)), Turn::Now(_)));
        assert!(matches!(home.ends(1, HOST, Some(FOR_EVER)), Turn::Now(_)), "nobody begins after that");
    }

    /// A host leaves an object and uses it again, and both calls are carried out at once: whichever comes to its end first, in the
    /// end the host uses it.
    #[test]
    fn what_follows_from_a_call_is_done_before_a_later_one() {
        let home = Beginnings::default();
        let uses = Mutex::new(true);
        let (begins, begun) = channel();
        std::thread::scope(|scope| {
            let (home, uses) = (&home, &uses);
            let leaves = move || {
                begins.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(50)); // longer than the other takes
                *uses.lock().unwrap() = false;
            };
            scope.spawn(move || assert!(home.says(1, HOST, 4, leaves)));
            begun.recv().unwrap();
            assert!(home.says(1, HOST, 5, || *uses.lock().unwrap() = true));
        });
        assert!(*uses.lock().unwrap());
        assert!(!home.says(1, HOST, 4, || *uses.lock().unwrap() = false), "that was before");
        assert!(*uses.lock().unwrap());
    }

    #[test]
    fn what_was_given_up_is_said_until_the_home_knows_of_that_very_time() {
        let sharer = Beginnings::default();
        assert_eq!(sharer.given_up(1), None);
        sharer.gave_up(1);
        let first = sharer.given_up(1);
        sharer.gave_up(1);
        sharer.home_knows(1, first);
        assert!(first < sharer.given_up(1), "that was the time before");
        sharer.home_knows(1, sharer.given_up(1));
        assert_eq!(sharer.given_up(1), None);
        assert!(sharer.next() > 2);
    }
}
