//! A way to a host that is cut after random numbers of bytes, anywhere in a greeting or a message.

use super::puppet::Numbers;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// A proxy in front of a host.
pub struct Cutter {
    pub address: SocketAddr,
    /// Connections that were cut.
    pub cuts: Arc<AtomicUsize>,
}

/// Passes connections on to that address, for a while each.
pub fn cutter(to: SocketAddr, seed: u64) -> Cutter {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let cuts = Arc::new(AtomicUsize::new(0));
    let counted = cuts.clone();
    std::thread::spawn(move || {
        let mut numbers = Numbers(seed);
        for near in listener.incoming() {
            let (Ok(near), Ok(far)) = (near, TcpStream::connect(to)) else { continue };
            // Sometimes within the greetings or soon after, sometimes after some of the longest messages.
            let bytes =
                [numbers.below(6_000), numbers.below(100_000), numbers.below(1_500_000)][numbers.below(3)];
            let left = Arc::new(AtomicI64::new(bytes as i64));
            for (from, to) in [(&near, &far), (&far, &near)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let (left, counted) = (left.clone(), counted.clone());
                std::thread::spawn(move || pass(from, to, &left, &counted));
            }
        }
    });
    Cutter { address, cuts }
}

fn pass(mut from: TcpStream, mut to: TcpStream, left: &AtomicI64, cuts: &AtomicUsize) {
    let mut buffer = [0; 16_384];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let before = left.fetch_sub(read as i64, Ordering::SeqCst);
        let allowed = before.clamp(0, read as i64) as usize;
        if to.write_all(&buffer[..allowed]).is_err() {
            break;
        }
        if allowed < read {
            cuts.fetch_add(usize::from(before >= 0), Ordering::SeqCst);
            break;
        }
    }
    for socket in [from, to] {
        let _ = socket.shutdown(Shutdown::Both);
    }
}
