//! `types.read_ratio`, `types.translations`: objects that hosts of different machine types share.

use crate::cluster::{Cluster, Sharer};
use crate::context::Context;
use crate::failure::Result;
use crate::measure::{Pairs, alternate, some};
use crate::row::{Bar, Measured, Row, rounded};
use commonhold_simulator::measure::Strict;
use serde_json::{Value, json};

/// Reading what must be translated, beside reading what need not.
pub struct ReadRatio;
/// How often pages are translated.
pub struct Translations;

const BYTES: usize = 256 << 20;
/// Pages of the object whose translations are counted.
const PAGES: u32 = 256;
const PAGE: usize = 4096;
const TAG: &str = "float64";

impl Row for ReadRatio {
    fn id(&self) -> &'static str {
        "types.read_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.1))
    }

    fn about(&self) -> &'static str {
        "256 MiB of float64 of another host added up in order by a host of the other byte order ÷ by one of the home's type; \
         a VAX in detail"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let machines = ["little-ieee", "little-ieee", "big-ieee", "vax"];
        let cluster = Cluster::of_machines(context, &machines)?;
        let mut all =
            (0..machines.len()).map(|host| cluster.sharer(host)).collect::<Result<Vec<Sharer>>>()?;
        let count = context.pick(9, 2);
        let big = pairs(&mut all, 2, count)?;
        let vax = pairs(&mut all, 3, count)?;
        some(big.ratio(), "ratio")?;
        let pages =
            (1..machines.len()).map(|host| translated(&cluster, host)).collect::<Result<Vec<u64>>>()?;
        let detail = json!({
            "seconds": big.summary(1.0),
            "of_a_vax": { "ratio": rounded(vax.ratio()), "seconds": vax.summary(1.0) },
            "translated_pages": pages,
            "network": cluster.network().words(),
        });
        Ok(big.measured(big.ratio(), detail))
    }
}

/// Seconds at that host, and at the one of the home's type.
fn pairs(all: &mut [Sharer], foreign: usize, count: usize) -> Result<Pairs> {
    let all = std::cell::RefCell::new(all);
    alternate(
        count,
        |pair| read(&mut all.borrow_mut(), foreign, &format!("/bench/foreign-{foreign}-{pair}")),
        |pair| read(&mut all.borrow_mut(), 1, &format!("/bench/same-{foreign}-{pair}")),
    )
}

/// A new object that its home has written; the reader has none of it.
fn read(all: &mut [Sharer], reader: usize, name: &str) -> Result<f64> {
    all[0].create(name, BYTES, None)?;
    all[0].tag(TAG)?;
    all[0].write_all()?;
    all[reader].open(name)?;
    let time = all[reader].sum()?;
    all[reader].close()?;
    all[0].close()?;
    all[0].remove(name)?;
    Ok(time)
}

/// Pages that a host had to translate so far.
fn translated(cluster: &Cluster, host: usize) -> Result<u64> {
    Ok(cluster.host(host).connect()?.status()?.translated.pages)
}

impl Row for Translations {
    fn id(&self) -> &'static str {
        "types.translations"
    }

    fn unit(&self) -> &'static str {
        "translations"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.0))
    }

    fn about(&self) -> &'static str {
        "translations of a page for a host of another machine type, less 1, and all others: of later touches, of rights to \
         write, at hosts of the home's type, at the home; a count (central scheduler; forwarding in detail)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let cluster = Cluster::of_machines(context, &["little-ieee", "little-ieee", "big-ieee", "vax"])?;
        let (central, detail) = count(&cluster, Strict::Central)?;
        let (_, forwarding) = count(&cluster, Strict::Forwarding)?;
        let detail = json!({ "pages": PAGES, "central": detail, "forwarding": forwarding });
        Ok(Measured::single(central, 1, detail))
    }
}

/// How many translations there were that need not be, for each page.
fn count(cluster: &Cluster, scheduler: Strict) -> Result<(f64, Value)> {
    let mut all = (0..4).map(|host| cluster.sharer(host)).collect::<Result<Vec<Sharer>>>()?;
    let name = format!("/bench/translated-{scheduler:?}");
    all[0].create_scheduled(&name, PAGES as usize * PAGE, None, scheduler)?;
    all[0].tag(TAG)?;
    all[0].write_all()?;
    for other in &mut all[1..] {
        other.open(&name)?;
    }
    let now = || (0..4).map(|host| translated(cluster, host)).collect::<Result<Vec<u64>>>();
    let since = |before: &[u64]| -> Result<Vec<u64>> {
        Ok(now()?.iter().zip(before).map(|(now, before)| now - before).collect())
    };
    let begun = now()?;
    all[1..].iter_mut().try_for_each(|reader| reader.sum().map(drop))?;
    let of_reads = since(&begun)?;
    let begun = now()?;
    all[1..].iter_mut().try_for_each(|reader| reader.sum().map(drop))?;
    let of_later_reads = since(&begun)?;
    // The right to write what is here to be read.
    let begun = now()?;
    all[2].write_pages()?;
    let of_writes = since(&begun)?;
    for other in all[1..].iter_mut().rev() {
        other.close()?;
    }
    all[0].close()?;
    all[0].remove(&name)?;
    let foreign = |counts: &[u64]| counts[2].abs_diff(PAGES.into()) + counts[3].abs_diff(PAGES.into());
    let extra = foreign(&of_reads) + of_reads[0] + of_reads[1];
    let extra = extra + of_later_reads.iter().chain(&of_writes).sum::<u64>();
    let detail = json!({
        "hosts": ["home, little-ieee", "little-ieee", "big-ieee", "vax"],
        "reads": of_reads,
        "later_reads": of_later_reads,
        "rights_to_write_at_big_ieee": of_writes,
    });
    Ok((extra as f64 / f64::from(PAGES), detail))
}
