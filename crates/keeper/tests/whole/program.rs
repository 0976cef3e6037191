//! The program that the tests start as keeper and as host: this test executable again, through a script that passes
//! the command line after `--` (where libtest takes it for names of tests). `COMMONHOLD_TEST_*` are read here only.

use crate::driver::signal;
use crate::things::{Holding, memfd, operations};
use commonhold_keeper::protocol::{self, FromKeeper, ToKeeper, Versions};
use commonhold_keeper::{
    EndedFaults, FaultDeadline, KeeperCommand, KeeperConfig, KeeperEvent, Key, RestartPolicy, Serves, Vault,
    adopt_descriptor, lock_state_directory, run_keeper,
};
use commonhold_sys::process;
use commonhold_sys::socket::{self, Wait};
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Longest message on the control socket.
pub const CONTROL_BYTES: usize = 4096;

#[test]
#[ignore = "the program that the other tests start"]
fn act() {
    let arguments: Vec<String> = std::env::args().skip_while(|a| a != "--").skip(1).collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|a| a == name)?;
        Some(arguments[at + 1].clone())
    };
    let fd = |name: &str| option(name).map(|number| adopt_descriptor(number.parse().unwrap()).unwrap());
    let Some(state) = option("--state").map(PathBuf::from) else { return };
    match arguments[0].as_str() {
        "keeper" => {
            let pid = option("--host-pid").map(|pid| pid.parse().unwrap());
            keep(&state, fd("--keeper-fd"), pid, fd("--lock-fd"));
        }
        "serve" => serve(&state, fd("--keeper-fd").expect("a keeper")),
        other => panic!("unknown verb {other}"),
    }
}

fn keep(state: &Path, inherited: Option<OwnedFd>, host_pid: Option<u32>, lock: Option<OwnedFd>) {
    let driver = the_driver();
    std::thread::spawn(move || {
        // A test that was killed, or has failed, leaves no keeper that would try for ever.
        while !process::readable_within(&driver, 60_000).unwrap() {}
        std::process::exit(2);
    });
    let lock = lock.map_or_else(|| lock_state_directory(state), Ok).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1);
    });
    let config = KeeperConfig {
        serves: Serves::Host,
        state_directory: state.to_owned(),
        program: std::env::var_os("COMMONHOLD_TEST_PROGRAM").unwrap().into(),
        host_arguments: vec!["further argument".into()],
        restart: RestartPolicy { young_ms: 10_000, first_ms: 1, longest_ms: 20 },
    };
    let outcome = run_keeper(config, inherited, host_pid, lock);
    std::process::exit(i32::from(outcome.is_err()));
}

fn serve(state: &Path, socket: OwnedFd) {
    assert_eq!(std::env::args().next_back().unwrap(), "further argument");
    match std::env::var("COMMONHOLD_TEST_MODE").unwrap_or_default().as_str() {
        "broken" => std::process::exit(3),
        "foreign" => foreign(&socket),
        "rude" => rude(&socket),
        _ => {}
    }
    if state.join("die").exists() {
        std::process::exit(4);
    }
    Host::start(state, socket).run();
}

/// The test process; whoever finds it ended ends too.
fn the_driver() -> OwnedFd {
    let pid = std::env::var("COMMONHOLD_TEST_DRIVER").unwrap().parse().unwrap();
    process::pidfd(pid).unwrap_or_else(|_| std::process::exit(2))
}

/// A host of a version that this keeper does not know: 7 if it is refused as the protocol says.
fn foreign(socket: &OwnedFd) {
    let versions = Versions { chosen: 0, oldest: 98, newest: 99 };
    socket::send(socket, &versions.hello(), &[], Wait::Yes).unwrap();
    let mut bytes = [0; 100];
    let length = socket::receive(socket, &mut bytes, &mut Vec::new(), Wait::Yes).unwrap();
    let greeting = Versions::from_greeting(&bytes[..length]).unwrap();
    let refused = greeting == Versions { chosen: 0, oldest: protocol::OLDEST, newest: protocol::NEWEST };
    std::process::exit(if refused { 7 } else { 8 });
}

