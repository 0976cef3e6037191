//! `govindan.fig3`, `govindan.fig4`: link and run time as functions of the number of references, with what the paper
//! says of them.

use crate::context::Context;
use crate::failure::Result;
use crate::images::plot::{Curve, plot};
use crate::images::suite::{FUNCTIONS, Libc, Linked, STEP, Suite, bfd};
use crate::measure::{least, median, most};
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

fn detail(references: &[usize], medians: &[Vec<f64>], scale: f64, unit: &str, claims: &[Claim]) -> Value {
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
    let claims: Vec<Value> = claims
        .iter()
        .map(|claim| {
            json!({ "published": claim.published, "asked": claim.asked, "here": claim.holds(), "not_at": claim.not_at, "why": claim.why })
        })
        .collect();
    json!({ "unit": unit, "of": claims.len(), "claims": claims, "table": table })
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
            let not_at: Vec<String> = claim["not_at"].as_array().into_iter().flatten().map(cell).collect();
            let text = |name: &str| claim[name].as_str().unwrap_or_default().to_owned();
            let verdict = match (not_at.is_empty(), text("why")) {
                (true, _) => "yes".into(),
                (false, why) if why.is_empty() => format!("no: not at {}", not_at.join(", ")),
                (false, why) => format!("no: not at {}. Why: {why}", not_at.join(", ")),
            };
            vec![text("published"), text("asked"), verdict]
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
        "\nThe paper's text has its curves only as it describes them, without a value: so there are none to be put beside \
         these, and its statements are asked. Each is asked at every point that it is about, with a threshold where the paper \
         has a word; *now*, which the paper has not, counts as dynamic.\n\n{}\n{}\nProcessor time in {unit}, medians; \
         programs without libc.\n\n{}",
        markdown(&["the paper says", "asked here", "here"], &claims),
        plot(&curves, &below, unit),
        markdown(&head, &table)
    )
}

fn measured(detail: Value, claims: &[Claim], runs: usize) -> Measured {
    let value = claims.iter().filter(|claim| claim.holds()).count();
    Measured::single(value as f64, runs, detail)
}

/// What the paper says, and how it is asked here.
struct Claim {
    published: &'static str,
    /// With the threshold.
    asked: String,
    /// The numbers of references at which it does not hold.
    not_at: Vec<usize>,
    /// Why it may not hold.
    why: &'static str,
}

impl Claim {
    fn holds(&self) -> bool {
        self.not_at.is_empty()
    }

    /// Says why it does not hold, should it not.
    fn unless(self, why: &'static str) -> Claim {
        Claim { why, ..self }
    }
}

/// Times by number of references; and by way of linking, as [`Linked::ALL`] orders them.
struct Curves<'a> {
    references: &'a [usize],
    medians: &'a [Vec<f64>],
}

/// Times at one point.
struct Point {
    stat: f64,
    lazy: f64,
    now: f64,
    image: f64,
}

impl Point {
    /// The most by the least of the paper's three curves.
    fn spread(&self) -> f64 {
        let three = [self.stat, self.lazy, self.image];
        most(&three) / least(&three)
    }
}

impl Curves<'_> {
    fn curve(&self, linked: Linked) -> &[f64] {
        let way = Linked::ALL.iter().position(|other| *other == linked).unwrap_or(0);
        &self.medians[way]
    }

    /// A statement about each of the points at which `there` holds.
    fn claim(
        &self,
        published: &'static str,
        asked: String,
        there: impl Fn(usize) -> bool,
        holds: impl Fn(&Point) -> bool,
    ) -> Claim {
        let point = |at: usize| {
            let time = |linked| self.curve(linked)[at];
            let (stat, lazy) = (time(Linked::Static), time(Linked::Lazy));
            Point { stat, lazy, now: time(Linked::Now), image: time(Linked::Image) }
        };
        let all = self.references.iter().enumerate();
        let not = all.filter(|(at, calls)| there(**calls) && !holds(&point(*at)));
        Claim { published, asked, not_at: not.map(|(_, calls)| *calls).collect(), why: "" }
    }

    /// A curve that is about constant: no point is further above the least than the threshold says.
    fn constant(&self, published: &'static str, linked: Linked) -> Claim {
        let least = least(self.curve(linked));
        let asked = format!("at every point at most {ALIKE} times the least of the curve");
        let of = move |point: &Point| if linked == Linked::Static { point.stat } else { point.image };
        self.claim(published, asked, |_| true, move |point| of(point) <= ALIKE * least)
    }
}

/// "Nearly identical", "approximately constant": so many times the least.
const ALIKE: f64 = 1.25;
/// "Comparable": the bar of `images.run_vs_static`.
const COMPARABLE: f64 = 1.35;
/// "Dramatic".
const DRAMATIC: f64 = 2.0;
/// Until there the paper's curves of Figure 3 are nearly identical.
const TOGETHER: usize = 200;

