//! From a socket to a peer one knows: preamble, TLS, and greetings, all before one deadline.

use crate::certificate::Subject;
use crate::channel::{Channel, Stream};
use crate::greeting::{self, Greeting, MAX_GREETING_BYTES, Mode, PREAMBLE_BYTES};
use crate::identity::Identity;
use crate::security::Security;
use crate::socket;
use crate::timed::Timed;
use crate::tls;
use commonhold_object::{Error, ErrorKind, Result};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime};

/// Longest time from the first byte to the last greeting.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It connected.
    Begins,
    /// It was connected to.
    Answers,
}

/// A connection on which greetings are exchanged.
pub struct Talk {
    socket: TcpStream,
    tls: Option<Connection>,
    deadline: Instant,
}

impl Talk {
    /// Exchanges preambles, and gets TLS up. Of a failure the other end hears what TLS can say.
    pub fn open(socket: TcpStream, security: &Security, end: End, deadline: Instant) -> Result<Talk> {
        socket::prepare(&socket)?;
        let (mode, tls) = match security {
            Security::Plain { .. } => (Mode::Plain, None),
            Security::Tls(identity) => (Mode::Tls, Some(connection(identity, end, &socket)?)),
        };
        Self::open_with(socket, mode, tls, deadline)
    }

    /// The same with a TLS state of one's own.
    pub fn open_with(
        socket: TcpStream,
        mode: Mode,
        tls: Option<Connection>,
        deadline: Instant,
    ) -> Result<Talk> {
        let mut talk = Talk { socket, tls, deadline };
        match talk.handshake(mode) {
            Ok(()) => Ok(talk),
            Err(error) => {
                talk.end();
                Err(error)
            }
        }
    }

    fn handshake(&mut self, mode: Mode) -> Result<()> {
        let mut timed = Timed::new(&self.socket, self.deadline);
        let mut theirs = [0; PREAMBLE_BYTES];
        let exchanged =
            timed.write_all(&greeting::preamble(mode)).and_then(|()| timed.read_exact(&mut theirs));
        exchanged.map_err(|error| tls::explain("greeting the other end", error))?;
        greeting::check_preamble(&theirs, mode)?;
        if let Some(tls) = &mut self.tls {
            while tls.is_handshaking() {
                let done = tls.complete_io(&mut timed);
                done.map_err(|error| tls::explain("the TLS handshake failed", error))?;
            }
        }
        Ok(())
    }

    /// What the other end's certificate says it is; none without TLS.
    pub fn subject(&self) -> Result<Option<Subject>> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let shown = tls.peer_certificates().and_then(|chain| chain.first());
        let shown =
            shown.ok_or_else(|| Error::new(ErrorKind::Permission, "the peer shows no certificate"))?;
        Subject::of(shown).map(Some)
    }

    /// Until when the other end's certificate is good.
    pub fn good_until(&self, security: &Security) -> Option<SystemTime> {
        let Security::Tls(identity) = security else { return None };
        identity.good_until_of(self.tls.as_ref()?.peer_certificates()?.first()?)
    }

    /// The TLS state.
    pub fn tls(&self) -> Option<&Connection> {
        self.tls.as_ref()
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut dyn Both) -> io::Result<T>) -> Result<T> {
        let mut timed = Timed::new(&self.socket, self.deadline);
        let done = match &mut self.tls {
            None => act(&mut timed),
            Some(Connection::Client(tls)) => act(&mut rustls::Stream::new(tls, &mut timed)),
            Some(Connection::Server(tls)) => act(&mut rustls::Stream::new(tls, &mut timed)),
        };
        done.map_err(|error| tls::explain("greeting the other end", error))
    }

    /// Sends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.with(|io| io.write_all(bytes).and_then(|()| io.flush()))
    }

    /// Sends a greeting.
    pub fn say(&mut self, greeting: &Greeting) -> Result<()> {
        self.write(&greeting.encode()?)
    }

    /// Receives the bytes behind a length of two bytes.
    pub fn hear_bytes(&mut self) -> Result<Vec<u8>> {
        let mut length = [0; 2];
        self.with(|io| io.read_exact(&mut length))?;
        let length = usize::from(u16::from_le_bytes(length));
        if length > MAX_GREETING_BYTES {
            return Err(Error::new(
                ErrorKind::Protocol,
                format!("a greeting of {length} bytes is announced: the limit is {MAX_GREETING_BYTES}"),
            ));
        }
        let mut body = vec![0; length];
        self.with(|io| io.read_exact(&mut body))?;
        Ok(body)
    }

    /// Receives a greeting; a refusal is an error.
    pub fn hear(&mut self) -> Result<Greeting> {
        match Greeting::decode(&self.hear_bytes()?)? {
            Greeting::Refused(reason) => {
                Err(Error::new(ErrorKind::Permission, format!("the other end refuses: {reason}")))
            }
            greeting => Ok(greeting),
        }
    }

    /// Says why not, and ends.
    pub fn refuse(mut self, error: &Error) {
        let _ = self.say(&Greeting::refusal(error));
        self.end();
    }

    /// Ends so that what was said last is heard.
    pub fn end(self) {
        Timed::new(&self.socket, self.deadline).linger();
    }

    /// This conversation is over, and TLS with it: another follows on the same socket. Neither end may have said anything that
    /// the other has not asked for.
    pub fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// All is said: messages follow.
    pub fn into_stream(self) -> Stream {
        let channel = match self.tls {
            None => Channel::Plain,
            Some(mut tls) => {
                // What a peer may be sent is bounded by the queue, not by TLS.
                tls.set_buffer_limit(None);
                Channel::tls(tls)
            }
        };
        Stream { socket: self.socket, channel }
    }
}

/// Something to read and write.
trait Both: Read + Write {}
impl<T: Read + Write> Both for T {}

fn connection(identity: &Identity, end: End, socket: &TcpStream) -> Result<Connection> {
    let wrong = |error| Error::invalid(format!("TLS cannot begin: {error}"));
    match end {
        End::Answers => ServerConnection::new(identity.server.clone()).map(Connection::Server).map_err(wrong),
        End::Begins => {
            // The name is not looked at: which host it is, its subject says.
            let address = socket.peer_addr().map_err(|error| Error::io("looking at a connection", &error))?;
            let name = ServerName::IpAddress(address.ip().into());
            ClientConnection::new(identity.client.clone(), name).map(Connection::Client).map_err(wrong)
        }
    }
}
