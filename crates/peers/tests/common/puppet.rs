//! A peer made by hand, over plain TCP: it greets as hosts do, and then does as it is told.

use commonhold_peers::Hello;
use commonhold_peers::greeting::{Greeting, Introduction, Mode, Standing, preamble};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

/// Connects as that host, up to the first message, for a new session.
pub fn puppet(address: SocketAddr, hello: Hello) -> TcpStream {
    static SESSION: AtomicU64 = AtomicU64::new(1000);
    let session = SESSION.fetch_add(1, Ordering::Relaxed);
    puppet_of(address, hello, Standing { session, is_new: true, received: 0 }).unwrap().0
}

/// The same, standing so in its session; what the other end says to that, or why it refuses.
pub fn puppet_of(
    address: SocketAddr,
    hello: Hello,
    standing: Standing,
) -> Result<(TcpStream, Standing), String> {
    let mut socket = begin(address);
    // As one that has lost its end of every connection before.
    let (last, link) = (LINK.load(Ordering::Relaxed), LINK.fetch_add(1, Ordering::Relaxed) + 1);
    say(&mut socket, &Greeting::Introduction(Introduction { hello, link, last }));
    assert!(matches!(hear(&mut socket), Greeting::Introduction(_)));
    say(&mut socket, &Greeting::Agreed(standing));
    match hear(&mut socket) {
        Greeting::Accepted(standing) => Ok((socket, standing)),
        Greeting::Refused(why) => Err(why),
        other => panic!("{other:?}"),
    }
}

/// Connects; nothing but preambles is said.
pub fn begin(address: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(&preamble(Mode::Plain)).unwrap();
    socket.read_exact(&mut [0; 8]).unwrap();
    socket
}

static LINK: AtomicU64 = AtomicU64::new(77);

pub fn say(socket: &mut TcpStream, greeting: &Greeting) {
    socket.write_all(&greeting.encode().unwrap()).unwrap();
}

pub fn hear(socket: &mut TcpStream) -> Greeting {
    let mut length = [0; 2];
    socket.read_exact(&mut length).unwrap();
    let mut body = vec![0; usize::from(u16::from_le_bytes(length))];
    socket.read_exact(&mut body).unwrap();
    Greeting::decode(&body).unwrap()
}

/// Reproducible numbers (SplitMix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> usize {
        (self.next() % limit) as usize
    }
}