fn figure_3(curves: &Curves<'_>) -> Vec<Claim> {
    let everywhere = |_: usize| true;
    vec![
        curves.claim(
            "linking statically takes more time than linking dynamically",
            "at every point static more than lazy and than now".into(),
            everywhere,
            |point| point.stat > point.lazy && point.stat > point.now,
        ),
        curves.claim(
            "fixed addresses are the fastest",
            "at every point image less than static, lazy and now".into(),
            everywhere,
            |point| point.image < point.stat && point.image < point.lazy && point.image < point.now,
        )
        .unless("the linker reads the same stub, of all functions, however few are called"),
        curves.claim(
            "the curves are nearly identical up to 200 references",
            format!("at every point to {TOGETHER} the most of static, lazy and image at most {ALIKE} times the least"),
            |calls| calls <= TOGETHER,
            |point| point.spread() <= ALIKE,
        )
        .unless("static linking copies a member for each call, from the first on; the paper's linker spent more on reading"),
        curves.claim(
            "after that they diverge",
            format!("at every point beyond {TOGETHER} the most of the three more than {ALIKE} times the least"),
            |calls| calls > TOGETHER,
            |point| point.spread() > ALIKE,
        ),
    ]
}

fn figure_4(curves: &Curves<'_>) -> Vec<Claim> {
    vec![
        curves.constant("static is approximately constant", Linked::Static),
        curves
            .constant("fixed addresses are almost constant", Linked::Image)
            .unless("each call costs two jumps that the processor meets for the first time: bench/README.md"),
        curves.claim(
            "dynamic resolution makes programs dramatically slower",
            format!("at every point lazy more than {DRAMATIC} times static and than image"),
            |_| true,
            |point| point.lazy > DRAMATIC * point.stat.max(point.image),
        ),
        curves.claim(
            "fixed addresses are comparable to static",
            format!("at every point image at most {COMPARABLE} times static, which is the bar of images.run_vs_static"),
            |_| true,
            |point| point.image <= COMPARABLE * point.stat,
        )
        .unless("each call costs two jumps that the processor meets for the first time: bench/README.md"),
    ]
}

/// Figure 3.
pub struct GovindanFig3;

impl Row for GovindanFig3 {
    fn id(&self) -> &'static str {
        "govindan.fig3"
    }

    fn unit(&self) -> &'static str {
        crate::conclusions::UNIT
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
        let claims = figure_3(&Curves { references: &references, medians: &medians });
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
        crate::conclusions::UNIT
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
        let claims = figure_4(&Curves { references: &references, medians: &medians });
        Ok(measured(detail(&references, &medians, 1e6, "µs", &claims), &claims, rounds))
    }

    fn page(&self, detail: &Value) -> String {
        page(detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(claims: Vec<Claim>) -> Vec<bool> {
        claims.iter().map(Claim::holds).collect()
    }

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        let references = [50, 200, 1000];
        let medians = [vec![5.2, 6.2, 30.0], vec![5.1, 5.8, 12.0], vec![5.1, 5.7, 11.0], vec![5.0, 5.1, 6.0]];
        assert_eq!(holds(figure_3(&Curves { references: &references, medians: &medians })), [true; 4]);
        let medians = [vec![1.0, 1.0, 1.1], vec![3.0, 5.0, 9.0], vec![3.0, 4.0, 8.0], vec![1.2, 1.2, 1.3]];
        assert_eq!(holds(figure_4(&Curves { references: &references, medians: &medians })), [true; 4]);
    }

    #[test]
    fn one_point_is_enough_to_say_no() {
        let references = [50, 200, 1000];
        // An image that links more slowly at first, and an archive that does from the beginning; then all come together.
        let medians = [vec![9.0, 14.0, 6.0], vec![4.0, 4.5, 5.6], vec![4.0, 4.4, 5.7], vec![4.8, 4.4, 5.5]];
        let claims = figure_3(&Curves { references: &references, medians: &medians });
        let not_at: Vec<&[usize]> = claims.iter().map(|claim| &claim.not_at[..]).collect();
        assert_eq!(not_at, [&[][..], &[50, 200], &[50, 200], &[1000]]);
        let medians = [vec![1.0, 1.0, 1.3], vec![1.9, 5.0, 9.0], vec![3.0, 4.0, 8.0], vec![1.2, 1.4, 1.6]];
        let claims = figure_4(&Curves { references: &references, medians: &medians });
        let not_at: Vec<&[usize]> = claims.iter().map(|claim| &claim.not_at[..]).collect();
        assert_eq!(not_at, [&[1000][..], &[1000], &[50], &[200]]);
    }
}
