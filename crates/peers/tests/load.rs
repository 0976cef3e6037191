//! Many messages of all sizes, both ways at once, from several threads; and both ends beginning at once.

mod common;

use common::puppet::Numbers;
use common::{Heard, Net, PATIENCE};
use commonhold_peers::{Error, Handler, Hello, HostId, Payload, PeerRights, Peers};
use std::io::IoSlice;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier, Mutex};

const SENDERS: u64 = 2;
const MESSAGES: u64 = 150;

/// What sender `who` sends as its message `number`: its name, its number, filler; and the payload.
fn content(who: u64, number: u64) -> (Vec<u8>, Vec<u8>) {
    let mut numbers = Numbers(who << 32 | number);
    // Mostly small, sometimes as long as may be.
    let (small, large) = (numbers.below(300), numbers.below(60_000));
    let filler = if numbers.below(8) == 0 { large } else { small };
    let payload = [0, 4096, numbers.below(20_000), numbers.below(500_000)][numbers.below(4)];
    let byte = numbers.next() as u8;
    let mut message = who.to_le_bytes().to_vec();
    message.extend(number.to_le_bytes());
    message.resize(16 + filler, byte);
    (message, (0..payload).map(|at| (at as u8).wrapping_add(byte)).collect())
}

/// Checks that every sender's messages come whole and in order; reads some payloads in parts, and some not at all.
struct Checker {
    connected: Mutex<Sender<()>>,
    next: Mutex<[u64; SENDERS as usize]>,
    done: Mutex<Sender<()>>,
}

impl Handler for Checker {
    fn connected(&self, _peer: &Hello, _rights: PeerRights) {
        self.connected.lock().unwrap().send(()).unwrap();
    }

    fn received(&self, _from: HostId, message: &[u8], payload: &mut Payload<'_>) {
        let word = |at: usize| u64::from_le_bytes(message[at..at + 8].try_into().unwrap());
        let (who, number) = (word(0), word(8));
        let expected = content(who, number);
        assert_eq!(message, expected.0);
        assert_eq!(payload.len(), expected.1.len());
        let (first, rest) = match number % 3 {
            0 => (payload.len(), 0),
            1 => (payload.len() / 3, payload.len() - payload.len() / 3),
            _ => (payload.len() / 2, 0),
        };
        let mut bytes = vec![0; first + rest];
        payload.read_exact(&mut bytes[..first]).unwrap();
        payload.read_exact(&mut bytes[first..]).unwrap();
        assert_eq!(bytes, expected.1[..first + rest]);
        let too_many = payload.remaining() + 1;
        assert!(payload.read_exact(&mut vec![0; too_many]).is_err());
        let mut next = self.next.lock().unwrap();
        assert_eq!(number, next[who as usize], "in order");
        next[who as usize] += 1;
        if next.iter().all(|number| *number == MESSAGES) {
            self.done.lock().unwrap().send(()).unwrap();
        }
    }

    fn lost(&self, _host: HostId, _incarnation: u64, why: &Error) {
        // Not before the end; a failed check comes by here as well.
        eprintln!("lost: {why}");
    }
}

#[test]
fn everything_arrives_whole_and_in_order_both_ways() {
    for net in [Net::plain(), Net::tls()] {
        let ((sender, done), (knows, connected)) = (channel(), channel());
        let start = |id, name: &str| {
            let handler = Arc::new(Checker {
                connected: Mutex::new(knows.clone()),
                next: Mutex::default(),
                done: Mutex::new(sender.clone()),
            });
            let listen = "127.0.0.1:0".parse().unwrap();
            Peers::start(listen, net.hello(id, name), net.security(name), handler).unwrap()
        };
        let (a, b) = (start(1, "a"), start(2, "b"));
        a.connect(HostId(2), b.local_addr()).unwrap();
        for _ in 0..2 {
            connected.recv_timeout(PATIENCE).expect("the one who was called knows it a little later");
        }
        std::thread::scope(|scope| {
            for who in 0..SENDERS {
                for (from, to) in [(&a, HostId(2)), (&b, HostId(1))] {
                    scope.spawn(move || {
                        for number in 0..MESSAGES {
                            let (message, payload) = content(who, number);
                            let parts: Vec<_> = payload.chunks(4096).map(IoSlice::new).collect();
                            from.send(to, &message, &parts).unwrap();
                        }
                    });
                }
            }
        });
        for _ in 0..2 {
            done.recv_timeout(PATIENCE).expect("messages are missing");
        }
    }
}

#[test]
fn whoever_begins_there_is_one_connection() {
    let net = Net::plain();
    for round in 0..60 {
        let (a, b) = (net.host(1, "a"), net.host(2, "b"));
        let together = Barrier::new(3);
        std::thread::scope(|scope| {
            for (from, to) in [(&a, &b), (&b, &a), (&a, &b)] {
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    from.peers.connect(to.id, to.address()).unwrap();
                });
            }
        });
        for (this, other) in [(&a, &b), (&b, &a)] {
            assert!(matches!(this.next(), Heard::Connected(..)), "round {round}");
            other.peers.send(this.id, b"hello", &[]).unwrap();
            assert_eq!(this.next(), Heard::Message(other.id, b"hello".to_vec(), vec![]), "round {round}");
        }
        assert!(a.silent() && b.silent(), "round {round}: nothing was lost on the way");
    }
}
