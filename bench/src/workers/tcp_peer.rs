//! `tcp-peer`: the other end of a TCP connection, which takes what comes, or sends as much as it is
//! asked for.

use crate::failure::{Result, failed};
use crate::worker;
use std::io::{Read, Write};
use std::net::TcpListener;

/// It takes so many bytes, and answers with one.
pub const TAKE: u64 = 1;
/// It sends so many bytes.
pub const SEND: u64 = 2;

const BUFFER: usize = 64 << 10;

/// A request: what it is to do, and how many bytes.
pub fn request(what: u64, bytes: u64) -> [u8; 16] {
    let mut request = [0; 16];
    request[..8].copy_from_slice(&what.to_le_bytes());
    request[8..].copy_from_slice(&bytes.to_le_bytes());
    request
}

/// Says its port, and that it is ready; serves one connection until that ends.
pub fn run() -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    worker::say("ready")?;
    worker::say(&listener.local_addr()?.port().to_string())?;
    let (mut socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    let (mut asked, mut buffer) = ([0; 16], vec![7; BUFFER]);
    loop {
        if socket.read(&mut asked[..1])? == 0 {
            return Ok(());
        }
        socket.read_exact(&mut asked[1..])?;
        let word = |at: usize| asked[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (what, bytes) = (word(0), word(8) as usize);
        let mut left = bytes;
        while left > 0 {
            let part = left.min(BUFFER);
            left -= match what {
                SEND => {
                    socket.write_all(&buffer[..part])?;
                    part
                }
                _ => match socket.read(&mut buffer[..part])? {
                    0 => return failed("the connection ended early"),
                    count => count,
                },
            };
        }
        if what == TAKE {
            socket.write_all(&[1])?;
        }
    }
}
