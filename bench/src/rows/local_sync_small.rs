//! `local.sync_clean_ratio` and `local.sync_one_ratio`: what a sync of 1 GiB costs that has nothing, or one page, to store.

use crate::context::{Context, GIB};
use crate::failure::{Result, failed};
use crate::host::BenchHost;
use crate::measure::{Pairs, alternate, each};
use crate::objects;
use crate::placement::{Placement, worse};
use crate::row::{Bar, Measured, Row};
use crate::view::{PAGE, View};
use commonhold::{Host, Mapping, Object, SyncMode};
use commonhold_sys::pagemap::Pagemap;
use serde_json::json;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The page that is written again and again.
const ONE: usize = 12_345 * PAGE;

/// An object of 1 GiB, all of it mapped and in memory, and nothing of it written since its last sync.
struct Resident {
    object: Object,
    mapping: Mapping,
    pagemap: Pagemap,
}

impl Resident {
    fn new(context: &Context, host: &Host, name: &str, sync: SyncMode) -> Result<Resident> {
        let (_, file) = context.make_file(name, GIB)?;
        let object = objects::on_file(host, &format!("/bench/{name}"), &file, sync)?;
        let mapping = object.map(&objects::everything())?;
        View::of(&mapping).write_pages();
        object.sync(0, GIB as u64)?;
        Ok(Resident { object, mapping, pagemap: Pagemap::of_self()? })
    }

    /// Syncs so much, of which so many pages were written.
    fn sync(&self, offset: usize, length: usize, written: u64) -> Result<()> {
        let stored = self.object.sync(offset as u64, length as u64)?;
        if stored == written { Ok(()) } else { failed(format!("a sync stored {stored} pages of {written}")) }
    }

    /// Writes that page, and syncs so much.
    fn write(&self, offset: usize, length: usize) -> Result<()> {
        View::of(&self.mapping).increment(ONE);
        self.sync(offset, length, 1)
    }

    /// Asks the kernel which pages were written, in the shortest way.
    fn scan(&self) -> Result<()> {
        let view = View::of(&self.mapping);
        let start = view.as_mut_ptr() as u64;
        let mut written = 0;
        self.pagemap
            .scan_written(start, start + view.len() as u64, |from, to| written += to - from)
            .map_err(std::io::Error::from)?;
        if written <= PAGE as u64 { Ok(()) } else { failed(format!("{written} bytes were written")) }
    }
}

/// The two in turn, with the host beside the caller and apart from it: the pairs of each place.
fn in_each_place(
    context: &Context,
    bench: &BenchHost,
    mut ours: impl FnMut() -> Result<()>,
    mut theirs: impl FnMut() -> Result<()>,
) -> Result<Vec<(&'static str, Pairs)>> {
    let (pairs, rounds) = (context.pick(21, 3), context.pick(50, 5));
    let placement = Placement::begin()?;
    let [host, _] = bench.processes()?;
    let measure = |(place, processor)| {
        placement.put(host, processor)?;
        Ok((place, alternate(pairs, |_| each(rounds, &mut ours), |_| each(rounds, &mut theirs))?))
    };
    placement.places().into_iter().map(measure).collect()
}

/// The row.
pub struct SyncCleanRatio;

impl Row for SyncCleanRatio {
    fn id(&self) -> &'static str {
        "local.sync_clean_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.3))
    }

    fn about(&self) -> &'static str {
        "sync of 1 GiB that is mapped and resident, and of which nothing was written since the last sync ÷ one question \
         to the host + one bare PAGEMAP_SCAN of it; ordered and atomic, on one processor and on two: the worst"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let mut places = Vec::new();
        let mut details = Vec::new();
        for (name, sync) in [("ordered", SyncMode::Ordered), ("atomic", SyncMode::Atomic)] {
            let resident = Resident::new(context, &host, name, sync)?;
            let ours = || resident.sync(0, GIB, 0);
            let theirs =
                || resident.object.info().map(drop).map_err(Into::into).and_then(|()| resident.scan());
            let (worst, summaries) = worse(in_each_place(context, &bench, ours, theirs)?)?;
            places.push((name, worst));
            details.push(json!({ "sync": name, "places": summaries }));
        }
        let (worst, _) = worse(places)?;
        Ok(worst.measured(worst.ratio(), json!({ "unit_of_times": "µs", "kinds": details })))
    }
}

/// The row.
pub struct SyncOneRatio;

impl Row for SyncOneRatio {
    fn id(&self) -> &'static str {
        "local.sync_one_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.6))
    }

    fn about(&self) -> &'static str {
        "one page of 1 GiB written, then a sync of all ÷ pwrite + fdatasync of the page + a bare PAGEMAP_SCAN of all; and \
         a sync of the page ÷ pwrite + fdatasync alone; atomic, on one processor and on two: the worst"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let resident = Resident::new(context, &host, "atomic", SyncMode::Atomic)?;
        let raw = context.make_file("raw", GIB)?.1;
        let of_all = in_each_place(
            context,
            &bench,
            || resident.write(0, GIB),
            || write(&raw).and_then(|()| resident.scan()),
        )?;
        let of_page = in_each_place(context, &bench, || resident.write(ONE, PAGE), || write(&raw))?;
        let (all, all_places) = worse(of_all)?;
        let (page, page_places) = worse(of_page)?;
        let (worst, _) = worse(vec![("all", all), ("page", page)])?;
        let detail =
            json!({ "unit_of_times": "µs", "sync_of_all": all_places, "sync_of_the_page": page_places });
        Ok(worst.measured(worst.ratio(), detail))
    }
}

/// A page of a file whose blocks all exist, durably.
fn write(file: &File) -> Result<()> {
    file.write_all_at(&[1; PAGE], ONE as u64)?;
    Ok(file.sync_data()?)
}
