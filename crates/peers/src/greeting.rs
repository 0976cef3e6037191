//! What two ends say before the first message: a preamble in the clear, by which versions and modes are told apart, and
//! then, encrypted if the cluster is, who they are and whether they want each other.

use crate::frame::FRAME_VERSION;
use crate::hello::Hello;
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Bytes of the preamble.
pub const PREAMBLE_BYTES: usize = 8;
/// Longest greeting, without its length.
pub const MAX_GREETING_BYTES: usize = 8192;
/// Longest reason that is passed on.
const LONGEST_REASON: usize = 1024;

const MAGIC: [u8; 4] = *b"CMHP";

/// What comes after the preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Greetings in the clear.
    Plain = 0,
    /// A TLS handshake between hosts.
    Tls = 1,
    /// A TLS handshake of a newcomer with the authority.
    Joining = 2,
}

impl Mode {
    fn words(byte: u8) -> String {
        match byte {
            0 => "plain connections".into(),
            1 => "TLS".into(),
            2 => "the authority's service for newcomers".into(),
            other => format!("the unknown mode {other}"),
        }
    }
}

/// This side's preamble.
pub fn preamble(mode: Mode) -> [u8; PREAMBLE_BYTES] {
    let version = FRAME_VERSION.to_le_bytes();
    [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], version[0], version[1], mode as u8, 0]
}

/// Looks at the other side's.
pub fn check_preamble(bytes: &[u8; PREAMBLE_BYTES], mode: Mode) -> Result<()> {
    if bytes[..4] != MAGIC {
        return Err(Error::new(
            ErrorKind::Protocol,
            "the other end is no commonhold host: it speaks something else",
        ));
    }
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    if version != FRAME_VERSION {
        return Err(other_version("connections", version, FRAME_VERSION));
    }
    if bytes[6] != mode as u8 {
        return Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "the other end speaks {} and this side {}: start both with, or both without, certificates",
                Mode::words(bytes[6]),
                Mode::words(mode as u8)
            ),
        ));
    }
    Ok(())
}

/// The error about another version: which side is to be upgraded.
pub fn other_version(of: &str, theirs: u16, ours: u16) -> Error {
    let whom = if theirs > ours { "this side" } else { "that host" };
    Error::new(
        ErrorKind::Version,
        format!("the other host speaks version {theirs} of {of}, this one version {ours}: upgrade {whom}"),
    )
}

/// Who begins, or answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// The host.
    pub hello: Hello,
    /// A random number for this connection, the same from both ends: of who begins it.
    pub link: u64,
    /// That number of the last connection that this end had with the other; 0 for none.
    pub last: u64,
}

/// Where an end stands in its session with the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The session's number.
    pub session: u64,
    /// It begins: this end has none with the other.
    pub is_new: bool,
    /// How many of the other end's messages it has received.
    pub received: u64,
}

/// One greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Greeting {
    /// First of who begins, and the answer to it.
    Introduction(Introduction),
    /// Who begins agrees with who answered, and would go on with this session.
    Agreed(Standing),
    /// The connection stands: messages of this session may follow, which is the one that was proposed if both ends
    /// know it.
    Accepted(Standing),
    /// Both began at once, and the other connection is the one to stay.
    Yield,
    /// No, and why.
    Refused(String),
    /// First of who begins, instead of an introduction: what follows is to be passed on to a host that it cannot reach.
    Relay(Wanted),
    /// There is a way to that host, and this conversation is over: what comes next by this connection is between those two.
    Relayed,
}

/// Who wants to be passed on, and to which host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Who asks.
    pub hello: Hello,
    /// Whom it cannot reach.
    pub to: HostId,
}

impl Greeting {
    /// A refusal that is not too long.
    pub fn refusal(error: &Error) -> Greeting {
        let mut reason = error.message.clone();
        let end = (0..=LONGEST_REASON.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
        reason.truncate(end.unwrap_or(0));
        Greeting::Refused(reason)
    }

    /// With its length in front.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let body = postcard::to_stdvec(self)
            .map_err(|error| Error::invalid(format!("a greeting cannot be written: {error}")))?;
        if body.len() > MAX_GREETING_BYTES {
            return Err(Error::invalid(format!(
                "a greeting of {} bytes is too long: the limit is {MAX_GREETING_BYTES}",
                body.len()
            )));
        }
        let mut bytes = (body.len() as u16).to_le_bytes().to_vec();
        bytes.extend_from_slice(&body);
        Ok(bytes)
    }

