//! The registry in a host of the cluster: the one that was started without `--join`. The others ask it by calls.

use super::departures::{no_such_name, no_such_object};
use super::kept::Kept;
use super::rates::{Kind, Rates};
use super::{Joined, Joining, News, Registry, keeps_no_list, out_of_reach};
use crate::cluster::wire::{Answer, Call, Claim, Message};
use crate::cluster::{Cluster, PATIENCE, lock};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Name, Result};
use commonhold_peers::{HostAddress, Resolver};
use commonhold_points as points;
use commonhold_sys::clock;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

/// How long a name may take to be resolved, before what it was last is tried.
const RESOLVING: Duration = Duration::from_millis(1500);
/// So long the log does not tell again that the same host is not let in, and of how many hosts that is known.
const TOLD: (Duration, usize) = (Duration::from_secs(60), 256);

/// The registry as one host sees it.
pub struct Embedded {
    cluster: Weak<Cluster>,
    /// Where the host listens that keeps the list, unless it is this one.
    at: Option<Resolver>,
    /// Where it answered last.
    found_at: Mutex<Option<SocketAddr>>,
    /// Which host that is, while it is connected.
    keeper: Mutex<Option<HostId>>,
    /// Which it was when it answered last.
    last: Mutex<Option<HostId>>,
    /// What the host is called that let this one in: nobody else keeps the list.
    name: OnceLock<String>,
    /// The list, if it is kept here.
    kept: Option<Kept>,
    /// What other hosts have asked of it.
    rates: Mutex<Rates>,
    /// Hosts that were not let in, and when the log told so last.
    refused: Mutex<HashMap<String, Instant>>,
}

impl Embedded {
    /// The registry that is reached at that address, or is this host's own. Leases last as long as the list's host says.
    pub(super) fn new(
        cluster: &Arc<Cluster>,
        at: Option<HostAddress>,
        kept: Option<Kept>,
        lease: Duration,
    ) -> Result<Arc<Embedded>> {
        let keeper = kept.is_some().then_some(cluster.me.host);
        let (keeper, last, name) = (Mutex::new(keeper), Mutex::default(), OnceLock::new());
        let this = Arc::new(Embedded {
            cluster: Arc::downgrade(cluster),
            at: at.map(Resolver::new),
            found_at: Mutex::default(),
            refused: Mutex::default(),
            keeper,
            last,
            name,
            kept,
            rates: Mutex::default(),
        });
        if this.kept.is_some() {
            let weak = Arc::downgrade(&this);
            let looking = move || {
                while let Some(this) = weak.upgrade() {
                    this.expire();
                    drop(this);
                    std::thread::sleep(lease / 32);
                }
            };
            points::thread(|| std::thread::Builder::new().name("leases".into()).spawn(looking))
                .map_err(|error| Error::io("starting a thread", &error))?;
        }
        Ok(this)
    }

    fn cluster(&self) -> Result<Arc<Cluster>> {
        self.cluster.upgrade().ok_or_else(|| Error::new(ErrorKind::Disconnected, "this host is ending"))
    }

    fn expire(&self) {
        let (Some(kept), Ok(cluster)) = (&self.kept, self.cluster()) else { return };
        match kept.change(|list, now| Ok(list.expire(now))) {
            Ok((deaf, news)) => {
                for name in deaf {
                    cluster.report(format_args!(
                        "{name} renews its lease, and does not follow the losses that all must hear of: it is lost"
                    ));
                }
                self.tell(&cluster, news);
            }
            Err(error) => cluster.report(format_args!("a loss cannot be told: {error}")),
        }
    }

    /// Tells everybody.
    fn tell(&self, cluster: &Arc<Cluster>, news: Option<News>) {
        let Some(news) = news else { return };
        for member in news.members.iter().filter(|member| member.host != cluster.me.host) {
            // Who cannot be reached now hears it with its next renewal.
            let _ = cluster.send(member.host, &Message::News(news.clone()), &mut Vec::new());
        }
        cluster.heard(news);
    }

    /// Who is not let in asks again and again: the log has it once a minute.
    fn tell_refused(&self, cluster: &Cluster, name: String, why: &Error) {
        let (mut refused, now) = (lock(&self.refused), Instant::now());
        if refused.len() >= TOLD.1 {
            refused.clear();
        }
        let is_told = refused.get(&name).is_some_and(|at| now.duration_since(*at) < TOLD.0);
        if !is_told {
            cluster.report(format_args!("{name} is not let in: {why}"));
            refused.insert(name, now);
        }
    }

