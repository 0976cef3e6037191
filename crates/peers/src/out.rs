//! The way out of a connection: written at once if the socket takes it, else queued for the connection's writer thread.

use crate::channel::{Channel, Stream, lock};
use crate::pieces::Pieces;
use crate::socket::{self, MAX_SLICES, Ready};
use commonhold_object::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// The connection of a peer that reads nothing for so long, while bytes wait, is broken.
pub const STALL: Duration = Duration::from_secs(10);
/// Plain bytes that are encrypted under one hold of the TLS lock.
const PART_BYTES: usize = 64 << 10;
/// Slices that the writer hands to the kernel at once.
const WRITER_SLICES: usize = 64;

/// The queue, empty most of the time. What is in it is bounded by what its session retains.
#[derive(Default)]
pub struct Out {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes as they go on the wire.
    queue: VecDeque<Vec<u8>>,
    /// Bytes of the first entry that are written.
    offset: usize,
    bytes: usize,
    closed: bool,
    /// Room for encrypted bytes on their way to the socket.
    encrypted: Vec<u8>,
}

impl State {
    fn push(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.bytes += bytes.len();
            self.queue.push_back(bytes);
        }
    }

    /// Writes what the socket takes; true if something is left.
    fn write(&mut self, socket: &TcpStream) -> io::Result<bool> {
        while let Some(first) = self.queue.front() {
            let mut slices = vec![IoSlice::new(&first[self.offset..])];
            slices.extend(self.queue.iter().skip(1).take(WRITER_SLICES - 1).map(|bytes| IoSlice::new(bytes)));
            match socket::send_some(socket, &slices) {
                Ok(written) => self.written(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn written(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.offset += bytes;
        while self.queue.front().is_some_and(|first| self.offset >= first.len()) {
            self.offset -= self.queue.pop_front().map_or(0, |first| first.len());
        }
    }
}

impl Out {
    /// Sends the bytes of all slices, one after the other, before what anybody sends later. Never waits for the peer.
    pub fn send(&self, stream: &Stream, slices: &[&[u8]]) -> Result<()> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Error::new(ErrorKind::Disconnected, "the connection has ended"));
        }
        let was_empty = state.queue.is_empty();
        let done = match &stream.channel {
            Channel::Plain => send_plain(&mut state, &stream.socket, slices),
            Channel::Tls(tls) => send_tls(&mut state, &stream.socket, tls, slices),
        };
        done.map_err(broken)?;
        if was_empty && !state.queue.is_empty() {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Sends what TLS itself has to say.
    pub fn flush_tls(&self, stream: &Stream) -> Result<()> {
        self.send(stream, &[])
    }

    /// Nothing is taken any more, and the writer thread ends.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.queue.clear();
        (state.offset, state.bytes) = (0, 0);
        self.wake.notify_all();
    }

    /// The writer thread: until the connection ends. An error is why it must.
    pub fn run_writer(&self, socket: &TcpStream) -> Result<()> {
        let mut progress = Instant::now();
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return Ok(());
            }
            if state.queue.is_empty() {
                state = self.wake.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
                progress = Instant::now();
                continue;
            }
            let before = state.bytes;
            let done = state.write(socket);
            if !done.map_err(|error| gave_up(error, progress.elapsed(), before))? {
                continue;
            }
            if state.bytes < before {
                progress = Instant::now();
            }
            let waiting = state.bytes;
            drop(state);
            let left = STALL.saturating_sub(progress.elapsed());
            if left.is_zero() {
                return Err(read_nothing(STALL, waiting));
            }
            socket::wait(socket, Ready::ToWrite, Some(left)).map_err(broken)?;
            state = lock(&self.state);
        }
    }
}

fn broken(error: io::Error) -> Error {
    Error::io("writing to the peer failed", &error)
}

fn read_nothing(for_how_long: Duration, waiting: usize) -> Error {
    let why = format!("the peer read nothing for {} s while {waiting} bytes waited", for_how_long.as_secs());
    Error::new(ErrorKind::TimedOut, why)
}

/// Why writing failed, when nothing was written for `since`. The kernel tells that it gave a silent peer up to whoever
/// asks first, which may be the reader of the connection: to the writer it is a broken pipe then. Its clock is another one
/// than ours, and may be first.
fn gave_up(error: io::Error, since: Duration, waiting: usize) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::TimedOut if since >= STALL / 2 => {
            read_nothing(since, waiting)
        }
        _ => broken(error),
    }
}

fn send_plain(state: &mut State, socket: &TcpStream, slices: &[&[u8]]) -> io::Result<()> {
    let mut pieces = Pieces::new(slices);
    while state.queue.is_empty() && !pieces.is_empty() {
        match socket::send_some(socket, &pieces.next(usize::MAX, MAX_SLICES)) {
            Ok(written) => pieces.advance(written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    state.push(pieces.rest());
    Ok(())
}

fn send_tls(
    state: &mut State,
    socket: &TcpStream,
    tls: &Mutex<rustls::Connection>,
    slices: &[&[u8]],
) -> io::Result<()> {
    let mut pieces = Pieces::new(slices);
    loop {
        let mut encrypted = std::mem::take(&mut state.encrypted);
        encrypted.clear();
        let mut tls = lock(tls);
        if !pieces.is_empty() {
            let written = tls.writer().write_vectored(&pieces.next(PART_BYTES, MAX_SLICES))?;
            pieces.advance(written);
        }
        while tls.wants_write() {
            tls.write_tls(&mut encrypted)?;
        }
        // The answer may be here before the call below returns: its reader must not wait for this lock.
        drop(tls);
        let mut sent = 0;
        while sent < encrypted.len() && state.queue.is_empty() {
            match socket::send_some(socket, &[IoSlice::new(&encrypted[sent..])]) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        state.push(encrypted[sent..].to_vec());
        state.encrypted = encrypted;
        if pieces.is_empty() {
            return Ok(());
        }
    }
}
