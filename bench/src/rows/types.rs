//! `types.…`: what it costs to read memory of a machine of another format.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::measure::{Pairs, alternate, median, some};
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::table::markdown;
use commonhold_tags::{Machine, Tag, Translation};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::hint::black_box;
use std::time::Instant;

/// Byte-swapping beside a copy.
pub struct TranslateRatio;
/// The paper's Table 2.
pub struct Table2;

const LARGE: usize = 64 << 20;
const PAGE: usize = 4096;

impl Row for TranslateRatio {
    fn id(&self) -> &'static str {
        "types.translate_gb_s_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.15))
    }

    fn about(&self) -> &'static str {
        "translating 64 MiB of 32-bit integers of a machine of the other byte order, from buffer to buffer ÷ memcpy, in time; \
         16, 64 and 128 bits in detail"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let source: Vec<u8> = (0..LARGE / 4).flat_map(|n: usize| (n as u32).to_be_bytes()).collect();
        let mut target = Buffer::new();
        let pairs = swap_and_copy(context, "int32", &source, &mut target)?;
        some(pairs.ratio(), "ratio")?;
        let mut others = serde_json::Map::new();
        for word in ["int16", "int64", "int128"] {
            let other = swap_and_copy(context, word, &source, &mut target)?;
            others.insert(word.into(), json!(rounded(other.ratio())));
        }
        let detail = json!({ "unit_of_times": "ms", "times": pairs.summary(1e3), "other_sizes": others });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

/// Seconds of a translation and of a copy, from the same buffer to the same.
fn swap_and_copy(context: &Context, word: &str, source: &[u8], target: &mut Buffer) -> Result<Pairs> {
    let tag = tag(word)?;
    let target = RefCell::new(target);
    alternate(
        context.pick(21, 3),
        |_| {
            let Some(translation) = Translation::between(&tag, Machine::BIG, Machine::LITTLE) else {
                return failed("nothing would be translated");
            };
            let mut target = target.borrow_mut();
            let begun = Instant::now();
            let done = translation.apply(black_box(source), target.bytes());
            let seconds = begun.elapsed().as_secs_f64();
            if done.is_ok() { Ok(seconds) } else { failed("the translation was refused") }
        },
        |_| {
            let mut target = target.borrow_mut();
            let begun = Instant::now();
            target.bytes().copy_from_slice(black_box(source));
            Ok(begun.elapsed().as_secs_f64())
        },
    )
}

fn tag(word: &str) -> Result<Tag> {
    Tag::of_text(word).map_or_else(|| failed(format!("there is no type {word}")), Ok)
}

/// Memory that begins at a page, as an object's does.
struct Buffer(Vec<u8>, usize);

impl Buffer {
    fn new() -> Buffer {
        let memory = vec![1_u8; LARGE + PAGE]; // touched
        let first = memory.as_ptr().align_offset(PAGE);
        Buffer(memory, first)
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0[self.1..self.1 + LARGE]
    }
}

/// Machine, and milliseconds for 4 KiB: integers of 16 and 32 bits, floats of 32 bits, of 64 bits.
const PUBLISHED: [(&str, [f64; 3]); 10] = [
    ("Sun 4/260", [0.8, 1.0, 1.1]),
    ("Vax 8800", [1.5, 2.3, 3.7]),
    ("IBM RT", [1.9, 2.4, 2.5]),
    ("Sun 3/280", [1.9, 2.5, 2.9]),
    ("μ Vax-III", [2.8, 4.6, 6.8]),
    ("Sun 3/160", [3.0, 4.8, 4.6]),
    ("Vax 785", [4.4, 7.6, 10.9]),
    ("Encore", [4.9, 12.5, 14.3]),
    ("μ VaxII", [6.1, 10.4, 14.5]),
    ("Vax 8200", [9.1, 15.3, 27.9]),
];