    fn ask(&self, call: Call, within: Duration) -> Result<Answer> {
        let keeper = self.kept_by().ok_or_else(out_of_reach)?;
        self.cluster()?.ask(keeper, call, within)
    }

    /// Refuses to be told by anybody but the host that keeps the list who belongs and who is lost: it may write, and is the one
    /// that let this host in.
    fn check_keeper(&self, cluster: &Cluster, keeper: HostId) -> Result<()> {
        let name = cluster.check_may_decide(keeper)?;
        match self.name.get() {
            Some(kept_by) if *kept_by != name => Err(Error::new(
                ErrorKind::Permission,
                format!(
                    "{name} answers where {kept_by} kept the cluster's list: if it does so now, restart this host, which \
                     joins anew"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Refuses more than one host may ask of the list that is kept here. This host's own processes are not counted.
    fn check_rate(&self, cluster: &Cluster, from: HostId, call: &Call) -> Result<()> {
        if from == cluster.me.host {
            return Ok(());
        }
        let name = cluster.name_of(from).unwrap_or_else(|| from.to_string());
        let (mut rates, now) = (lock(&self.rates), clock::now());
        let mut take = |kind, count: usize| rates.take(&name, kind, count as u64, now);
        match call {
            Call::Renew(_) => take(Kind::Renewal, 1),
            Call::Join { claims, .. } => {
                take(Kind::Joining, 1).and_then(|()| take(Kind::Names, claims.len()))
            }
            Call::Resign => take(Kind::Joining, 1),
            Call::Names(claims) => take(Kind::Question, 1).and_then(|()| take(Kind::Names, claims.len())),
            _ => take(Kind::Question, 1),
        }
    }

    /// Finds and connects the host that keeps the list. Whether it had to.
    fn connect(&self, within: Duration) -> Result<bool> {
        let Some(at) = self.at.as_ref().filter(|_| self.kept_by().is_none()) else { return Ok(false) };
        let cluster = self.cluster()?;
        let transport = cluster.transport()?;
        // The one that it was may be reached where nobody can be asked who is there: through other hosts.
        let mut addresses = at.addresses(RESOLVING.min(within))?;
        let last = *lock(&self.last);
        let found_at = *lock(&self.found_at);
        addresses.sort_by_key(|address| Some(*address) != found_at);
        let each = within / addresses.len().max(1) as u32;
        let connect = |last| addresses.iter().any(|address| transport.connect(last, *address, each).is_ok());
        let reached = last.filter(|last| connect(*last));
        let keeper = match reached {
            Some(last) => last,
            None => {
                let (keeper, address) = transport.who(&addresses)?;
                transport.connect(keeper, address, PATIENCE)?;
                *lock(&self.found_at) = Some(address);
                keeper
            }
        };
        self.check_keeper(&cluster, keeper)?;
        // Before the answer: news may come first.
        *lock(&self.keeper) = Some(keeper);
        Ok(true)
    }
}

impl Registry for Embedded {
    fn join(&self, joining: &Joining, within: Duration) -> Result<Joined> {
        let anew = self.connect(within)?;
        let call = match joining.before {
            Some(before) if !anew => Call::Renew(before),
            before => Call::Join { member: joining.member.clone(), claims: joining.claims.clone(), before },
        };
        match self.ask(call, within) {
            Ok(Answer::Joined(joined)) => {
                let keeper = self.kept_by();
                let name = keeper.and_then(|keeper| self.cluster().ok()?.name_of(keeper));
                name.into_iter().for_each(|name| drop(self.name.set(name)));
                *lock(&self.last) = keeper;
                Ok(*joined)
            }
            Ok(_) => Err(Error::new(ErrorKind::Protocol, "the list's host answers something else")),
            Err(error) => {
                let keeper = self.kept_by().filter(|_| self.at.is_some());
                if anew && self.at.is_some() {
                    *lock(&self.keeper) = None; // all of it again
                }
                // There may be another way to it, and the lease does not wait until the kernel has given this one up.
                if let (Some(keeper), ErrorKind::TimedOut) = (keeper, error.kind) {
                    self.cluster()?.transport()?.doubt(keeper);
                }
                Err(error)
            }
        }
    }

    fn leave(&self) {
        let _ = self.ask(Call::Resign, Duration::from_secs(1));
    }

    fn claim(&self, claim: Claim) -> Result<()> {
        if claim.moving.is_some() {
            return Err(super::does_not_move());
        }
        self.ask(Call::Claim(claim), PATIENCE).map(drop)
    }

    fn give_addresses(&self, object: u128, room_bytes: u64, uid: u32) -> Result<u64> {
        match self.ask(Call::Addresses { object, room_bytes, uid }, PATIENCE)? {
            Answer::Addresses(first) => Ok(first),
            _ => Err(Error::new(ErrorKind::Protocol, "the list's host answers something else")),
        }
    }

    fn replace(&self, claims: Vec<Claim>) -> Result<()> {
        self.ask(Call::Names(claims), PATIENCE).map(drop)
    }

    fn look_up(&self, name: &Name) -> Result<(HostId, u128)> {
        match self.ask(Call::Lookup(name.clone()), PATIENCE)? {
            Answer::Named { home, object } => Ok((home, object)),
            _ => Err(Error::new(ErrorKind::Protocol, "the list's host answers something else")),
        }
    }

    fn where_is(&self, object: u128) -> Result<HostId> {
        home(self.ask(Call::WhereIs(object), PATIENCE)?)
    }

    fn pass_given_up(&self, home: HostId, object: u128, number: u64) -> Result<()> {
        let former = self.cluster()?.me.host;
        self.ask(Call::GaveUp { home, object, former, number }, PATIENCE).map(drop)
    }

    fn broken(&self, host: HostId) {
        let mut keeper = lock(&self.keeper);
        if *keeper == Some(host) && self.at.is_some() {
            *keeper = None; // it, or another, is looked for at the same address
        }
    }

    fn kept_by(&self) -> Option<HostId> {
        *lock(&self.keeper)
    }

    fn answer(&self, from: HostId, call: Call) -> Result<Answer> {
        let cluster = self.cluster()?;
        let kept = self.kept.as_ref().ok_or_else(|| keeps_no_list(&cluster.me.name))?;
        self.check_rate(&cluster, from, &call)?;
        let joined = |news: Option<News>| {
            self.tell(&cluster, news);
            let list = kept.list();
            let lease = Duration::from_nanos(list.lease_ns());
            let begin_at = list.last_loss();
            Ok(Answer::Joined(Box::new(Joined { lease, news: list.news(), begin_at })))
        };
        match call {
            Call::Join { member, .. } if member.host != from => {
                Err(Error::new(ErrorKind::Protocol, "a host joins for itself alone"))
            }
            Call::Join { member, claims, before } => {
                cluster.check_own_name(from, &member.name)?;
                // Who may change nothing is the home of nothing.
                let claims = if cluster.check_may_change(from).is_ok() { claims } else { Vec::new() };
                let name = member.name.clone();
                let listed = kept.join(Joining { member, claims, before });
                joined(listed.inspect_err(|error| self.tell_refused(&cluster, name, error))?)
            }
            Call::Renew(before) => joined(kept.renew(from, before)?),
            Call::Resign => {
                let changed = kept.change(|list, now| {
                    list.lose(from, now);
                    Ok(())
                });
                self.tell(&cluster, changed?.1);
                Ok(Answer::Done)
            }
            Call::Claim(claim) => {
                cluster.check_may_change(from)?;
                kept.claim(from, claim).map(|()| Answer::Done)
            }
            Call::Names(claims) => {
                cluster.check_may_change(from)?;
                kept.replace(from, claims).map(|()| Answer::Done)
            }
            Call::Addresses { object, room_bytes, uid } => {
                cluster.check_may_change(from)?;
                kept.give_addresses(from, object, room_bytes, uid).map(Answer::Addresses)
            }
            Call::Lookup(name) => match kept.names().lookup(&name) {
                Some((home, object)) => Ok(Answer::Named { home, object }),
                None => Err(no_such_name(&name)),
            },
            Call::WhereIs(object) => {
                kept.names().home_of(object).map(Answer::Home).ok_or_else(no_such_object)
            }
            _ => Err(Error::new(ErrorKind::Protocol, "that is no question to the list")),
        }
    }
}

fn home(answer: Answer) -> Result<HostId> {
    match answer {
        Answer::Home(home) => Ok(home),
        _ => Err(Error::new(ErrorKind::Protocol, "the list's host answers something else")),
    }
}
