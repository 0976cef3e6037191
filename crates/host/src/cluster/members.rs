//! Joining the cluster, staying in it, and hearing what happens in it.

use super::lease::Times;
use super::registry::place::Place;
use super::registry::{Before, Joining, News, Registry, out_of_reach};
use super::threads::begin;
use super::wire::Member;
use super::{Cluster, PATIENCE, lock};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_sys::clock;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two attempts to join, or to renew a lease.
const PAUSE: Duration = Duration::from_millis(200);
/// How often it is looked whether this host has joined.
const JOINS_APART: Duration = Duration::from_millis(5);
/// How long whoever touches a page of an object whose home is this host waits for the registry.
const REGISTRY_AWAY: Duration = Duration::from_secs(30);

/// What this host has heard.
#[derive(Default)]
pub(super) struct Heard {
    /// None until it has joined.
    joined: Option<u128>,
    number: u64,
    /// The last change that it was told of: what follows from it is done, or has its turn.
    told: u64,
    /// What came before the answer to joining.
    early: Option<News>,
    /// What must be settled before the homes here begin.
    begin_at: u64,
    /// The change that is being followed, or was last.
    following: u64,
    /// Up to this change everybody has done what follows.
    settled: u64,
}

/// News that nothing has followed from yet. What follows may take as long as it takes to copy what is newest here, and the lease
/// is renewed meanwhile: so a thread of their own does it, one after the other.
pub(super) struct NewsQueue(Sender<News>, Mutex<Option<Receiver<News>>>);

impl Default for NewsQueue {
    fn default() -> NewsQueue {
        let (sender, receiver) = channel();
        NewsQueue(sender, Mutex::new(Some(receiver)))
    }
}

impl Cluster {
    /// Joins, and renews the lease for as long as the host lives.
    pub(super) fn stay_a_member(self: &Arc<Self>) {
        self.follow_news();
        let this = Arc::downgrade(self);
        let staying = move || {
            let (began, mut said) = (Instant::now(), false);
            while let Some(this) = this.upgrade() {
                lock(&this.attempts).begin();
                let next = match this.renew() {
                    _ if this.lease.is_fenced() => return,
                    Ok(next) => {
                        lock(&this.attempts).succeeded();
                        said = false;
                        next
                    }
                    Err(error) if error.kind == ErrorKind::NotFound => {
                        lock(&this.attempts).failed(&error);
                        this.fence(&format!("{error}"));
                        return;
                    }
                    Err(error) => {
                        lock(&this.attempts).failed(&error);
                        if !std::mem::replace(&mut said, true) {
                            this.report(format_args!("{}: {error}; trying again", this.what_is_tried()));
                        }
                        clock::now() + PAUSE.as_nanos() as u64
                    }
                };
                if !this.has_begun() && began.elapsed() > REGISTRY_AWAY {
                    this.homes_wait_in_vain();
                }
                this.wait_to_renew(next);
            }
        };
        begin("staying a member", staying);
        let this = Arc::downgrade(self);
        let lease = self.lease.clone();
        let fencing = move || {
            if lease.wait_for_its_end()
                && let Some(this) = this.upgrade()
            {
                this.fence_now("the registry could not be reached for most of the lease");
            }
        };
        begin("fencing", fencing);
    }

    fn follow_news(self: &Arc<Self>) {
        let (this, queue) = (Arc::downgrade(self), lock(&self.news.1).take());
        let following = move || {
            while let Some(news) = queue.as_ref().and_then(|queue| queue.recv().ok())
                && let Some(this) = this.upgrade()
            {
                this.follow(news);
            }
        };
        begin("news", following);
    }

    fn what_is_tried(&self) -> String {
        let until_then = "(until then objects that hosts share wait)";
        match (lock(&self.heard).joined, &self.place) {
            (Some(_), _) => "renewing this host's lease".to_owned(),
            (None, Place::Host(address)) => format!("joining the cluster at {address} {until_then}"),
            (None, Place::Etcd(place, _)) => format!("joining the cluster at {place} {until_then}"),
            (None, Place::Here) => format!("joining the cluster {until_then}"),
        }
    }

    /// Joins or renews. Gives when to do so again.
    fn renew(self: &Arc<Self>) -> Result<u64> {
        let before = {
            let heard = lock(&self.heard);
            heard.joined.map(|epoch| Before {
                epoch,
                heard: heard.told.max(heard.number),
                seen: heard.number,
            })
        };
        if before.is_none() {
            self.host()?.check_all_returned(self.wait_for_returning())?;
        }
        let within = before.map_or(PATIENCE, |_| lock(&self.patience).unwrap_or(PATIENCE));
        // Who joins tells all names.
        let alone = before.is_none().then(|| self.claims_stay());
        let joining = Joining { member: self.me.clone(), claims: self.claims(), before };
        let sent = clock::now();
        let joined = self.registry()?.join(&joining, within)?;
        drop(alone);
        let times = Times::of(sent, joined.lease, self.fencing_takes());
        *lock(&self.patience) = Some(times.patience);
        if !self.lease.renewed(times)? {
            return Ok(times.renew);
        }
        if before.is_none() {
            self.has_joined(joined.news, joined.begin_at);
        } else {
            self.heard(joined.news);
            if self.claims.untold.load(Ordering::SeqCst) {
                let this = self.clone();
                self.pools.short.run(move || this.tell_names());
            }
        }
        Ok(times.renew)
    }

    /// The last change that this host has heard of, and the last that everybody has done what follows from.
    pub(super) fn heard_and_settled(&self) -> (u64, u64) {
        let heard = lock(&self.heard);
        (heard.following, heard.settled)
    }

