//! The authority's side: a small service beside a host, or alone (`commonhold ca serve`).

use super::{Answer, Request, hear, proof_text, say};
use crate::accept::{self, Gate};
use crate::ca::{Authority, Issued, Validity};
use crate::channel::lock;
use crate::greeting::Mode;
use crate::handshake::{DEADLINE, Talk};
use crate::socket;
use crate::tls;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use rcgen::{PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::{Connection, ServerConnection};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the certificates of newcomers are valid.
const VALID: Duration = Duration::from_secs(365 * 86_400);

/// What becomes of those who come.
#[derive(Clone, Debug)]
pub enum Event {
    /// A host of this name has its certificate now.
    Joined(SocketAddr, String),
    /// Somebody was turned away.
    Refused(SocketAddr, Error),
}

/// The service that gives newcomers their certificates.
pub struct Service {
    listener: Arc<TcpListener>,
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Service {
    /// Listens. `tell` hears what becomes of those who come, on the service's threads.
    pub fn start(
        listen: SocketAddr,
        authority: Authority,
        tell: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Service> {
        let what = || format!("listening for newcomers on {listen}");
        let listener = Arc::new(TcpListener::bind(listen).doing(what())?);
        let address = listener.local_addr().doing(what())?;
        let stopped = Arc::new(AtomicBool::new(false));
        let taken = listener.clone();
        let gate = Arc::new(NewcomerGate { authority, tell: Box::new(tell), stopped: stopped.clone() });
        let accepting = std::thread::Builder::new().name("joining".into());
        let accepting =
            points::thread(|| accepting.spawn(move || accept::run(&taken, &gate))).doing(what())?;
        Ok(Service { listener, address, stopped, accepting: Mutex::new(Some(accepting)) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

struct NewcomerGate {
    authority: Authority,
    tell: Box<dyn Fn(Event) + Send + Sync>,
    stopped: Arc<AtomicBool>,
}

impl Gate for NewcomerGate {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn refused(&self, from: SocketAddr, why: &Error) {
        (self.tell)(Event::Refused(from, why.clone()));
    }

    fn answer(&self, socket: TcpStream, from: SocketAddr) -> Result<()> {
        (self.tell)(Event::Joined(from, answer(socket, &self.authority)?));
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(accepting) = lock(&self.accepting).take() {
            let _ = accepting.join();
        }
    }
}

fn answer(stream: TcpStream, authority: &Authority) -> Result<String> {
    socket::prepare(&stream)?;
    let config = tls::server(None, authority.service()?)?;
    let connection = ServerConnection::new(config)
        .map_err(|error| Error::invalid(format!("TLS cannot begin: {error}")))?;
    let deadline = Instant::now() + DEADLINE;
    let mut talk = Talk::open_with(stream, Mode::Joining, Some(Connection::Server(connection)), deadline)?;
    let granted = hear(&mut talk).and_then(|request| grant(&talk, authority, request));
    let said = match &granted {
        Ok((issued, _)) => say(
            &mut talk,
            &Answer::Granted { certificate: issued.certificate.clone(), authority: issued.authority.clone() },
        ),
        Err(error) => say(&mut talk, &Answer::Refused(error.message.clone())),
    };
    talk.end();
    let (_, name) = granted?;
    said.map(|()| name)
}

fn grant(talk: &Talk, authority: &Authority, request: Request) -> Result<(Issued, String)> {
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &request.public_key);
    key.verify(&proof_text(talk, &request.name)?, &request.proof).map_err(|_| {
        Error::new(
            ErrorKind::Permission,
            "the newcomer does not have the key that it wants a certificate for",
        )
    })?;
    let rights = authority.redeem(&request.secret, &request.name)?;
    let issued = authority.issue(&request.name, rights, Validity::of(VALID), &Point(request.public_key))?;
    Ok((issued, request.name))
}

/// A public key: a point of P-256 whose owner has proved to have the other half.
struct Point(Vec<u8>);

impl PublicKeyData for Point {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}
