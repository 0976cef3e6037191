//! `sprite.table5`: the operations that reading and mapping take, as in Shirriff's Table 5, counted where the kernel
//! counts them: bytes that the home had read from its disk, and bytes that came in over the network.

use crate::cluster::{Cluster, Sharer};
use crate::conclusions::{self, Conclusion};
use crate::context::Context;
use crate::failure::{Doing, Result};
use crate::processes::read_from_disk;
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::HIS_FILE;
use crate::sprite::table::{cell, markdown};
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Where the file is when the clock starts.
#[derive(Clone, Copy)]
struct Source {
    name: &'static str,
    says: &'static str,
    remote: bool,
    on_disk: bool,
    /// The paper's operations: reads from disk, remote procedure calls, and copies by reading and by mapping.
    reads: u32,
    rpcs: u32,
    copies: [u32; 2],
}

const SOURCES: [Source; 4] = [
    Source {
        name: "local-cache",
        says: "what is in the local cache is neither read from a disk nor sent",
        remote: false,
        on_disk: false,
        reads: 0,
        rpcs: 0,
        copies: [1, 1],
    },
    Source {
        name: "local-disk",
        says: "what is on the local disk is read once, and not sent",
        remote: false,
        on_disk: true,
        reads: 1,
        rpcs: 0,
        copies: [1, 1],
    },
    Source {
        name: "remote-cache",
        says: "what is in the server's cache is sent once, and not read from a disk",
        remote: true,
        on_disk: false,
        reads: 0,
        rpcs: 1,
        copies: [1, 0],
    },
    Source {
        name: "remote-disk",
        says: "what is on the server's disk is read once and sent once",
        remote: true,
        on_disk: true,
        reads: 1,
        rpcs: 1,
        copies: [1, 0],
    },
];

/// The row.
pub struct SpriteTable5;

impl Row for SpriteTable5 {
    fn id(&self) -> &'static str {
        "sprite.table5"
    }

    fn unit(&self) -> &'static str {
        conclusions::UNIT
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Shirriff's Table 5, operations to read and to map: how often each byte came from a disk and over the network"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let cluster = Cluster::start(context, 2)?;
        let (mut home, mut other) = (cluster.sharer(0)?, cluster.sharer(1)?);
        let (mut rows, mut judged) = (Vec::new(), Vec::new());
        for source in SOURCES {
            let mut furthest: f64 = 0.0;
            for (way, copies) in ["read", "mapped"].into_iter().zip(source.copies) {
                // A file each: until the last user has closed it, a removed object keeps its own.
                let (path, file) = context.make_file(&format!("{}-{way}", source.name), HIS_FILE)?;
                let client = if source.remote { Some(&mut other) } else { None };
                let counted = count(&cluster, &mut home, client, (&path, &file), (source, way))?;
                let (reads, rpcs) = counted;
                let both = [(reads, source.reads), (rpcs, source.rpcs)];
                furthest =
                    both.iter().map(|(ours, his)| (ours - f64::from(*his)).abs()).fold(furthest, f64::max);
                rows.push(json!({
                    "source": source.name,
                    "way": way,
                    "reads": rounded(reads),
                    "rpcs": rounded(rpcs),
                    "published_reads": source.reads,
                    "published_rpcs": source.rpcs,
                    "published_copies": copies,
                }));
            }
            let asks = "furthest from the paper's count, of bytes read and sent, by reading and by mapping, ÷ the file's";
            judged.push(Conclusion::new(source.says, asks, furthest, Bar::AtMost(0.1)));
        }
        let uncounted = "nobody counts copies within a machine here";
        judged
            .push(Conclusion::not_asked("local data are copied once, by reading and by mapping", uncounted));
        judged.push(Conclusion::not_asked(
            "remote data are copied once more by reading than by mapping",
            uncounted,
        ));
        let detail = json!({
            "table": rows,
            "counted": "bytes by the bytes of the file. Reads: what the processes of the home had read from a \
                        disk; remote procedure calls: what came in at the client's host, with all headers. \
                        Copies within a machine nobody counts",
            "network": cluster.network().words(),
        });
        conclusions::measured(&judged, 1, detail)
    }

    fn page(&self, detail: &Value) -> String {
        let columns =
            ["source", "way", "reads", "rpcs", "published_reads", "published_rpcs", "published_copies"];
        let head =
            ["source", "way", "reads", "rpcs", "published reads", "published rpcs", "published copies"];
        let rows = detail["table"].as_array().into_iter().flatten();
        let rows: Vec<Vec<String>> =
            rows.map(|row| columns.iter().map(|column| cell(&row[*column])).collect()).collect();
        let list = conclusions::list(detail);
        format!("\n{}{list}\nCounted: {}.\n", markdown(&head, &rows), cell(&detail["counted"]))
    }
}

/// Reads from disk and bytes over the network, each by the bytes of the file, of one pass by a new object.
fn count(
    cluster: &Cluster,
    home: &mut Sharer,
    client: Option<&mut Sharer>,
    (path, file): (&Path, &File),
    (source, way): (Source, &str),
) -> Result<(f64, f64)> {
    let name = format!("/bench/{}-{way}", source.name);
    if source.on_disk {
        file.sync_all()?;
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).doing("dropping a file's cache")?;
    } else {
        file.read_exact_at(&mut vec![0; HIS_FILE], 0)?;
    }
    home.create_on_file(&name, path)?;
    let processes = cluster.host(0).processes()?;
    let disk = || processes.iter().map(|pid| read_from_disk(*pid)).sum::<Result<u64>>();
    let place = usize::from(source.remote);
    let counters = || Ok::<_, crate::failure::Failure>((disk()?, cluster.network().received_bytes(place)?));
    let user = match client {
        Some(other) => {
            other.open(&name)?;
            other
        }
        None => &mut *home,
    };
    let before = counters()?;
    match way {
        "read" => user.read_blocks()?,
        _ => user.touch_pages()?,
    };
    let after = counters()?;
    user.close()?;
    home.close()?;
    home.remove(&name)?;
    let by_size = |before: u64, after: u64| (after - before) as f64 / HIS_FILE as f64;
    Ok((by_size(before.0, after.0), by_size(before.1, after.1)))
}
