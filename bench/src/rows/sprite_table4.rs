//! `sprite.table4`: sequential access, as in Shirriff's Table 4 (the column "locally cached").

use crate::context::{Context, GIB};
use crate::failure::Result;
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::HIS_FILE;
use crate::sprite::methods::{Method, Subject};
use crate::sprite::table::{cell, markdown, rotate};
use serde_json::{Value, json};

/// The paper's local figures: seconds, and megabytes (10⁶) a second, for 480 KiB.
fn published(method: Method) -> Option<(f64, f64)> {
    match method {
        Method::Getc => Some((0.54, 0.91)),
        Method::Read | Method::Mmap | Method::DataFill => Some((0.13, 3.78)),
        Method::Bcopy => Some((0.08, 6.14)),
        Method::Direct | Method::Controlled => None,
    }
}

/// Same performance: within this factor.
const ALIKE: f64 = 2.0;
/// Much faster: at least by this factor (the paper's own is 4.2).
const MUCH: f64 = 3.0;

/// The row.
pub struct SpriteTable4;

impl Row for SpriteTable4 {
    fn id(&self) -> &'static str {
        "sprite.table4"
    }

    fn unit(&self) -> &'static str {
        "published figures reproduced"
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Shirriff's Table 4, sequential access, local columns, on his 480 KiB file and on 1 GiB"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let mut detail = serde_json::Map::new();
        let mut runs = 0;
        for (title, size, rounds) in
            [("480 KiB", HIS_FILE, context.pick(30, 5)), ("1 GiB", GIB, context.pick(5, 1))]
        {
            let subject = Subject::create(context, &host, size)?;
            rotate(Method::ALL.len(), 1, |n| subject.sequential(Method::ALL[n]))?;
            let times = rotate(Method::ALL.len(), rounds, |n| subject.sequential(Method::ALL[n]))?;
            runs += rounds;
            detail.insert(title.into(), table(size, &times));
            detail.insert(format!("conclusions, {title}"), conclusions(&times));
        }
        let figures = Method::ALL.iter().filter(|method| published(**method).is_some()).count() * 2;
        detail.insert("averages".into(), json!("medians; the paper: means of 10"));
        detail.insert("not_reproduced".into(), json!("RPC and the remote columns: see sprite.table4_remote"));
        Ok(Measured::single(figures as f64, runs, Value::Object(detail)))
    }

    fn page(&self, detail: &Value) -> String {
        let mut text = String::new();
        for title in ["480 KiB", "1 GiB"] {
            let rows: Vec<Vec<String>> =
                detail[title].as_array().into_iter().flatten().map(row_of_table).collect();
            let head = ["measurement", "sec", "MB/s", "published sec", "published MB/s"];
            text.push_str(&format!("\n## {title}, locally cached\n\n{}", markdown(&head, &rows)));
            text.push_str("\nThe paper's conclusions:\n\n");
            for line in detail[format!("conclusions, {title}")].as_array().into_iter().flatten() {
                let holds = if line["holds"] == true { "holds" } else { "does not hold" };
                text.push_str(&format!(
                    "- {}: **{holds}** ({})\n",
                    cell(&line["says"]),
                    cell(&line["measured"])
                ));
            }
        }
        text.push_str("\nSprite's mmap copied pages out of the file cache. The paper's footnote: mapping the cached blocks\n");
        text.push_str("themselves, as the kernel and direct objects do today, was about ten times faster than its mmap.\n");
        text
    }
}

fn row_of_table(row: &Value) -> Vec<String> {
    ["measurement", "seconds", "mb_per_second", "published_seconds", "published_mb_per_second"]
        .iter()
        .map(|column| cell(&row[*column]))
        .collect()
}

fn table(size: usize, times: &[f64]) -> Value {
    let his = size == HIS_FILE;
    let rows = Method::ALL.iter().zip(times).map(|(method, time)| {
        let figures = published(*method).filter(|_| his);
        json!({
            "measurement": method.name(),
            "seconds": rounded(*time),
            "mb_per_second": rounded(size as f64 / 1e6 / time),
            "published_seconds": figures.map(|f| f.0),
            "published_mb_per_second": figures.map(|f| f.1),
        })
    });
    Value::Array(rows.collect())
}

/// The first two of the paper's conclusions, with what was measured.
fn conclusions(times: &[f64]) -> Value {
    let time = |method| Method::ALL.iter().position(|m| *m == method).map_or(f64::NAN, |n| times[n]);
    let (read, getc) = (time(Method::Read), time(Method::Getc));
    let mapped = [Method::Mmap, Method::Direct, Method::Controlled];
    let mut lines: Vec<Value> = mapped.iter().map(|method| alike(*method, time(*method) / read)).collect();
    let slowest = mapped.iter().map(|method| time(*method)).fold(read, f64::max);
    lines.push(json!({
        "says": "both are much faster than getc",
        "holds": getc / slowest >= MUCH,
        "measured": format!(
            "getc ÷ read {}, getc ÷ the slowest of the mappings and read {}",
            rounded(getc / read),
            rounded(getc / slowest)
        ),
    }));
    Value::Array(lines)
}

/// Whether a mapping and block I/O perform alike. Sprite's mapping copied each page out of the file cache; the
/// paper's footnote says that mapping the cached blocks themselves was about ten times faster.
fn alike(method: Method, ratio: f64) -> Value {
    let how = if method == Method::Controlled {
        "copies each page, as Sprite did"
    } else {
        "maps the cached blocks themselves"
    };
    json!({
        "says": format!("block I/O and {} perform alike", method.name()),
        "holds": (1.0 / ALIKE..=ALIKE).contains(&ratio),
        "measured": format!("{} ÷ read {}; it {how}", method.name(), rounded(ratio)),
    })
}
