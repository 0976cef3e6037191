//! Messages survive the wire; garbage never does more than give an error.

use commonhold_object::wire::{Event, FromHost, Header, PROTOCOL_VERSION, Request, decode, encode};
use commonhold_object::{Access, CreateOptions, ErrorKind, Name};
use proptest::prelude::*;

fn sample() -> Vec<Request> {
    let name = Name::new("/lab/weights").unwrap();
    vec![
        Request::Hello { program: "prog".into() },
        Request::Create {
            name: name.clone(),
            options: CreateOptions::default(),
            nonce: 1 << 100,
            in_directory: false,
        },
        Request::Open { name, access: Access::ReadWrite },
        Request::Status,
    ]
}

#[test]
fn round_trip() {
    let mut buffer = Vec::new();
    for (number, request) in (1..).zip(sample()) {
        let header = Header { number, repeated: number % 2 == 0, generation: number << 40 };
        encode(header, &request, &mut buffer).unwrap();
        assert_eq!(decode::<Request>(&buffer).unwrap(), (header, request));
    }
}

#[test]
fn another_version_is_named_in_the_error() {
    let mut buffer = Vec::new();
    encode(Header::of(1), &Request::Status, &mut buffer).unwrap();
    buffer[4..6].copy_from_slice(&(PROTOCOL_VERSION + 1).to_le_bytes());
    let error = decode::<Request>(&buffer).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Version);
    assert!(error.message.contains("upgrade this side"), "{error}");
}

#[test]
fn a_name_is_checked_when_it_is_decoded() {
    let mut buffer = Vec::new();
    let header = Header::of(1);
    let request = Request::Open { name: Name::new("/abc").unwrap(), access: Access::Read };
    encode(header, &request, &mut buffer).unwrap();
    let at = buffer.windows(4).position(|w| w == b"/abc").unwrap();
    buffer[at + 1] = b'/';
    assert!(decode::<Request>(&buffer).is_err());
}

proptest! {
    #[test]
    fn garbage_gives_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode::<Request>(&bytes);
        let _ = decode::<FromHost>(&bytes);
    }

    #[test]
    fn damaged_messages_never_panic(which in 0usize..4, flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6), cut in any::<usize>()) {
        let mut buffer = Vec::new();
        encode(Header::of(9), &sample()[which], &mut buffer).unwrap();
        for (at, with) in flips {
            let at = at % buffer.len();
            buffer[at] = with;
        }
        buffer.truncate(cut % (buffer.len() + 1));
        let _ = decode::<Request>(&buffer);
    }

    #[test]
    fn events_round_trip(call in any::<u64>(), data in prop::collection::vec(any::<u8>(), 0..1000)) {
        let mut buffer = Vec::new();
        let event = FromHost::Event(Event::PageOut { call, object: "/x".into(), offset: 0, data });
        encode(Header::of(0), &event, &mut buffer).unwrap();
        prop_assert_eq!(decode::<FromHost>(&buffer).unwrap().1, event);
    }
}
