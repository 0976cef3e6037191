//! Who asks for the numbers over HTTP, slowly or without end: who asks properly is answered all the same.

use super::{user_of, with};
use crate::Attack;
use crate::scene::{Local, SOON};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

pub(crate) const ATTACKS: &[Attack] = &[
    user_of(
        with(&["--metrics", "FREE"]),
        "metrics.slow_questions",
        "ask for the numbers a byte at a time",
        slow,
    ),
    user_of(
        with(&["--metrics", "FREE"]),
        "metrics.answers_unread",
        "ask for the numbers, and read no answer",
        unread,
    ),
];

/// More than are heard at once.
const MANY: usize = 300;
/// Asks properly.
fn numbers(address: &str) -> String {
    let since = Instant::now();
    loop {
        let mut answer = String::new();
        let asked = TcpStream::connect(address).and_then(|mut stream| {
            stream.set_read_timeout(Some(SOON))?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            stream.read_to_string(&mut answer)
        });
        // Where there are more than there are places for, one may have to ask twice.
        if asked.is_ok() && answer.starts_with("HTTP/1.1 200") {
            return answer;
        }
        assert!(since.elapsed() < SOON, "no numbers: {asked:?} {answer:?}");
    }
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("everybody may connect");
    stream.set_nonblocking(true).expect("it does not wait");
    stream
}

fn slow(scene: &Local) {
    let address = &scene.address;
    let question = b"GET /metrics HTTP/1.1\r\nX: ";
    let mut all: Vec<TcpStream> = Vec::new();
    for at in 0..question.len() {
        while all.len() < MANY {
            all.push(connect(address));
        }
        // Those that the host gave up are followed by others.
        all.retain_mut(|one| one.write_all(&question[at..=at]).is_ok());
        assert!(numbers(address).contains("commonhold_"));
    }
}

fn unread(scene: &Local) {
    let address = &scene.address;
    let mut all: Vec<TcpStream> = Vec::new();
    for _ in 0..10 {
        for _ in 0..MANY / 10 {
            let mut one = connect(address);
            // It may have been given up already.
            let _ = one.write_all(&b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100));
            all.push(one);
        }
        assert!(numbers(address).contains("commonhold_"));
    }
}
