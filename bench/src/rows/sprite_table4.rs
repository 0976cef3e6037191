//! `sprite.table4`: sequential access, as in Shirriff's Table 4 (the column "locally cached").

use crate::conclusions::{self, Conclusion, furthest, named};
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

/// Alike: within a factor of two.
const ALIKE: Bar = Bar::Between(0.5, 2.0);

/// The row.
pub struct SpriteTable4;

impl Row for SpriteTable4 {
    fn id(&self) -> &'static str {
        "sprite.table4"
    }

    fn unit(&self) -> &'static str {
        conclusions::UNIT
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
        let (mut runs, mut judged) = (0, Vec::new());
        for (title, size, rounds) in
            [("480 KiB", HIS_FILE, context.pick(30, 5)), ("1 GiB", GIB, context.pick(5, 1))]
        {
            let subject = Subject::create(context, &host, size)?;
            rotate(Method::ALL.len(), 1, |n| subject.sequential(Method::ALL[n]))?;
            let times = rotate(Method::ALL.len(), rounds, |n| subject.sequential(Method::ALL[n]))?;
            runs += rounds;
            detail.insert(title.into(), table(size, &times));
            if size == HIS_FILE {
                judged = conclude(&times);
            }
        }
        detail.insert("averages".into(), json!("medians; the paper: means of 10"));
        detail
            .insert("not_in_this_row".into(), json!("RPC and the remote columns: see sprite.table4_remote"));
        conclusions::measured(&judged, runs, Value::Object(detail))
    }

    fn page(&self, detail: &Value) -> String {
        let mut text = String::new();
        for title in ["480 KiB", "1 GiB"] {
            let rows: Vec<Vec<String>> =
                detail[title].as_array().into_iter().flatten().map(row_of_table).collect();
            let head = ["measurement", "sec", "MB/s", "published sec", "published MB/s"];
            text.push_str(&format!("\n## {title}, locally cached\n\n{}", markdown(&head, &rows)));
        }
        text.push_str(&conclusions::list(detail));
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

/// The paper's conclusions on its own file. Its mmap has two counterparts, and a conclusion must
/// hold for each: the kernel's mmap, and controlled objects, which copy each page, as Sprite did.
/// Direct objects are those of its footnote.
fn conclude(times: &[f64]) -> Vec<Conclusion> {
    let time = |method| Method::ALL.iter().position(|m| *m == method).map_or(f64::NAN, |n| times[n]);
    let (read, getc, fill) = (time(Method::Read), time(Method::Getc), time(Method::DataFill));
    let mapped = [Method::Mmap, Method::Controlled];
    let by_read = mapped.map(|method| (method.name(), time(method) / read));
    let by_getc = mapped.map(|method| (method.name(), getc / time(method)));
    let least = by_getc.iter().fold(f64::INFINITY, |least, (_, ratio)| least.min(*ratio));
    vec![
        Conclusion::new(
            "block I/O and mapping perform alike",
            named("of each mapping by read, what is furthest from 1", &by_read),
            furthest(&by_read.map(|(_, ratio)| ratio)),
            ALIKE,
        )
        .unless("the kernel maps cached pages instead of copying them, and a controlled object's pages are served by \
                 another process"),
        Conclusion::new("block I/O and data fill perform alike", "data fill ÷ read", fill / read, ALIKE)
            .unless("a private page is a fault, a new frame and a copy each; read makes the copy alone"),
        Conclusion::new("mapping is much faster than getc", named("getc by the slowest mapping", &by_getc), least, Bar::AtLeast(3.0)),
        Conclusion::new("block I/O is much faster than getc", "getc ÷ read", getc / read, Bar::AtLeast(3.0)),
        Conclusion::new(
            "for locally cached data, most of the time is spent copying it from the cache",
            "bcopy ÷ read",
            time(Method::Bcopy) / read,
            Bar::AtLeast(0.5),
        )
        .unless("a system call for each block takes longer today than to copy it"),
        Conclusion::new(
            "mapping cached blocks themselves is about ten times faster than copying them",
            "controlled ÷ direct",
            time(Method::Controlled) / time(Method::Direct),
            Bar::Between(5.0, 20.0),
        )
        .unless("a controlled page costs switches to another process besides the copy, and the kernel maps several cached \
                 pages a fault"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        let times = Method::ALL.map(|method| match method {
            Method::Controlled => 0.13,
            // Its footnote: ten times faster.
            Method::Direct => 0.013,
            other => published(other).unwrap().0,
        });
        let detail = conclusions::measured(&conclude(&times), 1, json!({})).unwrap().detail;
        let holds: Vec<bool> =
            detail["conclusions"].as_array().unwrap().iter().map(|one| one["holds"] == true).collect();
        assert_eq!(holds, [true; 6]);
    }
}
