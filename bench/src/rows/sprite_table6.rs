//! `sprite.table6`: single bytes at random places, as in Shirriff's Table 6 (the columns "locally cached").

use crate::conclusions::{self, Conclusion, furthest, named};
use crate::context::{Context, GIB};
use crate::failure::Result;
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::methods::{Method, Subject};
use crate::sprite::table::{cell, markdown, rotate};
use crate::sprite::{HIS_FILE, distinct_pages};
use rand::RngExt;
use serde_json::{Value, json};
use std::cell::RefCell;

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
        conclusions::UNIT
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
        let (mut detail, mut judged) = (serde_json::Map::new(), Vec::new());
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
                judged = conclude(&lines, &times, pages);
            }
        }
        detail.insert("averages".into(), json!("medians; the paper: means of 10"));
        detail.insert("not_in_this_row".into(), json!("the remote columns: see sprite.table6_remote"));
        conclusions::measured(&judged, rounds * 2, Value::Object(detail))
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
        text.push_str(&conclusions::list(detail));
        text
    }
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

/// "Proportional": within a half more or less.
const PROPORTIONAL: Bar = Bar::Between(0.67, 1.5);

/// The paper's conclusions on its own file. Its mmap has two counterparts, as in `sprite.table4`: a
/// conclusion must hold for each.
fn conclude(lines: &[(Method, usize)], times: &[f64], pages: [usize; 2]) -> Vec<Conclusion> {
    let by_reads = PROBES[1] as f64 / PROBES[0] as f64;
    let by_pages = pages[1] as f64 / pages[0] as f64;
    let time = |method, probes| {
        lines.iter().position(|line| *line == (method, probes)).map_or(f64::NAN, |n| times[n])
    };
    let growth = |method| time(method, PROBES[1]) / time(method, PROBES[0]);
    let mapped = [Method::Mmap, Method::Controlled];
    let proportion = mapped.map(|method| (method.name(), growth(method) / by_pages));
    let few = mapped.map(|method| (method.name(), time(method, PROBES[0]) / time(Method::Read, PROBES[0])));
    let many = mapped.map(|method| (method.name(), time(Method::Read, PROBES[1]) / time(method, PROBES[1])));
    let least = |ratios: &[(&str, f64)]| ratios.iter().map(|ratio| ratio.1).fold(f64::INFINITY, f64::min);
    vec![
        Conclusion::new(
            "the time of block I/O is proportional to the number of reads",
            "growth of the time ÷ growth of the reads",
            growth(Method::Read) / by_reads,
            PROPORTIONAL,
        ),
        Conclusion::new(
            "the time of mapped files is proportional to the number of pages",
            named("growth of the time ÷ growth of the pages, what is furthest from 1", &proportion),
            furthest(&proportion.map(|(_, ratio)| ratio)),
            PROPORTIONAL,
        ),
        Conclusion::new(
            "where little is accessed of many pages, block I/O is faster than mapping",
            named("120 probes, each mapping by read, the least", &few),
            least(&few),
            Bar::AtLeast(1.0),
        )
        .unless("the kernel maps several cached pages a fault"),
        Conclusion::new(
            "where many references are made to a page, mapping is faster than block I/O",
            named("1,000 probes, read by each mapping, the least", &many),
            least(&many),
            Bar::AtLeast(1.0),
        )
        .unless("a controlled page costs switches to another process, as much as tens of reads; eight probes a page do not \
                 earn that"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        let lines: Vec<(Method, usize)> =
            METHODS.iter().flat_map(|method| PROBES.map(|probes| (*method, probes))).collect();
        let of = |method| if method == Method::Read { Method::Read } else { Method::Mmap };
        let times: Vec<f64> =
            lines.iter().map(|(method, probes)| published(of(*method), *probes).unwrap().0).collect();
        let measured = conclusions::measured(&conclude(&lines, &times, [74, 120]), 1, json!({})).unwrap();
        assert_eq!(measured.value, 4.0, "{}", measured.detail);
        let backwards: Vec<f64> = times.iter().rev().copied().collect();
        let measured = conclusions::measured(&conclude(&lines, &backwards, [74, 120]), 1, json!({})).unwrap();
        assert!(measured.value < 3.0, "{}", measured.detail);
    }
}
