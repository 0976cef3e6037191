//! `govindan.table1`: extent of sharing and memory savings ratio on a loaded machine (Govindan, Table 1).

use crate::audit::is_root;
use crate::audit::users::{USERS, Users};
use crate::conclusions::{self, Conclusion};
use crate::context::Context;
use crate::failure::{Result, skipped};
use crate::measure::{least, median, most};
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::table::{cell, markdown};
use commonhold_audit::figures;
use commonhold_audit::report::{Sharing, SharingFigure};
use commonhold_audit::snapshot::{Scope, SnapshotOptions, take};
use serde_json::{Value, json};
use std::time::Duration;

/// The paper's figures: extent of sharing, memory savings ratio.
const PUBLISHED: [f64; 2] = [0.298, 4.12];
/// From one look to the next.
const BETWEEN: Duration = Duration::from_secs(1);

/// The row.
pub struct GovindanTable1;

impl Row for GovindanTable1 {
    fn id(&self) -> &'static str {
        "govindan.table1"
    }

    fn unit(&self) -> &'static str {
        conclusions::UNIT
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Govindan's Table 1, extent of sharing and memory savings ratio, on a machine where eight users have shells, \
         editors, compilers and a database"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        if !is_root() {
            return skipped("eight users are started, which only root can");
        }
        let users = Users::start()?;
        let mut of_users = Vec::new();
        let mut of_machine = Vec::new();
        let samples = context.pick(10, 2);
        for _ in 0..samples {
            of_users.push(look(Scope::Tree(std::process::id()))?);
            of_machine.push(look(Scope::Machine)?);
            std::thread::sleep(BETWEEN);
        }
        let table = vec![
            line("programs of the eight users", &of_users, |sharing| &sharing.programs),
            line("programs of the whole machine", &of_machine, |sharing| &sharing.programs),
            line("all text of the eight users: programs and libraries", &of_users, |sharing| {
                &sharing.all_text
            }),
            line("all text of the whole machine", &of_machine, |sharing| &sharing.all_text),
        ];
        let detail = json!({
            "users": USERS,
            "processes_started": users.len(),
            "programs": users.programs,
            "samples": samples,
            "published": { "extent_of_sharing": PUBLISHED[0], "memory_savings_ratio": PUBLISHED[1] },
            "table": table,
            "published_of": "text of programs alone: a VAX-11/785 with 4.3BSD, samples of busy hours",
        });
        conclusions::measured(&conclude(&table[0]), samples, detail)
    }

    fn page(&self, detail: &Value) -> String {
        let mut rows = vec![vec![
            "published: programs of a 4.3BSD machine".to_owned(),
            cell(&detail["published"]["extent_of_sharing"]),
            cell(&detail["published"]["memory_savings_ratio"]),
            String::new(),
        ]];
        rows.extend(detail["table"].as_array().into_iter().flatten().map(|row| {
            let columns = ["what", "extent_of_sharing", "memory_savings_ratio", "active_segments"];
            columns.iter().map(|column| cell(&row[*column])).collect()
        }));
        let table =
            markdown(&["text segments", "extent of sharing", "memory savings ratio", "active"], &rows);
        format!(
            "\n{table}{}\nMeans of {} samples. Started: {}.\n",
            conclusions::list(detail),
            cell(&detail["samples"]),
            detail["programs"]
        )
    }
}

/// The users' tree has this very process at its head, which is one more program that nobody shares.
fn look(scope: Scope) -> Result<Sharing> {
    let snapshot =
        take(&SnapshotOptions { scope, hash: false, skip_self: false, ..SnapshotOptions::default() })?;
    Ok(figures::report(&snapshot, &snapshot.scope).sharing)
}

/// Means over the samples, as in the paper.
fn line(what: &str, samples: &[Sharing], of: fn(&Sharing) -> &SharingFigure) -> Value {
    let extents: Vec<f64> = samples.iter().filter_map(|sharing| of(sharing).extent).collect();
    let ratios: Vec<f64> = samples.iter().filter_map(|sharing| of(sharing).savings_ratio).collect();
    let active: Vec<f64> = samples.iter().map(|sharing| of(sharing).active as f64).collect();
    json!({
        "what": what,
        "extent_of_sharing": mean(&extents),
        "extents": [rounded(least(&extents)), rounded(most(&extents))],
        "memory_savings_ratio": mean(&ratios),
        "ratios": [rounded(least(&ratios)), rounded(most(&ratios))],
        "active_segments": median(&active),
    })
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| rounded(values.iter().sum::<f64>() / values.len() as f64))
}

/// What the paper says, asked of the users' programs. "About": within a third more, or as much
/// less.
fn conclude(programs: &Value) -> Vec<Conclusion> {
    let number = |name: &str| programs[name].as_f64().unwrap_or(f64::NAN);
    let (extent, ratio) = (number("extent_of_sharing"), number("memory_savings_ratio"));
    let about = |value: f64| Bar::Between(rounded(value * 0.75), rounded(value / 0.75));
    let load = "the users and what they run are this row's choice, as the paper's machine had its own";
    vec![
        Conclusion::new(
            "about 30 % of the active texts are shared",
            "extent of sharing",
            extent,
            about(PUBLISHED[0]),
        )
        .unless(load),
        Conclusion::new(
            "the memory savings ratio is about 4",
            "memory savings ratio",
            ratio,
            about(PUBLISHED[1]),
        )
        .unless(load),
        Conclusion::new(
            "a significant part of the texts is shared, more than the 12 % of Multics",
            "extent of sharing",
            extent,
            Bar::AtLeast(0.12),
        ),
        Conclusion::new(
            "each shared text is shared by more than two processes on the average",
            "(memory savings ratio - 1) ÷ extent of sharing, which is 1 where two share each",
            (ratio - 1.0) / extent,
            Bar::AtLeast(1.05),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        let value = |extent: f64, ratio: f64| {
            let line = json!({"extent_of_sharing": extent, "memory_savings_ratio": ratio});
            conclusions::measured(&conclude(&line), 1, json!({})).unwrap().value
        };
        assert_eq!(value(PUBLISHED[0], PUBLISHED[1]), 4.0);
        assert_eq!(value(0.1, 1.1), 0.0);
        assert!(conclusions::measured(&conclude(&json!({})), 1, json!({})).is_err());
    }
}
