//! A host of root, and who uses it.

use super::group::Group;
use super::{small, unit};
use commonhold_object::Access;
use commonhold_object::wire::{Event, FromHost, OpenReply, Reply, Request};
use commonhold_sys::socket;
use commonhold_tests::cluster::free_address;
use commonhold_tests::raw::Raw;
use commonhold_tests::user::as_user;
use commonhold_tests::{TestHost, Worker, wait};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Who attacks.
pub const ATTACKER: (u32, u32) = (64_001, 64_001);
/// Who must not notice.
pub const BYSTANDER: (u32, u32) = (64_002, 64_002);

/// What an attack wants of the host.
#[derive(Clone, Copy)]
pub struct Machine {
    /// Options of `host start`; `FREE` is an address of this machine that nobody has.
    pub options: &'static [&'static str],
    /// The memory of the control group in which it is.
    pub group_bytes: Option<u64>,
    /// Whether the scene kills host or keeper, so that others follow them.
    pub kills: bool,
}

/// A host with the defaults, which is the same process in the end.
pub const MACHINE: Machine = Machine { options: &[], group_bytes: None, kills: false };

/// A host of root, with the unit's capabilities and no new privileges, and who uses it.
pub struct Local {
    /// The host.
    pub host: TestHost,
    /// What `FREE` is.
    pub address: String,
    /// Removed when the host has ended.
    _group: Option<Group>,
}

impl Local {
    /// Starts one.
    pub fn of(machine: Machine) -> Local {
        let group =
            machine.group_bytes.map(|bytes| Group::new(bytes).unwrap_or_else(|why| crate::leave_out(why)));
        let words = group.iter().flat_map(Group::words).chain(unit::words());
        let words: Vec<String> = words.collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let address = free_address();
        let options = machine.options.iter().map(|word| if *word == "FREE" { &address } else { *word });
        let host = TestHost::by(&words, &options.collect::<Vec<_>>());
        Local { host, address, _group: group }
    }

    /// A process of the attacker.
    pub fn attacker(&self) -> Worker {
        self.host.worker_of(ATTACKER.0, ATTACKER.1)
    }

    /// A process of the other user.
    pub fn other(&self) -> Worker {
        self.host.worker_of(BYSTANDER.0, BYSTANDER.1)
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

    /// The same, with a small object of its own.
    pub fn with_an_object(&self, at: &str) -> (Raw, OpenReply) {
        let mut raw = self.greeted();
        let create =
            Request::Create { name: super::name(at), options: small(), nonce: 5, in_directory: false };
        match raw.ask(&create, &[]).expect("an answer").expect("an object of one's own") {
            Reply::Opened(opened) => (raw, *opened),
            other => panic!("something else was opened: {other:?}"),
        }
    }

    /// A connection of the other user that serves a pager of that name.
    pub fn pager_of_other(&self, pager: &str) -> Raw {
        let mut raw = as_user(BYSTANDER.0, || Raw::connect(&self.host));
        let serve = Request::ServePager { pager: super::name(pager) };
        raw.ask(&serve, &[]).expect("an answer").expect("everybody may serve");
        raw
    }

    /// A connected socket of the attacker.
    pub fn socket(&self) -> OwnedFd {
        self.try_socket().expect("the host lets everybody connect")
    }

    /// The same, if the host lets them.
    pub fn try_socket(&self) -> std::io::Result<OwnedFd> {
        as_user(ATTACKER.0, || socket::connect(self.host.state(), "host.sock"))
    }

    /// A file of the attacker, of zeros, open for reading and writing.
    pub fn file(&self, called: &str, bytes: u64) -> OwnedFd {
        let path = self.new_file(called, bytes);
        std::fs::File::options().read(true).write(true).open(path).expect("a file").into()
    }

    /// A file of the attacker, of zeros.
    pub fn new_file(&self, called: &str, bytes: u64) -> PathBuf {
        self.new_file_of(called, bytes, ATTACKER)
    }

    /// A file of that user, of zeros.
    pub fn new_file_of(&self, called: &str, bytes: u64, (uid, gid): (u32, u32)) -> PathBuf {
        let path = self.host.scratch().file(called, bytes);
        std::os::unix::fs::chown(&path, Some(uid), Some(gid)).expect("a file of theirs");
        path
    }

    /// Another start of host and keeper, as after a reboot: backing files are found by their paths.
    pub fn reboots(&self) {
        self.host.kill_both();
        self.host.start_again().expect("the host starts again");
    }

    /// The path of something in the state directory.
    pub fn state(&self, of: impl AsRef<Path>) -> PathBuf {
        self.host.state().join(of)
    }
}

/// The longest that somebody else waits for anything.
pub const SOON: Duration = Duration::from_secs(5);

/// Someone else's work goes on, now: with an object that needs pages, and a look at all names.
pub fn others_go_on(scene: &Local) {
    others_go_on_with(scene, 256);
}

/// The same with an object of so many pages.
pub fn others_go_on_with(scene: &Local, pages: usize) {
    let theirs = scene.other();
    for line in [
        &format!("create o /others size={} controlled mode=600", pages * 4096),
        "map o o rw shared 0 0",
        &format!("fill o 0 {pages} 7"),
        &format!("check o 0 {pages} 7"),
        &format!("sync o 0 {}", pages * 4096),
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

/// A request to open that object.
pub fn open(at: &str, access: Access) -> Request {
    Request::Open { name: super::name(at), access }
}

/// What a pager is asked next.
pub fn asked(pager: &Raw) -> Event {
    wait::until("the pager is asked", || match pager.hear().expect("its connection") {
        Some((_, FromHost::Event(event @ (Event::PageIn { .. } | Event::PageOut { .. })))) => Some(event),
        _ => None,
    })
}
