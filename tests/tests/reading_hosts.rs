//! Hosts that were admitted for reading alone, and say what is not for them to say: they are cut off, and nothing changes.

use commonhold::ErrorKind;
use commonhold_coherence::forwarding::{Epoch, View};
use commonhold_coherence::{HostId, Span, explicit, forwarding};
use commonhold_host::cluster::wire::{Answer, Call, Claim, Message, Shared};
use commonhold_host::shared::Said;
use commonhold_object::{Access, Credentials, Name};
use commonhold_tests::cluster::{address_of, ca, free_address, secure_cluster, sharers_of, until_says};
use commonhold_tests::stranger::Stranger;
use commonhold_tests::{PAGE, Scratch, TestHost, Worker};

const PAGES: u64 = 4;

/// Two hosts, one that reads alone, and one made by hand that does.
struct Readers {
    authority: Scratch,
    hosts: Vec<TestHost>,
    pids: Vec<u32>,
    stranger: Stranger,
    /// One made by hand that may write.
    scout: Stranger,
    /// The numbers of the hosts.
    numbers: Vec<HostId>,
}

impl Readers {
    fn new() -> Readers {
        let authority = Scratch::new();
        let hosts = secure_cluster(&authority, 3);
        let made_by_hand = |number, name: &str, more: &[&str]| {
            let identity = authority.join(name);
            let into = identity.display().to_string();
            ca(&authority.join("ca"), &[&["issue", name, "--into", &into], more].concat());
            Stranger::certified(number, name, &identity)
        };
        // A low number: of two whose session is over the greater one begins anew, where it must.
        let stranger = made_by_hand(1, "reader", &["--read-only"]);
        let scout = made_by_hand(2, "scout", &[]);
        let numbers: Vec<HostId> =
            hosts.iter().map(|host| stranger.connect(&address_of(host)).unwrap()).collect();
        stranger.join(numbers[0], Vec::new()).unwrap();
        scout.connect(&address_of(&hosts[0])).unwrap();
        let pids = hosts.iter().map(|host| host.status().host_pid).collect();
        Readers { authority, hosts, pids, stranger, scout, numbers }
    }

    /// Who share an object, of the two hosts that may write.
    fn sharers(&self, path: &str, how: &str) -> Vec<Worker> {
        let workers = sharers_of(&self.hosts[..2], path, &format!("size={} {how}", PAGES * PAGE as u64));
        workers[1].ok("fill m 0 4 1");
        workers
    }

    fn open(&self, by: &Stranger, path: &str) -> Result<Shared, commonhold_peers::Error> {
        let who = Credentials { uid: 0, gid: 0, groups: vec![] };
        let call = Call::Open { name: Name::new(path).unwrap(), who, access: Access::Read };
        match by.ask(self.numbers[0], call)? {
            Answer::Opened(shared) => Ok(*shared),
            other => panic!("{other:?}"),
        }
    }

    /// It says so to that host, which cuts it off for these words, and comes again.
    fn is_cut_off(&self, at: usize, object: u128, message: Said, bytes: usize, why: &str) {
        let what = format!("{message:?}");
        self.stranger.forget();
        let message = Message::Coherence { object, home: None, messages: vec![message] };
        self.stranger.tell(self.numbers[at], &message, &vec![9; bytes]).unwrap();
        let said = self.stranger.cut_off_by(self.numbers[at]);
        assert!(said.contains(why) || self.hosts[at].log().contains(why), "{what}: {said}");
        self.stranger.connect(&address_of(&self.hosts[at])).unwrap();
    }

    /// The others go on as the same processes.
    fn check(&self, workers: &[Worker], seed: u64) {
        workers[0].all(&format!("check m 0 4 {seed}\nfill m 0 4 {}", seed + 1));
        workers[1].ok(&format!("check m 0 4 {}", seed + 1));
        for (host, pid) in self.hosts.iter().zip(&self.pids) {
            let log = host.log();
            assert!(!log.contains("host0 is lost") && !log.contains("host1 is lost"), "{log}");
            assert_eq!(host.status().host_pid, *pid, "{log}");
        }
    }
}

