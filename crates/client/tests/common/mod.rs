//! A host that is only pretended: it speaks the wire, keeps direct and controlled objects in memory, serves
//! faults with zeroes, and does whatever else a test tells it to.
#![allow(dead_code)] // each test file uses a part of it

#[path = "../../../../tests/left_out.rs"]
pub mod left_out;
#[path = "../../../../tests/limit.rs"]
pub mod limit;
pub mod real;

use commonhold::{
    Access, CreateOptions, EntryInfo, Error, ErrorKind, Losses, Name, ObjectId, ObjectInfo, Ownership,
    Result, SyncMode,
};
use commonhold_object::wire::{
    Event, FromHost, Header, HelloReply, OpenReply, Reply, Request, decode, encode,
};
use commonhold_object::{SessionId, Synced};
use commonhold_sys::frames;
use commonhold_sys::socket::{self, Wait};
use commonhold_sys::userfaultfd::{Modes, Userfaultfd};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a test wants done with a request.
pub enum Do {
    /// What a host does.
    Usual,
    /// Nothing.
    Ignore,
    /// This answer.
    Answer(Result<Reply>),
    /// These bytes, as they are.
    Raw(Vec<u8>),
    /// Say that a new host took over; then nothing.
    SayReplaced,
    /// Close the connection.
    HangUp,
    /// Say why, and close the connection.
    Refuse(Error),
}

type Rule = Box<dyn FnMut(&Header, &Request) -> Do + Send>;

/// An object of the pretended host.
struct Held {
    fd: OwnedFd,
    info: ObjectInfo,
}

#[derive(Default)]
struct State {
    objects: HashMap<String, Held>,
    seen: Vec<(Header, Request)>,
    rule: Option<Rule>,
    sockets: Vec<Arc<OwnedFd>>,
    registered: Vec<(u64, u64)>,
}

/// The pretended host. It ends with the value; threads of it that wait on sockets end with the connections.
pub struct FakeHost {
    pub directory: PathBuf,
    state: Arc<Mutex<State>>,
    listener: Option<Arc<OwnedFd>>,
}

static NUMBER: AtomicU64 = AtomicU64::new(1);

impl FakeHost {
    pub fn start() -> FakeHost {
        limit::begin();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("commonhold-fake-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut host = FakeHost { directory, state: Arc::default(), listener: None };
        host.listen();
        host
    }

    /// Begins to accept connections (again).
    pub fn listen(&mut self) {
        // In one step: a client that found no socket would take the host for stopped.
        let listener = Arc::new(socket::listen(&self.directory, "new.sock", 16).unwrap());
        std::fs::rename(self.directory.join("new.sock"), self.directory.join("host.sock")).unwrap();
        self.listener = Some(listener.clone());
        let state = self.state.clone();
        std::thread::spawn(move || {
            while let Ok(socket) = socket::accept(&*listener) {
                let socket = Arc::new(socket);
                state.lock().unwrap().sockets.push(socket.clone());
                let state = state.clone();
                std::thread::spawn(move || serve(&state, &socket));
            }
        });
    }

    /// Ends in order: takes the socket away first.
    pub fn stop(&mut self) {
        let _ = std::fs::remove_file(self.directory.join("host.sock"));
        self.die();
    }

    /// Both host and keeper die.
    pub fn die(&mut self) {
        if let Some(listener) = self.listener.take() {
            let _ = rustix::net::shutdown(&*listener, rustix::net::Shutdown::Both);
        }
        for socket in self.state.lock().unwrap().sockets.drain(..) {
            let _ = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Both);
        }
    }

    pub fn rule(&self, rule: impl FnMut(&Header, &Request) -> Do + Send + 'static) {
        self.state.lock().unwrap().rule = Some(Box::new(rule));
    }

    /// Everything asked so far.
    pub fn seen(&self) -> Vec<(Header, Request)> {
        self.state.lock().unwrap().seen.clone()
    }

    pub fn count(&self, which: impl Fn(&Request) -> bool) -> usize {
        self.state.lock().unwrap().seen.iter().filter(|(_, request)| which(request)).count()
    }

