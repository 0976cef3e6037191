//! `ptshare.bank_…`, `ptshare.fig9_11`, `ptshare.fig12`: Ko & Yoo's evaluation (section 6) again.

use crate::bank::{Bank, Tables};
use crate::context::Context;
use crate::failure::Result;
use crate::measure::{alternate, median};
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::table::{cell, markdown};
use serde_json::{Value, json};
use std::time::Duration;

const MIB: usize = 1 << 20;
/// Milliseconds before, while and after a run is counted.
const SPANS: [u64; 3] = [3000, 5000, 500];
/// The paper's (section 6.1), with `--paper`.
const PAPER: [u64; 3] = [180_000, 300_000, 90_000];
const QUICK: [u64; 3] = [100, 200, 50];
/// Bytes of the bank; the largest of [`CONFIGURATIONS`].
const BYTES: usize = 512 * MIB;
/// The paper's have segments of 40, 40 and 60 MByte on 64, 128 and 128 MByte of memory, on machines of one, four and eight
/// processors, and gain so much by shared tables at 100 processes. Ours differ from each other in the size of the segment alone.
const CONFIGURATIONS: [(&str, usize, f64); 3] =
    [("9", 128 * MIB, 1.81), ("10", 256 * MIB, 2.26), ("11", BYTES, 3.10)];

fn bank(context: &Context, bytes: usize) -> Result<Bank> {
    let spans = if context.paper { PAPER } else { context.pick(SPANS, QUICK) };
    Bank::new(context, context.pick(bytes, 32 * MIB), spans)
}

/// Throughput with 100 processes by that with 10, with shared tables.
pub struct BankFlat;
/// Throughput with shared tables by that with tables of each process's own.
pub struct BankGain;
/// Throughput over processes.
pub struct Fig9To11;
/// Memory of page tables over processes.
pub struct Fig12;

