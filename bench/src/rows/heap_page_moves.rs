//! `heap.page_moves`: how often hosts meet in pages of a heap.

use crate::cluster::Cluster;
use crate::context::Context;
use crate::failure::{Result, failed};
use crate::row::{Bar, Measured, Row};
use crate::worker::Worker;
use commonhold::{Coherence, CreateOptions, Heap, Host, OnLoss};
use serde_json::json;
use std::collections::BTreeMap;

/// The row.
pub struct PageMoves;

const BLOCKS: usize = 1000;
const NAME: &str = "/bench/heap";

impl Row for PageMoves {
    fn id(&self) -> &'static str {
        "heap.page_moves"
    }

    fn unit(&self) -> &'static str {
        "pages"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(2.0))
    }

    fn about(&self) -> &'static str {
        "pages of a heap that go from one host to another while each of two hosts, in turns, allocates 1,000 blocks of 64 bytes \
         and writes to them"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let mut each = Vec::new();
        let mut lines = Vec::new();
        for _ in 0..context.pick(5, 1) {
            let cluster = Cluster::start(context, 2)?;
            let hosts = [cluster.host(0).connect()?, cluster.host(1).connect()?];
            let options = CreateOptions {
                size_bytes: 256 << 20,
                coherence: Coherence::strict(OnLoss::Revert),
                ..CreateOptions::default()
            };
            let heap = Heap::create(&hosts[0], NAME, &options)?;
            heap.type_of("int32")?;
            let mut workers = [worker(&cluster, 0)?, worker(&cluster, 1)?];
            let before = hand_overs(&hosts)?;
            for _ in 0..BLOCKS {
                for worker in &mut workers {
                    worker.ask("one")?;
                }
            }
            let after = hand_overs(&hosts)?;
            let (moves, of_pages) = moves(&before, &after);
            each.push(moves);
            lines.push(json!({ "moves": moves, "of_pages": of_pages, "of_all_pages": after.len() }));
            drop((workers, heap));
        }
        if each.is_empty() {
            return failed("nothing was measured");
        }
        Ok(Measured::most(&each, json!({ "blocks_of_each_host": BLOCKS, "each": lines })))
    }
}

fn worker(cluster: &Cluster, number: usize) -> Result<Worker> {
    let state = cluster.host(number).state().to_string_lossy().into_owned();
    cluster.network().at(number, || Worker::start("heap-client", &[state.as_str(), NAME, "blocks"]))
}

/// Of each page how often each host got the right to write it, and whether a process of it touched it.
type Counted = BTreeMap<u64, [(u64, bool); 2]>;

fn hand_overs(hosts: &[Host; 2]) -> Result<Counted> {
    let mut counted = Counted::new();
    for (number, host) in hosts.iter().enumerate() {
        for object in host.counts(NAME, 4096)?.objects {
            for page in object.pages {
                let touched = page.read_faults + page.write_faults + page.protection_faults > 0;
                counted.entry(page.page).or_default()[number] = (u64::from(page.hand_overs), touched);
            }
        }
    }
    Ok(counted)
}

/// Hand-overs of pages that both hosts touched: a page of one host alone comes to it once, from nobody.
fn moves(before: &Counted, after: &Counted) -> (f64, Vec<u64>) {
    let (mut moves, mut pages) = (0, Vec::new());
    for (page, now) in after.iter().filter(|(_, now)| now.iter().all(|(_, touched)| *touched)) {
        let then = before.get(page).copied().unwrap_or_default();
        let more: u64 = now.iter().zip(then).map(|((now, _), (then, _))| now - then).sum();
        if more > 0 {
            moves += more;
            pages.push(*page);
        }
    }
    (moves as f64, pages)
}
