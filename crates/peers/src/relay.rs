//! Passing on: two hosts that cannot reach each other speak through this one, which reaches both.
//!
//! Who asks says who it is and whom it wants, over TLS as any other. Then the bytes of its connection are passed on to that
//! host, and back, as they are: the two greet each other, with TLS of their own, as if there were nobody between them, so
//! nothing that they say can be read or changed here. `docs/CLUSTER.md` has the reasons.

use crate::channel::lock;
use crate::greeting::{Greeting, Mode, PREAMBLE_BYTES, Wanted, check_preamble};
use crate::handshake::Talk;
use crate::judge::check_peer;
use crate::places::{Place, Places};
use crate::security::Security;
use crate::socket::{self, SILENCE};
use crate::table::Table;
use crate::timed::Timed;
use crate::tls;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// What who asked says, no longer over TLS, when it has heard that there is a way: what comes after it is passed on. Before it
/// nothing comes from the other side, so the TLS of the asking takes none of those bytes for its own.
pub const GO: u8 = b'>';
/// Most connections that are passed on at once: each has two threads.
const MOST: usize = 64;
/// So long the host that is wanted may take to answer, and who asked to go on.
const PATIENCE: Duration = Duration::from_secs(1);
/// After so long both are let go: they try to reach each other again, and go on through here where they cannot.
const LONGEST: Duration = Duration::from_secs(300);
const BUFFER_BYTES: usize = 64 << 10;

/// What is passed on at a host.
pub struct Relays {
    places: Arc<Places>,
    passages: Mutex<Vec<Weak<Passage>>>,
}

impl Default for Relays {
    fn default() -> Relays {
        Relays { places: Places::new(MOST), passages: Mutex::default() }
    }
}

/// Two connections that are one.
struct Passage {
    near: TcpStream,
    far: TcpStream,
    end: Instant,
    /// One of the two says no more.
    one_is_over: AtomicBool,
    _place: Place,
}

impl Relays {
    /// Answers who asked to be passed on. An error: it is none of those who may.
    pub fn pass_on(&self, mut talk: Talk, wanted: &Wanted, table: &Table, security: &Security) -> Result<()> {
        let denied = check_peer(&table.me, &wanted.hello, talk.subject()?.as_ref())
            .and_then(|_| table.handler.may_come(&wanted.hello));
        if let Err(error) = denied {
            talk.refuse(&error);
            return Err(error);
        }
        let full = || format!("{MOST} connections are passed on here, which is the limit");
        let reached = Place::take(&self.places)
            .ok_or_else(|| Error::new(ErrorKind::TooMany, full()))
            .and_then(|place| Ok((place, reach(wanted, table, security)?)));
        let (place, (far, preamble)) = match reached {
            Ok(reached) => reached,
            Err(error) => {
                talk.refuse(&error); // it may try elsewhere: nothing is wrong with it
                return Ok(());
            }
        };
        talk.say(&Greeting::Relayed)?;
        let near = talk.into_socket();
        let mut timed = Timed::new(&near, Instant::now() + PATIENCE);
        let mut go = [0];
        let heard = timed.read_exact(&mut go);
        heard.map_err(|error| tls::explain("passing a connection on", error))?;
        if go != [GO] {
            return Err(Error::new(ErrorKind::Protocol, "who asked to be passed on says something else"));
        }
        timed.write_all(&preamble).map_err(|error| tls::explain("passing a connection on", error))?;
        self.begin(near, far, place, table)?;
        table.handler.passes_on(&wanted.hello, wanted.to);
        Ok(())
    }

    fn begin(&self, near: TcpStream, far: TcpStream, place: Place, table: &Table) -> Result<()> {
        let (end, one_is_over) = (Instant::now() + LONGEST, AtomicBool::new(false));
        let passage = Arc::new(Passage { near, far, end, one_is_over, _place: place });
        {
            let mut all = lock(&self.passages);
            all.retain(|passage| passage.strong_count() > 0);
            all.push(Arc::downgrade(&passage));
        }
        if table.is_stopped() {
            return Ok(()); // its end closes both
        }
        for is_back in [false, true] {
            let both = passage.clone();
            let begun = std::thread::Builder::new().name("relay".into()).stack_size(64 << 10);
            let begun = points::thread(|| {
                begun.spawn(move || match is_back {
                    false => both.pass(&both.near, &both.far),
                    true => both.pass(&both.far, &both.near),
                })
            });
            begun.doing("passing a connection on").inspect_err(|_| passage.over())?;
        }
        Ok(())
    }

    /// Lets all of them go.
    pub fn stop(&self) {
        lock(&self.passages).iter().filter_map(Weak::upgrade).for_each(|passage| passage.over());
    }
}

/// Connects to the host that is wanted; and what it said first. Whoever says it listens where something else does has nothing
/// passed on to that: a host says its preamble unasked.
fn reach(wanted: &Wanted, table: &Table, security: &Security) -> Result<(TcpStream, [u8; PREAMBLE_BYTES])> {
    let to = wanted.to;
    let unknown = || Error::new(ErrorKind::Permission, format!("nothing is passed on to {to} here"));
    if [table.me.host, wanted.hello.host].contains(&to) {
        return Err(unknown());
    }
    let address: SocketAddr = table.handler.passes_on_to(&wanted.hello, to).ok_or_else(unknown)?;
    security.check(address)?;
    let silent = || format!("{to} does not answer here");
    let far = TcpStream::connect_timeout(&address, PATIENCE).doing(silent())?;
    socket::prepare(&far)?;
    let mut preamble = [0; PREAMBLE_BYTES];
    Timed::new(&far, Instant::now() + PATIENCE).read_exact(&mut preamble).doing(silent())?;
    let mode = match security {
        Security::Plain { .. } => Mode::Plain,
        Security::Tls(_) => Mode::Tls,
    };
    check_preamble(&preamble, mode)?;
    Ok((far, preamble))
}

impl Passage {
    /// One way, until either end is over.
    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut goes_on = from.set_read_timeout(Some(SILENCE)).is_ok();
        while goes_on && Instant::now() < self.end {
            goes_on = match points::receive_far(|| from.read(&mut buffer)) {
                Ok(0) => {
                    // What was said last may still be on its way, and the other end may have something to say to it.
                    self.one_is_over.store(true, Ordering::Release);
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                Ok(read) => points::send_far(|| to.write_all(&buffer[..read])).is_ok(),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => true,
                    io::ErrorKind::WouldBlock => !self.one_is_over.load(Ordering::Acquire),
                    _ => false,
                },
            };
        }
        self.over();
    }

    fn over(&self) {
        for socket in [&self.near, &self.far] {
            let _ = socket.shutdown(Shutdown::Both); // the other thread wakes
        }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.over();
    }
}
