//! `local.sync_vs_raw`: an atomic sync, against plain writes and a flush, which promise no atomicity.

use crate::context::{Context, GIB};
use crate::durable::{self, AtomicObject, Side};
use crate::failure::Result;
use crate::row::{Bar, Measured, Row};
use crate::view::PAGE;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// The row.
pub struct SyncVsRaw;

impl Row for SyncVsRaw {
    fn id(&self) -> &'static str {
        "local.sync_vs_raw"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(2.5))
    }

    fn about(&self) -> &'static str {
        "writing 1,000 random 4 KiB pages of a 1 GiB atomic object and syncing it ÷ pwrite of 1,000 random pages \
         of a 1 GiB file + fdatasync; checkpoints paid for, totals compared"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let mut ours = AtomicObject::create(context, &host)?;
        let mut theirs = RawFile(context.make_file("raw", GIB)?.1);
        let blocks = durable::compare(context, &mut ours, &mut theirs)?;
        Ok(blocks.whole.measured(blocks.whole.ratio_of_totals(), blocks.detail("pwrite + fdatasync")))
    }
}

/// A file whose blocks all exist on the disk.
struct RawFile(File);

impl Side for RawFile {
    fn round(&mut self, pages: &[u32], content: &[u8]) -> Result<[f64; 2]> {
        let start = Instant::now();
        for page in pages {
            self.0.write_all_at(content, u64::from(*page) * PAGE as u64)?;
        }
        let written = start.elapsed();
        self.0.sync_data()?;
        Ok([written.as_secs_f64(), (start.elapsed() - written).as_secs_f64()])
    }

    fn settle(&mut self) -> Result<()> {
        Ok(self.0.sync_data()?)
    }
}