impl Row for BankFlat {
    fn id(&self) -> &'static str {
        "ptshare.bank_flat"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtLeast(0.9))
    }

    fn about(&self) -> &'static str {
        "operations a second of a bank in a segment with shared page tables, with memory for its data and a tenth more: of 100 \
         processes ÷ of 10"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bank = bank(context, BYTES)?;
        let (many, few) = context.pick((100, 10), (6, 2));
        let per_second = |processes| Ok(bank.run(Tables::Shared, processes)?.per_second);
        let pairs = alternate(context.pick(5, 1), |_| per_second(many), |_| per_second(few))?;
        let detail = json!({
            "bank": bank.detail(), "processes": [many, few],
            "operations_in_a_second": { "many": pairs.ours, "few": pairs.theirs },
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

impl Row for BankGain {
    fn id(&self) -> &'static str {
        "ptshare.bank_gain"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtLeast(3.1))
    }

    fn about(&self) -> &'static str {
        "operations a second of 100 processes of the bank: with shared page tables ÷ with tables of each process's own (a mapped \
         file, pages of 4 KiB), both with memory for the data, one set of tables and a tenth more; in detail, ÷ own tables with memory for all \
         of them"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bank = bank(context, BYTES)?;
        let processes = context.pick(100, 6);
        let (mut shared, mut own) = (Vec::new(), Vec::new());
        let pairs = alternate(
            context.pick(5, 1),
            |_| {
                bank.run(Tables::Shared, processes)
                    .map(|figures| (figures.per_second, shared.push(figures)).0)
            },
            |_| bank.run(Tables::Own, processes).map(|figures| (figures.per_second, own.push(figures)).0),
        )?;
        let enough = bank.run_within(Tables::Own, processes, false)?;
        let details = |all: &[crate::bank::Figures]| all.iter().map(|one| one.detail()).collect::<Vec<_>>();
        let detail = json!({
            "bank": bank.detail(), "processes": processes, "shared tables": details(&shared), "own tables": details(&own),
            "own tables, with memory for all of them": enough.detail(),
            "gain beside those": rounded(median(&pairs.ours) / enough.per_second),
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

impl Row for Fig9To11 {
    fn id(&self) -> &'static str {
        "ptshare.fig9_11"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Figures 9 to 11: the bank's operations a second over its processes, both ways, in three sizes; the value is the gain by \
         shared tables at 100 processes in the largest (paper: 1.81, 2.26, 3.10)"
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(2400)
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let counts: &[usize] = context.pick(&[10, 20, 30, 40, 60, 80, 100], &[2, 6]);
        let (mut figures, mut gain) = (Vec::new(), 0.0);
        for (figure, bytes, published) in CONFIGURATIONS {
            let one = Context { directory: context.new_directory("bank")?, ..context.clone() };
            let bank = bank(&one, bytes)?;
            let mut points = Vec::new();
            for &processes in counts {
                let (shared, own) = (bank.run(Tables::Shared, processes)?, bank.run(Tables::Own, processes)?);
                gain = shared.per_second / own.per_second;
                points.push(json!({
                    "processes": processes, "gain": rounded(gain), "shared": shared.detail(), "own": own.detail(),
                }));
            }
            figures.push(json!({
                "figure": figure, "bank": bank.detail(), "published_gain_at_100": published, "gain": rounded(gain),
                "points": points,
            }));
        }
        Ok(Measured::single(gain, 1, json!({ "figures": figures })))
    }

    fn page(&self, detail: &Value) -> String {
        let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let figure = |figure: &Value| {
            let row = |point: &Value| {
                let places =
                    ["/processes", "/shared/operations_in_a_second", "/own/operations_in_a_second", "/gain"];
                places.map(|place| cell(point.pointer(place).unwrap_or(&Value::Null))).to_vec()
            };
            let rows: Vec<_> = all(&figure["points"]).iter().map(row).collect();
            let heads = ["processes", "shared tables, operations/s", "own tables, operations/s", "gain"];
            format!(
                "\nFigure {}: {} bytes. The paper's gain at 100 processes is {}.\n\n{}",
                cell(&figure["figure"]),
                cell(&figure["bank"]["bytes"]),
                cell(&figure["published_gain_at_100"]),
                markdown(&heads, &rows)
            )
        };
        all(&detail["figures"]).iter().map(figure).collect()
    }
}

/// The paper's machine: pages and tables of 4 KiB, 4 MiB a table, 10 tables of text and data and a directory for each process.
fn computed_kib(processes: usize, shared: bool) -> usize {
    const SEGMENT: usize = 15 * 4;
    const OWN: usize = 10 * 4 + 4;
    const MASTER: usize = 4;
    if shared { processes * OWN + SEGMENT + MASTER } else { processes * (OWN + SEGMENT) }
}

impl Row for Fig12 {
    fn id(&self) -> &'static str {
        "ptshare.fig12"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Figure 12: memory of page tables over processes, a segment of 60 MiB, computed as the paper does and measured here; the \
         value is shared ÷ own at 100 processes, measured"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bank = Bank::new(context, 60 * MIB, context.pick([1500, 500, 100], QUICK))?;
        let counts: &[usize] = context.pick(&[10, 20, 30, 40, 50, 60, 70, 80, 90, 100], &[2, 6]);
        let (mut points, mut last) = (Vec::new(), 0.0);
        for &processes in counts {
            let kib = |tables| Ok::<_, crate::failure::Failure>(bank.run(tables, processes)?.tables_kib);
            let (shared, own) = (kib(Tables::Shared)?, kib(Tables::Own)?);
            last = shared as f64 / own as f64;
            points.push(json!({
                "processes": processes, "shared_kib": shared, "own_kib": own,
                "computed_shared_kib": computed_kib(processes, true), "computed_own_kib": computed_kib(processes, false),
            }));
        }
        Ok(Measured::single(last, 1, json!({ "points": points })))
    }

    fn page(&self, detail: &Value) -> String {
        let columns = ["processes", "computed_own_kib", "computed_shared_kib", "own_kib", "shared_kib"];
        let heads = ["processes", "paper, own KiB", "paper, shared KiB", "own KiB", "shared KiB"];
        let points = detail["points"].as_array().cloned().unwrap_or_default();
        let rows: Vec<_> =
            points.iter().map(|point| columns.map(|column| cell(&point[column])).to_vec()).collect();
        format!("\n{}", markdown(&heads, &rows))
    }
}

#[cfg(test)]
mod tests {
    use super::computed_kib;

    #[test]
    fn memory_is_computed_as_in_the_paper() {
        assert_eq!((computed_kib(1, false), computed_kib(1, true)), (104, 108));
    }
}
