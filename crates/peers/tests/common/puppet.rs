//! A peer made by hand, over plain TCP: it greets as hosts do, and then does as it is told.

use commonhold_peers::Hello;
use commonhold_peers::greeting::{Greeting, Introduction, Mode, preamble};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Connects as that host, up to the first message.
pub fn puppet(address: SocketAddr, hello: Hello) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(&preamble(Mode::Plain)).unwrap();
    let mut theirs = [0; 8];
    socket.read_exact(&mut theirs).unwrap();
    say(&mut socket, &Greeting::Introduction(Introduction { hello, link: 77, last: 0 }));
    assert!(matches!(hear(&mut socket), Greeting::Introduction(_)));
    say(&mut socket, &Greeting::Agreed);
    assert_eq!(hear(&mut socket), Greeting::Accepted);
    socket
}

fn say(socket: &mut TcpStream, greeting: &Greeting) {
    socket.write_all(&greeting.encode().unwrap()).unwrap();
}

fn hear(socket: &mut TcpStream) -> Greeting {
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
