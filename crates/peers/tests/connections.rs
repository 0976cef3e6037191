//! Two hosts connect, and speak.

mod common;

use common::{Heard, Net};

#[test]
fn messages_and_payloads_arrive_in_order_both_ways() {
    for net in [Net::plain(), Net::tls()] {
        let (a, b) = (net.host(1, "a"), net.host(2, "b"));
        a.peers.connect(b.id, b.address()).unwrap();
        assert!(matches!(a.next(), Heard::Connected(host, 1, _) if host == b.id));
        assert!(matches!(b.next(), Heard::Connected(host, 1, _) if host == a.id));
        a.peers.send(b.id, b"one", &mut b"abcdef".to_vec()).unwrap();
        b.peers.send(a.id, b"", &mut Vec::new()).unwrap();
        a.peers.send(b.id, b"two", &mut Vec::new()).unwrap();
        assert_eq!(b.next(), Heard::Message(a.id, b"one".to_vec(), b"abcdef".to_vec()));
        assert_eq!(b.next(), Heard::Message(a.id, b"two".to_vec(), vec![]));
        assert_eq!(a.next(), Heard::Message(b.id, vec![], vec![]));
        // Both ends know it already.
        b.peers.connect(a.id, a.address()).unwrap();
        a.peers.disconnect(b.id, "enough");
        assert!(a.lost(b.id, 1).contains("enough"));
        assert!(b.lost(a.id, 1).contains("enough"));
        assert!(a.peers.send(b.id, b"x", &mut Vec::new()).unwrap_err().message.contains("host 2"));
        b.peers.connect(a.id, a.address()).unwrap();
        assert!(matches!(a.next(), Heard::Connected(..)));
        a.peers.stop();
        assert!(matches!(a.next(), Heard::Lost(..)));
        assert!(matches!(b.next(), Heard::Connected(..)));
        assert!(b.lost(a.id, 1).contains("stops"));
    }
}
