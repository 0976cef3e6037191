//! Many messages of all sizes, both ways at once, from several threads, also while connections are cut again and again;
//! and both ends beginning at once.

mod common;

use common::cutter::cutter;
use common::puppet::Numbers;
use common::{Heard, Net, PATIENCE};
use commonhold_peers::{Error, Handler, Hello, HostId, Payload, PeerRights, Peers};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const SENDERS: u64 = 2;
const MESSAGES: u64 = 150;

/// What sender `who` sends as its message `number`: its name, its number, filler; and the payload, of less than
/// `longest` bytes.
fn content(who: u64, number: u64, longest: u64) -> (Vec<u8>, Vec<u8>) {
    let mut numbers = Numbers(who << 32 | number);
    // Mostly small, sometimes as long as may be.
    let (small, large) = (numbers.below(300), numbers.below(60_000));
    let filler = if numbers.below(8) == 0 { large } else { small };
    let payload = [0, 4096, numbers.below(20_000), numbers.below(longest)][numbers.below(4)];
    let byte = numbers.next() as u8;
    let mut message = who.to_le_bytes().to_vec();
    message.extend(number.to_le_bytes());
    message.resize(16 + filler, byte);
    (message, (0..payload).map(|at| (at as u8).wrapping_add(byte)).collect())
}

/// Checks that every sender's messages come whole, once and in order; reads some payloads in parts, some not at all.
struct Checker {
    longest: u64,
    connected: Mutex<Sender<()>>,
    next: Mutex<[u64; SENDERS as usize]>,
    /// Nothing is missing; or what went wrong.
    done: Mutex<Sender<Result<(), String>>>,
    breaks: AtomicUsize,
}

impl Handler for Checker {
    fn connected(&self, _peer: &Hello, _rights: PeerRights) {
        // The test may be over.
        let _ = self.connected.lock().unwrap().send(());
    }

    fn received(&self, _from: HostId, message: &[u8], payload: &mut Payload<'_>) {
        let word = |at: usize| u64::from_le_bytes(message[at..at + 8].try_into().unwrap());
        let (who, number) = (word(0), word(8));
        let expected = content(who, number, self.longest);
        assert_eq!(message, expected.0);
        assert_eq!(payload.len(), expected.1.len());
        let (first, rest) = match number % 3 {
            0 => (payload.len(), 0),
            1 => (payload.len() / 3, payload.len() - payload.len() / 3),
            _ => (payload.len() / 2, 0),
        };
        let mut bytes = vec![0; first + rest];
        let (head, tail) = bytes.split_at_mut(first);
        if payload.read_exact(head).and_then(|()| payload.read_exact(tail)).is_err() {
            return; // it comes again
        }
        assert_eq!(bytes, expected.1[..first + rest]);
        let too_many = payload.remaining() + 1;
        assert!(payload.read_exact(&mut vec![0; too_many]).is_err());
        let mut next = self.next.lock().unwrap();
        assert_eq!(number, next[who as usize], "in order");
        next[who as usize] += 1;
        if next.iter().all(|number| *number == MESSAGES) {
            self.done.lock().unwrap().send(Ok(())).unwrap();
        }
    }

    fn broken(&self, _host: HostId, _incarnation: u64, _why: &Error) {
        self.breaks.fetch_add(1, Ordering::Relaxed);
    }

    fn lost(&self, _host: HostId, _incarnation: u64, why: &Error) {
        // Not before the end; a failed check comes by here as well.
        let _ = self.done.lock().unwrap().send(Err(format!("lost: {why}")));
    }
}

/// Two hosts that send each other everything.
struct Pair {
    hosts: [Arc<Peers>; 2],
    checkers: Vec<Arc<Checker>>,
    done: Receiver<Result<(), String>>,
    connected: Receiver<()>,
}

impl Pair {
    fn start(net: &Net, longest: u64) -> Pair {
        let ((sender, done), (knows, connected)) = (channel(), channel());
        let mut checkers = Vec::new();
        let hosts = [(1, "a"), (2, "b")].map(|(id, name)| {
            let handler = Arc::new(Checker {
                longest,
                connected: Mutex::new(knows.clone()),
                next: Mutex::default(),
                done: Mutex::new(sender.clone()),
                breaks: AtomicUsize::new(0),
            });
            checkers.push(handler.clone());
            let listen = "127.0.0.1:0".parse().unwrap();
            Peers::start(listen, net.hello(id, name), net.security(name), handler).unwrap()
        });
        Pair { hosts, checkers, done, connected }
    }

