//! The messages between host and keeper, and how their versions are agreed.
//!
//! Transport: a SOCK_SEQPACKET pair, one message a packet; a descriptor travels with the packet that speaks of it.
//!
//! 1. Host: a *hello*, whose layout never changes: [`MAGIC`], then the oldest and the newest version the host speaks
//!    (u16, little endian).
//! 2. Keeper: a *greeting*, whose layout never changes: [`MAGIC`], the chosen version (the newest that both speak; 0:
//!    there is none), then the keeper's oldest and newest. Host and keeper may be of different programs: after an
//!    upgrade the new host speaks with the keeper of the old one.
//! 3. Keeper: [`FromKeeper::Inventory`], one [`FromKeeper::Kept`] for each thing, [`FromKeeper::End`].
//! 4. Host: any number of [`ToKeeper`], in order, without replies. A host that has started a new keeper says
//!    [`ToKeeper::Fill`] first, puts all it has, and ends with [`ToKeeper::Filled`].
//! 5. Keeper, from version 2 on: after [`ToKeeper::Ready`], one [`FromKeeper::Kept`] for each thing that it put itself
//!    since 3 ([`deadline`](crate::deadline)).
//!
//! What the keeper cannot read or will not do it answers with [`FromKeeper::Problem`], and goes on.

use crate::kept::{BLOB_BYTES, Generation, KEY_BYTES};
use serde::{Deserialize, Serialize};
use std::io;

/// First bytes of hello and greeting.
pub const MAGIC: [u8; 8] = *b"ComKeep\n";
/// Oldest version spoken here.
pub const OLDEST: u16 = 1;
/// Newest version spoken here.
pub const NEWEST: u16 = 2;
/// From this version on the host is told of what the keeper put itself.
pub(crate) const TELLS_OF_ENDED: u16 = 2;
/// Longest path of a program in a message, in bytes.
pub const PATH_BYTES: usize = 4096;
/// Longest message, in bytes.
pub const MESSAGE_BYTES: usize = BLOB_BYTES + KEY_BYTES + 64;

/// What the host says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToKeeper<'a> {
    /// You are new: what follows is everything, from a host of this generation.
    Fill {
        /// The host's own generation.
        generation: Generation,
    },
    /// That was everything.
    Filled,
    /// Keep this, in place of what has that key.
    Put {
        /// What it is called.
        key: &'a str,
        /// What is written of it.
        #[serde(with = "bytes")]
        blob: &'a [u8],
        /// Whether a descriptor comes with the message.
        fd: bool,
    },
    /// Replace the blob; the descriptor stays.
    Update {
        /// What it is called.
        key: &'a str,
        /// What is written of it.
        #[serde(with = "bytes")]
        blob: &'a [u8],
    },
    /// Keep it no longer.
    Forget {
        /// What it is called.
        key: &'a str,
    },
    /// I serve: what you hold is complete, and my program is a good one.
    Ready,
    /// When I end, end too.
    Exit,
    /// I will end: start this program in my place, or the same.
    Restart {
        /// Path of the program.
        #[serde(with = "bytes::option")]
        program: Option<&'a [u8]>,
    },
    /// Another keeper takes your place: end now.
    Retire,
}

/// What the keeper says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromKeeper<'a> {
    /// What you inherit.
    Inventory {
        /// The host's generation: 1 for the first.
        generation: Generation,
        /// Whether everything that was kept is here. Not so if the host before died while it filled this keeper.
        complete: bool,
        /// Descriptors this keeper can hold.
        descriptors: u32,
    },
    /// A thing kept.
    Kept {
        /// What it is called.
        key: &'a str,
        /// What is written of it.
        #[serde(with = "bytes")]
        blob: &'a [u8],
        /// Whether a descriptor comes with the message.
        fd: bool,
    },
    /// That was everything.
    End {
        /// How many there were.
        count: u32,
        /// The host's generation again.
        generation: Generation,
    },
    /// The keeper did not do what the host asked.
    Problem {
        /// What it was.
        text: &'a str,
    },
}

/// The versions that one side speaks, and for a greeting the chosen one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The version agreed on; 0 in a hello, and where there is none.
    pub chosen: u16,
    /// Oldest spoken.
    pub oldest: u16,
    /// Newest spoken.
    pub newest: u16,
}

impl Versions {
    /// What is spoken here.
    pub const OURS: Versions = Versions { chosen: 0, oldest: OLDEST, newest: NEWEST };

    /// The greeting that answers this hello.
    pub fn answer(self) -> Versions {
        let newest = self.newest.min(NEWEST);
        let chosen = if newest >= self.oldest.max(OLDEST) { newest } else { 0 };
        Versions { chosen, ..Self::OURS }
    }

    /// As a hello.
    pub fn hello(self) -> Vec<u8> {
        [&MAGIC[..], &self.oldest.to_le_bytes(), &self.newest.to_le_bytes()].concat()
    }

    /// As a greeting.
    pub fn greeting(self) -> Vec<u8> {
        let numbers = [self.chosen.to_le_bytes(), self.oldest.to_le_bytes(), self.newest.to_le_bytes()];
        [&MAGIC[..], &numbers.concat()].concat()
    }

    /// Reads a hello.
    pub fn from_hello(bytes: &[u8]) -> Option<Versions> {
        let [oldest, newest] = numbers(bytes)?;
        Some(Versions { chosen: 0, oldest, newest })
    }

    /// Reads a greeting.
    pub fn from_greeting(bytes: &[u8]) -> Option<Versions> {
        let [chosen, oldest, newest] = numbers(bytes)?;
        Some(Versions { chosen, oldest, newest })
    }
}

fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u16; N]> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    if rest.len() != 2 * N {
        return None;
    }
    let mut numbers = [0; N];
    for (number, pair) in numbers.iter_mut().zip(rest.chunks_exact(2)) {
        *number = u16::from_le_bytes([pair[0], pair[1]]);
    }
    Some(numbers)
}

/// Puts a message into `buffer` (emptied first).
pub fn encode<T: Serialize>(message: &T, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    *buffer = postcard::to_extend(message, std::mem::take(buffer)).map_err(io::Error::other)?;
    Ok(())
}

/// Takes a message apart: all of the bytes or none.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> io::Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} bytes past the message's end", rest.len()),
        )),
        Err(e) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("not a message known here: {e}"))),
    }
}

/// Bytes as one run, not as a sequence of numbers: the same on the wire, and quicker.
mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<&'de [u8], D::Error> {
        <&[u8]>::deserialize(from)
    }

    pub mod option {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        pub fn serialize<S: Serializer>(bytes: &Option<&[u8]>, to: S) -> Result<S::Ok, S::Error> {
            bytes.serialize(to)
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de [u8]>, D::Error> {
            Option::<&[u8]>::deserialize(from)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;

    #[test]
    fn the_newest_common_version_is_chosen() {
        let speaks = |oldest, newest| Versions { chosen: 0, oldest, newest }.answer().chosen;
        assert_eq!(speaks(OLDEST, NEWEST), NEWEST);
        assert_eq!(speaks(OLDEST, NEWEST + 5), NEWEST);
        assert_eq!(speaks(NEWEST + 1, NEWEST + 5), 0);
        assert_eq!(speaks(0, 0), 0);
    }

    #[test]
    fn hello_and_greeting_are_exact() {
        let hello = Versions::OURS.hello();
        assert_eq!(Versions::from_hello(&hello), Some(Versions::OURS));
        assert_eq!(Versions::from_hello(&hello[..11]), None);
        assert_eq!(Versions::from_hello(&[hello.clone(), vec![0]].concat()), None);
        assert_eq!(Versions::from_hello(b"another\n1234"), None);
        let greeting = Versions::OURS.answer();
        assert_eq!(Versions::from_greeting(&greeting.greeting()), Some(greeting));
        assert_eq!(Versions::from_greeting(&hello), None);
    }

    #[test]
    fn messages_survive_and_garbage_does_not() {
        let messages = [
            ToKeeper::Fill { generation: u64::MAX },
            ToKeeper::Put { key: "object/5/frames", blob: &[0, 255, 7], fd: true },
            ToKeeper::Update { key: "k", blob: &[] },
            ToKeeper::Restart { program: Some(b"/bin/\xff") },
            ToKeeper::Restart { program: None },
            ToKeeper::Retire,
        ];
        let mut buffer = Vec::new();
        for message in &messages {
            encode(message, &mut buffer).unwrap();
            assert_eq!(&decode::<ToKeeper>(&buffer).unwrap(), message);
            buffer.push(0);
            assert!(decode::<ToKeeper>(&buffer).is_err(), "a byte too many after {message:?}");
            let short = buffer.len() - 2;
            assert!(decode::<ToKeeper>(&buffer[..short]).is_err(), "cut short: {message:?}");
        }
        assert!(decode::<ToKeeper>(&[200]).is_err());
        assert!(decode::<ToKeeper>(&[]).is_err());
    }

    #[test]
    fn the_longest_message_fits() {
        let (key, blob) = ("k".repeat(KEY_BYTES), vec![255; BLOB_BYTES]);
        let mut buffer = Vec::new();
        encode(&ToKeeper::Put { key: &key, blob: &blob, fd: true }, &mut buffer).unwrap();
        assert!(buffer.len() <= MESSAGE_BYTES);
    }

    #[test]
    fn messages_are_those_of_their_version() {
        let blob: &[u8] = &[0, 255, 7];
        let to_keeper = [
            ToKeeper::Fill { generation: 9 },
            ToKeeper::Filled,
            ToKeeper::Put { key: "a", blob, fd: true },
            ToKeeper::Update { key: "a", blob },
            ToKeeper::Forget { key: "a" },
            ToKeeper::Ready,
            ToKeeper::Exit,
            ToKeeper::Restart { program: Some(b"/bin/\xff") },
            ToKeeper::Retire,
        ];
        let from_keeper = [
            FromKeeper::Inventory { generation: 9, complete: true, descriptors: 300 },
            FromKeeper::Kept { key: "a", blob, fd: false },
            FromKeeper::End { count: 2, generation: 9 },
            FromKeeper::Problem { text: "why" },
        ];
        let bytes = |message: &dyn Fn(&mut Vec<u8>) -> io::Result<()>| {
            let mut bytes = Vec::new();
            message(&mut bytes).unwrap();
            bytes
        };
        let mut all = vec![Versions::OURS.hello(), Versions::OURS.answer().greeting()];
        all.extend(to_keeper.iter().map(|message| bytes(&|to| encode(message, to))));
        all.extend(from_keeper.iter().map(|message| bytes(&|to| encode(message, to))));
        let kept =
            golden::check(env!("CARGO_MANIFEST_DIR"), "messages", NEWEST.into(), &golden::together(&all));
        let kept = golden::apart(&kept);
        assert_eq!(Versions::from_hello(&kept[0]), Some(Versions::OURS));
        assert_eq!(Versions::from_greeting(&kept[1]), Some(Versions::OURS.answer()));
        for (message, bytes) in to_keeper.iter().zip(&kept[2..]) {
            assert_eq!(&decode::<ToKeeper>(bytes).unwrap(), message);
        }
        for (message, bytes) in from_keeper.iter().zip(&kept[2 + to_keeper.len()..]) {
            assert_eq!(&decode::<FromKeeper>(bytes).unwrap(), message);
        }
    }
}