#[test]
fn who_reads_alone_has_no_part_in_what_all_users_schedule() {
    let readers = Readers::new();
    let workers = readers.sharers("/forwarded", "forwarding=revert");
    // One that is honest is told why, and what to do.
    let why = readers.hosts[2].worker().refused("open o /forwarded r", "Unsupported");
    assert!(why.contains("reading alone") && why.contains("--scheduler central"), "{why}");
    let why = readers.open(&readers.stranger, "/forwarded").unwrap_err();
    assert_eq!(why.kind, ErrorKind::Unsupported, "{why}");
    // One that is not may know the object's identity all the same.
    readers.scout.join(readers.numbers[0], Vec::new()).unwrap();
    let object = readers.open(&readers.scout, "/forwarded").unwrap().object;
    let others = readers.numbers.clone();
    let lost = Epoch { lost: [(others[0], None), (others[1], None)].into(), reverts: 9 };
    let ranks = [(others[0], 0), (readers.stranger.me.host, u32::MAX)].into();
    let view = View { ranks, epoch: lost.clone() };
    use forwarding::Message as F;
    let hand_over =
        F::HandOver { page: 0, number: 7, keepers: [].into(), before: [others[0], others[1]].into() };
    for message in [
        F::Copy { page: 0 },
        hand_over,
        F::Replica { page: 0, number: u64::MAX },
        F::Read { page: 0, who: readers.stranger.me.host, hops: 0 },
        F::Write { page: 0, who: readers.stranger.me.host, keeps_copy: true },
        F::Invalidate { page: 0, owner: readers.stranger.me.host, number: 0 },
        F::Invalidated { page: 0 },
        F::Forget { page: 0, number: u64::MAX },
        F::Missing { page: 0 },
        F::Take { page: 0 },
        F::Insist { page: 0 },
        F::Held { page: 0 },
        F::Join,
        F::Welcome(view.clone()),
        F::Hello(view.clone()),
        F::Known(view),
        F::Flush(lost),
        F::Report { pages: vec![], settled_reverts: 0, speaks_for: vec![], is_last: false },
        F::Settle { pages: vec![], is_last: true },
    ] {
        let said = Said::Forwarding(message);
        let bytes = said.carries().pages().len() * PAGE;
        for at in [0, 1] {
            readers.is_cut_off(at, object, said.clone(), bytes, "reading alone");
        }
    }
    readers.check(&workers, 1);
}

#[test]
fn a_reader_neither_syncs_nor_claims_nor_locks() {
    let readers = Readers::new();
    let workers = readers.sharers("/explicit", "explicit");
    workers.iter().for_each(|worker| drop(worker.ok("sync o 0 16384")));
    let object = readers.open(&readers.stranger, "/explicit").unwrap().object;
    let fetch = Said::Explicit(explicit::Message::Fetch { span: Span::one(0) });
    let message = Message::Coherence { object, home: None, messages: vec![fetch] };
    readers.stranger.tell(readers.numbers[0], &message, &[]).unwrap();
    let nothing = Said::Explicit(explicit::Message::Sync { pages: vec![] });
    readers.is_cut_off(0, object, nothing, 0, "reading alone");
    let claim = Claim { name: Name::new("/mine").unwrap(), object: 5, moving: None, fixed: None };
    let object = readers.open(&readers.stranger, "/explicit").unwrap().object;
    for call in [
        Call::Claim(claim.clone()),
        Call::Names(vec![claim]),
        Call::Sync { object, offset: 0, length: 4096, freeze: false },
    ] {
        let why = readers.stranger.ask(readers.numbers[0], call).unwrap_err();
        assert!(why.message.contains("reading alone"), "{why}");
    }
    for (host, pid) in readers.hosts.iter().zip(&readers.pids) {
        assert_eq!(host.status().host_pid, *pid);
    }
}

/// Where the list's host was a host that reads alone answers: it says nothing of who belongs.
#[test]
fn a_reader_keeps_no_list() {
    let readers = Readers::new();
    let identity = readers.authority.join("late");
    let into = identity.display().to_string();
    ca(&readers.authority.join("ca"), &["issue", "late", "--into", &into]);
    let (own, at) = (free_address(), readers.stranger.me.address.to_string());
    let late = TestHost::with(&["--listen", &own, "--name", "late", "--identity", &into, "--join", &at]);
    until_says(&late, "joining the cluster|reading alone");
    late.worker().refused("create n /n size=4096 strict", "Disconnected");
}
