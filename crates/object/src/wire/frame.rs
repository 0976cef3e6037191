//! The header of a message, and the step from bytes to messages and back.

use crate::{Error, ErrorKind, Result, limits};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Version of the messages. Host and client must have the same: the error says which side is older.
pub const PROTOCOL_VERSION: u16 = 4;

/// First bytes of every message.
const MAGIC: [u8; 4] = *b"CmHd";
const HEADER_BYTES: usize = 24;

/// What stands before the body of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the request; 0 where no reply is expected.
    pub number: u64,
    /// The request was sent before to a host process that is gone.
    pub repeated: bool,
    /// Of the host process that the request is for: what [`super::Event::HostReplaced`] said last on this connection, or 0.
    pub generation: u64,
}

impl Header {
    /// Of what is sent for the first time, to whichever host process reads it.
    pub const fn of(number: u64) -> Header {
        Header { number, repeated: false, generation: 0 }
    }

    fn bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&u16::from(self.repeated).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }
}

/// Gives a message that [`encode`] made another header.
pub fn readdress(header: Header, message: &mut [u8]) {
    message[..HEADER_BYTES].copy_from_slice(&header.bytes());
}

/// Puts a message into `buffer` (emptied first).
pub fn encode<T: Serialize>(header: Header, body: &T, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.clear();
    buffer.extend_from_slice(&header.bytes());
    let whole = postcard::to_extend(body, std::mem::take(buffer))
        .map_err(|e| Error::new(ErrorKind::Protocol, format!("the message cannot be encoded: {e}")))?;
    *buffer = whole;
    if buffer.len() > limits::MESSAGE_BYTES {
        return Err(Error::invalid(format!(
            "a message of {} bytes is too long: the limit is {}",
            buffer.len(),
            limits::MESSAGE_BYTES
        )));
    }
    Ok(())
}

fn garbage(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("not a Commonhold message: {what}"))
}

/// Takes a message apart.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<(Header, T)> {
    let (header, body) = split(bytes)?;
    let body = postcard::from_bytes(body).map_err(|e| garbage(&format!("body: {e}")))?;
    Ok((header, body))
}

/// The header, and the bytes of the body: who cannot read the body may still say so to whoever waits for an answer.
pub fn split(bytes: &[u8]) -> Result<(Header, &[u8])> {
    if bytes.len() < HEADER_BYTES || bytes.len() > limits::MESSAGE_BYTES {
        return Err(garbage(&format!("{} bytes long", bytes.len())));
    }
    if bytes[..4] != MAGIC {
        return Err(garbage("wrong magic number"));
    }
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    if version != PROTOCOL_VERSION {
        let older = if version < PROTOCOL_VERSION { "the other side" } else { "this side" };
        return Err(Error::new(
            ErrorKind::Version,
            format!(
                "the other side speaks protocol version {version}, this one {PROTOCOL_VERSION}: upgrade {older} \
                 (`commonhold host upgrade` for a host)"
            ),
        ));
    }
    let repeated = u16::from_le_bytes([bytes[6], bytes[7]]) & 1 != 0;
    let word = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    Ok((Header { number: word(8), repeated, generation: word(16) }, &bytes[HEADER_BYTES..]))
}
