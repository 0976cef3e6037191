//! With an etcd of its own: skipped where that is not there.

#[path = "../../../left_out.rs"]
mod left_out;

use super::homes::Attempt;
use super::*;
use commonhold_object::{CreateOptions, Ownership};
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
        left_out::left_out("etcd is not there");
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
fn keys_of_another_version_are_refused_and_stay() {
    let Some((_server, etcd)) = registry() else { return };
    let key = etcd.keys.version();
    etcd.join_first(&member(1), PATIENCE * 6).unwrap();
    assert_eq!(etcd.get(&key).unwrap().unwrap(), VERSION.to_string().into_bytes());
    etcd.check_version(PATIENCE).unwrap();
    for (other, age) in [("0", "an earlier"), ("2", "a later"), ("x", "a later")] {
        let put = async |mut etcd: etcd_client::Client| etcd.put(key.as_str(), other, None).await.map(drop);
        etcd.client.ask(PATIENCE, put).unwrap();
        let why = etcd.join_first(&member(2), PATIENCE).unwrap_err();
        assert!(why.kind == ErrorKind::Version && why.message.contains(age), "{why}");
        assert!(why.message.contains("/commonhold/lab/") && why.message.contains("its other hosts"), "{why}");
        assert_eq!(etcd.get(&key).unwrap().unwrap(), other.as_bytes());
        assert!(etcd.is_member(1) && !etcd.is_member(2));
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

const OBJECT: u128 = 7;

fn about(name: &str) -> Moving {
    let ownership = Ownership { uid: 0, gid: 0, mode: 0o600 };
    Moving { name: Name::new(name).unwrap(), ownership, options: CreateOptions::default(), path: "f".into() }
}

fn hosts(numbers: &[u32]) -> Vec<HostId> {
    numbers.iter().copied().map(HostId).collect()
}

impl Etcd {
    fn record_now(&self) -> Homed {
        self.homed(OBJECT).unwrap().unwrap()
    }

    fn replicas_now(&self) -> Vec<HostId> {
        self.record_now().replicas
    }

    fn counts_on(&self, before: &[u32], now: &[u32]) -> Result<()> {
        self.note_replicas(HostId(1), OBJECT, &hosts(before), &hosts(now), PATIENCE)
    }
}

#[test]
fn an_attempt_that_is_carried_out_late_changes_nothing_though_the_record_is_as_it_was() {
    let Some((_server, etcd)) = registry() else { return };
    let me = HostId(1);
    etcd.join_under(&member(1), etcd.new_lease(), PATIENCE).unwrap();
    assert_eq!(etcd.take_moving(me, OBJECT, &about("/a")).unwrap(), None);
    etcd.counts_on(&[], &[2]).unwrap();
    // One whose answer nobody waits for any more, and that etcd has not carried out.
    let late = |before: &[u32], now: &[u32]| {
        let noting = etcd.noting_replicas(me, OBJECT, &hosts(before), &hosts(now), PATIENCE);
        noting.unwrap().unwrap()
    };
    let adds = late(&[2], &[2, 3]);
    let first = etcd.record_now();
    etcd.counts_on(&[2], &[2, 3]).unwrap();
    etcd.counts_on(&[2, 3], &[2]).unwrap();
    assert_eq!(etcd.record_now(), first, "the changes cancel each other out");
    assert!(!etcd.transact(&adds, PATIENCE).unwrap(), "it is too late");
    assert_eq!(etcd.replicas_now(), hosts(&[2]));
    // One that was carried out, and whose answer was lost: asked again it is done, and once.
    let adds = late(&[2], &[2, 3]);
    assert!(etcd.transact(&adds, PATIENCE).unwrap());
    etcd.counts_on(&[2], &[2, 3]).unwrap();
    assert_eq!(etcd.replicas_now(), hosts(&[2, 3]));
    assert!(!etcd.transact(&adds, PATIENCE).unwrap());
    let why = etcd.counts_on(&[2], &[4]).unwrap_err();
    assert_eq!(why.kind, ErrorKind::Busy, "{why}");
}

#[test]
fn claims_whose_answers_were_lost_are_done_once_and_given_back() {
    let Some((_server, etcd)) = registry() else { return };
    let (first, second) = (HostId(1), HostId(2));
    let lease = etcd.new_lease();
    etcd.join_under(&member(1), lease, PATIENCE).unwrap();
    etcd.take_moving(first, OBJECT, &about("/a")).unwrap();
    let of = etcd.record_now();
    let other = Member { name: "b".into(), ..member(2) };
    etcd.join_under(&other, etcd.new_lease(), PATIENCE).unwrap();
    assert!(!etcd.take_lost_home(second, OBJECT, &of).unwrap(), "the home lives");
    etcd.revoke(lease);
    assert!(etcd.take_lost_home(second, OBJECT, &of).unwrap());
    let taken = etcd.record_now();
    assert_eq!((taken.home, taken.served, taken.term), (second, first, 2));
    // Its answer was lost: it asks again.
    assert!(etcd.take_lost_home(second, OBJECT, &of).unwrap());
    assert_eq!(etcd.record_now(), taken);
    let back = Homed { home: first, ..taken.clone() };
    for _ in 0..2 {
        etcd.give_home_back(second, OBJECT, &back).unwrap();
        assert_eq!(etcd.record_now(), back);
    }
    // What was true when it first asked is not any more.
    assert!(!etcd.take_lost_home(second, OBJECT, &of).unwrap());
    assert!(etcd.take_lost_home(second, OBJECT, &back).unwrap());
    for _ in 0..2 {
        etcd.note_scheduling(second, OBJECT).unwrap();
        assert_eq!((etcd.record_now().served, etcd.record_now().term), (second, 3));
    }
    let why = etcd.note_scheduling(HostId(3), OBJECT).unwrap_err();
    assert_eq!(why.kind, ErrorKind::Busy, "{why}");
}

#[test]
fn a_name_that_another_object_has_by_now_is_not_freed() {
    let Some((_server, etcd)) = registry() else { return };
    let me = HostId(1);
    etcd.join_under(&member(1), etcd.new_lease(), PATIENCE).unwrap();
    etcd.take_moving(me, OBJECT, &about("/a")).unwrap();
    let (mut when, mut then) = (Vec::new(), Vec::new());
    let name = Name::new("/a").unwrap();
    etcd.frees(OBJECT, &name, &mut when, &mut then).unwrap();
    let late = Attempt { when, then };
    etcd.take_moving(me, OBJECT, &about("/b")).unwrap();
    assert!(etcd.transact(&late, PATIENCE).unwrap(), "the first time it is");
    assert_eq!(etcd.take_moving(me, OBJECT + 1, &about("/a")).unwrap(), None);
    assert!(!etcd.transact(&late, PATIENCE).unwrap());
    assert_eq!(etcd.homed_as(&name).unwrap().unwrap().0, OBJECT + 1);
}
