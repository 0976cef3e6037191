//! `scale.bytes_per_page`, `scale.untouched_bytes`: what a host remembers, by the allocator's own count.

use super::scale_roles::{remembered, worst};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::failure::Result;
use crate::faults::{FreshPages, Touch};
use crate::measure::{most, some};
use crate::processes::books_kib;
use crate::row::{Bar, Measured, Row};
use crate::view::PAGE;
use commonhold_simulator::measure::Strict;
use serde_json::{Value, json};

const WHAT: &str = "all that a host's scheduler has allocated, counted by the allocator of the row's process when it is \
                    freed (sizes asked for; an allocator's own rounding apart): the most of 65 hosts, both schedulers, and \
                    pages that were read by all, written and read, and written by all";

fn detail(pages: u32, all: &[super::scale_roles::Most]) -> Value {
    let figure = |most: &super::scale_roles::Most| json!({"bytes": most.bytes, "whose": most.whose});
    json!({"pages": pages, "sharers": 64, "most": all.iter().map(figure).collect::<Vec<_>>(), "what": WHAT})
}

/// The row.
pub struct BytesPerPage;

impl Row for BytesPerPage {
    fn id(&self) -> &'static str {
        "scale.bytes_per_page"
    }

    fn unit(&self) -> &'static str {
        "bytes"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(24.0))
    }

    fn about(&self) -> &'static str {
        "memory that a scheduler really allocates at any host for a page that 64 hosts and the home share, beside its frame: \
         the worse of both schedulers and the worst of all parts a host can have, owner, home, reader, former owner; beside \
         it all that a real host's process takes for a page that two hosts use at random"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let pages: u32 = context.pick(1 << 15, 1 << 12);
        let all = remembered(pages);
        let measured =
            Measured::single(some(worst(&all).bytes, "what a scheduler allocated")?, 1, detail(pages, &all));
        Ok(measured.beside("all books of a real host, two hosts", with_books(context, pages as usize)?, None))
    }
}

/// Bytes a page that a real host takes besides frames when two hosts share an object and use its
/// pages at random: the most of both hosts and schedulers. A first object, which stays, brings what
/// a host has once.
fn with_books(context: &Context, pages: usize) -> Result<f64> {
    let cluster = Cluster::start(context, 2)?;
    let hosts: Vec<u32> =
        cluster.hosts().iter().map(|host| Ok(host.processes()?[0])).collect::<Result<_>>()?;
    let books = || hosts.iter().map(|pid| books_kib(*pid)).collect::<Result<Vec<u64>>>();
    let mut random = context.random(3);
    let (mut kept, mut each) = (Vec::new(), Vec::new());
    for strict in [Strict::Central, Strict::Forwarding] {
        for (turn, counts) in [false, true].into_iter().enumerate() {
            let before = books()?;
            let (mut home, mut other) = (cluster.sharer(0)?, cluster.sharer(1)?);
            let name = format!("/bench/books-{strict:?}-{turn}").to_lowercase();
            home.create_scheduled(&name, pages * PAGE, None, strict)?;
            other.open(&name)?;
            home.touch(Touch::Write, None, &FreshPages::new(pages, &mut random).take(pages))?;
            other.touch(Touch::Read, None, &FreshPages::new(pages, &mut random).take(pages))?;
            kept.push((home, other));
            if counts {
                let grown =
                    books()?.into_iter().zip(before).map(|(after, before)| after.saturating_sub(before));
                each.extend(grown.map(|kib| kib as f64 * 1024.0 / pages as f64));
            }
        }
    }
    some(most(&each), "growth of the hosts' books")
}

/// The row.
pub struct UntouchedBytes;

impl Row for UntouchedBytes {
    fn id(&self) -> &'static str {
        "scale.untouched_bytes"
    }

    fn unit(&self) -> &'static str {
        "bytes"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.001))
    }

    fn about(&self) -> &'static str {
        "memory that a scheduler really allocates at any host for an untouched page of an object of 1 TiB, of which one page \
         is shared by 64 hosts and the home: the worse of both schedulers"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let _ = context; // nothing to vary
        let all = remembered(1);
        let pages = (1u64 << 40) / 4096;
        let value = some(worst(&all).bytes, "what a scheduler allocated")? / pages as f64;
        Ok(Measured::single(value, 1, detail(1, &all)))
    }
}
