//! `sprite.table4_remote` and `sprite.table6_remote`: the columns "remotely cached" of Shirriff's Tables 4 and 6. His
//! file server is the object's home, its file warm there; the client is another host, which has none of it when the
//! clock starts.

use crate::cluster::floor::Floor;
use crate::cluster::{Awaiting, Cluster, Sharer};
use crate::conclusions::{self, Conclusion, furthest, named, spread};
use crate::context::Context;
use crate::failure::Result;
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::table::{cell, markdown, rotate};
use crate::sprite::{HIS_FILE, distinct_pages};
use crate::view::PAGE;
use rand::RngExt;
use serde_json::{Value, json};

const NAME: &str = "/bench/sprite-remote";

/// A way to get at the file's bytes.
#[derive(Clone, Copy)]
enum Way {
    Getc,
    Read,
    Mmap,
    DataFill,
    Rpc,
}

/// Name, and the paper's remote figures: seconds, megabytes (10⁶) a second.
const SEQUENTIAL: [(Way, &str, f64, f64); 5] = [
    (Way::Getc, "getc", 2.0, 0.25),
    (Way::Read, "read", 1.4, 0.35),
    (Way::Mmap, "mmap", 1.1, 0.45),
    (Way::DataFill, "data fill", 1.2, 0.41),
    (Way::Rpc, "RPC", 1.1, 0.45),
];

/// Name, probes, whether mapped, and the paper's remote figures: seconds, kilobytes (10³) a second, milliseconds a
/// probe.
const RANDOM: [(&str, usize, bool, [f64; 3]); 4] = [
    ("read", 120, false, [0.7, 0.17, 5.8]),
    ("read", 1000, false, [1.3, 0.77, 1.3]),
    ("mmap", 120, true, [0.7, 0.17, 5.8]),
    ("mmap", 1000, true, [1.2, 0.83, 1.2]),
];

/// What stands for what.
const MEANS: &str = "the file is a strict object with its home on the other host; read: Commonhold's copy out \
                     of it, a page at a time (getc: by way of a buffer of a page); mmap: one byte of each page \
                     of a mapping; data fill: a private mapping written; RPC: 32 B there, 4 KiB back over one bare TCP connection";

/// Home and client: their processes end before the hosts do.
struct Subject {
    client: Sharer,
    home: Sharer,
    cluster: Cluster,
}

impl Subject {
    fn create(context: &Context) -> Result<Subject> {
        // As the bare connection of the line RPC waits.
        let cluster = Cluster::start_two(context, Awaiting::Asleep)?;
        let (mut home, client) = (cluster.sharer(0)?, cluster.sharer(1)?);
        let (path, _) = context.make_file("sprite-remote", HIS_FILE)?;
        home.create_on_file(NAME, &path)?;
        home.touch_pages()?;
        Ok(Subject { cluster, client, home })
    }

    /// Work on the object by a client whose host has no page of it.
    fn cold(&mut self, work: impl FnOnce(&mut Sharer) -> Result<f64>) -> Result<f64> {
        self.client.open(NAME)?;
        let time = work(&mut self.client)?;
        self.client.close()?;
        Ok(time)
    }

    fn sequential(&mut self, way: Way, floor: &mut Floor) -> Result<f64> {
        match way {
            Way::Getc => self.cold(Sharer::getc),
            Way::Read => self.cold(Sharer::read_blocks),
            Way::Mmap => self.cold(Sharer::touch_pages),
            Way::DataFill => self.cold(|client| {
                client.map_private()?;
                client.write_pages()
            }),
            Way::Rpc => floor.transfer(HIS_FILE / PAGE),
        }
    }

    /// Seconds that reading takes the home, where all of the file is.
    fn local(&mut self, rounds: usize) -> Result<f64> {
        Ok(rotate(1, rounds, |_| self.home.read_blocks())?[0])
    }
}

/// The row.
pub struct SpriteTable4Remote;

