//! Where attacks take place: a host as the shipped unit starts it, or a cluster of three.

use commonhold_object::wire::Request;
use commonhold_object::{CreateOptions, Name};
use commonhold_sys::socket;
use commonhold_tests::cluster::{address_of, ca, secure_cluster};
use commonhold_tests::raw::Raw;
use commonhold_tests::stranger::Stranger;
use commonhold_tests::user::as_user;
use commonhold_tests::{Scratch, TestHost, Worker};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Who attacks.
pub const ATTACKER: (u32, u32) = (64_001, 64_001);
/// Who must not notice.
pub const BYSTANDER: (u32, u32) = (64_002, 64_002);

/// The shipped unit, whose capabilities the hosts of the suite have.
const UNIT: &str = include_str!("../../../packaging/commonhold.service");

/// A host of root, with the unit's capabilities and no new privileges, and who uses it.
pub struct Local {
    /// The host.
    pub host: TestHost,
}

impl Local {
    /// Starts one.
    pub fn new() -> Local {
        Self::with(&[])
    }

    /// The same with more options of `host start`.
    pub fn with(options: &[&str]) -> Local {
        let capabilities = unit_capabilities();
        let words = ["setpriv", "--no-new-privs", "--inh-caps=-all", &capabilities];
        Local { host: TestHost::by(&words, options) }
    }

    /// A process of the attacker.
    pub fn attacker(&self) -> Worker {
        self.host.worker_of(ATTACKER.0, ATTACKER.1)
    }

    /// A connection of the attacker that says whatever an attack wants said.
    pub fn raw(&self) -> Raw {
        Raw::over(self.socket())
    }

    /// The same, after it has said hello.
    pub fn greeted(&self) -> Raw {
        let mut raw = self.raw();
        raw.ask(&Request::Hello { program: "attacker".into() }, &[]).expect("an answer").expect("hello");
        raw
    }

    /// A file of the attacker, open for reading and writing.
    pub fn file(&self, name: &str, bytes: u64) -> OwnedFd {
        let path = self.host.scratch().file(name, bytes);
        std::os::unix::fs::chown(&path, Some(ATTACKER.0), Some(ATTACKER.1)).expect("a file of the attacker");
        std::fs::File::options().read(true).write(true).open(path).expect("a file").into()
    }

    /// A connected socket of the attacker.
    pub fn socket(&self) -> OwnedFd {
        self.try_socket().expect("the host lets everybody connect")
    }

    /// The same, if the host lets them.
    pub fn try_socket(&self) -> std::io::Result<OwnedFd> {
        as_user(ATTACKER.0, || socket::connect(self.host.state(), "host.sock"))
    }
}

impl Default for Local {
    fn default() -> Self {
        Self::new()
    }
}

/// The word for `setpriv` that leaves the capabilities of the shipped unit alone.
fn unit_capabilities() -> String {
    let line = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = line.expect("the unit bounds its capabilities").split_whitespace();
    names.fold("--bounding-set=-all".to_owned(), |all, name| {
        let name = name.strip_prefix("CAP_").expect("a capability").to_lowercase();
        format!("{all},+{name}")
    })
}

/// Options of a small object.
pub fn small() -> CreateOptions {
    CreateOptions { size_bytes: 65_536, controlled: true, ..CreateOptions::default() }
}

/// A name that is well formed.
pub fn name(text: &str) -> Name {
    Name::directory(text).expect("a name")
}

/// Someone else's work goes on, now: with an object that needs pages, and a look at all names.
pub fn others_go_on(scene: &Local) {
    others_go_on_with(scene, 256);
}

/// The same with an object of so many pages.
pub fn others_go_on_with(scene: &Local, pages: usize) {
    let theirs = scene.host.worker_of(BYSTANDER.0, BYSTANDER.1);
    for line in [
        &format!("create o /others size={} controlled mode=600", pages * 4096),
        "map o o rw shared 0 0",
        &format!("fill o 0 {pages} 7"),
        &format!("check o 0 {pages} 7"),
        "list /",
        "stat /others resident",
        "drop o",
        "close o",
        "remove /others",
    ] {
        theirs.send(line);
        let answer = theirs.answer_within(SOON).unwrap_or_else(|| panic!("{line}: no answer in {SOON:?}"));
        assert!(answer.is_ok(), "{line}: {answer:?}");
    }
}

/// The longest that somebody else waits for anything.
pub const SOON: Duration = Duration::from_secs(5);

/// A cluster of three with certificates, and one who has a certificate as well.
pub struct Members {
    /// The hosts; the first keeps the list, the last reads alone.
    pub hosts: Vec<TestHost>,
    authority: Scratch,
}

impl Members {
    /// Starts one, in which `/bystander` is an object of the second host that the first uses.
    pub fn new() -> Members {
        let authority = Scratch::new();
        let hosts = secure_cluster(&authority, 3);
        let maker = hosts[1].worker();
        maker.eventually("create b /bystander size=65536 central mode=600");
        Members { hosts, authority }
    }

    /// A process at the first host that uses the object of the second.
    pub fn user(&self) -> Worker {
        let worker = self.hosts[0].worker();
        // This one stays open: the host's last use of an object ends only when its pages are home.
        worker.eventually("open kept /bystander rw");
        worker
    }

    /// A host with a valid certificate of that name, which may write or read alone.
    pub fn stranger(&self, number: u32, name: &str, rights: Rights) -> Stranger {
        let identity = self.authority.join(name);
        let into = identity.display().to_string();
        let mut words = vec!["issue", name, "--into", &into];
        if matches!(rights, Rights::Read) {
            words.push("--read-only");
        }
        ca(&self.authority.join("ca"), &words);
        Stranger::certified(number, name, &identity)
    }

    /// Where a host listens.
    pub fn address(&self, host: usize) -> String {
        address_of(&self.hosts[host])
    }

    /// The authority's directory.
    pub fn authority(&self) -> &Scratch {
        &self.authority
    }
}

impl Default for Members {
    fn default() -> Self {
        Self::new()
    }
}

/// What a certificate allows.
#[derive(Clone, Copy)]
pub enum Rights {
    /// Everything.
    Write,
    /// Reading.
    Read,
}
