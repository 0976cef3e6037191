//! Any bytes as a frame's header, a preamble or a greeting of another host: decoding never panics, never lets a length
//! pass that is beyond the limits, and what was understood can be said again.
#![no_main]

use commonhold_peers::frame::{HEADER_BYTES, Header};
use commonhold_peers::greeting::{Greeting, Mode, check_preamble};
use commonhold_peers::{MAX_MESSAGE_BYTES, MAX_PAYLOAD_BYTES};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = bytes.first_chunk::<HEADER_BYTES>()
        && let Ok(decoded) = Header::decode(header)
    {
        assert!(decoded.message_bytes <= MAX_MESSAGE_BYTES && decoded.payload_bytes <= MAX_PAYLOAD_BYTES);
        assert_eq!(decoded.encode(), *header);
    }
    if let Some(preamble) = bytes.first_chunk() {
        let _ = check_preamble(preamble, Mode::Tls);
    }
    if let Ok(greeting) = Greeting::decode(bytes) {
        // What came in may be longer than what this side would say.
        if let Ok(again) = greeting.encode() {
            assert_eq!(Greeting::decode(&again[2..]).expect("what was encoded can be decoded"), greeting);
        }
    }
});
