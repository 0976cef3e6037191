//! etcd for the hosts of a row: three members at one place of its network.

use super::Network;
use crate::failure::{Doing, Result, failed, skipped};
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many there are: one may be away.
const MEMBERS: usize = 3;
/// How long they may take until they listen.
const DEADLINE: Duration = Duration::from_secs(20);

/// Three members, which end with this.
#[derive(Debug)]
pub struct Etcd {
    members: Mutex<Vec<Option<Child>>>,
    lines: Vec<Vec<String>>,
    addresses: Vec<SocketAddr>,
    place: usize,
    /// For what they say: by these files who starts a row finds them, should the row be killed.
    logs: PathBuf,
    /// In memory where that can be: leases are not to wait for a disk that all rows' hosts use.
    _data: tempfile::TempDir,
}

impl Etcd {
    /// Starts them at that place of the network.
    pub fn start(network: &Network, place: usize, directory: &Path) -> Result<Etcd> {
        let version = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            return skipped("etcd is not there: install it (Debian: etcd-server)");
        }
        let logs = directory.join("etcd");
        std::fs::create_dir_all(&logs)?;
        let memory = Path::new("/dev/shm");
        let data = tempfile::tempdir_in(if memory.is_dir() { memory } else { &logs })?;
        let free = || (0..MEMBERS).map(|_| network.free_address(place)).collect::<Result<Vec<_>>>();
        let (addresses, peers) = (free()?, free()?);
        let lines = (0..MEMBERS).map(|number| words(number, &addresses, &peers, data.path())).collect();
        let members = Mutex::new((0..MEMBERS).map(|_| None).collect());
        let etcd = Etcd { members, lines, addresses, place, logs, _data: data };
        (0..MEMBERS).try_for_each(|number| etcd.run(network, number))?;
        etcd.wait_until_they_listen(network)?;
        Ok(etcd)
    }

    fn wait_until_they_listen(&self, network: &Network) -> Result<()> {
        let deadline = Instant::now() + DEADLINE;
        for address in &self.addresses {
            while network.at(self.place, || Ok(TcpStream::connect(address).is_err()))? {
                if Instant::now() > deadline {
                    return failed(format!("etcd does not listen at {address}: see {}", self.logs.display()));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// As a host is told of them.
    pub fn url(&self) -> String {
        let all: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        format!("etcd://{}/bench", all.join(","))
    }

    /// Starts a member, with what it had.
    pub fn run(&self, network: &Network, number: usize) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.logs.join(format!("log-{number}")))?;
        let mut command = Command::new("etcd");
        command.args(&self.lines[number]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = network.at(self.place, || command.spawn().doing("starting etcd"))?;
        self.members()[number] = Some(child);
        Ok(())
    }

    /// Kills a member.
    pub fn kill(&self, number: usize) {
        if let Some(mut child) = self.members()[number].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn members(&self) -> MutexGuard<'_, Vec<Option<Child>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The command line of a member.
fn words(number: usize, addresses: &[SocketAddr], peers: &[SocketAddr], data: &Path) -> Vec<String> {
    let (own, peer) = (format!("http://{}", addresses[number]), format!("http://{}", peers[number]));
    let all = peers.iter().enumerate().map(|(number, peer)| format!("member{number}=http://{peer}"));
    let pairs = [
        ("--name", format!("member{number}")),
        ("--data-dir", data.join(number.to_string()).display().to_string()),
        ("--listen-client-urls", own.clone()),
        ("--advertise-client-urls", own),
        ("--listen-peer-urls", peer.clone()),
        ("--initial-advertise-peer-urls", peer),
        ("--initial-cluster", all.collect::<Vec<_>>().join(",")),
        ("--log-level", "error".to_owned()),
    ];
    pairs.into_iter().flat_map(|(word, value)| [word.to_owned(), value]).collect()
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..MEMBERS).for_each(|number| self.kill(number));
    }
}