/// A host that sends what no keeper should accept, and then something right: 9 if each was answered as it should be.
fn rude(socket: &OwnedFd) {
    let say = |bytes: &[u8], fds: &[_]| socket::send(socket, bytes, fds, Wait::Yes).unwrap();
    let problem = |bytes: &[u8], fds: &[_]| {
        say(bytes, fds);
        loop {
            assert!(process::readable_within(socket, 20_000).unwrap(), "no answer to {bytes:?}");
            let mut buffer = vec![0; protocol::MESSAGE_BYTES];
            let length = socket::receive(socket, &mut buffer, &mut Vec::new(), Wait::Yes).unwrap();
            assert_ne!(length, 0, "the keeper went away over {bytes:?}");
            // What is kept, and the greeting, come first.
            if let Ok(FromKeeper::Problem { text }) = protocol::decode(&buffer[..length]) {
                return text.to_owned();
            }
        }
    };
    let encoded = |message: &ToKeeper| {
        let mut bytes = Vec::new();
        protocol::encode(message, &mut bytes).unwrap();
        bytes
    };
    assert!(problem(b"GET / HTTP/1.1", &[]).contains("hello"));
    say(&Versions::OURS.hello(), &[]);
    problem(&[255; 1000], &[]);
    problem(&vec![1; 2 * protocol::MESSAGE_BYTES], &[]);
    problem(&encoded(&ToKeeper::Put { key: "a", blob: b"", fd: true }), &[]);
    problem(&encoded(&ToKeeper::Put { key: "a", blob: b"", fd: false }), &[socket.as_fd()]);
    problem(&encoded(&ToKeeper::Put { key: "", blob: b"", fd: false }), &[]);
    problem(&encoded(&ToKeeper::Put { key: &"k".repeat(129), blob: b"", fd: false }), &[]);
    problem(&encoded(&ToKeeper::Put { key: "a", blob: &[0; 65_537], fd: false }), &[]);
    assert!(problem(&encoded(&ToKeeper::Update { key: "nothing", blob: b"" }), &[]).contains("nothing"));
    say(&encoded(&ToKeeper::Forget { key: "nothing" }), &[]);
    say(&encoded(&ToKeeper::Put { key: "stream/0", blob: b"after rudeness", fd: false }), &[]);
    die_deaf(socket, &encoded(&ToKeeper::Put { key: "stream/1", blob: b"from the deaf", fd: false }));
}

/// Dies with an answer unread and `last` unread by the keeper. The kernel tells the keeper of the first (ECONNRESET)
/// before it gives it the second, which must not be lost over it.
fn die_deaf(socket: &OwnedFd, last: &[u8]) {
    socket::send(socket, b"garbage", &[], Wait::Yes).unwrap();
    assert!(process::readable_within(socket, 20_000).unwrap());
    let keeper = socket::peer(socket).unwrap().pid;
    signal(keeper, Signal::STOP);
    let stopped = || std::fs::read_to_string(format!("/proc/{keeper}/stat")).unwrap().contains(") T ");
    while !stopped() {
        std::thread::yield_now();
    }
    socket::send(socket, last, &[], Wait::Yes).unwrap();
    // Wakes the keeper when this process is surely gone: its input ends with it.
    let wake = format!("cat; kill -CONT {keeper}");
    let child = Command::new("sh").args(["-c", &wake]).stdin(Stdio::piped()).spawn().unwrap();
    std::mem::forget(child);
    std::process::exit(9);
}

struct Host {
    state: PathBuf,
    holding: Holding,
    listener: Arc<OwnedFd>,
    complete: bool,
}

