//! The way in of a connection: bytes from the socket, through TLS if there is any, to where they belong.

use crate::channel::{Channel, lock};
use crate::link::Link;
use crate::socket;
use crate::tls;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_sys::spin::Spin;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long to look for data before sleeping, at most.
const LOOK: Duration = Duration::from_micros(50);
/// Bytes that are read ahead: a header, a message, and the page behind it come in by one call. What is longer is read
/// straight to its place.
const AHEAD_BYTES: usize = 16 << 10;
/// Encrypted bytes that are read at once.
const RAW_BYTES: usize = 64 << 10;

/// The raw bytes behind a message.
pub struct Payload<'a> {
    source: &'a mut dyn Source,
    length: usize,
    left: usize,
    broken: Option<Error>,
}

/// Where a payload's bytes come from.
trait Source {
    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<()>;
}

impl Source for &[u8] {
    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        Read::read_exact(self, buffer).map_err(|error| Error::io("reading a payload", &error))
    }
}

impl<'a> Payload<'a> {
    fn new(source: &'a mut dyn Source, length: usize) -> Self {
        Payload { source, length, left: length, broken: None }
    }

    /// A payload that did not come from a connection: for handlers' own tests, and messages to oneself.
    pub fn of<'b: 'a>(bytes: &'a mut &'b [u8]) -> Self {
        let length = bytes.len();
        Payload::new(bytes, length)
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there never was one.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes that are not read yet.
    pub fn remaining(&self) -> usize {
        self.left
    }

    /// Fills a buffer, straight from the socket where nothing is encrypted. Asking for more than there is changes
    /// nothing; any other error means that the connection has broken, and that the message will come again.
    pub fn read_exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if buffer.len() > self.left {
            return Err(Error::invalid(format!(
                "{} bytes were asked of a payload that has {} left of {}",
                buffer.len(),
                self.left,
                self.length
            )));
        }
        let done = self.source.read_exact(buffer);
        match &done {
            Ok(()) => self.left -= buffer.len(),
            Err(error) => self.broken = Some(error.clone()),
        }
        done
    }

    /// Passes over what nobody read.
    fn finish(mut self) -> Result<()> {
        let mut unread = [0; 4096];
        while self.left > 0 {
            let part = self.left.min(unread.len());
            self.read_exact(&mut unread[..part])?;
        }
        self.broken.map_or(Ok(()), Err)
    }
}

/// What a connection's reader has at hand.
pub struct Inbound {
    link: Arc<Link>,
    /// Encrypted bytes, not yet given to TLS.
    raw: Ahead,
    /// Plain bytes, not yet asked for.
    plain: Ahead,
    spin: Spin,
    /// A message has begun and is not whole: the peer must go on.
    within: bool,
}

#[derive(Default)]
struct Ahead {
    bytes: Vec<u8>,
    at: usize,
    end: usize,
}

impl Ahead {
    fn left(&self) -> &[u8] {
        &self.bytes[self.at..self.end]
    }
}

impl Inbound {
    /// Of a connection.
    pub fn new(link: Arc<Link>) -> Inbound {
        let raw_bytes = if matches!(link.stream.channel, Channel::Tls(_)) { RAW_BYTES } else { 0 };
        let buffer = |bytes| Ahead { bytes: vec![0; bytes], at: 0, end: 0 };
        Inbound {
            link,
            raw: buffer(raw_bytes),
            plain: buffer(AHEAD_BYTES),
            spin: Spin::new(LOOK),
            within: false,
        }
    }

    /// A message is over: the next may take its time.
    pub fn between_messages(&mut self) {
        self.within = false;
    }

