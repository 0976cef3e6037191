//! `channel-partner`: the other end of the rows about channels.

use crate::failure::{Result, failed};
use crate::objects;
use crate::view::View;
use crate::worker;
use commonhold::{Access, Channel, Host, MapOptions, Protection};
use rustix::thread::futex;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Where the two words of a ping-pong are.
pub const ASK: usize = 0;
pub const ANSWER: usize = 4096;
/// A message of this kind ends it.
pub const END: u32 = 9;
/// What comes by reference is mapped; or each page is touched, too.
pub const MAP: u32 = 1;
pub const TOUCH: u32 = 2;

/// Arguments: a state directory, what to do, and names.
///
/// * `futex OBJECT`: sleeps on one word of an object, and counts up another.
/// * `sleep ASK ANSWER`: receives and sends back; `spin`: the same without ever sleeping.
/// * `map ASK ANSWER`: maps each object that comes, touches its pages if it is told to, lets it go,
///   and says what it found.
/// * `socket PATH BYTES`: reads as many bytes again and again from who connects, and answers one.
/// * `take ASK ANSWER`: receives, and answers with nothing.
/// * `land CHANNEL ANSWER OBJECT BYTES`: posts a landing, says so, receives, and so on.
///
/// At the end it says how many bytes it copied.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, what, names @ ..] = arguments else { return failed("channel-partner: what?") };
    let host = Host::connect_to(Path::new(state))?;
    let open = |name: &String| Channel::open(&host, name);
    match (what.as_str(), names) {
        ("futex", [object]) => {
            let mapping = host.open(object, Access::ReadWrite)?.map(&objects::everything())?;
            worker::say("ready")?;
            loop {
                ping_pong(View::of(&mapping), ASK, ANSWER);
            }
        }
        ("sleep" | "spin", [ask, answer]) => echo(&open(ask)?, &open(answer)?, what == "spin"),
        ("map", [ask, answer]) => map(&open(ask)?, &open(answer)?),
        ("socket", [path, bytes]) => socket(Path::new(path), bytes.parse()?),
        ("take", [ask, answer]) => take(&open(ask)?, &open(answer)?),
        ("land", [channel, answer, object, bytes]) => {
            let (channel, answer) = (open(channel)?, open(answer)?);
            let object = host.open(object, Access::ReadWrite)?;
            let length: u64 = bytes.parse()?;
            channel.post(&object, 0, length)?;
            worker::say("ready")?;
            loop {
                let message = channel.receive(None)?;
                match message.region {
                    Some(region) if region.length == length => channel.post(&object, 0, length)?,
                    _ => break worker::say(&channel.copied_bytes().to_string()),
                };
                answer.send(1, b"", None)?;
            }
        }
        _ => failed(format!("channel-partner does not know {what}")),
    }
}

fn echo(ask: &Channel, answer: &Channel, spins: bool) -> Result<()> {
    worker::say("ready")?;
    let mut bytes = Vec::new();
    loop {
        let received =
            if spins { receive_at_once(ask, &mut bytes)? } else { ask.receive_into(&mut bytes, None)? };
        let kind = received.kind;
        answer.send(kind, &bytes, None)?;
        if kind == END {
            return worker::say(&(ask.copied_bytes() + answer.copied_bytes()).to_string());
        }
    }
}

fn map(ask: &Channel, answer: &Channel) -> Result<()> {
    worker::say("ready")?;
    loop {
        let message = ask.receive(None)?;
        let mut found = Vec::new();
        if let Some(object) = &message.object {
            let mapping =
                object.map(&MapOptions { protection: Protection::Read, ..objects::everything() })?;
            if message.kind == TOUCH {
                found = View::of(&mapping).touch_pages().to_le_bytes().to_vec();
            }
        }
        let kind = message.kind;
        drop(message);
        answer.send(kind, &found, None)?;
        if kind == END {
            return worker::say(&ask.copied_bytes().to_string());
        }
    }
}

fn socket(path: &Path, bytes: usize) -> Result<()> {
    let listener = UnixListener::bind(path)?;
    let mut memory = vec![1; bytes];
    worker::say("ready")?;
    let (mut stream, _) = listener.accept()?;
    while stream.read_exact(&mut memory).is_ok() {
        stream.write_all(&[memory[bytes - 1]])?;
    }
    Ok(())
}

fn take(ask: &Channel, answer: &Channel) -> Result<()> {
    worker::say("ready")?;
    let mut bytes = Vec::new();
    loop {
        let kind = ask.receive_into(&mut bytes, None)?.kind;
        if kind == END {
            return worker::say(&(ask.copied_bytes() + answer.copied_bytes()).to_string());
        }
        answer.send(kind, b"", None)?;
    }
}

/// Receives without ever sleeping.
pub fn receive_at_once(channel: &Channel, bytes: &mut Vec<u8>) -> Result<commonhold::Received> {
    loop {
        match channel.try_receive_into(bytes) {
            Ok(Some(received)) => return Ok(received),
            Ok(None) => std::hint::spin_loop(),
            Err(error) if error.kind == commonhold::ErrorKind::Busy => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until the first word changes from what it was last, and counts up the second.
fn ping_pong(view: View<'_>, wait_for: usize, tell: usize) {
    let (ask, answer) = (view.futex(wait_for), view.futex(tell));
    let done = answer.load(Ordering::Acquire);
    while ask.load(Ordering::Acquire) == done {
        // Whatever woke it, it looks again.
        let _ = futex::wait(ask, futex::Flags::empty(), done, None);
    }
    answer.store(done.wrapping_add(1), Ordering::Release);
    // How many it woke is of no interest: the partner looks at the word.
    let _ = futex::wake(answer, futex::Flags::empty(), 1);
}

/// Counts up the first word, and waits until the second has followed.
pub fn ask(view: View<'_>) {
    let (ask, answer) = (view.futex(ASK), view.futex(ANSWER));
    let before = answer.load(Ordering::Acquire);
    ask.store(before.wrapping_add(1), Ordering::Release);
    // As above.
    let _ = futex::wake(ask, futex::Flags::empty(), 1);
    while answer.load(Ordering::Acquire) == before {
        // Whatever woke it, it looks again.
        let _ = futex::wait(answer, futex::Flags::empty(), before, None);
    }
}
