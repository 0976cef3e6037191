//! What the format `greetings` of the fuzz program does, on random and damaged inputs: decoding
//! never panics, and no length passes that is beyond the limits.

mod common;

use common::puppet::Numbers;
use commonhold_peers::frame::{HEADER_BYTES, Header, Kind};
use commonhold_peers::greeting::{Greeting, Introduction, Mode, Standing, check_preamble, preamble};
use commonhold_peers::{Hello, HostId, MAX_MESSAGE_BYTES, MAX_PAYLOAD_BYTES};

fn decode(bytes: &[u8]) -> bool {
    let mut understood = false;
    if let Some(header) = bytes.first_chunk::<HEADER_BYTES>()
        && let Ok(decoded) = Header::decode(header)
    {
        assert!(decoded.message_bytes <= MAX_MESSAGE_BYTES && decoded.payload_bytes <= MAX_PAYLOAD_BYTES);
        assert_eq!(decoded.encode(), *header);
        understood = true;
    }
    if let Some(preamble) = bytes.first_chunk() {
        understood |= check_preamble(preamble, Mode::Tls).is_ok();
    }
    understood | Greeting::decode(bytes).is_ok()
}

#[test]
fn garbage_and_damaged_bytes_are_errors() {
    let hello = Hello::new([3; 16], HostId(9), "left", 4).unwrap();
    let whole = [
        Header::new(Kind::Message, 300, 70_000).unwrap().encode().to_vec(),
        preamble(Mode::Tls).to_vec(),
        Greeting::Introduction(Introduction { hello, link: 1 << 60, last: 2 }).encode().unwrap()[2..]
            .to_vec(),
        Greeting::Refused("no".repeat(100)).encode().unwrap()[2..].to_vec(),
        Greeting::Agreed(Standing { session: 1 << 50, is_new: true, received: 1 << 40 }).encode().unwrap()
            [2..]
            .to_vec(),
    ];
    assert!(whole.iter().all(|bytes| decode(bytes)));
    let mut numbers = Numbers(1);
    let mut refused = 0;
    for round in 0..40_000 {
        let mut bytes = match round % 6 {
            0 => (0..numbers.below(80)).map(|_| numbers.next() as u8).collect(),
            which => whole[which - 1].clone(),
        };
        for _ in 0..numbers.below(4) {
            let at = numbers.below(bytes.len().max(1) as u64);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = numbers.next() as u8;
            }
        }
        bytes.truncate(bytes.len() - numbers.below(3).min(bytes.len()));
        refused += usize::from(!decode(&bytes));
    }
    assert!(refused > 10_000, "most of it is nonsense: {refused}");
}
