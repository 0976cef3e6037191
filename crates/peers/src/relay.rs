//! Passing on: two hosts that cannot reach each other speak through this one, which reaches both.
//!
//! Who asks says who it is and whom it wants, over TLS as any other. Then the bytes of its connection are passed on to that
//! host, and back, as they are: the two greet each other, with TLS of their own, as if there were nobody between them, so
//! nothing that they say can be read or changed here. `docs/CLUSTER.md` has the reasons.

use crate::channel::lock;
use crate::greeting::{Greeting, Wanted};
use crate::handshake::{DEADLINE, Talk};
use crate::judge::check_peer;
use crate::security::Security;
use crate::socket;
use crate::table::Table;
use crate::through::DIRECT;
use crate::timed::Timed;
use crate::tls;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// What who asked says, no longer over TLS, when it has heard that there is a way: what comes after it is passed on. Before it
/// nothing comes from the other side, so the TLS of the asking takes none of those bytes for its own.
pub const GO: u8 = b'>';
/// Most connections that are passed on at once: each has two threads.
const MOST: usize = 64;
/// After so long both are let go: they try to reach each other again, and go on through here where they cannot.
const LONGEST: Duration = Duration::from_secs(300);
const BUFFER_BYTES: usize = 64 << 10;

/// What is passed on at a host.
#[derive(Default)]
pub struct Relays(Mutex<Vec<Weak<Passage>>>);

/// Two connections that are one.
struct Passage {
    near: TcpStream,
    far: TcpStream,
    end: Instant,
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
        let far = match self.reach(wanted, table, security) {
            Ok(far) => far,
            Err(error) => {
                talk.refuse(&error); // it may try elsewhere: nothing is wrong with it
                return Ok(());
            }
        };
        talk.say(&Greeting::Relayed)?;
        let near = talk.into_socket();
        let mut go = [0];
        let heard = Timed::new(&near, Instant::now() + DEADLINE).read_exact(&mut go);
        heard.map_err(|error| tls::explain("passing a connection on", error))?;
        if go != [GO] {
            return Err(Error::new(ErrorKind::Protocol, "who asked to be passed on says something else"));
        }
        self.begin(near, far, table)?;
        table.handler.passes_on(&wanted.hello, wanted.to);
        Ok(())
    }

    fn reach(&self, wanted: &Wanted, table: &Table, security: &Security) -> Result<TcpStream> {
        let to = wanted.to;
        let unknown = || Error::new(ErrorKind::Permission, format!("nothing is passed on to {to} here"));
        let address: SocketAddr = table.handler.passes_on_to(to).ok_or_else(unknown)?;
        security.check(address)?;
        if lock(&self.0).iter().filter(|passage| passage.strong_count() > 0).count() >= MOST {
            let words = format!("{MOST} connections are passed on here, which is the limit");
            return Err(Error::new(ErrorKind::TooMany, words));
        }
        let far =
            TcpStream::connect_timeout(&address, DIRECT).doing(format_args!("{to} does not answer here"))?;
        socket::prepare(&far)?;
        Ok(far)
    }

    fn begin(&self, near: TcpStream, far: TcpStream, table: &Table) -> Result<()> {
        let what = "passing a connection on";
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(LONGEST)).doing(what)?;
        }
        let passage = Arc::new(Passage { near, far, end: Instant::now() + LONGEST });
        {
            let mut all = lock(&self.0);
            all.retain(|passage| passage.strong_count() > 0);
            all.push(Arc::downgrade(&passage));
        }
        if table.is_stopped() {
            return Ok(()); // its end closes both
        }
        for is_back in [false, true] {
            let both = passage.clone();
            let begun = std::thread::Builder::new().name("relay".into()).stack_size(64 << 10);
            let begun = begun.spawn(move || match is_back {
                false => both.pass(&both.near, &both.far),
                true => both.pass(&both.far, &both.near),
            });
            begun.doing(what).inspect_err(|_| passage.over())?;
        }
        Ok(())
    }

    /// Lets all of them go.
    pub fn stop(&self) {
        lock(&self.0).iter().filter_map(Weak::upgrade).for_each(|passage| passage.over());
    }
}

impl Passage {
    /// One way, until either end is over.
    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while Instant::now() < self.end {
            let read = match from.read(&mut buffer) {
                // What was said last may still be on its way, and the other end may have something to say to it.
                Ok(0) => return drop(to.shutdown(Shutdown::Write)),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
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