impl Host {
    fn start(state: &Path, socket: OwnedFd) -> Host {
        let (vault, inheritance) = Vault::inherited(socket).unwrap();
        assert_eq!(inheritance.generation, vault.generation());
        let listener = vault.get(&Key::new("listener")).map(|kept| kept.fd.unwrap()).unwrap_or_else(|| {
            let listener = Arc::new(socket::listen(state, "control", 100).unwrap());
            vault.put(&Key::new("listener"), b"", Some(listener.clone())).unwrap();
            listener
        });
        let keys: BTreeSet<String> = inheritance.kept.into_iter().map(|kept| kept.key.0).collect();
        let keys = keys.into_iter().filter(|key| key.starts_with("object/")).collect();
        while state.join("slow").exists() {
            // A start that takes long, with all that was kept in its hands.
            std::fs::write(state.join("is-slow"), "").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        vault.ready();
        let holding = Holding { vault, keys };
        Host { state: state.to_owned(), holding, listener, complete: inheritance.complete }
    }

    fn run(mut self) {
        let driver = the_driver();
        let vault = self.holding.vault.clone();
        loop {
            let mut polled = [
                PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(vault.watch_fd(), PollFlags::IN),
                PollFd::new(&driver, PollFlags::IN),
            ];
            let _ = rustix::event::poll(&mut polled, None);
            let [asked, kept, ended] = polled.map(|fd| !fd.revents().is_empty());
            if ended {
                return self.exit();
            }
            if kept {
                self.look_after_keeper();
            }
            if asked {
                self.answer();
            }
        }
    }

    fn exit(&self) {
        self.holding.vault.exit();
        std::process::exit(0);
    }

    fn look_after_keeper(&self) {
        while let Some(event) = self.holding.vault.next_event() {
            match event {
                KeeperEvent::Problem(text) => panic!("the keeper has a problem: {text}"),
                KeeperEvent::Ended { key, blob } => {
                    assert_eq!(self.holding.vault.get(&key).unwrap().blob, blob, "the vault has it too");
                }
                KeeperEvent::Gone(why) => {
                    eprintln!("{why}");
                    while let Err(error) = self.holding.vault.replace_gone_keeper(&command(&self.state)) {
                        eprintln!("{error}");
                        std::thread::sleep(std::time::Duration::from_millis(20));
                    }
                }
            }
        }
    }

    fn answer(&mut self) {
        let connection = socket::accept(&*self.listener).unwrap();
        let mut bytes = [0; CONTROL_BYTES];
        if !process::readable_within(&connection, 20_000).unwrap() {
            return;
        }
        let mut came = Vec::new();
        let length = socket::receive(&connection, &mut bytes, &mut came, Wait::Yes).unwrap_or(0);
        let text = String::from_utf8(bytes[..length].to_vec()).unwrap();
        let words: Vec<&str> = text.split(' ').collect();
        if let ["take", key] = words[..] {
            self.holding.vault.put(&Key::new(key), b"", came.pop().map(Arc::new)).unwrap();
        }
        let (reply, fd) = self.do_it(&words);
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        let _ = socket::send(&connection, reply.as_bytes(), &fds, Wait::Yes);
    }

    fn do_it(&mut self, words: &[&str]) -> (String, Option<Arc<OwnedFd>>) {
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let vault = self.holding.vault.clone();
        match words[0] {
            "status" => {
                let (pid, keeper, generation) = (std::process::id(), vault.keeper_pid(), vault.generation());
                return (format!("{pid} {keeper} {generation} {}", self.complete), None);
            }
            "digest" => return (self.holding.digest(), None),
            "operate" => self.holding.apply(operations(number(1), number(2), number(3))),
            "churn" => {
                let (vault, command) = (vault.clone(), command(&self.state));
                let replacing = std::thread::spawn(move || vault.replace_keeper(&command));
                self.holding.apply(operations(number(1), number(2), number(3)));
                replacing.join().unwrap().unwrap();
            }
            "make" => {
                vault.put(&Key::new(words[1]), b"", Some(Arc::new(memfd(words[2].as_bytes())))).unwrap()
            }
            "give" => return ("here".to_owned(), vault.get(&Key::new(words[1])).and_then(|kept| kept.fd)),
            "blob" => {
                let blob = vault.get(&Key::new(words[1])).map(|kept| String::from_utf8(kept.blob).unwrap());
                return (blob.unwrap_or("none".to_owned()), None);
            }
            "take" => {}
            "deadline" => {
                let promise = FaultDeadline {
                    address: number(2),
                    length: number(3),
                    deadline_ms: number(4) as u32,
                    userfaultfd: words[5].to_owned(),
                    synchronous: false,
                    whose: "a test".to_owned(),
                };
                vault.put(&Key::new(words[1]), &promise.to_blob(), None).unwrap();
            }
            "ended" => {
                let blob = vault.get(&Key::new(words[1])).map(|kept| kept.blob);
                let ended = blob.map(|blob| EndedFaults::from_blob(&blob).unwrap().ranges);
                return (format!("{:?}", ended.unwrap_or_default()), None);
            }
            "forget" => vault.forget(&Key::new(words[1])),
            "stream" => self.stream(number(1)),
            "restart" => match vault.restart_me(words.get(1).map(Path::new)) {
                Ok(()) => std::process::exit(0),
                Err(error) => return (error.message, None),
            },
            "replace" => vault.replace_keeper(&command(&self.state)).unwrap(),
            "exit" => self.exit(),
            "leave" => std::process::exit(0),
            other => panic!("unknown command {other}"),
        }
        ("done".to_owned(), None)
    }

    /// Puts thing after thing until killed (or `most` are put), and notes outside the vault how far it has got.
    fn stream(&self, most: u64) {
        let progress = File::create(self.state.join("progress")).unwrap();
        for n in 0..most {
            let fd = Arc::new(memfd(n.to_string().as_bytes()));
            self.holding
                .vault
                .put(&Key::new(format!("stream/{n}")), n.to_string().as_bytes(), Some(fd))
                .unwrap();
            progress.write_all_at(&(n + 1).to_le_bytes(), 0).unwrap();
            if n > 100 {
                self.holding.vault.forget(&Key::new(format!("stream/{}", n - 100)));
            }
        }
    }
}

/// How a host of this program starts a keeper.
fn command(state: &Path) -> KeeperCommand {
    KeeperCommand {
        serves: Serves::Host,
        program: std::env::var_os("COMMONHOLD_TEST_PROGRAM").unwrap().into(),
        state_directory: state.to_owned(),
        host_arguments: vec!["ignored by this program's keeper".into()],
    }
}
