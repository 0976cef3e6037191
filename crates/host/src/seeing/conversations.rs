//! Many who ask at once over HTTP, and one thread: none waits for another. Each is bounded in bytes and in time, and all
//! together in number: where there is no place for one more, who came first and has not asked goes.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Most who are heard or answered at once.
pub const MOST: usize = 64;
/// What was sent beyond the question is taken in for so long: else the answer may be thrown away with it.
const LINGERS: Duration = Duration::from_millis(50);
/// How long to wait where nobody can be let in.
const PAUSE: Duration = Duration::from_millis(10);

/// Gives the answer to what was asked so far; none while the question is not whole.
pub type Answers<'a> = dyn FnMut(&[u8]) -> Option<Vec<u8>> + 'a;

/// One who asks.
struct Conversation {
    stream: TcpStream,
    until: Instant,
    heard: Vec<u8>,
    does: Does,
}

enum Does {
    Hears,
    Says { answer: Vec<u8>, said: usize },
    Leaves,
}

/// Answers all who connect, for as long as `goes_on`. A question may take `patience`, and so may the answer.
pub fn answer_all(
    listener: &TcpListener,
    patience: Duration,
    answers: &mut Answers<'_>,
    goes_on: &dyn Fn() -> bool,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut open: Vec<Conversation> = Vec::new();
    while goes_on() {
        wait(listener, &open);
        if !let_in(listener, &mut open, patience) {
            std::thread::sleep(PAUSE); // no descriptor left, perhaps
        }
        open.retain_mut(|one| one.go_on(patience, answers));
    }
    Ok(())
}

/// Waits until somebody comes, something can be said or heard, or somebody's time is over.
fn wait(listener: &TcpListener, open: &[Conversation]) {
    let mut polled = vec![PollFd::new(listener, PollFlags::IN)];
    polled.extend(open.iter().map(|one| PollFd::new(&one.stream, one.awaits())));
    let first = open.iter().map(|one| one.until).min();
    let left = first.map(|until| until.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    // An error is an interruption: all are looked at.
    let _ = poll(&mut polled, left.as_ref());
}

/// Lets in who has come; whether that was possible.
fn let_in(listener: &TcpListener, open: &mut Vec<Conversation>, patience: Duration) -> bool {
    for _ in 0..MOST {
        match listener.accept() {
            Ok((stream, _)) => {
                if stream.set_nonblocking(true).is_err() {
                    continue; // it goes unanswered
                }
                make_place(open);
                let until = Instant::now() + patience;
                open.push(Conversation { stream, until, heard: Vec::new(), does: Does::Hears });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

fn make_place(open: &mut Vec<Conversation>) {
    if open.len() >= MOST {
        // The first in the list came first.
        let at = open.iter().position(|one| !matches!(one.does, Does::Says { .. })).unwrap_or(0);
        open.remove(at);
    }
}

impl Conversation {
    fn awaits(&self) -> PollFlags {
        if matches!(self.does, Does::Says { .. }) { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Does what can be done without waiting; whether it goes on after that.
    fn go_on(&mut self, patience: Duration, answers: &mut Answers<'_>) -> bool {
        self.step(patience, answers).unwrap_or(false) && Instant::now() < self.until
    }

    fn step(&mut self, patience: Duration, answers: &mut Answers<'_>) -> std::io::Result<bool> {
        if matches!(self.does, Does::Hears) {
            let ended = self.hear()?;
            let Some(answer) = answers(&self.heard) else { return Ok(!ended) };
            self.until = Instant::now() + patience;
            self.does = Does::Says { answer, said: 0 };
        }
        if let Does::Says { answer, said } = &mut self.does {
            while *said < answer.len() {
                match self.stream.write(&answer[*said..]) {
                    Ok(0) => return Ok(false),
                    Ok(count) => *said += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            self.stream.shutdown(Shutdown::Write)?;
            self.until = Instant::now() + LINGERS;
            self.does = Does::Leaves;
        }
        self.heard.clear();
        self.hear().map(|ended| !ended)
    }

    /// Takes in what has come, a little of it at a time; whether the other end has said all.
    fn hear(&mut self) -> std::io::Result<bool> {
        let mut part = [0; 4096];
        match self.stream.read(&mut part) {
            Ok(0) => Ok(true),
            Ok(count) => {
                self.heard.extend_from_slice(&part[..count]);
                Ok(false)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Nobody is given up while the test runs.
    const LONG: Duration = Duration::from_secs(3600);

    /// Says what was asked, once the question ends in a point.
    fn with_answers(patience: Duration, test: impl FnOnce(&dyn Fn() -> TcpStream)) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let goes_on = Arc::new(AtomicBool::new(true));
        let flag = goes_on.clone();
        let thread = std::thread::spawn(move || {
            let mut answers = |heard: &[u8]| heard.ends_with(b".").then(|| heard.to_vec());
            answer_all(&listener, patience, &mut answers, &|| flag.load(Ordering::Relaxed)).unwrap();
        });
        test(&|| TcpStream::connect(address).unwrap());
        goes_on.store(false, Ordering::Relaxed);
        drop(TcpStream::connect(address)); // wakes it
        thread.join().unwrap();
    }

    fn ask(mut stream: TcpStream, question: &str) -> String {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(question.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn who_is_slow_keeps_nobody_waiting() {
        with_answers(LONG, |connect| {
            let mut slow: Vec<TcpStream> = (0..8).map(|_| connect()).collect();
            slow.iter_mut().for_each(|one| one.write_all(b"a long ").unwrap());
            assert_eq!(ask(connect(), "short."), "short.");
            // They were not sent away for that.
            for one in slow {
                assert_eq!(ask(one, "question."), "a long question.");
            }
        });
    }

    #[test]
    fn where_there_is_no_place_who_came_first_goes() {
        with_answers(LONG, |connect| {
            let mut slow: Vec<TcpStream> = (0..2 * MOST).map(|_| connect()).collect();
            assert_eq!(ask(connect(), "short."), "short.");
            slow[0].set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let end = slow[0].read(&mut [0; 8]);
            assert!(
                end.as_ref().map_or_else(|e| e.kind() == ErrorKind::ConnectionReset, |n| *n == 0),
                "{end:?}"
            );
            assert_eq!(ask(slow.pop().unwrap(), "question."), "question.");
        });
    }

    #[test]
    fn who_says_nothing_is_given_up() {
        with_answers(Duration::from_millis(20), |connect| {
            let mut silent = connect();
            silent.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            assert_eq!(silent.read(&mut [0; 8]).unwrap(), 0);
        });
    }
}
