//! `local.sync_bulk_ratio`: atomic syncs of everything.

use crate::context::{Context, GIB};
use crate::failure::{Result, failed};
use crate::measure::{alternate, seconds};
use crate::objects;
use crate::row::{Bar, Measured, Row};
use crate::view::{PAGE, View};
use commonhold::{Mapping, SyncMode};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes of one `pwrite`.
const AT_ONCE: usize = 1 << 20;

/// The row.
pub struct SyncBulkRatio;

impl Row for SyncBulkRatio {
    fn id(&self) -> &'static str {
        "local.sync_bulk_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(2.2))
    }

    fn about(&self) -> &'static str {
        "three atomic syncs in a row of an object of 1 GiB, all of it written before each, and one of a page, which pays the last \
         checkpoint ÷ pwrite of a file of 1 GiB + fdatasync as often, and of a page; writing to memory not counted"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let (size, syncs) = (context.pick(GIB, GIB / 16), 3);
        let (_, file) = context.make_file("bulk", size)?;
        let object = objects::on_file(&host, "/bench/bulk", &file, SyncMode::Atomic)?;
        let mapping = object.map(&objects::everything())?;
        let raw = context.make_file("raw", size)?.1;
        let content = vec![1; AT_ONCE];
        View::of(&mapping).touch_pages();
        let pairs = alternate(
            context.pick(5, 2),
            |_| {
                let each = (0..syncs).map(|_| bulk(&mapping)).sum::<Result<f64>>()?;
                Ok(each + last(&mapping)?)
            },
            |_| {
                seconds(|| {
                    (0..syncs).try_for_each(|_| store(&raw, size, &content))?;
                    raw.write_all_at(&content[..PAGE], 0)?;
                    Ok(raw.sync_data()?)
                })
            },
        )?;
        Ok(pairs.measured(pairs.ratio(), pairs.summary(1.0)))
    }
}

/// Writes all pages; seconds of the sync.
fn bulk(mapping: &Mapping) -> Result<f64> {
    let view = View::of(mapping);
    (0..view.pages()).for_each(|page| {
        view.increment(page * PAGE);
    });
    timed(mapping, view.pages() as u64)
}

fn last(mapping: &Mapping) -> Result<f64> {
    View::of(mapping).increment(0);
    timed(mapping, 1)
}

fn timed(mapping: &Mapping, pages: u64) -> Result<f64> {
    seconds(|| match mapping.sync()? {
        stored if stored == pages => Ok(()),
        stored => failed(format!("a sync stored {stored} pages of {pages}")),
    })
}

fn store(file: &File, size: usize, content: &[u8]) -> Result<()> {
    for at in (0..size).step_by(AT_ONCE) {
        file.write_all_at(&content[..AT_ONCE.min(size - at)], at as u64)?;
    }
    Ok(file.sync_data()?)
}
