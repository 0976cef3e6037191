//! The control thread: connections, messages and deaths. It does no slow work: that goes to workers.

use super::reading::{Reader, read_apart};
use super::session::{Session, no_descriptor_left, refuse};
use super::{Host, lifetime};
use commonhold_keeper::{KeeperCommand, KeeperEvent, Serves};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result, SessionId};
use commonhold_points as points;
use commonhold_sys::socket::{self, Wait};
use commonhold_sys::spin::Spin;
use commonhold_sys::{closing, process};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

const LISTENER: u64 = u64::MAX;
const KEEPER: u64 = u64::MAX - 1;
const ALARM: u64 = u64::MAX - 2;
const SIGTERM: u64 = u64::MAX - 3;
/// Messages taken from one client before the others get their turn.
const MESSAGES_IN_A_ROW: usize = 16;
/// How often deadlines are looked at, when there are any.
const TICK: Duration = Duration::from_millis(100);
/// How long to look for requests before sleeping, at most.
const LOOK: Duration = Duration::from_micros(100);
/// How long the log is silent about refused clients after one.
const REFUSALS_APART: Duration = Duration::from_secs(1);

/// The set of descriptors the control thread watches.
pub struct Control {
    host: Arc<Host>,
    epoll: Arc<OwnedFd>,
    listener: Arc<OwnedFd>,
    reader: Reader,
    /// Given up to turn a connection away when there is no descriptor left for it: else it would be announced for ever.
    spare: Option<OwnedFd>,
    /// Connections are being turned away; said in the log once.
    turning_away: bool,
    /// Whether to look for requests before sleeping.
    spin: Spin,
    /// When deadlines were last looked at.
    last_look: Instant,
    /// When the log was last told of a client that was refused.
    told_of_refused: Option<Instant>,
    /// Readable after SIGTERM.
    terminate: UnixStream,
}

fn spare() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

fn socket_token(id: SessionId) -> u64 {
    id.0 << 1
}

fn process_token(id: SessionId) -> u64 {
    id.0 << 1 | 1
}

