//! Any bytes as a message of a client, or of a host: decoding never panics, and what was understood can be said again.
#![no_main]

use commonhold_object::wire::{FromHost, Header, PROTOCOL_VERSION, Request, decode, encode};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Decodes, and if there was a message, encodes it and decodes that: it must be the same.
fn exercise<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    let Ok((header, message)) = decode::<T>(bytes) else { return };
    let mut again = Vec::new();
    // What came in by fewer bytes than it takes (numbers may be written longer than they need) still fits.
    encode(header, &message, &mut again).expect("what was decoded can be encoded");
    assert_eq!(decode::<T>(&again).expect("what was encoded can be decoded"), (header, message));
}

fuzz_target!(|bytes: &[u8]| {
    exercise::<Request>(bytes);
    exercise::<FromHost>(bytes);
    // The same as a body behind a good header, so that most inputs get past it.
    let mut whole = Vec::new();
    let header = Header { number: 1, repeated: false };
    encode(header, &(), &mut whole).expect("a header");
    assert_eq!(u16::from_le_bytes([whole[4], whole[5]]), PROTOCOL_VERSION);
    whole.extend_from_slice(bytes);
    exercise::<Request>(&whole);
    exercise::<FromHost>(&whole);
});
