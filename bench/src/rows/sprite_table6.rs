//! `sprite.table6`: single bytes at random places, as in Shirriff's Table 6 (the columns "locally cached").

use crate::context::{Context, GIB};
use crate::failure::Result;
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::HIS_FILE;
use crate::sprite::methods::{Method, Subject};
use crate::sprite::table::{cell, markdown, rotate};
use crate::view::PAGE;
use rand::RngExt;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;

const PROBES: [usize; 2] = [120, 1000];
const METHODS: [Method; 4] = [Method::Read, Method::Mmap, Method::Direct, Method::Controlled];

/// The paper's local figures: seconds, kilobytes (10³) a second, milliseconds a probe.
fn published(method: Method, probes: usize) -> Option<(f64, f64, f64)> {
    match (method, probes) {
        (Method::Read, 120) => Some((0.05, 2.4, 0.42)),
        (Method::Read, 1000) => Some((0.40, 2.5, 0.40)),
        (Method::Mmap, 120) => Some((0.09, 1.3, 0.75)),
        (Method::Mmap, 1000) => Some((0.13, 7.7, 0.13)),
        _ => None,
    }
}

/// The row.
pub struct SpriteTable6;

impl Row for SpriteTable6 {
    fn id(&self) -> &'static str {
        "sprite.table6"
    }

    fn unit(&self) -> &'static str {
        "published figures reproduced"
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Shirriff's Table 6, probes of single random bytes, local columns, on his 480 KiB file and on 1 GiB"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let rounds = context.pick(40, 6);
        let mut detail = serde_json::Map::new();
        for (title, size) in [("480 KiB", HIS_FILE), ("1 GiB", GIB)] {
            let subject = Subject::create(context, &host, size)?;
            // The same pseudorandom sequence for all; the shorter one is its beginning.
            let mut random = context.random(6);
            let offsets: Vec<usize> = (0..PROBES[1]).map(|_| random.random_range(0..size)).collect();
            let lines: Vec<(Method, usize)> =
                METHODS.iter().flat_map(|method| PROBES.map(|probes| (*method, probes))).collect();
            let faults = RefCell::new(vec![0; lines.len()]);
            let once = |n: usize| {
                let (method, probes) = lines[n];
                let (time, count) = subject.probes(method, &offsets[..probes])?;
                faults.borrow_mut()[n] = count;
                Ok(time)
            };
            rotate(lines.len(), 1, once)?;
            let times = rotate(lines.len(), rounds, once)?;
            let pages = PROBES.map(|probes| distinct_pages(&offsets[..probes]));
            detail.insert(title.into(), table(size, &lines, &times, &faults.borrow(), pages));
            if size == HIS_FILE {
                detail.insert("conclusions".into(), conclusions(&lines, &times, pages));
            }
        }
        let figures = lines_published() * 3;
        detail.insert("averages".into(), json!("medians; the paper: means of 10"));
        detail.insert("not_reproduced".into(), json!("the remote columns: see sprite.table6_remote"));
        Ok(Measured::single(figures as f64, rounds * 2, Value::Object(detail)))
    }

    fn page(&self, detail: &Value) -> String {
        let head = [
            "measurement",
            "probes",
            "pages",
            "faults",
            "sec",
            "KB/s",
            "ms/probe",
            "published sec",
            "published KB/s",
            "published ms/probe",
        ];
        let columns = [
            "measurement",
            "probes",
            "pages",
            "faults",
            "seconds",
            "kb_per_second",
            "ms_per_probe",
            "published_seconds",
            "published_kb_per_second",
            "published_ms_per_probe",
        ];
        let mut text = String::new();
        for title in ["480 KiB", "1 GiB"] {
            let rows = detail[title].as_array().into_iter().flatten();
            let rows: Vec<Vec<String>> =
                rows.map(|row| columns.iter().map(|column| cell(&row[*column])).collect()).collect();
            text.push_str(&format!("\n## {title}, locally cached\n\n{}", markdown(&head, &rows)));
        }
        text.push_str("\nThe paper's conclusion (on its 480 KiB file): time is proportional to the number of reads for\n");
        text.push_str("block I/O, and to the number of pages for mapped files.\n\n");
        for line in detail["conclusions"].as_array().into_iter().flatten() {
            let holds = if line["holds"] == true { "holds" } else { "does not hold" };
            text.push_str(&format!("- {}: **{holds}** ({})\n", cell(&line["says"]), cell(&line["measured"])));
        }
        text
    }
}

fn lines_published() -> usize {
    METHODS.iter().flat_map(|m| PROBES.map(|p| published(*m, p))).flatten().count()
}

fn distinct_pages(offsets: &[usize]) -> usize {
    offsets.iter().map(|offset| offset / PAGE).collect::<BTreeSet<_>>().len()
}

fn table(size: usize, lines: &[(Method, usize)], times: &[f64], faults: &[u64], pages: [usize; 2]) -> Value {
    let rows = lines.iter().zip(times.iter().zip(faults)).map(|((method, probes), (time, faults))| {
        let figures = published(*method, *probes).filter(|_| size == HIS_FILE);
        json!({
            "measurement": method.name(),
            "probes": probes,
            "pages": pages[usize::from(*probes == PROBES[1])],
            "faults": faults,
            "seconds": rounded(*time),
            "kb_per_second": rounded(*probes as f64 / 1e3 / time),
            "ms_per_probe": rounded(time * 1e3 / *probes as f64),
            "published_seconds": figures.map(|f| f.0),
            "published_kb_per_second": figures.map(|f| f.1),
            "published_ms_per_probe": figures.map(|f| f.2),
        })
    });
    Value::Array(rows.collect())
}

/// How much longer 1,000 probes take than 120, against how many more reads and how many more pages they are.
fn conclusions(lines: &[(Method, usize)], times: &[f64], pages: [usize; 2]) -> Value {
    let by_reads = PROBES[1] as f64 / PROBES[0] as f64;
    let by_pages = pages[1] as f64 / pages[0] as f64;
    let time = |method, probes| {
        lines.iter().position(|line| *line == (method, probes)).map_or(f64::NAN, |n| times[n])
    };
    let verdicts = METHODS.iter().map(|method| {
        let growth = time(*method, PROBES[1]) / time(*method, PROBES[0]);
        let nearer_to_reads = (growth / by_reads).ln().abs() < (growth / by_pages).ln().abs();
        let what = if *method == Method::Read { "reads" } else { "pages" };
        json!({
            "says": format!("{}: time goes with the number of {what}", method.name()),
            "holds": nearer_to_reads == (*method == Method::Read),
            "measured": format!(
                "{} times as long; {} times the reads, {} times the pages",
                rounded(growth), rounded(by_reads), rounded(by_pages)
            ),
        })
    });
    Value::Array(verdicts.collect())
}