    /// The other one of each.
    fn ways(&self) -> [(&Peers, HostId); 2] {
        [(&self.hosts[0], HostId(2)), (&self.hosts[1], HostId(1))]
    }

    fn wait_connected(&self) {
        for _ in 0..2 {
            self.connected.recv_timeout(PATIENCE).expect("the one who was called knows it a little later");
        }
    }

    /// Waits until a session stands at both ends. One that was cut before is known at one end alone, and is lost when
    /// the other begins another.
    fn wait_stands(&self) {
        let until = Instant::now() + PATIENCE;
        let mut stood = false;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
            let stands = self.ways().iter().all(|(host, other)| host.is_connected(*other));
            let was_lost = self.done.try_iter().count() > 0;
            if stood && stands && !was_lost {
                return;
            }
            stood = stands && !was_lost;
        }
        panic!("no session stands");
    }

    fn exchange(&self) {
        let longest = self.checkers[0].longest;
        std::thread::scope(|scope| {
            for who in 0..SENDERS {
                for (from, to) in self.ways() {
                    scope.spawn(move || {
                        for number in 0..MESSAGES {
                            let (message, mut payload) = content(who, number, longest);
                            from.send(to, &message, &mut payload).unwrap();
                        }
                    });
                }
            }
        });
        for _ in 0..2 {
            self.done.recv_timeout(PATIENCE).expect("messages are missing").unwrap();
        }
    }
}

#[test]
fn everything_arrives_whole_and_in_order_both_ways() {
    for net in [Net::plain(), Net::tls()] {
        let pair = Pair::start(&net, 500_000);
        pair.hosts[0].connect(HostId(2), pair.hosts[1].local_addr()).unwrap();
        pair.wait_connected();
        pair.exchange();
    }
}

/// Both ends connect again whenever a connection is cut, which is after any number of bytes.
#[test]
fn whatever_is_cut_everything_arrives_once_and_in_order() {
    let mut cuts = 0;
    for (seed, net) in [Net::plain(), Net::tls(), Net::plain()].iter().enumerate() {
        let pair = Pair::start(net, 20_000);
        let ways = [(0, 1), (1, 0)].map(|(from, to)| {
            (from, HostId(to as u32 + 1), cutter(pair.hosts[to].local_addr(), (seed * 2 + from) as u64))
        });
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (from, to, cutter) in &ways {
                let (over, from) = (&over, &pair.hosts[*from]);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        // It may be cut before it stands.
                        let _ = from.connect(*to, cutter.address);
                        std::thread::sleep(Duration::from_millis(2));
                    }
                });
            }
            let exchanged = catch_unwind(AssertUnwindSafe(|| {
                pair.wait_stands();
                for _ in 0..2 {
                    pair.exchange();
                    pair.checkers
                        .iter()
                        .for_each(|checker| *checker.next.lock().unwrap() = [0; SENDERS as usize]);
                }
            }));
            over.store(true, Ordering::Relaxed);
            exchanged.unwrap_or_else(|why| resume_unwind(why));
        });
        assert!(pair.checkers.iter().all(|checker| checker.breaks.load(Ordering::Relaxed) > 0));
        cuts += ways.iter().map(|(.., cutter)| cutter.cuts.load(Ordering::SeqCst)).sum::<usize>();
    }
    assert!(cuts >= 200, "{cuts} connections were cut");
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
            assert!(matches!(this.next_of_peers(), Heard::Connected(..)), "round {round}");
            other.peers.send(this.id, b"hello", &mut Vec::new()).unwrap();
            let hello = Heard::Message(other.id, b"hello".to_vec(), vec![]);
            assert_eq!(this.next_of_peers(), hello, "round {round}");
        }
        assert!(
            a.silent_but_for_refusals() && b.silent_but_for_refusals(),
            "round {round}: nothing was lost"
        );
    }
}
