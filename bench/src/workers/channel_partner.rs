//! `channel-partner`: the other end of the rows about channels.

use crate::failure::{Result, failed};
use crate::objects;
use crate::view::View;
use crate::worker;
use commonhold::{Access, Channel, Host};
use rustix::thread::futex;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Where the two words of a ping-pong are.
pub const ASK: usize = 0;
pub const ANSWER: usize = 4096;
/// A message of this kind ends it.
pub const END: u32 = 9;

/// Arguments: a state directory, what to do, and names.
///
/// * `futex OBJECT`: sleeps on one word of an object, and counts up another.
/// * `sleep ASK ANSWER`: receives and sends back; `spin`: the same without ever sleeping.
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
        let (kind, ..) =
            if spins { receive_at_once(ask, &mut bytes)? } else { ask.receive_into(&mut bytes, None)? };
        answer.send(kind, &bytes, None)?;
        if kind == END {
            return worker::say(&(ask.copied_bytes() + answer.copied_bytes()).to_string());
        }
    }
}

fn take(ask: &Channel, answer: &Channel) -> Result<()> {
    worker::say("ready")?;
    let mut bytes = Vec::new();
    loop {
        let (kind, ..) = ask.receive_into(&mut bytes, None)?;
        if kind == END {
            return worker::say(&(ask.copied_bytes() + answer.copied_bytes()).to_string());
        }
        answer.send(kind, b"", None)?;
    }
}

/// Receives without ever sleeping.
pub fn receive_at_once(
    channel: &Channel,
    bytes: &mut Vec<u8>,
) -> Result<(u32, usize, Option<commonhold::Region>)> {
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
