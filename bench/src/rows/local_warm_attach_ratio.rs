//! `local.warm_attach_ratio`: an object of a file is opened again, soon after its last user closed it.

use crate::context::{Context, GIB};
use crate::failure::{Result, failed};
use crate::measure::{Pairs, alternate, seconds};
use crate::objects;
use crate::row::{Bar, Measured, Row};
use crate::view::{PAGE, RawMapping, View};
use commonhold::{Access, Host, SyncMode};
use serde_json::{Map, Value, json};
use std::hint::black_box;
use std::time::Duration;

const NAME: &str = "/bench/warm";
/// How long nobody has the object open.
const PAUSES: [(&str, Duration); 2] =
    [("closed for 10 ms", Duration::from_millis(10)), ("closed for 1 s", Duration::from_secs(1))];

/// The row.
pub struct WarmAttachRatio;

impl Row for WarmAttachRatio {
    fn id(&self) -> &'static str {
        "local.warm_attach_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.2))
    }

    fn about(&self) -> &'static str {
        "open, map and read all of an ordered object of 1 GiB whose last user has synced and closed it, 10 ms and 1 s before (the \
         worst) ÷ mmap and read of such a file that is in the page cache"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let size = context.pick(GIB, GIB / 16);
        let (_, file) = context.make_file("warm", size)?;
        drop(objects::on_file(&host, NAME, &file, SyncMode::Ordered)?);
        let (_, plain) = context.make_file("plain", size)?;
        let mut detail = Map::new();
        let mut worst: Option<Pairs> = None;
        // Everything is in memory, on both sides.
        attach(&host)?;
        read(RawMapping::shared(&plain, size)?.view())?;
        for (name, pause) in PAUSES {
            let pairs = alternate(
                context.pick(11, 2),
                |_| {
                    use_it(&host)?;
                    std::thread::sleep(pause);
                    seconds(|| attach(&host))
                },
                |_| seconds(|| read(RawMapping::shared(&plain, size)?.view())),
            )?;
            detail.insert(name.to_owned(), pairs.summary(1e3));
            if worst.as_ref().is_none_or(|worst| pairs.ratio() > worst.ratio()) {
                worst = Some(pairs);
            }
        }
        detail.insert("unit_of_times".into(), json!("ms"));
        match worst {
            Some(pairs) => Ok(pairs.measured(pairs.ratio(), Value::Object(detail))),
            None => failed("nothing was measured"),
        }
    }
}

/// The last user before: writes a page, syncs, and leaves.
fn use_it(host: &Host) -> Result<()> {
    let object = host.open(NAME, Access::ReadWrite)?;
    let mapping = object.map(&objects::everything())?;
    View::of(&mapping).increment(7 * PAGE);
    match mapping.sync()? {
        1 => Ok(()),
        stored => failed(format!("a sync stored {stored} pages of 1")),
    }
}

fn attach(host: &Host) -> Result<()> {
    let object = host.open(NAME, Access::ReadWrite)?;
    read(View::of(&object.map(&objects::everything())?))
}

fn read(view: View<'_>) -> Result<()> {
    black_box(view.sum_words());
    Ok(())
}
