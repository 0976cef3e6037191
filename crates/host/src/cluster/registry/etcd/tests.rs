//! With an etcd of its own: skipped where that is not there.

use super::*;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// The process, and the directory that it has until it ends.
struct Server(Child, #[expect(dead_code, reason = "removed when it is dropped")] tempfile::TempDir);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// The registry as a host sees it that has not joined yet.
fn registry() -> Option<(Server, Etcd)> {
    let directory = tempfile::tempdir().unwrap();
    let (address, peer) = (free_address(), format!("http://{}", free_address()));
    let url = format!("http://{address}");
    let mut command = Command::new("etcd");
    command.args(["--name", "m", "--initial-cluster", &format!("m={peer}"), "--log-level", "error"]);
    command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.arg("--data-dir").arg(directory.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(child) = command.spawn() else {
        eprintln!("skipped: etcd is not there");
        return None;
    };
    let server = Server(child, directory);
    let until = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(&address).is_err() {
        assert!(Instant::now() < until, "etcd listens");
        std::thread::sleep(Duration::from_millis(20));
    }
    let place = EtcdPlace { members: vec![address], cluster: "lab".into(), tls: false };
    let etcd = Etcd {
        cluster: Weak::new(),
        client: Client::new(&place, None).unwrap(),
        keys: Keys::new("lab"),
        lease: Duration::from_secs(60),
        mirror: Mutex::default(),
        further: Condvar::new(),
        mine: Mutex::default(),
    };
    Some((server, etcd))
}

fn member(number: u32) -> Member {
    let address = ([127, 0, 0, 1], 7420).into();
    Member { host: HostId(number), name: "a".into(), address, former: Vec::new() }
}

impl Etcd {
    fn new_lease(&self) -> i64 {
        let granted = async |mut etcd: etcd_client::Client| Ok(etcd.lease_grant(60, None).await?.id());
        self.client.ask(PATIENCE * 6, granted).unwrap()
    }

    fn lives(&self, lease: i64) -> bool {
        self.client.ask(PATIENCE, async |mut etcd| etcd.lease_keep_alive(lease).await.map(drop)).is_ok()
    }

    fn is_member(&self, number: u32) -> bool {
        self.get(&self.keys.member(HostId(number))).unwrap().is_some()
    }
}

#[test]
fn a_join_whose_answer_was_lost_is_done_once_and_ends_no_lease_of_its_own() {
    let Some((_server, etcd)) = registry() else { return };
    let (first, second) = (etcd.new_lease(), etcd.new_lease());
    etcd.join_under(&member(1), first, PATIENCE).unwrap();
    // The next process takes the place, and does not hear that it has.
    let there = etcd.get(&etcd.keys.host("a")).unwrap().unwrap();
    let saved = serde_json::from_slice::<SavedHost>(&there).unwrap();
    let txn = etcd.take_place(&member(2), second, Some((there, saved)));
    let done = etcd.client.ask(PATIENCE, async |mut etcd| etcd.txn(txn.clone()).await).unwrap();
    assert!(done.succeeded());
    let revision = done.header().unwrap().revision() as u64;
    assert_eq!(etcd.join_under(&member(2), second, PATIENCE).unwrap(), revision, "it joined then");
    assert!(etcd.lives(second) && etcd.is_member(2), "what hangs on its lease stays");
    assert!(!etcd.lives(first) && !etcd.is_member(1), "the former's is over");
    // Another attempt altogether: its first lease goes, what is there hangs on the second.
    let third = etcd.new_lease();
    etcd.join_under(&member(2), third, PATIENCE).unwrap();
    assert!(etcd.lives(third) && !etcd.lives(second) && etcd.is_member(2));
    let there = etcd.get(&etcd.keys.host("a")).unwrap().unwrap();
    let saved = serde_json::from_slice::<SavedHost>(&there).unwrap();
    assert_eq!((saved.former, saved.lease), (vec![1], third));
}
