//! Between a client and its host, and from who asks for metrics.

use super::{Format, encoded};
use commonhold_host::fuzzing::{questions, sample_questions};
use commonhold_object::wire::{FromHost, Header, Reply, Request, decode, encode, samples, split};
use commonhold_object::{Name, PageState};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// From any client to the host.
pub const REQUESTS: Format = Format::new("requests", 4096, requests, sample_requests);

/// From the host to a client.
pub const REPLIES: Format = Format::new("replies", 4096, replies, sample_replies);

/// From whoever reaches the address of `--metrics`.
pub const QUESTIONS: Format = Format::new("questions", 9000, questions, sample_questions);

const HEADER: Header = Header::of(1);

/// Both ways: as a whole message, and as the body behind a good header, so that most inputs get past it.
fn read<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8], each: fn(&T)) {
    let mut whole = Vec::new();
    encode(HEADER, &(), &mut whole).expect("a header");
    whole.extend_from_slice(bytes);
    for bytes in [bytes, &whole] {
        assert!(split(bytes).is_ok() || decode::<T>(bytes).is_err());
        let Ok((header, message)) = decode::<T>(bytes) else { continue };
        let mut again = Vec::new();
        // What came in by fewer bytes than it takes (numbers may be written longer than they need)
        // still fits.
        encode(header, &message, &mut again).expect("what was decoded can be encoded");
        assert_eq!(decode::<T>(&again).expect("what was encoded can be decoded"), (header, message));
        each(&decode::<T>(&again).expect("as before").1);
    }
}

fn requests(bytes: &[u8]) {
    read::<Request>(bytes, |request| {
        let Request::Create { name, options, .. } = request else { return };
        assert_eq!(Name::directory(name.as_str()).as_ref(), Ok(name));
        assert!(name.ancestors().len() <= name.as_str().len());
        if options.check().is_ok() {
            let _ = (options.is_controlled(), options.fault_deadline(), options.reserves()); // whatever was asked
        }
    });
}

fn replies(bytes: &[u8]) {
    read::<FromHost>(bytes, |said| {
        let FromHost::Reply(Ok(Reply::PageStates(states))) = said else { return };
        for byte in states {
            if let Some((state, locked)) = PageState::decode(*byte) {
                assert_eq!(PageState::decode(state.encode(locked)), Some((state, locked)));
            }
        }
    });
}

fn sample_requests() -> Vec<Vec<u8>> {
    both(&samples::requests())
}

fn sample_replies() -> Vec<Vec<u8>> {
    both(&samples::replies())
}

/// With header and without.
fn both<T: Serialize>(all: &[T]) -> Vec<Vec<u8>> {
    let whole = |message: &T| {
        let mut bytes = Vec::new();
        encode(HEADER, message, &mut bytes).expect("it can be encoded");
        bytes
    };
    all.iter().flat_map(|message| [encoded(message), whole(message)]).collect()
}
