//! For the fuzz targets: what another host says of an object, one message after the other, heard by
//! a scheduler.

use super::driver::MOST_PAGES;
use super::part::{How, Kept, Said};
use commonhold_coherence::{Access, Event, HostId, Span, central};
use serde::{Deserialize, Serialize};

/// Pages of the object.
const PAGES: u32 = 64;
const ME: HostId = HostId(1);

/// What happens.
#[derive(Serialize, Deserialize)]
enum Happens {
    /// Somebody says something.
    Said { from: u32, message: Said },
    /// A process of this host touches pages.
    Touched { first: u8, count: u8, writes: bool },
    /// A host is lost.
    Lost { host: u32, followed_by: Option<u32> },
    /// This host is short of memory.
    Evict { page: u8 },
    /// A hold is over.
    HoldOver { page: u8 },
    /// Processes of this host synced.
    Sync { page: u8 },
}

fn how(number: u8) -> How {
    let on_loss = if number & 4 == 0 { central::OnLoss::Error } else { central::OnLoss::Revert };
    match number % 3 {
        0 => How::Central(central::Options { on_loss, ..central::Options::default() }),
        1 => How::Forwarding(Kept { on_loss, replicas: u32::from(number >> 4 & 1) }),
        _ => How::Explicit,
    }
}

/// Any bytes as a life: how it is scheduled, whether this host is the home, and what happens.
pub fn turns(bytes: &[u8]) {
    let [number, role, rest @ ..] = bytes else { return };
    let Ok(life) = postcard::from_bytes::<Vec<Happens>>(rest) else { return };
    let home = if role & 1 == 0 { ME } else { HostId(2) };
    let how = how(*number);
    let mut part = how.part(ME, home, role & 2 != 0);
    let mut actions = Vec::new();
    for happens in life.into_iter().take(256) {
        let page = |page: u8| u32::from(page) % PAGES;
        let event = match happens {
            // As a driver lets them in.
            Happens::Said { from, message } if from != ME.0 && how.speaks(&message) => {
                let (count, end) = message.extent();
                let nothing = count == 0 && message.is_of_a_span();
                if nothing || count > u64::from(MOST_PAGES) || end > u64::from(PAGES) {
                    continue;
                }
                let _ = message.carries(); // so many bytes must lie behind it
                Event::Message { from: HostId(from), message }
            }
            Happens::Said { .. } => continue,
            Happens::Touched { first, count, writes } => {
                let first = page(first);
                let count = u32::from(count).clamp(1, PAGES - first);
                let access = if writes { Access::Write } else { Access::Read };
                Event::Fault { span: Span::new(first, count), access, may_write: writes || first % 2 == 0 }
            }
            Happens::Lost { host, .. } if host == ME.0 => continue,
            Happens::Lost { host, followed_by } => {
                Event::Lost { host: HostId(host), followed_by: followed_by.map(HostId) }
            }
            Happens::Evict { page: number } => Event::Evict { page: page(number) },
            Happens::HoldOver { page: number } => Event::HoldOver { page: page(number) },
            Happens::Sync { page: number } => Event::Sync { pages: vec![page(number)] },
        };
        part.handle(event, &mut actions);
        assert!(actions.len() < 1 << 16, "one message makes so much to do");
        actions.clear();
    }
}

/// Samples of those.
pub fn sample_turns() -> Vec<Vec<u8>> {
    let specimens = crate::cluster::specimens::messages(7);
    let said = specimens.into_iter().filter_map(|message| match message {
        crate::cluster::wire::Message::Coherence { messages, .. } => Some(messages),
        _ => None,
    });
    let said: Vec<Said> = said.flatten().collect();
    let mut samples = Vec::new();
    for number in 0..3 {
        for role in 0..2 {
            let of_this = said.iter().filter(|message| how(number).speaks(message));
            let mut life: Vec<Happens> =
                of_this.map(|message| Happens::Said { from: 2, message: message.clone() }).collect();
            life.push(Happens::Touched { first: 1, count: 2, writes: true });
            life.push(Happens::Evict { page: 1 });
            life.push(Happens::Sync { page: 1 });
            life.push(Happens::HoldOver { page: 1 });
            life.push(Happens::Lost { host: 2, followed_by: Some(3) });
            let bytes = postcard::to_stdvec(&life).expect("it can be encoded");
            samples.push([&[number, role], &bytes[..]].concat());
        }
    }
    samples
}
