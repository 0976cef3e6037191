//! Between the cluster and the connections (crate `peers`) that carry its messages.

use super::refusals::Refusals;
use super::registry::{self, Ready};
use super::{Cluster, Transport, lock};
use crate::server::start::ClusterOptions;
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_peers::{
    Handler, Hello, HostAt, Identity, Payload, PeerRights, Peers, Security, check_host_name,
};
use commonhold_points as points;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);
/// A certificate that ends within this time is spoken of.
const SOON: Duration = Duration::from_secs(30 * 86_400);

/// How hosts prove who they are.
#[derive(Clone, Debug)]
pub enum Proof {
    /// By the certificate in this directory.
    Certificate(PathBuf),
    /// Not at all: for trials.
    None {
        /// Also between machines.
        even_beyond_loopback: bool,
    },
}

/// The connections of this host.
struct Link {
    cluster: Weak<Cluster>,
    peers: OnceLock<Arc<Peers>>,
    refusals: Mutex<Refusals>,
    is_relay: bool,
    /// How often somebody was to be asked to pass a connection on.
    attempts: AtomicUsize,
    /// Hosts that are spoken with through another.
    through: Mutex<HashMap<HostId, HostId>>,
}

/// All that a host needs to belong to a cluster and that it may not get. A host gets it before it serves: whoever starts the
/// host is told why it failed, and no client waits for a host that cannot come.
pub struct Door {
    security: Security,
    listener: TcpListener,
    registry: Ready,
    incarnation: u64,
    address: SocketAddr,
}

impl Door {
    /// Reads certificate and registry, and takes the address.
    pub fn open(options: &ClusterOptions, state: &Path) -> Result<Door> {
        let security = match &options.proof {
            Proof::Certificate(directory) => Security::Tls(Identity::load(directory)?),
            Proof::None { even_beyond_loopback } => {
                Security::Plain { even_beyond_loopback: *even_beyond_loopback }
            }
        };
        check_host_name(&options.name)?;
        options.registry.check(matches!(security, Security::Plain { even_beyond_loopback: true }))?;
        let registry = Ready::new(&options.registry, state, options.lease)?;
        let (listener, address) = listen(options, &security)?;
        Ok(Door { security, listener, registry, incarnation: next_incarnation(state)?, address })
    }

    /// Where the others reach this host.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Takes the address to listen on. Who started the host has resolved its name already, so that no client of the next process
/// waits for that; it is resolved anew if the machine has that address no more.
fn listen(options: &ClusterOptions, security: &Security) -> Result<(TcpListener, SocketAddr)> {
    if let Some(address) = options.listens_at.or(options.listen.literal()) {
        let is_gone = options.listen.literal().is_none() && TcpListener::bind((address.ip(), 0)).is_err();
        if !is_gone {
            return Ok((Peers::listen(address, security)?, address));
        }
    }
    let address = options.listen.of_this_machine()?;
    Ok((Peers::listen(address, security)?, address))
}

/// Answers the other hosts, and joins them. `is_relay`: hosts that cannot reach each other may speak through this one.
pub fn start(cluster: &Arc<Cluster>, door: Door, is_relay: bool, lease: Duration) -> Result<()> {
    let Door { security, listener, registry, incarnation, .. } = door;
    let registry = registry::open(cluster, registry, lease)?;
    let id = match &security {
        Security::Tls(identity) => {
            if identity.rights() == PeerRights::ReadOnly {
                cluster.note_reads_alone();
            }
            if let Some(end) = identity.good_until() {
                watch_certificate(cluster, end)?;
            }
            identity.cluster()
        }
        Security::Plain { .. } => [0; 16],
    };
    let here = cluster.host()?.machine.types.here();
    let hello = Hello::new(id, cluster.me.host, &cluster.me.name, incarnation)?.on(here);
    let link = Arc::new(Link {
        cluster: Arc::downgrade(cluster),
        peers: OnceLock::new(),
        refusals: Mutex::default(),
        is_relay,
        attempts: AtomicUsize::default(),
        through: Mutex::default(),
    });
    let peers = Peers::answer(listener, hello, security, link.clone())?;
    let _ = link.peers.set(peers);
    cluster.begin(link, registry)
}

/// Says once a day that this host's certificate ends soon: then nobody speaks with this host any more.
fn watch_certificate(cluster: &Arc<Cluster>, end: SystemTime) -> Result<()> {
    let cluster = Arc::downgrade(cluster);
    let watching = move || {
        while let Some(cluster) = cluster.upgrade() {
            let left = end.duration_since(SystemTime::now()).unwrap_or_default();
            if left < SOON {
                cluster.report(format_args!(
                    "this host's certificate ends in {} h, and nobody speaks with this host then: `commonhold ca issue \
                     --renew` on the authority's machine, put the files into the identity directory, and restart the host",
                    left.as_secs() / 3600
                ));
            }
            drop(cluster);
            std::thread::sleep(DAY);
        }
    };
    let thread = std::thread::Builder::new().name("certificate".into()).stack_size(64 << 10);
    points::thread(|| thread.spawn(watching)).map(drop).doing("starting a thread")
}

/// Grows with each process that is this host, whatever the clock does. One that cannot be read was being written when the
/// power went: then the clock alone says which is newer.
fn next_incarnation(state: &Path) -> Result<u64> {
    let (path, fresh) = (state.join("incarnation"), state.join("incarnation.new"));
    let last: u64 = match std::fs::File::open(&path) {
        Ok(file) => {
            let mut bytes = Vec::new();
            file.take(32).read_to_end(&mut bytes).doing("reading the host's incarnation")?;
            std::str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(Error::io("reading the host's incarnation", &error)),
    };
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64);
    let next = now.max(last.saturating_add(1));
    let write = || {
        let mut file = std::fs::File::create(&fresh)?;
        file.write_all(next.to_string().as_bytes())?;
        points::fsync(|| file.sync_all())?;
        std::fs::rename(&fresh, &path)?;
        points::fsync(|| std::fs::File::open(state)?.sync_all())
    };
    write().doing("writing the host's incarnation")?;
    Ok(next)
}

impl Link {
    fn peers(&self) -> Result<&Arc<Peers>> {
        self.peers.get().ok_or_else(|| Error::new(ErrorKind::Disconnected, "the cluster is not up yet"))
    }

