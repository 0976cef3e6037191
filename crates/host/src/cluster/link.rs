//! Between the cluster and the connections (crate `peers`) that carry its messages.

use super::registry::Registry;
use super::{Cluster, Transport};
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_peers::{Handler, Hello, Identity, Payload, PeerRights, Peers, Security};
use std::io::{IoSlice, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

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
}

/// Listens for the other hosts, and joins them.
pub fn start(cluster: &Arc<Cluster>, state: &Path, proof: &Proof, registry: Arc<dyn Registry>) -> Result<()> {
    let security = match proof {
        Proof::Certificate(directory) => Security::Tls(Identity::load(directory)?),
        Proof::None { even_beyond_loopback } => {
            Security::Plain { even_beyond_loopback: *even_beyond_loopback }
        }
    };
    let id = match &security {
        Security::Tls(identity) => identity.cluster(),
        Security::Plain { .. } => [0; 16],
    };
    let hello = Hello::new(id, cluster.me.host, &cluster.me.name, next_incarnation(state)?)?;
    let link = Arc::new(Link { cluster: Arc::downgrade(cluster), peers: OnceLock::new() });
    let peers = Peers::start(cluster.me.address, hello, security, link.clone())?;
    let _ = link.peers.set(peers);
    cluster.begin(link, registry)
}

/// Grows with each process that is this host, whatever the clock does.
fn next_incarnation(state: &Path) -> Result<u64> {
    let (path, fresh) = (state.join("incarnation"), state.join("incarnation.new"));
    let last: u64 = match std::fs::File::open(&path) {
        Ok(file) => {
            let mut text = String::new();
            file.take(32).read_to_string(&mut text).doing("reading the host's incarnation")?;
            text.trim().parse().map_err(|_| {
                Error::new(ErrorKind::Corrupt, format!("{} holds no number: remove it", path.display()))
            })?
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(Error::io("reading the host's incarnation", &error)),
    };
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64);
    let next = now.max(last + 1);
    let written = std::fs::write(&fresh, next.to_string()).and_then(|()| std::fs::rename(&fresh, &path));
    written.doing("writing the host's incarnation")?;
    Ok(next)
}

impl Link {
    fn peers(&self) -> Result<&Arc<Peers>> {
        self.peers.get().ok_or_else(|| Error::new(ErrorKind::Disconnected, "the cluster is not up yet"))
    }
}

impl Transport for Link {
    fn send(&self, to: HostId, message: &[u8], payload: &[u8]) -> Result<()> {
        self.peers()?.send(to, message, &[IoSlice::new(payload)])
    }

    fn on_the_way(&self, to: HostId) -> usize {
        self.peers().map_or(0, |peers| peers.unacknowledged(to))
    }

    fn connect(&self, host: HostId, address: SocketAddr) -> Result<()> {
        self.peers()?.connect(host, address)
    }

    fn disconnect(&self, host: HostId, why: &str) {
        if let Ok(peers) = self.peers() {
            peers.disconnect(host, why);
        }
    }

    fn who(&self, address: SocketAddr) -> Result<HostId> {
        self.peers()?.who(address).map(|hello| hello.host)
    }
}

impl Handler for Link {
    fn may_come(&self, peer: &Hello) -> Result<()> {
        self.cluster.upgrade().map_or(Ok(()), |cluster| cluster.check_number(peer.host, &peer.name))
    }

    fn connected(&self, peer: &Hello, rights: PeerRights) {
        if let Some(cluster) = self.cluster.upgrade() {
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

    fn refused(&self, from: SocketAddr, why: &Error) {
        // Whoever only asks who is here leaves as soon as he knows.
        if why.kind != ErrorKind::Disconnected
            && let Some(cluster) = self.cluster.upgrade()
        {
            cluster.report(format_args!("a connection from {from} was refused: {why}"));
        }
    }
}