impl Control {
    /// Watches the listener, the keeper, and every session there is.
    pub fn new(host: Arc<Host>, listener: Arc<OwnedFd>) -> Result<Control> {
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC).doing("creating an epoll set")?);
        let (terminate, theirs) = UnixStream::pair().doing("watching for SIGTERM")?;
        signal_hook::low_level::pipe::register(signal_hook::consts::SIGTERM, theirs)
            .doing("watching for SIGTERM")?;
        let this = Control {
            reader: Reader::new(host.clone()),
            host,
            epoll,
            listener,
            spare: spare(),
            turning_away: false,
            spin: Spin::new(LOOK),
            last_look: Instant::now(),
            told_of_refused: None,
            terminate,
        };
        this.watch(&*this.listener, LISTENER)?;
        this.watch(this.host.vault.watch_fd(), KEEPER)?;
        epoll::add(
            &this.epoll,
            this.host.machine.alarm(),
            EventData::new_u64(ALARM),
            EventFlags::IN | EventFlags::ET,
        )
        .map_err(std::io::Error::from)
        .doing("watching a descriptor")?;
        this.watch(&this.terminate, SIGTERM)?;
        for session in this.host.sessions() {
            this.watch_session(&session)?;
            this.is_read_apart(&session);
        }
        Ok(this)
    }

    fn watch(&self, fd: impl AsFd, token: u64) -> Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::IN)
            .map_err(std::io::Error::from)
            .doing("watching a descriptor")
    }

    fn watch_session(&self, session: &Session) -> Result<()> {
        self.watch(&*session.socket, socket_token(session.id))?;
        match &session.pidfd {
            Some(pidfd) => self.watch(&**pidfd, process_token(session.id)),
            None => Ok(()),
        }
    }

    /// Serves until the process exits.
    pub fn run(mut self) -> Result<()> {
        lifetime::serves_all();
        let mut events = [const { Event { flags: EventFlags::empty(), data: EventData::new_u64(0) } }; 64];
        loop {
            let tick = rustix::event::Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
            let timeout = if self.host.machine.is_armed() { Some(&tick) } else { None };
            let count = self.wait(&mut events, timeout)?;
            for event in &events[..count] {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    KEEPER => self.keeper_event(),
                    ALARM => {
                        self.host.machine.hear_alarm();
                        self.host.tell_changes();
                    }
                    SIGTERM => self.terminated(),
                    token => self.session_event(token),
                }
            }
            // Not after every message: there may be thousands of clients and objects to look at.
            if self.host.machine.is_armed() && self.last_look.elapsed() >= TICK {
                self.last_look = Instant::now();
                self.host.check_deadlines();
            }
        }
    }

    /// The host is to end, which may take as long as others take what is newest here.
    fn terminated(&self) {
        let _ = (&self.terminate).read(&mut [0; 16]);
        let host = self.host.clone();
        if points::thread(|| {
            std::thread::Builder::new().name("stopping".into()).spawn(move || host.stop_now())
        })
        .is_err()
        {
            self.host.stop_now();
        }
    }

    /// Waits for events: looking for a little where requests follow each other and that has been faster, then asleep.
    fn wait(&mut self, events: &mut [Event], timeout: Option<&rustix::event::Timespec>) -> Result<usize> {
        const NOW: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let began = Instant::now();
        let budget = self.spin.budget();
        loop {
            let looking = began.elapsed() < budget;
            match epoll::wait(&self.epoll, &mut *events, if looking { Some(&NOW) } else { timeout }) {
                Ok(0) if looking => std::hint::spin_loop(),
                Ok(count) => {
                    self.spin.waited(began.elapsed());
                    return Ok(count);
                }
                Err(rustix::io::Errno::INTR) => return Ok(0),
                Err(errno) => return Err(Error::io("waiting for clients", &errno.into())),
            }
        }
    }

    fn accept(&mut self) {
        let socket = match socket::accept(&*self.listener) {
            Ok(socket) => socket,
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::MFILE | Errno::NFILE)) => {
                return self.turn_away();
            }
            Err(_) => return,
        };
        self.turning_away = false;
        let socket = Arc::new(socket);
        match self.host.admit(socket.clone()) {
            Ok(session) => {
                if let Err(error) = self.watch_session(&session) {
                    self.host.machine.log(format_args!("client {}: {error}", session.process.pid));
                    self.host.end_session(&session);
                }
            }
            Err(error) => {
                self.tell_of_refused(&error);
                self.host.end_connection(socket);
            }
        }
    }

    /// In the log, but whoever connects in a loop does not fill it.
    fn tell_of_refused(&mut self, error: &Error) {
        if self.told_of_refused.is_none_or(|at| at.elapsed() > REFUSALS_APART) {
            self.told_of_refused = Some(Instant::now());
            self.host.machine.log(format_args!("a client was refused: {error}"));
        }
    }

    /// There is no descriptor left for whoever connects.
    fn turn_away(&mut self) {
        if !std::mem::replace(&mut self.turning_away, true) {
            self.host
                .machine
                .log("no descriptor is left: clients are turned away until others end (ulimit -n)");
        }
        self.spare = None;
        if let Ok(socket) = socket::accept(&*self.listener) {
            refuse(&socket, no_descriptor_left());
            closing::drain(&socket);
        }
        self.spare = spare();
        if self.spare.is_none() {
            // Somebody else took the place: not as fast as the loop can turn.
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn keeper_event(&mut self) {
        while let Some(event) = self.host.vault.next_event() {
            match event {
                KeeperEvent::Gone(why) => {
                    self.host.wake_everybody();
                    self.host.replace_keeper(&why);
                }
                KeeperEvent::Ended { key, blob } => self.host.heal_ended([(&key, &blob[..])]),
                KeeperEvent::Problem(what) => self.host.machine.log(format_args!("the keeper: {what}")),
            }
        }
    }

    fn session_event(&mut self, token: u64) {
        let id = SessionId(token >> 1);
        let session = self.host.sessions.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        let Some(session) = session else { return };
        if token & 1 == 1 {
            self.forget(&session);
            self.host.process_ended(&session);
            return;
        }
        for _ in 0..MESSAGES_IN_A_ROW {
            match self.reader.message(&session, Wait::No) {
                Ok(true) if self.is_read_apart(&session) => return,
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    if error.kind != ErrorKind::Disconnected {
                        session.reply(0, Err(error), &[]);
                    }
                    self.hung_up(&session);
                    return;
                }
            }
        }
    }

    /// Whether a thread of its own reads what the session says: from now on, if it has begun to serve a pager.
    fn is_read_apart(&self, session: &Arc<Session>) -> bool {
        if !session.begins_to_serve.swap(false, Ordering::Relaxed) {
            return false;
        }
        let _ = epoll::delete(&self.epoll, &*session.socket); // it is in the set: this thread heard of it there
        let epoll = self.epoll.clone();
        // The connection has ended, and is seen to here.
        let watch = move |session: &Session| {
            let token = EventData::new_u64(socket_token(session.id));
            // It was there a moment ago, and there is room for it. If not, its process' end is seen.
            let _ = epoll::add(&epoll, &*session.socket, token, EventFlags::IN);
        };
        let is_apart = read_apart(&self.host, session, watch.clone());
        if !is_apart {
            watch(session);
        }
        is_apart
    }

    fn forget(&self, session: &Session) {
        let _ = epoll::delete(&self.epoll, &*session.socket);
        if let Some(pidfd) = &session.pidfd {
            let _ = epoll::delete(&self.epoll, &**pidfd);
        }
    }

    /// The other end of the socket is gone. A process that lives on with mappings is served on until it ends:
    /// closing its userfaultfd now would let it read zeros, and what it has of an arena would be another object's.
    fn hung_up(&self, session: &Arc<Session>) {
        let _ = epoll::delete(&self.epoll, &*session.socket);
        // Whoever lives at the other end, and waits for an answer, hears that there will be none: it comes back.
        session.hang_up();
        session.hung_up.store(true, Ordering::SeqCst);
        self.host.pagers.disconnect(session.id.0);
        if self.host.outlives_its_connection(session) {
            return;
        }
        self.forget(session);
        self.host.process_ended(session);
    }
}

