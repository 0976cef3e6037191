//! Table 8: fork, exec, wait.

use super::super::wired;
use super::memory::options;
use super::round::Rounds;
use super::{Found, Line, MOST, Table};
use crate::conclusions::{Conclusion, named};
use crate::context::Context;
use crate::failure::{Result, skipped};
use crate::installed;
use crate::row::Bar;
use crate::view::{PAGE, RawMapping, View};
use crate::worker::Worker;
use commonhold::Translation;
use std::ffi::OsString;
use std::time::Instant;

/// The row.
pub const TABLE_8: Table = Table {
    id: "mach.rm_table8",
    about: "Bernadat & Black's Table 8, fork, exec of a program that does nothing, and wait, by a \
            program that maps a paged or a wired object, which a child shares, has a copy of, or \
            does not have",
    measure,
};

/// The paper's program and its stack: 52 and 64 KiB; and what is large beside it.
const SIZES: [(usize, &str); 2] = [(29 * PAGE, "116 KiB"), (16 << 20, "16 MiB")];
const INHERITED: [&str; 3] = ["share", "copy", "none"];
const WORDS: [&str; 3] = ["shared", "copied", "not there"];

/// What a program maps: size, translation, what a child has of it. None: nothing.
type Mapped = Option<(usize, Translation, usize)>;

fn all() -> Vec<Mapped> {
    let sizes = 0..SIZES.len();
    let objects = sizes.flat_map(|size| {
        [Translation::Paged, Translation::Wired].into_iter().flat_map(move |translation| {
            (0..INHERITED.len()).map(move |inherit| Some((size, translation, inherit)))
        })
    });
    std::iter::once(None).chain(objects).collect()
}

fn name(mapped: Mapped) -> String {
    match mapped {
        None => "no object".into(),
        Some((size, translation, inherit)) => {
            format!("{}, {}, {}", translation.word(), SIZES[size].1, WORDS[inherit])
        }
    }
}

/// Times by what is mapped, in µs, and what copying a page costs.
struct Figures {
    mapped: Vec<Mapped>,
    fork: Vec<f64>,
    exec: Vec<f64>,
    page_us: f64,
}

impl Figures {
    fn of(&self, times: &[f64], mapped: Mapped) -> f64 {
        self.mapped.iter().position(|one| *one == mapped).map_or(f64::NAN, |n| times[n])
    }
}

fn measure(context: &Context) -> Result<Found> {
    let (bench, host, _pool) = wired::begin(context, 64 << 20)?;
    let Some(program) = installed::find("true") else {
        return skipped("there is no program `true`");
    };
    let mapped = all();
    let mut forkers = Vec::new();
    for (n, one) in mapped.iter().enumerate() {
        let (object, inherit) = match one {
            None => ("-".to_owned(), "share"),
            Some((size, translation, inherit)) => {
                // Who shares an arena with others has all of them in it: one of its own for each.
                let name = format!("/bench/{n}/object");
                if *translation == Translation::Wired {
                    wired::create(&host, &name, SIZES[*size].0)?;
                } else {
                    drop(host.create(&name, &options(*translation, SIZES[*size].0), None)?);
                }
                (name, INHERITED[*inherit])
            }
        };
        let words: [OsString; 4] =
            [bench.state().into(), object.into(), inherit.into(), program.clone().into()];
        forkers.push(Worker::start("forker", &words)?);
    }
    // What is large takes long, and is done less often.
    let each = [context.pick(20, 2), context.pick(4, 1)];
    // First all that fork, then all that start a program, then the copy of a page.
    let count = mapped.len();
    let rounds = Rounds::run(2 * count + 1, context.pick(21, 3), |n| match n.checked_sub(2 * count) {
        Some(_) => page_copy_s(),
        None => {
            let verb = if n < count { "fork" } else { "exec" };
            let size = mapped[n % count].map_or(0, |(size, ..)| size);
            Ok(forkers[n % count].ask(&format!("{verb} {}", each[size]))?.parse::<f64>()?)
        }
    })?;
    let figures = Figures {
        fork: (0..count).map(|n| rounds.of(n) * 1e6).collect(),
        exec: (count..2 * count).map(|n| rounds.of(n) * 1e6).collect(),
        page_us: rounds.of(2 * count) * 1e6,
        mapped,
    };
    Ok(Found {
        runs: rounds.len(),
        lines: lines(&figures),
        conclusions: conclude(&figures),
        notes: vec![
            format!(
                "µs a child, means of {each:?} by size, medians of rounds. The object has been written \
                 from end to end."
            ),
            format!(
                "Copying a page into new memory takes {:.2} µs here, its fault included; 1 ms in \
                 the paper.",
                figures.page_us
            ),
            "The paper prints ms; by its own copies, 18.5 and 29 ms, its figures are µs.".into(),
            "A wired copy is locked before the child goes on; a wired object that is shared is in \
             the child's page tables, whole, before it goes on, with its arena."
                .into(),
            "The program that is started is the system's `true`, with its loader: from the \
             kernel's page cache, in both."
                .into(),
        ],
    })
}