/// What is measured here: the column's name, its type, and between which machines.
const MEASURED: [(&str, &str, Machine, Machine); 7] = [
    ("int16", "int16", Machine::BIG, Machine::VAX),
    ("int32", "int32", Machine::BIG, Machine::VAX),
    ("float32, IEEE to VAX", "float32", Machine::LITTLE, Machine::VAX),
    ("float32, VAX to IEEE", "float32", Machine::VAX, Machine::LITTLE),
    ("float64, IEEE to VAX", "float64", Machine::LITTLE, Machine::VAX),
    ("float64, VAX to IEEE", "float64", Machine::VAX, Machine::LITTLE),
    ("float32, big-endian IEEE to VAX", "float32", Machine::BIG, Machine::VAX),
];

impl Row for Table2 {
    fn id(&self) -> &'static str {
        "types.table2"
    }

    fn unit(&self) -> &'static str {
        "µs for 4 KiB"
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "translating 4 KiB of integers and floats between VAX and IEEE machines, beside Table 2 of Forin et al., in which ten \
         machines take 0.8 to 27.9 ms; the value is float32 to the VAX"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let mut rows = Vec::new();
        let mut value = None;
        for (name, word, from, to) in MEASURED {
            let seconds = page_seconds(context, word, from, to)?;
            if name == "float32, IEEE to VAX" {
                value = Some(seconds * 1e6);
            }
            rows.push(json!({ "what": name, "us": rounded(seconds * 1e6) }));
        }
        let Some(value) = value else { return failed("nothing was measured") };
        let detail = json!({ "rows": rows, "runs_of": "a page in the cache, a thousand times; medians" });
        Ok(Measured::single(value, context.pick(189, 27), detail))
    }

    fn page(&self, detail: &Value) -> String {
        let here: Vec<Vec<String>> = detail["rows"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|row| vec![row["what"].as_str().unwrap_or("?").to_owned(), row["us"].to_string()])
            .collect();
        let theirs: Vec<Vec<String>> = PUBLISHED
            .iter()
            .map(|(machine, times)| {
                std::iter::once((*machine).to_owned()).chain(times.map(|ms| ms.to_string())).collect()
            })
            .collect();
        format!(
            "\n## Here, µs for 4 KiB\n\n{}\n## Published, ms for 4 KiB\n\n{}",
            markdown(&["what", "µs"], &here),
            markdown(&["machine", "int16/32", "float32", "float64"], &theirs)
        )
    }
}

/// Seconds for a page of ordinary numbers.
fn page_seconds(context: &Context, word: &str, from: Machine, to: Machine) -> Result<f64> {
    const TIMES: u32 = 1000;
    let tag = tag(word)?;
    let numbers = |machine: Machine| -> Vec<u8> {
        let plain: Vec<u8> = match word {
            "float64" => (0..PAGE / 8).flat_map(|n| (n as f64 * 1.37 - 99.0).to_le_bytes()).collect(),
            "float32" => (0..PAGE / 4).flat_map(|n| (n as f32 * 1.37 - 99.0).to_le_bytes()).collect(),
            _ => (0..PAGE).map(|n| (n * 31) as u8).collect(),
        };
        let mut there = plain.clone();
        if let Some(translation) = Translation::between(&tag, Machine::LITTLE, machine) {
            let _ = translation.apply(&plain, &mut there); // whole numbers, of one length
        }
        there
    };
    let (source, mut target) = (numbers(from), vec![0; PAGE]);
    let Some(translation) = Translation::between(&tag, from, to) else {
        return failed("nothing would be translated");
    };
    let once = |_| {
        let begun = Instant::now();
        for _ in 0..TIMES {
            match translation.apply(black_box(&source), &mut target) {
                Ok(losses) if losses.count() == 0 => {}
                _ => return failed("a number was lost"),
            }
        }
        Ok(begun.elapsed().as_secs_f64() / f64::from(TIMES))
    };
    let times: Vec<f64> = (0..context.pick(189, 27)).map(once).collect::<Result<_>>()?;
    some(median(&times), "time")
}