impl Row for SpriteTable4Remote {
    fn id(&self) -> &'static str {
        "sprite.table4_remote"
    }

    fn unit(&self) -> &'static str {
        conclusions::UNIT
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Shirriff's Table 4, sequential access, remote columns, on his 480 KiB file between two hosts"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let mut subject = Subject::create(context)?;
        let mut floor = Floor::start(context, subject.cluster.network())?;
        let rounds = context.pick(30, 5);
        let mut once = |n: usize| subject.sequential(SEQUENTIAL[n].0, &mut floor);
        rotate(SEQUENTIAL.len(), 1, &mut once)?;
        let times = rotate(SEQUENTIAL.len(), rounds, &mut once)?;
        let local = subject.local(rounds)?;
        let rows = SEQUENTIAL.iter().zip(&times).map(|((_, name, seconds, rate), time)| {
            json!({
                "by_the_first": rounded(time / times[0]),
                "published_by_the_first": rounded(seconds / SEQUENTIAL[0].2),
                "measurement": name,
                "seconds": rounded(*time),
                "mb_per_second": rounded(HIS_FILE as f64 / 1e6 / time),
                "published_seconds": seconds,
                "published_mb_per_second": rate,
            })
        });
        let detail = json!({
            "table": rows.collect::<Vec<_>>(),
            "averages": "medians; the paper: means of 10",
            "what_stands_for_what": MEANS,
            "network": subject.cluster.network().words(),
        });
        conclusions::measured(&conclude_sequential(&times, local), rounds, detail)
    }

    fn page(&self, detail: &Value) -> String {
        let columns = [
            "measurement",
            "seconds",
            "mb_per_second",
            "by_the_first",
            "published_seconds",
            "published_mb_per_second",
            "published_by_the_first",
        ];
        let head =
            ["measurement", "sec", "MB/s", "÷ first", "published sec", "published MB/s", "published ÷ first"];
        page(detail, &columns, &head)
    }
}

/// The row.
pub struct SpriteTable6Remote;

impl Row for SpriteTable6Remote {
    fn id(&self) -> &'static str {
        "sprite.table6_remote"
    }

    fn unit(&self) -> &'static str {
        conclusions::UNIT
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Shirriff's Table 6, probes of single random bytes, remote columns, on his 480 KiB file between two hosts"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let mut subject = Subject::create(context)?;
        let rounds = context.pick(30, 5);
        // The same pseudorandom sequence for all, as for the local columns; the shorter one is its beginning.
        let mut random = context.random(6);
        let offsets: Vec<usize> = (0..1000).map(|_| random.random_range(0..HIS_FILE)).collect();
        let mut once = |n: usize| {
            let (_, probes, mapped, _) = RANDOM[n];
            let offsets = &offsets[..probes];
            subject.cold(|client| if mapped { client.probe(offsets) } else { client.read_bytes(offsets) })
        };
        rotate(RANDOM.len(), 1, &mut once)?;
        let times = rotate(RANDOM.len(), rounds, &mut once)?;
        let rows = RANDOM.iter().zip(&times).map(|((name, probes, _, published), time)| {
            json!({
                "by_the_first": rounded(time / times[0]),
                "published_by_the_first": rounded(published[0] / RANDOM[0].3[0]),
                "measurement": name,
                "probes": probes,
                "seconds": rounded(*time),
                "kb_per_second": rounded(*probes as f64 / 1e3 / time),
                "ms_per_probe": rounded(time * 1e3 / *probes as f64),
                "published_seconds": published[0],
                "published_kb_per_second": published[1],
                "published_ms_per_probe": published[2],
            })
        });
        let detail = json!({
            "table": rows.collect::<Vec<_>>(),
            "averages": "medians; the paper: means of 10",
            "what_stands_for_what": MEANS,
            "network": subject.cluster.network().words(),
        });
        let pages = RANDOM.map(|(_, probes, ..)| distinct_pages(&offsets[..probes]) as f64);
        conclusions::measured(&conclude_random(&times, pages[1] / pages[0]), rounds, detail)
    }

    fn page(&self, detail: &Value) -> String {
        let columns = [
            "measurement",
            "probes",
            "seconds",
            "kb_per_second",
            "ms_per_probe",
            "by_the_first",
            "published_seconds",
            "published_kb_per_second",
            "published_ms_per_probe",
            "published_by_the_first",
        ];
        let head = [
            "measurement",
            "probes",
            "sec",
            "KB/s",
            "ms/probe",
            "÷ first",
            "published sec",
            "published KB/s",
            "published ms/probe",
            "published ÷ first",
        ];
        page(detail, &columns, &head)
    }
}