    /// A payload of that many bytes, which are next. `with` gets it, and `had` is called if all could be read that it
    /// wanted; what it leaves is skipped.
    pub fn payload(
        &mut self,
        bytes: usize,
        with: impl FnOnce(&mut Payload<'_>),
        had: impl FnOnce(),
    ) -> Result<()> {
        let mut payload = Payload::new(self, bytes);
        with(&mut payload);
        if payload.broken.is_none() {
            had();
        }
        payload.finish()
    }

    /// Fills the buffer.
    pub fn read_exact(&mut self, mut buffer: &mut [u8]) -> Result<()> {
        loop {
            let ready = self.plain.left();
            let part = ready.len().min(buffer.len());
            let (head, rest) = buffer.split_at_mut(part);
            head.copy_from_slice(&ready[..part]);
            self.plain.at += part;
            self.within |= part > 0;
            buffer = rest;
            if buffer.is_empty() {
                return Ok(());
            }
            if buffer.len() >= AHEAD_BYTES {
                let read = self.read(buffer)?;
                buffer = &mut buffer[read..];
            } else {
                let mut bytes = std::mem::take(&mut self.plain.bytes);
                let read = self.read(&mut bytes);
                self.plain = Ahead { bytes, at: 0, end: 0 };
                self.plain.end = read?;
            }
        }
    }

    /// At least one byte; waits for it.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let link = self.link.clone();
        let tls = match &link.stream.channel {
            Channel::Plain => None,
            Channel::Tls(tls) => Some(tls),
        };
        let read = loop {
            let Some(tls) = tls else { break self.receive(&link.stream.socket, buffer)? };
            if let Some(read) = self.decrypt(tls, buffer)? {
                break read;
            }
            // Outside the lock: senders go on.
            let mut raw = std::mem::take(&mut self.raw.bytes);
            let read = self.receive(&link.stream.socket, &mut raw);
            self.raw = Ahead { bytes: raw, at: 0, end: 0 };
            self.raw.end = read?;
        };
        self.within = true;
        Ok(read)
    }

    /// At least one byte from the socket.
    fn receive(&mut self, socket: &TcpStream, buffer: &mut [u8]) -> Result<usize> {
        let began = Instant::now();
        let budget = self.spin.budget();
        let mut look = !budget.is_zero();
        loop {
            let received =
                if look { socket::recv_some(socket, buffer) } else { socket::recv_wait(socket, buffer) };
            match received {
                Ok(0) => return Err(self.ended()),
                Ok(read) => {
                    self.spin.waited(began.elapsed());
                    return Ok(read);
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(failed(error)),
                Err(_) if look => look = began.elapsed() < budget,
                Err(_) if self.within => {
                    let silence = socket::SILENCE.as_secs();
                    let words = format!("the peer sent nothing for {silence} s in the middle of a message");
                    return Err(Error::new(ErrorKind::TimedOut, words));
                }
                // Between messages it may be silent: whether it is there at all, the kernel watches.
                Err(_) => self.link.session.tell_received(),
            }
        }
    }

    /// Gives TLS what was read until it gives something back.
    fn decrypt(&mut self, tls: &Mutex<rustls::Connection>, buffer: &mut [u8]) -> Result<Option<usize>> {
        let mut tls = lock(tls);
        let read = loop {
            match tls.reader().read(buffer) {
                Ok(0) => break Err(self.ended()),
                Ok(read) => break Ok(Some(read)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => break Err(failed(error)),
            }
            if self.raw.left().is_empty() {
                break Ok(None);
            }
            match tls.read_tls(&mut self.raw.left()) {
                Ok(0) => break Err(self.ended()),
                Ok(taken) => self.raw.at += taken,
                Err(error) => break Err(failed(error)),
            }
            if let Err(error) = tls.process_new_packets() {
                break Err(tls::explain("the connection is no longer good", io::Error::other(error)));
            }
        };
        // An alert, or a change of keys: rare.
        let speaks = tls.wants_write();
        drop(tls);
        if speaks {
            self.link.flush_tls();
        }
        read
    }

    fn ended(&self) -> Error {
        let within = if self.within { " in the middle of a message" } else { "" };
        Error::new(ErrorKind::Disconnected, format!("the peer closed the connection{within}"))
    }
}

impl Source for Inbound {
    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        Inbound::read_exact(self, buffer)
    }
}

fn failed(error: io::Error) -> Error {
    Error::io("reading from the peer failed", &error)
}
