//! `scale.bytes_per_page`, `scale.untouched_bytes`: what a host remembers, by the allocator's own count.

use super::scale_roles::{remembered, worst};
use crate::context::Context;
use crate::failure::Result;
use crate::row::{Bar, Measured, Row};
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
         the worse of both schedulers and the worst of all parts a host can have, owner, home, reader, former owner (the \
         host's own bookkeeping is not part of it yet)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let pages: u32 = context.pick(1 << 15, 1 << 12);
        let all = remembered(pages);
        Ok(Measured::single(worst(&all).bytes, 1, detail(pages, &all)))
    }
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
        let value = worst(&all).bytes / pages as f64;
        Ok(Measured::single(value, 1, detail(1, &all)))
    }
}
