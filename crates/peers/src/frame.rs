//! The frame around each message: a header of 24 bytes, the message, the payload. All numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0–3 | magic, `CMHF` |
//! | 4–5 | version of the framing |
//! | 6 | kind: 0 a message, 1 a good-bye whose message says why, 2 nothing but the last number |
//! | 7 | zero |
//! | 8–11 | length of the message, at most 64 KiB |
//! | 12–15 | length of the payload, at most 4 MiB |
//! | 16–23 | how many messages of the session the sender of the frame has received |

use commonhold_object::{Error, ErrorKind, Result};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;
/// Longest message.
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// Longest payload.
pub const MAX_PAYLOAD_BYTES: usize = 4 << 20;
/// Version of the framing and of the handshake.
pub const FRAME_VERSION: u16 = 2;

const MAGIC: [u8; 4] = *b"CMHF";

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message for the handler.
    Message,
    /// The last frame of a session that is ended on purpose. It is none of the session's messages.
    Goodbye,
    /// Says what has been received, and nothing else. It is none of the session's messages either.
    Acknowledgement,
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
    /// Messages of the session that its sender has received.
    pub received: u64,
}

impl Header {
    /// A header for lengths that are within the limits, which acknowledges nothing.
    pub fn new(kind: Kind, message_bytes: usize, payload_bytes: usize) -> Result<Header> {
        if message_bytes > MAX_MESSAGE_BYTES {
            return Err(too_long("message", message_bytes, MAX_MESSAGE_BYTES));
        }
        if payload_bytes > MAX_PAYLOAD_BYTES {
            return Err(too_long("payload", payload_bytes, MAX_PAYLOAD_BYTES));
        }
        if kind == Kind::Acknowledgement && message_bytes + payload_bytes > 0 {
            return Err(Error::invalid("an acknowledgement has neither message nor payload"));
        }
        Ok(Header { kind, message_bytes, payload_bytes, received: 0 })
    }

    /// Its bytes.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&FRAME_VERSION.to_le_bytes());
        bytes[6] = match self.kind {
            Kind::Message => 0,
            Kind::Goodbye => 1,
            Kind::Acknowledgement => 2,
        };
        bytes[8..12].copy_from_slice(&(self.message_bytes as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.payload_bytes as u32).to_le_bytes());
        bytes[16..].copy_from_slice(&self.received.to_le_bytes());
        bytes
    }

    /// Reads a header; whatever is not one is an error that says what is wrong with it.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
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
            2 => Kind::Acknowledgement,
            other => return Err(garbage(format!("a frame is of the unknown kind {other}"))),
        };
        if bytes[7] != 0 {
            return Err(garbage(format!("a reserved byte is {}, not 0", bytes[7])));
        }
        let received = u64::from(number(16)) | u64::from(number(20)) << 32;
        let header = Header::new(kind, number(8) as usize, number(12) as usize);
        let header = header.map_err(|error| garbage(error.message))?;
        Ok(Header { received, ..header })
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
        let header = Header { received: 0x0102_0304_0506_0708, ..header };
        let good = header.encode();
        assert_eq!(Header::decode(&good).unwrap(), header);
        for (at, with, says) in [
            (0, 0, "begins with"),
            (4, 9, "version 9"),
            (6, 3, "kind 3"),
            (6, 2, "neither message nor payload"),
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
