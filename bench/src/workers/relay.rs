//! `relay` and `relay-user`: the least that a message between programs of two hosts costs where each has a process that speaks for
//! it. A program writes 64 bytes into memory that it shares with its relay, and wakes it; that sends them through TLS to the other
//! relay, which wakes its program. Whoever waits sleeps, as those who wait for a mutex do.

use crate::failure::{Doing, Result, failed};
use crate::worker;
use commonhold_futex::Mapped;
use commonhold_peers::Identity;
use commonhold_sys::clock;
use commonhold_sys::memory::FileWindow;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes of the memory that a program shares with its relay.
pub const MEMORY: u64 = 4096;
/// Bytes of a message.
const MESSAGE: usize = 64;
/// Where the number of messages to the relay is, and the last of them; and the same of those that came.
const OUT: usize = 0;
const IN: usize = 1024;
/// The message lies so far behind its number.
const BEHIND: usize = 64;
/// How long the other relay may take to begin.
const BEGINS: Duration = Duration::from_secs(10);

struct Memory {
    mapped: Mapped,
    _window: FileWindow,
}

impl Memory {
    fn open(path: &str) -> Result<Memory> {
        let file = File::options().read(true).write(true).open(path).doing("opening a relay's memory")?;
        let window = FileWindow::for_writing(&file, 0, MEMORY as usize)?;
        let Some(start) = NonNull::new(window.as_ptr().cast_mut()) else { return failed("mapped nowhere") };
        // SAFETY: mapped shared, to read and to write, until the window is dropped, after it. Nobody makes the file shorter.
        let mapped = unsafe { Mapped::new(start, MEMORY as usize) };
        Ok(Memory { mapped, _window: window })
    }

    /// Waits until the number at a place is another; gives it.
    fn wait(&self, at: usize, seen: u32) -> u32 {
        loop {
            let now = self.mapped.word(at).load(Ordering::Acquire);
            if now != seen {
                return now;
            }
            self.mapped.sleep(at, seen, Duration::from_secs(1));
        }
    }

    fn read(&self, at: usize) -> [u8; MESSAGE] {
        let mut bytes = [0; MESSAGE];
        for (n, part) in bytes.chunks_exact_mut(8).enumerate() {
            let word = self.mapped.long_word(at + BEHIND + 8 * n).load(Ordering::Relaxed);
            part.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Puts a message there, and wakes who waits for it.
    fn put(&self, at: usize, bytes: &[u8; MESSAGE]) {
        for (n, part) in bytes.chunks_exact(8).enumerate() {
            let word = part.first_chunk().map_or(0, |part| u64::from_ne_bytes(*part));
            self.mapped.long_word(at + BEHIND + 8 * n).store(word, Ordering::Relaxed);
        }
        self.mapped.word(at).fetch_add(1, Ordering::Release);
        self.mapped.wake(at, 1);
    }
}

/// Arguments: the memory, a directory with a certificate, where it listens, where the other does.
pub fn relay(arguments: &[String]) -> Result<()> {
    let [path, identity, own, other] = arguments else { return failed("relay takes four arguments") };
    let (client, server) = Identity::load(Path::new(identity))?.tls();
    let listener = TcpListener::bind(own.as_str())?;
    let inward = Memory::open(path)?;
    std::thread::spawn(move || -> Result<()> {
        let (socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        let mut stream = StreamOwned::new(ServerConnection::new(server)?, socket);
        let mut message = [0; MESSAGE];
        loop {
            stream.read_exact(&mut message)?;
            inward.put(IN, &message);
        }
    });
    worker::say("ready")?;
    let other: SocketAddr = other.parse()?;
    let socket = connect(other)?;
    let name = ServerName::IpAddress(other.ip().into());
    let mut stream = StreamOwned::new(ClientConnection::new(client, name)?, socket);
    stream.flush()?;
    let outward = Memory::open(path)?;
    let mut seen = 0;
    loop {
        seen = outward.wait(OUT, seen);
        stream.write_all(&outward.read(OUT))?;
        stream.flush()?;
    }
}

fn connect(other: SocketAddr) -> Result<TcpStream> {
    let deadline = Instant::now() + BEGINS;
    loop {
        match TcpStream::connect(other) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Arguments: the memory. Lines: `begin` or `follow`, COUNT HOLD_US: has the turn so often, holds it for so long each time, and says
/// when it got it and let it go, in nanoseconds. The one who begins has the first.
pub fn user(arguments: &[String]) -> Result<()> {
    let [path] = arguments else { return failed("relay-user takes its memory") };
    let memory = Memory::open(path)?;
    worker::say("ready")?;
    let mut seen = 0;
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [how, count, hold] = words[..] else { return failed("relay-user takes three words") };
        let hold = Duration::from_micros(hold.parse()?);
        let mut times = String::new();
        for turn in 0..count.parse::<usize>()? {
            if how == "follow" || turn > 0 {
                seen = memory.wait(IN, seen);
            }
            let got = clock::now();
            std::thread::sleep(hold);
            let let_go = clock::now();
            memory.put(OUT, &[turn as u8; MESSAGE]);
            times += &format!("{got} {let_go} ");
        }
        if how == "begin" {
            seen = memory.wait(IN, seen); // the other's last
        }
        worker::say(&times)?;
    }
    Ok(())
}
