//! The frame around each message: a header of 16 bytes, the message, the payload. All numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0–3 | magic, `CMHF` |
//! | 4–5 | version of the framing |
//! | 6 | kind: 0 a message, 1 a good-bye whose message says why |
//! | 7 | zero |
//! | 8–11 | length of the message, at most 64 KiB |
//! | 12–15 | length of the payload, at most 4 MiB |

use commonhold_object::{Error, ErrorKind, Result};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;
/// Longest message.
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// Longest payload.
pub const MAX_PAYLOAD_BYTES: usize = 4 << 20;
/// Version of the framing and of the handshake.
pub const FRAME_VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"CMHF";

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message for the handler.
    Message,
    /// The last frame of a connection that is ended on purpose.
    Goodbye,
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// Bytes of the message.
    pub message_bytes: usize,
    /// Bytes of the payload behind it.
    pub payload_bytes: usize,
}

impl Header {
    /// A header for lengths that are within the limits.
    pub fn new(kind: Kind, message_bytes: usize, payload_bytes: usize) -> Result<Header> {
        if message_bytes > MAX_MESSAGE_BYTES {
            return Err(too_long("message", message_bytes, MAX_MESSAGE_BYTES));
        }
        if payload_bytes > MAX_PAYLOAD_BYTES {
            return Err(too_long("payload", payload_bytes, MAX_PAYLOAD_BYTES));
        }
        Ok(Header { kind, message_bytes, payload_bytes })
    }

    /// Its bytes.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&FRAME_VERSION.to_le_bytes());
        bytes[6] = match self.kind {
            Kind::Message => 0,
            Kind::Goodbye => 1,
        };
        bytes[8..12].copy_from_slice(&(self.message_bytes as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.payload_bytes as u32).to_le_bytes());
        bytes
    }

    /// Reads a header; whatever is not one is an error that says what is wrong with it.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header> {
        let number =
            |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
        if bytes[..4] != MAGIC {
            return Err(garbage(format!(
                "a message begins with {:02x?}, not with {MAGIC:02x?}",
                &bytes[..4]
            )));
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != FRAME_VERSION {
            return Err(garbage(format!(
                "a message of framing version {version} came in between those of {FRAME_VERSION}"
            )));
        }
        let kind = match bytes[6] {
            0 => Kind::Message,
            1 => Kind::Goodbye,
            other => return Err(garbage(format!("a frame is of the unknown kind {other}"))),
        };
        if bytes[7] != 0 {
            return Err(garbage(format!("a reserved byte is {}, not 0", bytes[7])));
        }
        Header::new(kind, number(8), number(12)).map_err(|error| garbage(error.message))
    }
}

fn garbage(what: String) -> Error {
    Error::new(ErrorKind::Protocol, what)
}

fn too_long(what: &str, bytes: usize, limit: usize) -> Error {
    Error::invalid(format!("a {what} of {bytes} bytes is too long for one frame: the limit is {limit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_and_anything_else_is_refused() {
        let header = Header::new(Kind::Message, 32, 4096).unwrap();
        let good = header.encode();
        assert_eq!(Header::decode(&good).unwrap(), header);
        for (at, with, says) in [
            (0, 0, "begins with"),
            (4, 9, "version 9"),
            (6, 2, "kind 2"),
            (7, 1, "reserved"),
            (10, 2, "65536"),
            (15, 1, "4194304"),
        ] {
            let mut bad = good;
            bad[at] = with;
            let error = Header::decode(&bad).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Protocol);
            assert!(error.message.contains(says), "{error}");
        }
    }

    #[test]
    fn the_limits_themselves_are_allowed() {
        let header = Header::new(Kind::Message, MAX_MESSAGE_BYTES, MAX_PAYLOAD_BYTES).unwrap();
        assert_eq!(Header::decode(&header.encode()).unwrap(), header);
        assert!(Header::new(Kind::Message, MAX_MESSAGE_BYTES + 1, 0).is_err());
        assert!(Header::new(Kind::Message, 0, MAX_PAYLOAD_BYTES + 1).is_err());
    }
}
