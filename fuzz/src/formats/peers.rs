//! Between hosts, and from newcomers, authorities and registries.

use super::Format;
use commonhold_host::fuzzing as host;
use commonhold_peers::frame::{HEADER_BYTES, Header, Kind};
use commonhold_peers::fuzzing as peers;
use commonhold_peers::greeting::{Greeting, Introduction, Mode, Standing, Wanted, check_preamble, preamble};
use commonhold_peers::{Hello, HostId, MAX_MESSAGE_BYTES, MAX_PAYLOAD_BYTES};

/// From whoever reaches the port of a cluster: what comes before anything is known of them.
pub const GREETINGS: Format = Format::new("greetings", 8192, greetings, sample_greetings);

/// From who wants a certificate, and from who says to be the authority.
pub const NEWCOMERS: Format = Format::new("newcomers", 4096, peers::newcomers, peers::sample_newcomers);

/// The authority's records, a token, a name in a certificate.
pub const TEXTS: Format = Format::new("texts", 2048, peers::texts, peers::sample_texts);

/// Shown by whoever connects; files of a host's own.
pub const CERTIFICATES: Format =
    Format::new("certificates", 2048, peers::certificates, peers::sample_certificates);

/// From a member of the cluster.
pub const MESSAGES: Format = Format::new("messages", 4096, host::messages, host::sample_messages);

/// From a member that has an object open: what it says, one after the other.
pub const TURNS: Format = Format::new("turns", 2048, host::turns, host::sample_turns);

/// The file with the cluster's list.
pub const MEMBERS: Format = Format::new("members", 2048, host::members, host::sample_members);

/// What is in etcd.
pub const KEYS: Format = Format::new("keys", 2048, host::keys, host::sample_keys);

fn greetings(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk::<HEADER_BYTES>()
        && let Ok(decoded) = Header::decode(header)
    {
        assert!(decoded.message_bytes <= MAX_MESSAGE_BYTES && decoded.payload_bytes <= MAX_PAYLOAD_BYTES);
        assert_eq!(decoded.encode(), *header);
    }
    if let Some(heard) = bytes.first_chunk() {
        for mode in [Mode::Plain, Mode::Tls, Mode::Joining] {
            // A reserved byte may be anything.
            assert!(check_preamble(heard, mode).is_err() || heard[..7] == preamble(mode)[..7]);
        }
    }
    if let Ok(greeting) = Greeting::decode(bytes) {
        // What came in may be longer than what this side would say.
        if let Ok(again) = greeting.encode() {
            assert_eq!(Greeting::decode(&again[2..]).expect("what was encoded can be decoded"), greeting);
        }
    }
}

fn sample_greetings() -> Vec<Vec<u8>> {
    let hello = Hello::new([1; 16], HostId(3), "left", 9).expect("a hello");
    let standing = Standing { session: 1 << 50, is_new: true, received: 1 << 40 };
    let greetings = [
        Greeting::Introduction(Introduction { hello: hello.clone(), link: 1 << 60, last: 2 }),
        Greeting::Agreed(standing),
        Greeting::Accepted(standing),
        Greeting::Yield,
        Greeting::Refused("no".into()),
        Greeting::Relay(Wanted { hello, to: HostId(4) }),
        Greeting::Relayed,
    ];
    let header = Header::new(Kind::Message, 300, 70_000).expect("a header");
    let first = [header.encode().to_vec(), preamble(Mode::Tls).to_vec()];
    let said = greetings.map(|greeting| greeting.encode().expect("it can be encoded")[2..].to_vec());
    first.into_iter().chain(said).collect()
}
