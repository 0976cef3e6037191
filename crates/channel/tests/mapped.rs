//! Queues in real memory, with the kernel's own futexes: threads that all send and receive at once.

use commonhold_channel::{Buffer, HEADER_BYTES, Mapped, Place, Queue, Refused, Wait, copy_once, is_ready};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A view of memory that is never given back.
fn queues<const N: usize>(ring: usize) -> [Queue<Mapped>; N] {
    let memory: &'static mut [u64] = Vec::leak(vec![0; (HEADER_BYTES + ring) / 8]);
    let start = NonNull::from(&mut memory[0]).cast();
    // SAFETY: nobody else has it, for ever. It is not shared with other processes, which the kernel
    // does not mind.
    std::array::from_fn(|_| Queue::open(unsafe { Mapped::new(start, HEADER_BYTES + ring) }).unwrap())
}

#[test]
fn threads_that_all_send_and_receive_lose_nothing() {
    const EACH: u64 = 20_000;
    let [a, b, c, d] = queues(4096);
    let sum = AtomicU64::new(0);
    std::thread::scope(|threads| {
        for (sender, first) in [(&a, 0), (&b, EACH)] {
            threads.spawn(move || {
                for number in first..first + EACH {
                    let bytes = number.to_le_bytes().repeat(1 + number as usize % 30);
                    sender.send(7, &bytes, Wait::Forever).unwrap();
                }
            });
        }
        for receiver in [&c, &d] {
            let sum = &sum;
            threads.spawn(move || {
                assert!(is_ready());
                let (mut bytes, mut before) = (Vec::new(), [None; 2]);
                for _ in 0..EACH {
                    let received = receiver.receive(&mut bytes, Wait::Forever).unwrap();
                    assert_eq!((received.kind, received.length), (7, bytes.len()));
                    let (words, rest) = bytes.as_chunks::<8>();
                    let number = u64::from_le_bytes(words[0]);
                    assert!(rest.is_empty() && words.len() as u64 == 1 + number % 30);
                    assert!(words.iter().all(|word| *word == words[0]));
                    let last = before[(number / EACH) as usize].replace(number);
                    assert!(last < Some(number), "each receiver sees a sender's messages in their order");
                    sum.fetch_add(number, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), (0..2 * EACH).sum());
    assert_eq!(a.receive(&mut Vec::new(), Wait::No), Err(Refused::Empty));
}

#[test]
fn deadlines_are_kept_and_sleepers_woken() {
    let [queue, other] = queues(4096);
    let begun = Instant::now();
    let until = Wait::Until(begun + Duration::from_millis(50));
    assert_eq!(queue.receive(&mut Vec::new(), until), Err(Refused::Empty));
    assert_eq!(queue.take(1, until), Err(Refused::NoLanding { largest: 0 }));
    assert!(begun.elapsed() >= Duration::from_millis(50));
    std::thread::scope(|threads| {
        let place = Place { object: 1, name: "/a".into(), offset: 0, length: 10 };
        let taken = threads.spawn(|| other.take(5, Wait::Forever).unwrap().1);
        let received = threads.spawn(|| other.receive(&mut Vec::new(), Wait::Forever).unwrap().kind);
        std::thread::sleep(Duration::from_millis(20));
        queue.post(&place, Wait::Forever).unwrap();
        queue.send(3, b"", Wait::Forever).unwrap();
        assert_eq!(taken.join().unwrap(), place);
        assert_eq!(received.join().unwrap(), 3);
    });
}

#[test]
fn a_thread_that_dies_in_the_queue_frees_it() {
    /// Asked for room under the lock, it ends its thread past everything that would let the lock
    /// go.
    struct Dies;
    impl Buffer for Dies {
        fn room(&mut self, _length: usize) -> Option<&mut [u8]> {
            std::thread::sleep(Duration::from_millis(100));
            // SAFETY: ends this thread alone, which nobody waits for; what it has is never freed.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
            None
        }
    }
    let [queue, other] = queues(4096);
    queue.send(1, b"a", Wait::Forever).unwrap();
    std::thread::spawn(move || other.receive(&mut Dies, Wait::Forever));
    std::thread::sleep(Duration::from_millis(30));
    assert!(matches!(queue.send(2, b"", Wait::No), Err(Refused::Locked { thread: 1.. })));
    let mut bytes = Vec::new();
    let begun = Instant::now();
    assert_eq!(queue.receive(&mut bytes, Wait::Forever).unwrap().kind, 1, "it is still there");
    assert!(begun.elapsed() < Duration::from_secs(5), "the kernel woke this thread");
}

#[test]
fn bytes_are_copied() {
    let from: Vec<u8> = (0..=255).collect();
    let mut to = vec![0; 256];
    // SAFETY: both have that many bytes.
    unsafe { copy_once(from.as_ptr(), to.as_mut_ptr(), 256) };
    assert_eq!(from, to);
}