    /// Of the bytes behind a length.
    pub fn decode(body: &[u8]) -> Result<Greeting> {
        let garbage =
            |what: String| Error::new(ErrorKind::Protocol, format!("a greeting makes no sense: {what}"));
        match postcard::take_from_bytes(body) {
            Ok((greeting, [])) => Ok(greeting),
            Ok((_, rest)) => Err(garbage(format!("{} bytes too many", rest.len()))),
            Err(error) => Err(garbage(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Header, Kind};
    use crate::golden;

    #[test]
    fn greetings_survive_and_garbage_is_refused() {
        let hello = Hello::new([1; 16], HostId(3), "left", 9).unwrap();
        let greeting = Greeting::Introduction(Introduction { hello, link: 5, last: 0 });
        let bytes = greeting.encode().unwrap();
        assert_eq!(Greeting::decode(&bytes[2..]).unwrap(), greeting);
        assert!(Greeting::decode(&bytes[2..bytes.len() - 1]).is_err());
        assert!(Greeting::decode(&[&bytes[2..], &[0]].concat()).is_err());
        assert!(Greeting::decode(&[9]).is_err());
        let long = Greeting::refusal(&Error::invalid("é".repeat(3000)));
        assert_eq!(Greeting::decode(&long.encode().unwrap()[2..]).unwrap(), long);
    }

    #[test]
    fn preambles_tell_versions_and_modes_apart() {
        let good = preamble(Mode::Tls);
        assert!(check_preamble(&good, Mode::Tls).is_ok());
        let said = |bytes: [u8; 8]| check_preamble(&bytes, Mode::Tls).unwrap_err().message;
        assert!(said(*b"GET / HT").contains("something else"));
        assert!(said(preamble(Mode::Plain)).contains("certificates"));
        let version = |version: u16| {
            let mut other = good;
            other[4..6].copy_from_slice(&version.to_le_bytes());
            said(other)
        };
        assert!(version(FRAME_VERSION + 1).contains("upgrade this side"));
        assert!(version(FRAME_VERSION - 1).contains("upgrade that host"));
    }

    /// Also of what newcomers and the authority say, and of frames: the preamble names the version of all of them. That of
    /// the messages behind it is pinned elsewhere.
    #[test]
    fn greetings_are_those_of_their_version() {
        let hello = Hello {
            machine: "little-ieee".into(),
            version: 3,
            ..Hello::new([1; 16], HostId(3), "left", 9).unwrap()
        };
        let standing = Standing { session: 5, is_new: true, received: 6 };
        let greetings = [
            Greeting::Introduction(Introduction { hello: hello.clone(), link: 5, last: 7 }),
            Greeting::Agreed(standing),
            Greeting::Accepted(standing),
            Greeting::Yield,
            Greeting::Refused("why".into()),
            Greeting::Relay(Wanted { hello, to: HostId(4) }),
            Greeting::Relayed,
        ];
        let header = Header { received: 8, ..Header::new(Kind::Message, 9, 10).unwrap() };
        let mut all = vec![preamble(Mode::Tls).to_vec(), header.encode().to_vec()];
        all.extend(greetings.iter().map(|greeting| greeting.encode().unwrap()));
        all.extend(crate::joining::samples());
        let kept = golden::check(
            env!("CARGO_MANIFEST_DIR"),
            "greetings",
            FRAME_VERSION.into(),
            &golden::together(&all),
        );
        let kept = golden::apart(&kept);
        check_preamble(&kept[0].clone().try_into().unwrap(), Mode::Tls).unwrap();
        assert_eq!(Header::decode(&kept[1].clone().try_into().unwrap()).unwrap(), header);
        for (greeting, bytes) in greetings.iter().zip(&kept[2..]) {
            assert_eq!(&Greeting::decode(&bytes[2..]).unwrap(), greeting);
        }
        crate::joining::are_samples(&kept[2 + greetings.len()..]);
    }
}