impl Host {
    /// Whether a session goes on that hung up: its process lives, and has something that is the host's affair.
    fn outlives_its_connection(&self, session: &Session) -> bool {
        let lives = session.pidfd.as_ref().is_some_and(|fd| !process::has_ended(&**fd));
        lives && (session.maps_something() || self.has_places(session) || self.has_locks(session))
    }

    /// A request of a session was worked on: if it has hung up meanwhile, that may have been the last that it had.
    pub(super) fn end_if_it_left(self: &Arc<Self>, session: &Arc<Session>) {
        if session.hung_up.load(Ordering::SeqCst) && !self.outlives_its_connection(session) {
            self.process_ended(session);
        }
    }

    /// A new connection.
    fn admit(&self, socket: Arc<OwnedFd>) -> Result<Arc<Session>> {
        let id = SessionId(self.next_session.fetch_add(1, Ordering::Relaxed));
        let mut session = Session::accept(id, socket)?;
        session.share = self.share_of(session.credentials.uid);
        let session = Arc::new(session);
        let refused = |error: &Error| session.reply(0, Err(error.clone()), &[]);
        self.check_closed(session.credentials.uid).inspect_err(refused)?;
        self.check_place(session.credentials.uid).inspect_err(refused)?;
        // One that the next host would not know of must not begin.
        self.keep_new_session(&session).inspect_err(refused)?;
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).insert(id, session.clone());
        Ok(session)
    }

    /// The keeper died: another is started and filled from what this process has. Tried until it works: without
    /// a keeper the death of this process would lose what no client can bring back.
    fn replace_keeper(self: &Arc<Self>, why: &str) {
        self.machine.log(format_args!("no keeper ({why}): starting another"));
        let this = self.clone();
        let replace = move || {
            while let Err(error) = this.vault.replace_gone_keeper(&this.keeper_command(this.program.clone()))
            {
                this.machine.log(format_args!("starting a keeper: {error}"));
                std::thread::sleep(Duration::from_secs(1));
            }
            // Once more, now that it is gone for certain.
            this.wake_everybody();
            this.repairs.note("a keeper was lost and replaced".into());
        };
        // A thread of its own: what else is urgent may wait for clients.
        let spawned =
            points::thread(|| std::thread::Builder::new().name("new-keeper".into()).spawn(replace.clone()));
        if spawned.is_err() {
            self.machine.urgent.run(replace);
        }
    }

    /// Puts a keeper of `program` in the place of the present one.
    pub(super) fn start_keeper(&self, program: std::path::PathBuf) -> Result<()> {
        self.vault.replace_keeper(&self.keeper_command(program))
    }

    fn keeper_command(&self, program: std::path::PathBuf) -> KeeperCommand {
        KeeperCommand {
            serves: Serves::Host,
            program,
            state_directory: self.machine.directory.clone(),
            host_arguments: self.arguments.clone(),
        }
    }
}
