//! For the fuzz targets: what hosts say to each other.

use super::long::Parts;
use super::specimens;
use super::wire::Message;
use commonhold_coherence::HostId;
use std::hint::black_box;

/// Any bytes as a message; and as parts of one, each behind its length (2) and what is said of it (1).
pub fn messages(bytes: &[u8]) {
    read(bytes);
    let parts = Parts::default();
    let mut rest = bytes;
    while let [low, high, said, more @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(more.len());
        let (part, after) = more.split_at(length);
        let from = HostId(u32::from(said >> 4));
        if let Ok(Some(whole)) = parts.add(from, said & 1 != 0, said & 2 != 0, part) {
            assert!(whole.len() <= bytes.len());
            read(&whole);
        }
        rest = after;
    }
}

fn read(bytes: &[u8]) {
    let Ok(message) = postcard::from_bytes::<Message>(bytes) else { return };
    let again = postcard::to_stdvec(&message).expect("what was read can be written");
    let same = postcard::from_bytes::<Message>(&again).expect("and read again");
    assert_eq!(postcard::to_stdvec(&same).expect("and written again"), again);
    if let Message::Coherence { messages, .. } = message {
        for said in messages {
            // What is asked of it before anything else is known.
            black_box((said.extent(), said.is_of_a_span(), said.kind(), said.is_short()));
        }
    }
}

/// Samples of those.
pub fn sample_messages() -> Vec<Vec<u8>> {
    let all = specimens::messages(7);
    let mut samples: Vec<Vec<u8>> =
        all.iter().map(|message| postcard::to_stdvec(message).expect("it can be encoded")).collect();
    let (first, last) = samples[0].split_at(samples[0].len() / 2);
    let part = |said: u8, part: &[u8]| [&(part.len() as u16).to_le_bytes()[..], &[said], part].concat();
    samples.push([part(1, first), part(2, last)].concat());
    samples
}
