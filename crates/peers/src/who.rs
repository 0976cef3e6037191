//! Asking who listens at an address: of the first host of a cluster nothing else is known.

use crate::greeting::{Greeting, Introduction};
use crate::handshake::{DEADLINE, End, Talk};
use crate::hello::Hello;
use crate::judge::check_peer;
use crate::peers::Peers;
use crate::random;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

impl Peers {
    /// Says who this host is, hears who the other is, and leaves again. What was heard may be otherwise a moment later:
    /// [`connect`](Peers::connect) checks it.
    pub fn who(&self, address: SocketAddr) -> Result<Hello> {
        self.security().check(address)?;
        let deadline = Instant::now() + DEADLINE;
        let socket = TcpStream::connect_timeout(&address, DEADLINE)
            .doing(format_args!("nobody answers at {address}"))?;
        let mut talk = Talk::open(socket, self.security(), End::Begins, deadline)?;
        let heard = (|| {
            let link = u64::from_le_bytes(random::bytes()?).max(1);
            let own = Introduction { hello: self.me().clone(), link, last: 0 };
            talk.say(&Greeting::Introduction(own))?;
            let Greeting::Introduction(theirs) = talk.hear()? else {
                return Err(Error::new(ErrorKind::Protocol, "the other end does not say who it is"));
            };
            check_peer(self.me(), &theirs.hello, talk.subject()?.as_ref())?;
            Ok(theirs.hello)
        })();
        talk.end();
        heard
    }
}