/// What the paper says of the remote columns of Table 4; `local`: reading at the home.
fn conclude_sequential(times: &[f64], local: f64) -> Vec<Conclusion> {
    let [getc, read, mmap, fill, rpc] = [0, 1, 2, 3, 4].map(|n| times[n]);
    let blocks = [("read", read), ("mmap", mmap), ("data fill", fill)];
    let slowest = crate::measure::most(&blocks.map(|(_, time)| time));
    vec![
        Conclusion::new(
            "no difference can be seen between read, mmap, data fill and RPC",
            named("the most ÷ the least of seconds", &[&blocks[..], &[("RPC", rpc)]].concat()),
            spread(&[read, mmap, fill, rpc]),
            Bar::AtMost(2.0),
        )
        .unless("mapped pages in a row come many to a message, and read asks for each page after the last has come"),
        Conclusion::new("getc is slower than those", "getc ÷ the slowest of the others", getc / slowest, Bar::AtLeast(1.2))
            .unless("what getc adds to each byte is nothing beside a page's way over the network"),
        Conclusion::new(
            "nearly all of the time is to receive the data by RPC",
            "RPC ÷ the slowest of read, mmap and data fill",
            rpc / slowest,
            Bar::AtLeast(0.75),
        )
        .unless("of a remote fault most is waking threads, encryption and page tables: docs/PERFORMANCE.md, \
                 remote.read_fault_ratio"),
        Conclusion::new(
            "what is cached locally is read an order of magnitude faster",
            "read ÷ the same at the home",
            read / local,
            Bar::AtLeast(5.0),
        ),
    ]
}

/// What the paper says of the remote columns of Table 6.
fn conclude_random(times: &[f64], more_pages: f64) -> Vec<Conclusion> {
    let proportional = Bar::Between(0.67, 1.5);
    let asks = "growth of the time ÷ growth of the pages";
    let obscured = [("120 probes", times[0] / times[2]), ("1,000 probes", times[1] / times[3])];
    let at_each_probe =
        "Commonhold's copy out of an object asks its host at each probe, while his cache kept pages";
    vec![
        Conclusion::new(
            "the time of block I/O is proportional to the number of remote pages received",
            asks,
            times[1] / times[0] / more_pages,
            proportional,
        )
        .unless(at_each_probe),
        Conclusion::new(
            "the time of mapped files is proportional to the number of remote pages received",
            asks,
            times[3] / times[2] / more_pages,
            proportional,
        ),
        Conclusion::new(
            "the network obscures what differs between block I/O and mapping",
            named("read ÷ mmap, what is furthest from 1", &obscured),
            furthest(&obscured.map(|(_, ratio)| ratio)),
            Bar::Between(0.5, 2.0),
        )
        .unless(at_each_probe),
    ]
}

fn page(detail: &Value, columns: &[&str], head: &[&str]) -> String {
    let rows: Vec<Vec<String>> = detail["table"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| columns.iter().map(|column| cell(&row[*column])).collect())
        .collect();
    let (means, network) = (cell(&detail["what_stands_for_what"]), cell(&detail["network"]));
    let list = conclusions::list(detail);
    format!("\n## Remotely cached\n\n{}{list}\nHere {means}. Hosts have {network}.\n", markdown(head, &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        let times = SEQUENTIAL.map(|(_, _, seconds, _)| seconds);
        assert_eq!(
            conclusions::measured(&conclude_sequential(&times, 0.13), 1, json!({})).unwrap().value,
            4.0
        );
        let slow = times.map(|time| time * time * time);
        assert!(conclusions::measured(&conclude_sequential(&slow, 1.0), 1, json!({})).unwrap().value < 3.0);
        let times = RANDOM.map(|(_, _, _, [seconds, ..])| seconds);
        assert_eq!(
            conclusions::measured(&conclude_random(&times, 120.0 / 74.0), 1, json!({})).unwrap().value,
            3.0
        );
        let times = [1.0, 8.0, 0.2, 1.6];
        assert_eq!(conclusions::measured(&conclude_random(&times, 1.6), 1, json!({})).unwrap().value, 0.0);
    }
}
