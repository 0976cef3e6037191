//! `govindan.fig3`, `govindan.fig4`: link and run time as functions of the number of references, with what the paper
//! says of them.

use crate::context::Context;
use crate::failure::Result;
use crate::images::plot::{Curve, plot};
use crate::images::suite::{FUNCTIONS, Libc, Linked, STEP, Suite, bfd};
use crate::measure::median;
use crate::row::{Measured, Row, rounded};
use crate::sprite::table::{cell, markdown};
use serde_json::{Value, json};

/// 50, 100, … 1,000.
fn references(context: &Context) -> Vec<usize> {
    let step = context.pick(STEP, 5 * STEP);
    (1..=FUNCTIONS / STEP).map(|n| n * STEP).filter(|n| *n == STEP || n.is_multiple_of(step)).collect()
}

/// Medians for each way of linking and number of references, all measured in turns.
fn medians(
    rounds: usize,
    points: usize,
    mut one: impl FnMut(usize, Linked) -> Result<f64>,
) -> Result<Vec<Vec<f64>>> {
    // By number of references, then by way of linking.
    let mut all = vec![vec![Vec::new(); Linked::ALL.len()]; points];
    for round in 0..=rounds {
        for (point, ways) in all.iter_mut().enumerate() {
            for (linked, values) in Linked::ALL.iter().zip(ways) {
                let value = one(point, *linked)?;
                if round > 0 {
                    values.push(value); // the first is to have everything in memory
                }
            }
        }
    }
    let curve = |way: usize| all.iter().map(|ways| median(&ways[way])).collect();
    Ok((0..Linked::ALL.len()).map(curve).collect())
}

fn detail(
    references: &[usize],
    medians: &[Vec<f64>],
    scale: f64,
    unit: &str,
    claims: &[(&str, bool)],
) -> Value {
    let table: Vec<Value> = references
        .iter()
        .enumerate()
        .map(|(point, calls)| {
            let mut row = json!({ "references": calls });
            for (way, linked) in Linked::ALL.iter().enumerate() {
                row[linked.name()] = json!(rounded(medians[way][point] * scale));
            }
            row
        })
        .collect();
    let claims: Vec<Value> =
        claims.iter().map(|(text, holds)| json!({ "published": text, "here": holds })).collect();
    json!({ "unit": unit, "claims": claims, "table": table })
}

fn page(detail: &Value) -> String {
    let names = Linked::ALL.map(Linked::name);
    let rows = || detail["table"].as_array().into_iter().flatten();
    let columns =
        |row: &Value| [&["references"][..], &names].concat().iter().map(|name| cell(&row[*name])).collect();
    let table: Vec<Vec<String>> = rows().map(columns).collect();
    let claims: Vec<Vec<String>> = detail["claims"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|claim| {
            let verdict = if claim["here"] == true { "yes" } else { "no" };
            vec![claim["published"].as_str().unwrap_or_default().to_owned(), verdict.into()]
        })
        .collect();
    let curves: Vec<Curve> = Linked::ALL
        .iter()
        .zip(['s', 'l', 'n', 'i'])
        .map(|(linked, letter)| Curve {
            letter,
            name: linked.name().into(),
            heights: rows().filter_map(|row| row[linked.name()].as_f64()).collect(),
        })
        .collect();
    let below: Vec<String> = rows().map(|row| cell(&row["references"])).collect();
    let unit = detail["unit"].as_str().unwrap_or_default();
    let head = [&["references"][..], &names].concat();
    format!(
        "\n{}\n{}\nProcessor time in {unit}, medians; programs without libc.\n\n{}",
        markdown(&["the paper says", "here"], &claims),
        plot(&curves, &below, unit),
        markdown(&head, &table)
    )
}

fn measured(detail: Value, claims: &[(&str, bool)], runs: usize) -> Measured {
    let value = claims.iter().filter(|(_, holds)| *holds).count();
    Measured::single(value as f64, runs, detail)
}

/// Times by way of linking, as [`Linked::ALL`] orders them.
struct Curves<'a>(&'a [Vec<f64>]);

impl Curves<'_> {
    fn curve(&self, linked: Linked) -> &[f64] {
        let way = Linked::ALL.iter().position(|other| *other == linked).unwrap_or(0);
        &self.0[way]
    }

    /// With the most references: the middle of the last three points, so that one point's noise decides nothing.
    fn most(&self, linked: Linked) -> f64 {
        let curve = self.curve(linked);
        median(&curve[curve.len().saturating_sub(3)..])
    }

    fn growth(&self, linked: Linked) -> f64 {
        let curve = self.curve(linked);
        self.most(linked) / median(&curve[..curve.len().min(3)])
    }
}

/// Figure 3.
pub struct GovindanFig3;

impl Row for GovindanFig3 {
    fn id(&self) -> &'static str {
        "govindan.fig3"
    }

    fn unit(&self) -> &'static str {
        "published statements reproduced"
    }

    fn bar(&self) -> Option<crate::row::Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Govindan's Figure 3: time to link a program as a function of the number of library functions that it calls"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let references = references(context);
        let suite = Suite::new(context, &references)?;
        let rounds = context.pick(15, 3);
        let linker = bfd()?;
        let medians = medians(rounds, references.len(), |point, linked| {
            suite.linking(references[point], linked, &linker)?.once()
        })?;
        let curves = Curves(&medians);
        let claims = [
            (
                "static is slower than dynamic at 1,000 references",
                curves.most(Linked::Static) > curves.most(Linked::Lazy),
            ),
            (
                "fixed addresses are the fastest at 1,000 references",
                curves.most(Linked::Image) < curves.most(Linked::Lazy)
                    && curves.most(Linked::Image) < curves.most(Linked::Static),
            ),
            (
                "the curves diverge: static grows more than fixed addresses do",
                curves.growth(Linked::Static) > curves.growth(Linked::Image),
            ),
        ];
        Ok(measured(detail(&references, &medians, 1e3, "ms", &claims), &claims, rounds))
    }

    fn page(&self, detail: &Value) -> String {
        page(detail)
    }
}

/// Figure 4.
pub struct GovindanFig4;

impl Row for GovindanFig4 {
    fn id(&self) -> &'static str {
        "govindan.fig4"
    }

    fn unit(&self) -> &'static str {
        "published statements reproduced"
    }

    fn bar(&self) -> Option<crate::row::Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Govindan's Figure 4: run time of a program as a function of the number of library functions that it calls"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let references = references(context);
        let suite = Suite::new(context, &references)?;
        for calls in &references {
            Linked::ALL.iter().try_for_each(|linked| suite.link(*calls, *linked, Libc::None))?;
        }
        let rounds = context.pick(31, 3);
        let medians = medians(rounds, references.len(), |point, linked| {
            suite.start(references[point], linked, Libc::None)?.mean(5)
        })?;
        let curves = Curves(&medians);
        let claims = [
            ("static is approximately constant", curves.growth(Linked::Static) < 1.25),
            ("fixed addresses are almost constant", curves.growth(Linked::Image) < 1.25),
            (
                "dynamic resolution makes programs dramatically slower",
                curves.most(Linked::Lazy) > 2.0 * curves.most(Linked::Static)
                    && curves.growth(Linked::Lazy) > curves.growth(Linked::Image),
            ),
            (
                "fixed addresses are comparable to static",
                curves.most(Linked::Image) < 1.5 * curves.most(Linked::Static),
            ),
        ];
        Ok(measured(detail(&references, &medians, 1e6, "µs", &claims), &claims, rounds))
    }

    fn page(&self, detail: &Value) -> String {
        page(detail)
    }
}
