//! `sprite.table4_remote` and `sprite.table6_remote`: the columns "remotely cached" of Shirriff's Tables 4 and 6. His
//! file server is the object's home, its file warm there; the client is another host, which has none of it when the
//! clock starts.

use crate::cluster::floor::Floor;
use crate::cluster::{Awaiting, Cluster, Sharer};
use crate::context::Context;
use crate::failure::Result;
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::HIS_FILE;
use crate::sprite::table::{cell, markdown, rotate};
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

const LIKE: &str = "lines like the paper's: their time by the first line's within a factor of two of his";

/// What stands for what.
const MEANS: &str = "the file is a strict object with its home on the other host; read: Commonhold's copy out \
                     of it, a page at a time (getc: by way of a buffer of a page); mmap: one byte of each page \
                     of a mapping; data fill: a private mapping written; RPC: 32 B there, 4 KiB back over one bare TCP connection";

/// Home and client: their processes end before the hosts do.
struct Subject {
    client: Sharer,
    _home: Sharer,
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
        Ok(Subject { cluster, client, _home: home })
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
}

/// The row.
pub struct SpriteTable4Remote;

impl Row for SpriteTable4Remote {
    fn id(&self) -> &'static str {
        "sprite.table4_remote"
    }

    fn unit(&self) -> &'static str {
        LIKE
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
        let relations = relations(&times, &SEQUENTIAL.map(|(_, _, seconds, _)| seconds));
        let lines = SEQUENTIAL.iter().zip(&times).zip(&relations);
        let rows = lines.map(|(((_, name, seconds, rate), time), relation)| {
            json!({
                "by_the_first": relation.ours,
                "published_by_the_first": relation.published,
                "alike": relation.alike(),
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
        Ok(Measured::single(count_alike(&relations), rounds, detail))
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
        LIKE
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
        let relations = relations(&times, &RANDOM.map(|(_, _, _, [seconds, ..])| seconds));
        let lines = RANDOM.iter().zip(&times).zip(&relations);
        let rows = lines.map(|(((name, probes, _, published), time), relation)| {
            json!({
                "by_the_first": relation.ours,
                "published_by_the_first": relation.published,
                "alike": relation.alike(),
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
        Ok(Measured::single(count_alike(&relations), rounds, detail))
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

/// A line's time by that of the table's first line: what a machine of another age can have in common with his.
struct Relation {
    ours: f64,
    published: f64,
}

impl Relation {
    fn alike(&self) -> bool {
        (0.5..=2.0).contains(&(self.ours / self.published))
    }
}

fn relations(times: &[f64], published: &[f64]) -> Vec<Relation> {
    let relation = |(ours, his): (&f64, &f64)| Relation {
        ours: rounded(ours / times[0]),
        published: rounded(his / published[0]),
    };
    times.iter().zip(published).map(relation).collect()
}

/// The first line, to which all are set in relation, does not count.
fn count_alike(relations: &[Relation]) -> f64 {
    relations[1..].iter().filter(|relation| relation.alike()).count() as f64
}

fn page(detail: &Value, columns: &[&str], head: &[&str]) -> String {
    let rows: Vec<Vec<String>> = detail["table"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| columns.iter().map(|column| cell(&row[*column])).collect())
        .collect();
    let (means, network) = (cell(&detail["what_stands_for_what"]), cell(&detail["network"]));
    format!("\n## Remotely cached\n\n{}\nHere {means}. Hosts have {network}.\n", markdown(head, &rows))
}
