//! `local.sparse_kib`: what a huge mapping costs of which almost nothing is touched.

use crate::context::{Context, Random};
use crate::failure::Result;
use crate::host::BenchHost;
use crate::measure::{least, median, some};
use crate::objects;
use crate::processes::memory_kib;
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::{PAGE, View};
use commonhold::{Host, Mapping};
use rand::RngExt;
use serde_json::json;
use std::time::Duration;

const BYTES: usize = 1 << 40;
const TOUCHED: usize = 10;

/// The row.
pub struct SparseKib;

impl Row for SparseKib {
    fn id(&self) -> &'static str {
        "local.sparse_kib"
    }

    fn unit(&self) -> &'static str {
        "KiB"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1024.0))
    }

    fn about(&self) -> &'static str {
        "memory added to host, keeper and client together (pages and page tables) by creating and mapping a \
         sparse controlled object of 1 TiB and writing to 10 random pages"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let mut random = context.random(4);
        // What the first controlled mapping of a process brings once (threads, a userfaultfd) is not the
        // mapping's size.
        let small = objects::controlled(&host, "/bench/small", 16 * PAGE)?.map(&objects::everything())?;
        View::of(&small).write_pages();
        let mut kept = Vec::new();
        let mut added = Vec::new();
        for n in 0..context.pick(5, 2) {
            let before = memory(&bench)?;
            kept.push(map_and_touch(&host, n, &mut random)?);
            std::thread::sleep(Duration::from_millis(200));
            let after = memory(&bench)?;
            let mut parts = [0, 1, 2].map(|who| after[who] as f64 - before[who] as f64);
            // Frames that the client's page tables do not show would be missing from its pages.
            let mapped = (TOUCHED * PAGE) as u64;
            parts[1] += kept[n].object().info()?.resident_bytes.saturating_sub(mapped) as f64 / 1024.0;
            added.push(parts);
        }
        let totals: Vec<f64> = added.iter().map(|parts| parts.iter().sum()).collect();
        let part = |who: usize| rounded(median(&added.iter().map(|parts| parts[who]).collect::<Vec<_>>()));
        let detail = json!({
            "pages_touched": TOUCHED,
            "each_run_kib": totals,
            "client_kib": part(0),
            "host_kib": part(1),
            "keeper_kib": part(2),
            "frames_are_counted": "as the client's pages; those it does not map, as the host's",
        });
        // The pages that were written are there in any case.
        some(
            least(&totals) - (TOUCHED * PAGE / 1024) as f64 + 1.0,
            "memory beyond the pages that were written",
        )?;
        Ok(Measured::median(&totals, detail))
    }
}

fn map_and_touch(host: &Host, n: usize, random: &mut Random) -> Result<Mapping> {
    let object = objects::controlled(host, &format!("/bench/sparse-{n}"), BYTES)?;
    let mapping = object.map(&objects::everything())?;
    let view = View::of(&mapping);
    for _ in 0..TOUCHED {
        view.write_word(random.random_range(0..view.pages()) * PAGE, 1);
    }
    Ok(mapping)
}

/// KiB of this process, of the host, of the keeper.
fn memory(bench: &BenchHost) -> Result<[u64; 3]> {
    let [host, keeper] = bench.processes()?;
    Ok([memory_kib(std::process::id())?, memory_kib(host)?, memory_kib(keeper)?])
}
