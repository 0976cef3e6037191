//! `scale.bytes_per_page`, `scale.untouched_bytes`: what a home remembers, by the allocator's own count.

use crate::context::Context;
use crate::failure::Result;
use crate::row::{Bar, Measured, Row};
use commonhold_coherence::central::{Home, Message, Options};
use commonhold_coherence::{Access, HostId, Span};
use serde_json::json;

const WHAT: &str = "all that the home's scheduler allocated, counted by the allocator of the row's process (sizes asked \
                    for; an allocator's own rounding apart)";

/// A home of which 64 hosts have read the first `pages` pages.
fn shared_home(pages: u32) -> Home {
    let mut home = Home::new(Options::default());
    let mut actions = Vec::new();
    for host in 0..64 {
        for page in 0..pages {
            let span = Span::one(page);
            let request = Message::Request { span, access: Access::Read, has_copy: false };
            home.handle(HostId(host), request, &mut actions);
            actions.clear();
        }
    }
    drop(actions);
    home
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
        "memory that a home's scheduler really allocates for a page that 64 hosts have read, beside its frame (the host's own \
         bookkeeping is not part of it yet)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let pages: u32 = context.pick(1 << 18, 1 << 16);
        let before = crate::counting::allocated();
        let home = shared_home(pages);
        let taken = crate::counting::allocated() - before;
        let sharers = home.table().readers(pages - 1).len();
        let value = taken as f64 / f64::from(pages);
        let detail = json!({"pages": pages, "sharers": sharers, "bytes": taken, "what": WHAT});
        Ok(Measured::single(value, 1, detail))
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
        "memory that a home's scheduler really allocates for an untouched page of an object of 1 TiB, of which one page was \
         read by 64 hosts"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let _ = context; // nothing to vary
        let before = crate::counting::allocated();
        let home = shared_home(1);
        let taken = crate::counting::allocated() - before;
        let sharers = home.table().readers(0).len();
        let pages = (1u64 << 40) / 4096;
        let value = taken as f64 / pages as f64;
        let detail = json!({"pages": pages, "touched": 1, "sharers": sharers, "bytes": taken, "what": WHAT});
        Ok(Measured::single(value, 1, detail))
    }
}