    fn wait_to_renew(&self, until: u64) {
        let left = Duration::from_nanos(until.saturating_sub(clock::now()));
        let mut nudged = lock(&self.nudged);
        if !*nudged {
            nudged = self.nudge.wait_timeout(nudged, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *nudged = false;
    }

    /// The lease is to be renewed at once: to say what was heard, or because the registry has to be found again.
    pub(super) fn renew_now(&self) {
        *lock(&self.nudged) = true;
        self.nudge.notify_all();
    }

    fn has_joined(self: &Arc<Self>, news: News, begin_at: u64) {
        if news.lost.iter().any(|(_, host)| *host == self.me.host) {
            // It had joined before, and its lease was over before it heard of that.
            self.fence("the others were told that it is lost");
            return;
        }
        // Nothing follows from news before `joined` is set: who belongs is not overtaken by a later list.
        self.now_follow(&news.members);
        self.now_members(news.members.clone());
        let early = {
            let mut heard = lock(&self.heard);
            heard.joined = Some(news.epoch);
            heard.number = news.number;
            heard.begin_at = begin_at;
            heard.early.take()
        };
        self.report(format_args!("joined the cluster as {}, {}", self.me.name, self.me.host));
        self.tell_of_taken_names();
        self.heard(news);
        if let Some(early) = early {
            self.heard(early);
        }
    }

    /// The registry told what happened.
    pub fn heard(&self, news: News) {
        {
            let mut heard = lock(&self.heard);
            if heard.joined == Some(news.epoch) {
                heard.told = heard.told.max(news.number);
            }
        }
        let _ = self.news.0.send(news); // the other end is there as long as this host
    }

    /// How far this host has done what follows from news, if these go on from there.
    fn goes_on_from(&self, news: &News) -> Option<u64> {
        let mut heard = lock(&self.heard);
        if heard.joined.is_none() {
            heard.early = Some(news.clone());
            return None;
        }
        let goes_on = heard.joined == Some(news.epoch) && news.number >= heard.number;
        heard.following = heard.following.max(if goes_on { news.number } else { 0 });
        goes_on.then_some(heard.number)
    }

    /// Does what follows from news. By one thread: in order.
    fn follow(self: &Arc<Self>, news: News) {
        let Some(done) = self.goes_on_from(&news) else { return };
        let mut lost: Vec<HostId> =
            news.lost.iter().filter(|(number, _)| *number > done).map(|(_, host)| *host).collect();
        // So many were lost that not all are told.
        let now: HashSet<HostId> = news.members.iter().map(|member| member.host).collect();
        let before = self.members();
        let joined = news.members.len() + lost.len() > before.len();
        for member in before {
            if !now.contains(&member.host) && !lost.contains(&member.host) {
                lost.push(member.host);
            }
        }
        self.now_follow(&news.members);
        // Who follows one that is lost is spoken to at once.
        let new = news.members.iter().map(|member| (member.host, member.clone()));
        self.members.write().unwrap_or_else(PoisonError::into_inner).extend(new);
        for host in &lost {
            self.lost(*host);
        }
        self.now_members(news.members);
        if !lost.is_empty() || joined {
            self.look_at_replicas();
        }
        let begins = {
            let mut heard = lock(&self.heard);
            heard.number = news.number;
            heard.settled = heard.settled.max(news.settled);
            news.settled >= heard.begin_at
        };
        if !lost.is_empty() || joined {
            self.renew_now(); // others may wait for all to have heard of it
        }
        if begins {
            self.begin_homes();
        }
    }

    /// The registry.
    pub(super) fn registry(&self) -> Result<&Arc<dyn Registry>> {
        self.registry.get().ok_or_else(out_of_reach)
    }

    /// The host that keeps the list, if one does and it is known.
    pub fn list_kept_by(&self) -> Option<HostId> {
        self.registry().ok()?.kept_by()
    }

    /// Who belongs now.
    pub(super) fn now_members(&self, members: Vec<Member>) {
        let members = members.into_iter().map(|member| (member.host, member)).collect();
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = members;
        self.check_names();
    }

    /// Everybody who belongs, this host too.
    pub fn members(&self) -> Vec<Member> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let mut members: Vec<Member> = members.values().cloned().collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members
    }

    /// A host that belongs.
    pub(super) fn member(&self, host: HostId) -> Option<Member> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).get(&host).cloned()
    }

    /// Whether this host has a lease.
    pub fn has_joined_a_cluster(&self) -> bool {
        lock(&self.heard).joined.is_some() && !self.lease.is_fenced()
    }

    /// How long a host that says nothing belongs.
    pub(super) fn lease_length(&self) -> Duration {
        lock(&self.patience).map_or(PATIENCE, |patience| patience * 4)
    }

    /// Makes sure that there is a connection to a host.
    pub(super) fn reach(&self, host: HostId) -> Result<()> {
        self.reach_within(host, PATIENCE)
    }

    /// The same for who cannot wait as long as that takes at most.
    pub(super) fn reach_within(&self, host: HostId, within: Duration) -> Result<()> {
        if host == self.me.host {
            return Ok(());
        }
        let unknown =
            || Error::new(ErrorKind::Disconnected, format!("{host} does not belong to the cluster any more"));
        let begun = Instant::now();
        // A process that has just taken over does not know yet who belongs.
        while lock(&self.heard).joined.is_none() && begun.elapsed() < within {
            std::thread::sleep(JOINS_APART);
        }
        let left = within.saturating_sub(begun.elapsed());
        self.transport()?.connect(host, self.member(host).ok_or_else(unknown)?.address, left)
    }
}