    /// Waits until that many requests of a kind came.
    pub fn wait_for(&self, count: usize, which: impl Fn(&Request) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.count(&which) < count {
            assert!(Instant::now() < deadline, "no {count} such requests in {:?}", self.seen());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn connections(&self) -> usize {
        self.state.lock().unwrap().sockets.len()
    }

    /// Says something unasked on every connection.
    pub fn tell(&self, event: Event) {
        for socket in self.state.lock().unwrap().sockets.iter() {
            let mut bytes = Vec::new();
            encode(Header::of(0), &FromHost::Event(event.clone()), &mut bytes).unwrap();
            let _ = socket::send(&**socket, &bytes, &[], Wait::Yes);
        }
    }

    /// The same on the latest connection alone.
    pub fn tell_last(&self, event: Event) {
        let mut bytes = Vec::new();
        encode(Header::of(0), &FromHost::Event(event), &mut bytes).unwrap();
        let state = self.state.lock().unwrap();
        socket::send(&**state.sockets.last().unwrap(), &bytes, &[], Wait::Yes).unwrap();
    }

    /// The mappings that were registered, in order, by all clients.
    pub fn registered(&self) -> Vec<(u64, u64)> {
        self.state.lock().unwrap().registered.clone()
    }

    /// Runs something with the memory of an object.
    pub fn frames_of<T>(&self, name: &str, run: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        run(self.state.lock().unwrap().objects[name].fd.as_fd())
    }
}

impl Drop for FakeHost {
    fn drop(&mut self) {
        self.die();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn serve(state: &Arc<Mutex<State>>, socket: &Arc<OwnedFd>) {
    let mut buffer = vec![0; 256 * 1024];
    let mut fds = Vec::new();
    let mut out = Vec::new();
    let mut served: Option<Arc<Userfaultfd>> = None;
    loop {
        let length = match socket::receive(&**socket, &mut buffer, &mut fds, Wait::Yes) {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        let (header, request): (Header, Request) = decode(&buffer[..length]).unwrap();
        let mut now = state.lock().unwrap();
        now.seen.push((header, request.clone()));
        let mut rule = now.rule.take();
        drop(now);
        let wanted = rule.as_mut().map_or(Do::Usual, |rule| rule(&header, &request));
        let mut now = state.lock().unwrap();
        if now.rule.is_none() {
            now.rule = rule;
        }
        let mut give = None;
        let answer = match wanted {
            Do::Usual => usual(&mut now, &request, &mut fds, &mut give, &mut served),
            Do::Ignore => None,
            Do::Answer(result) => Some(FromHost::Reply(result)),
            Do::SayReplaced => Some(FromHost::Event(Event::HostReplaced { generation: 2 })),
            Do::Raw(bytes) => {
                let _ = socket::send(&**socket, &bytes, &[], Wait::Yes);
                None
            }
            Do::Refuse(error) => {
                let refusal: FromHost = FromHost::Reply(Err(error));
                encode(Header::of(0), &refusal, &mut out).unwrap();
                let _ = socket::send(&**socket, &out, &[], Wait::Yes);
                let _ = rustix::net::shutdown(&**socket, rustix::net::Shutdown::Both);
                return;
            }
            Do::HangUp => {
                let _ = rustix::net::shutdown(&**socket, rustix::net::Shutdown::Both);
                return;
            }
        };
        drop(now);
        if let Some(answer) = answer.filter(|_| header.number != 0) {
            encode(Header::of(header.number), &answer, &mut out).unwrap();
            let fds: Vec<BorrowedFd<'_>> = give.iter().map(|fd: &OwnedFd| fd.as_fd()).collect();
            let _ = socket::send(&**socket, &out, &fds, Wait::Yes);
        }
    }
}

fn usual(
    state: &mut State,
    request: &Request,
    fds: &mut Vec<OwnedFd>,
    give: &mut Option<OwnedFd>,
    served: &mut Option<Arc<Userfaultfd>>,
) -> Option<FromHost> {
    let missing = |name: &Name| Error::new(ErrorKind::NotFound, format!("no object {name}"));
    let reply = match request {
        Request::Hello { .. } => {
            let session = SessionId(NUMBER.fetch_add(1, Ordering::Relaxed));
            Ok(Reply::Hello(HelloReply { session, version: "fake".into(), kernel_faults: false }))
        }
        Request::Create { name, options, .. } => {
            let fd = frames::create("commonhold-fake", options.size_bytes).unwrap();
            let info = new_info(name, options);
            *give = Some(fd.try_clone().unwrap());
            state.objects.insert(name.to_string(), Held { fd, info: info.clone() });
            Ok(Reply::Opened(Box::new(OpenReply { info, access: Access::ReadWrite })))
        }
        Request::Open { name, access } => match state.objects.get(name.as_str()) {
            None => Err(missing(name)),
            Some(held) => {
                *give = Some(match access {
                    Access::ReadWrite => held.fd.try_clone().unwrap(),
                    Access::Read => frames::reopen_read_only(&held.fd).unwrap(),
                });
                Ok(Reply::Opened(Box::new(OpenReply { info: held.info.clone(), access: *access })))
            }
        },
        Request::StatObject { object } => match state.objects.values().find(|held| held.info.id == *object) {
            Some(held) => Ok(Reply::Entry(Box::new(EntryInfo::Object(Box::new(held.info.clone()))))),
            None => Err(Error::new(ErrorKind::NotFound, "not open")),
        },
        Request::Resize { name, size_bytes, .. } => match state.objects.get_mut(name.as_str()) {
            Some(held) => {
                held.info.options.size_bytes = *size_bytes;
                rustix::fs::ftruncate(&held.fd, *size_bytes).unwrap();
                Ok(Reply::Done)
            }
            None => Err(missing(name)),
        },
        Request::Remove { name, .. } => {
            state.objects.remove(name.as_str()).map(|_| Reply::Done).ok_or(missing(name))
        }
        Request::Map(map) => {
            if map.with_descriptors {
                let uffd = Arc::new(Userfaultfd::from_fd(fds.remove(0)));
                *served = Some(uffd.clone());
                std::thread::spawn(move || serve_faults(&uffd));
            }
            let uffd = served.as_ref().expect("descriptors come with the first mapping");
            let writes = map.protection == commonhold::Protection::ReadWrite;
            let modes = Modes { missing: true, minor: true, write_protect: writes };
            uffd.register(map.address, map.length, modes).unwrap();
            state.registered.push((map.address, map.length));
            Ok(Reply::Done)
        }
        Request::Sync { length, .. } => {
            Ok(Reply::Synced(Synced { pages: length.div_ceil(4096), loss_generation: 0 }))
        }
        Request::Lock { .. } => Ok(Reply::Locked { pinned: true }),
        Request::Incore { pages, .. } => Ok(Reply::PageStates(vec![3; *pages as usize])),
        Request::PagerAnswer { .. } => return None,
        _ => Ok(Reply::Done),
    };
    Some(FromHost::Reply(reply))
}

/// Serves every fault: frames that exist are continued, others filled with zeroes.
fn serve_faults(uffd: &Userfaultfd) {
    let mut faults = Vec::new();
    while commonhold_sys::process::readable_within(uffd, 20_000).unwrap_or(false) {
        if uffd.read_faults(&mut faults).is_err() {
            return;
        }
        for fault in &faults {
            if fault.missing {
                uffd.copy(fault.address, &[0; 4096], false);
            } else {
                uffd.continue_(fault.address, 4096, false);
            }
        }
    }
}

fn new_info(name: &Name, options: &CreateOptions) -> ObjectInfo {
    ObjectInfo {
        id: ObjectId(NUMBER.fetch_add(1, Ordering::Relaxed)),
        uuid: 1,
        name: Some(name.clone()),
        ownership: Ownership { uid: 0, gid: 0, mode: options.mode },
        options: options.clone(),
        controlled: options.is_controlled(),
        file_path: String::new(),
        resident_bytes: 0,
        dirty_bytes: 0,
        spilled_bytes: 0,
        mappings: 0,
        opens: 1,
        charged_to: String::new(),
        warning: String::new(),
        home: String::new(),
        is_elsewhere: false,
        losses: Losses::default(),
        translated: Default::default(),
        page_tables: 0,
        modified_ns: 0,
        place: None,
    }
}

/// Options of an anonymous object.
pub fn plain(size_bytes: u64) -> CreateOptions {
    CreateOptions { size_bytes, ..CreateOptions::default() }
}

/// Options of a controlled object.
pub fn ordered(size_bytes: u64) -> CreateOptions {
    CreateOptions { size_bytes, sync: SyncMode::Ordered, ..CreateOptions::default() }
}

/// One word of shared memory.
pub fn word(start: *mut u8, offset: usize) -> &'static AtomicU64 {
    // SAFETY: tests pass addresses of live mappings of at least `offset + 8` bytes, aligned to pages.
    unsafe { &*start.add(offset).cast::<AtomicU64>() }
}

/// Whether an address can be touched: told by a system call that reads it, so that nothing crashes.
pub fn is_mapped(address: *const u8) -> bool {
    let (read, write) = rustix::pipe::pipe().unwrap();
    // SAFETY: the kernel checks the address itself, and fails with EFAULT.
    let n = unsafe { libc::write(std::os::fd::AsRawFd::as_raw_fd(&write), address.cast(), 1) };
    drop(read);
    n == 1
}

/// Has a test run in a process of its own, where nothing else maps memory: what it unmaps stays free. True in that
/// process; false where the test was started, after the other ended well.
pub fn in_own_process(test: &str) -> bool {
    const OWN: &str = "COMMONHOLD_TEST_OWN_PROCESS";
    if std::env::var_os(OWN).is_some() {
        return true;
    }
    let ended = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--test-threads=1", "--nocapture"])
        .env(OWN, test)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// What the library says on standard error from now on. Only in a process of the test's own.
pub struct Complaints(OwnedFd);

impl Complaints {
    pub fn hear() -> Complaints {
        let file = frames::create("complaints", 0).unwrap();
        // SAFETY: both descriptors are open; standard error stays open as something else.
        assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), 2) }, 2);
        Complaints(file)
    }

    pub fn all(&self) -> Vec<String> {
        let mut text = vec![0; 64 * 1024];
        let length = rustix::io::pread(&self.0, &mut text, 0).unwrap();
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        text.lines().filter(|line| line.starts_with("commonhold: ")).map(str::to_owned).collect()
    }

    /// Waits until there are so many.
    pub fn wait_for(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.all().len() < count {
            assert!(Instant::now() < deadline, "{:?}", self.all());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