/// Seconds for one page that is copied into new memory: as at a fork, into pages that are not there
/// yet.
fn page_copy_s() -> Result<f64> {
    const PAGES: usize = 1024;
    let from = RawMapping::anonymous(PAGES * PAGE)?;
    from.view().write_pages();
    let to = RawMapping::anonymous(PAGES * PAGE)?;
    let (from, to): (View<'_>, View<'_>) = (from.view(), to.view());
    let begun = Instant::now();
    to.copy(from);
    Ok(begun.elapsed().as_secs_f64() / PAGES as f64)
}

fn lines(figures: &Figures) -> Vec<Line> {
    let line = |(n, mapped): (usize, &Mapped)| {
        let paper = match mapped {
            None => Some(49_700.0),
            Some((0, Translation::Wired, 1)) => Some(95_100.0),
            _ => None,
        };
        let copied =
            mapped.filter(|(_, _, inherit)| *inherit == 1).map_or(0, |(size, ..)| SIZES[size].0 / PAGE);
        Line::new(name(*mapped))
            .with("pages copied", copied as f64)
            .with("fork, exit, wait, µs", figures.fork[n])
            .with("fork, exec, exit, wait, µs", figures.exec[n])
            .with("relative", figures.exec[0] / figures.exec[n])
            .maybe("paper, µs", paper)
            .maybe("paper: relative", paper.map(|paper| 49_700.0 / paper))
    };
    figures.mapped.iter().enumerate().map(line).collect()
}

fn conclude(figures: &Figures) -> Vec<Conclusion> {
    let exec = |mapped| figures.of(&figures.exec, mapped);
    let wired = |size, inherit| exec(Some((size, Translation::Wired, inherit)));
    let slower = [
        ("no object", exec(None) / wired(0, 1)),
        ("a paged one, shared", exec(Some((0, Translation::Paged, 0))) / wired(0, 1)),
    ];
    let shares = [0, 1].map(|size| {
        let copies = (SIZES[size].0 / PAGE) as f64 * figures.page_us;
        (SIZES[size].1, copies / (wired(size, 1) - exec(None)))
    });
    let values = |named: &[(&str, f64); 2]| [named[0].1, named[1].1];
    vec![
        Conclusion::new(
            "fork, exec and wait take almost twice as long on real memory (0.52)",
            named("relative of a wired object of 116 KiB that is copied, the most", &slower),
            crate::measure::most(&values(&slower)),
            Bar::AtMost(0.6),
        )
        .unless("29 pages are copied in a few µs, beside what the kernel does for a process today"),
        Conclusion::new(
            "copying what a child has at the fork accounts for most of the difference (29 of 45 ms)",
            named("pages × the cost of one ÷ what a wired copy adds, what is furthest from 1", &shares),
            crate::conclusions::furthest(&values(&shares)),
            MOST,
        )
        .unless("what is made for a child is read and compared with zeros, mapped and locked besides"),
        Conclusion::not_asked(
            "both programs are copied from the cached object (18.5 of 45 ms)",
            "without counterpart: programs are the kernel's to start, from its page cache, in both",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::held;
    use super::*;

    /// Its figures, were the copy at the fork the only one.
    fn figures(wired_copy: f64, page_us: f64) -> Figures {
        let mapped = all();
        let time = |mapped: &Mapped| match mapped {
            Some((size, Translation::Wired, 1)) => {
                wired_copy + page_us * ((SIZES[*size].0 - SIZES[0].0) / PAGE) as f64
            }
            _ => 49_700.0,
        };
        let times: Vec<f64> = mapped.iter().map(time).collect();
        Figures { fork: times.clone(), exec: times, page_us, mapped }
    }

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        assert_eq!(held(&conclude(&figures(95_100.0, 1000.0))), (2, 2));
        assert_eq!(held(&conclude(&figures(50_000.0, 1.0))), (0, 2));
    }
}