    /// Who may have a way to a host that cannot be reached from here. Each attempt begins with another one.
    fn relays_to(&self, host: HostId) -> Vec<HostAt> {
        let Some(cluster) = self.cluster.upgrade() else { return Vec::new() };
        let others =
            cluster.members().into_iter().filter(|other| ![host, cluster.me.host].contains(&other.host));
        let mut relays: Vec<HostAt> = others.map(|other| (other.host, other.address)).collect();
        let first = self.attempts.fetch_add(1, Ordering::Relaxed) % relays.len().max(1);
        relays.rotate_left(first);
        relays
    }
}

impl Transport for Link {
    fn send(&self, to: HostId, message: &[u8], payload: &mut Vec<u8>) -> Result<()> {
        self.peers()?.send(to, message, payload)
    }

    fn connect(&self, host: HostId, address: SocketAddr, within: Duration) -> Result<()> {
        self.peers()?.connect_within(host, address, within, || self.relays_to(host))
    }

    fn doubt(&self, host: HostId) {
        if let Ok(peers) = self.peers() {
            peers.doubt(host);
        }
    }

    fn disconnect(&self, host: HostId, why: &str) {
        if let Ok(peers) = self.peers() {
            peers.disconnect(host, why);
        }
    }

    fn through(&self, host: HostId) -> Option<HostId> {
        lock(&self.through).get(&host).copied()
    }

    fn who(&self, addresses: &[SocketAddr]) -> Result<(HostId, SocketAddr)> {
        self.peers()?.who(addresses).map(|(hello, address)| (hello.host, address))
    }
}

impl Handler for Link {
    fn may_come(&self, peer: &Hello) -> Result<()> {
        super::typed::check_machine(peer)?;
        self.cluster.upgrade().map_or(Ok(()), |cluster| cluster.check_number(peer.host, &peer.name))
    }

    fn connected(&self, peer: &Hello, rights: PeerRights) {
        lock(&self.through).remove(&peer.host); // if it is still so, that is said next
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.is_on(peer.host, &peer.machine); // before anything of it is received
            cluster.connected(peer.host, &peer.name, rights == PeerRights::ReadWrite);
        }
    }

    fn received(&self, from: HostId, message: &[u8], payload: &mut Payload<'_>) {
        let mut bytes = vec![0; payload.len()];
        if payload.read_exact(&mut bytes).is_err() {
            return; // the connection broke: it comes again
        }
        let Some(cluster) = self.cluster.upgrade() else { return };
        if let Err(error) = cluster.received(from, message, bytes)
            && let Ok(peers) = self.peers()
        {
            peers.disconnect(from, &error.message);
        }
    }

    fn broken(&self, host: HostId, _incarnation: u64, why: &Error) {
        lock(&self.through).remove(&host);
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.unreachable(host, why);
        }
    }

    fn resumed(&self, peer: &Hello, rights: PeerRights) {
        self.connected(peer, rights);
    }

    fn lost(&self, host: HostId, _incarnation: u64, why: &Error) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.session_over(host, why);
        }
    }

    fn passes_on_to(&self, from: &Hello, host: HostId) -> Option<SocketAddr> {
        let cluster = self.cluster.upgrade().filter(|_| self.is_relay)?;
        // Members, for members: whoever is lost, or never belonged, is passed on to nobody.
        cluster.member(from.host).filter(|member| member.name == from.name)?;
        cluster.member(host).map(|member| member.address)
    }

    fn passes_on(&self, from: &Hello, to: HostId) {
        if let Some(cluster) = self.cluster.upgrade() {
            let (from, to) = (&from.name, cluster.called(to));
            cluster.report(format_args!(
                "{from} cannot reach {to}: what they say to each other is passed on here"
            ));
        }
    }

    fn reached_through(&self, host: HostId, relay: HostId) {
        lock(&self.through).insert(host, relay);
        if let Some(cluster) = self.cluster.upgrade() {
            let (host, relay) = (cluster.called(host), cluster.called(relay));
            cluster.report(format_args!(
                "{host} cannot be reached from here: it is spoken with through {relay}"
            ));
        }
    }

    fn refused(&self, from: SocketAddr, why: &Error) {
        // Whoever only asks who is here leaves as soon as he knows.
        if why.kind != ErrorKind::Disconnected
            && let Some(cluster) = self.cluster.upgrade()
            && let Some(line) = lock(&self.refusals).line(from, &why.to_string(), Instant::now())
        {
            cluster.report(format_args!("{line}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incarnations_grow_also_after_a_power_cut() {
        let state = tempfile::tempdir().unwrap();
        let first = next_incarnation(state.path()).unwrap();
        let second = next_incarnation(state.path()).unwrap();
        assert!(second > first);
        let path = state.path().join("incarnation");
        // From a clock that was ahead.
        std::fs::write(&path, (u64::MAX - 5).to_string()).unwrap();
        assert_eq!(next_incarnation(state.path()).unwrap(), u64::MAX - 4);
        for left in [&b""[..], b"17x", &[0xff; 40]] {
            std::fs::write(&path, left).unwrap();
            assert!(next_incarnation(state.path()).unwrap() >= first, "{left:?}");
        }
    }
}
