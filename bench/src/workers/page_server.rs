//! `page-server`: the far end of a bare round trip: 32 bytes come, a page goes back, as often as they come.

use crate::failure::{Result, failed};
use crate::view::PAGE;
use crate::worker;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;

/// Bytes of a request: about what a message of the hosts has.
pub const REQUEST: usize = 32;

/// Serves one connection after the other at that address.
pub fn run(arguments: &[String]) -> Result<()> {
    let [address] = arguments else { return failed("page-server takes an address") };
    let listener = TcpListener::bind(address.as_str())?;
    worker::say("ready")?;
    loop {
        let (mut socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        let (mut request, page) = ([0; REQUEST], [7; PAGE]);
        loop {
            match socket.read_exact(&mut request) {
                Ok(()) => socket.write_all(&page)?,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
}
