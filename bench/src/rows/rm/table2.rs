//! Table 2: the cost of zero-fill faults, of lazy faults, and of a fork.

use super::super::wired;
use super::child::Saying;
use super::memory::{Kind, Maker};
use super::round::Rounds;
use super::{Found, Line, MOST, Table};
use crate::conclusions::{Conclusion, named};
use crate::context::Context;
use crate::failure::Result;
use crate::measure::{median, most};
use crate::processes::thread_faults;
use crate::row::Bar;
use crate::view::{PAGE, View};
use commonhold::Inherit;
use std::time::Instant;

/// The row.
pub const TABLE_2: Table = Table {
    id: "mach.rm_table2",
    about: "Bernadat & Black's Table 2, 1 MiB of new memory, whose every word is written twice, \
            and once more by a fork child: faults, µs a page for zero-fill and lazy faults, and \
            all of it",
    measure,
};

const PAGES: usize = 256;

/// The paper's memory is inherited as a copy. So is `Plain`, on write.
const KINDS: [(Kind, &str); 5] = [
    (Kind::Plain, "no object (the kernel's own memory)"),
    (Kind::Paged(Inherit::Share), "paged, shared with the child"),
    (Kind::Wired(Inherit::Share), "wired, shared with the child"),
    (Kind::Paged(Inherit::Copy), "paged, the child has a copy"),
    (Kind::Wired(Inherit::Copy), "wired, the child has a copy"),
];
const PLAIN: usize = 0;
const PAGED: usize = 1;
const WIRED: usize = 2;
const PAGED_COPY: usize = 3;
const WIRED_COPY: usize = 4;

/// What one pass over the memory was.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    seconds: f64,
    faults: u64,
}

fn pass(view: View<'_>) -> Pass {
    let (before, begun) = (thread_faults(), Instant::now());
    view.write_words(1);
    let seconds = begun.elapsed().as_secs_f64();
    Pass { seconds, faults: thread_faults() - before }
}

/// One run of the paper's program.
struct Run {
    first: Pass,
    second: Pass,
    child: Pass,
    /// From before the fork until the child is gone, without its pass.
    fork_s: f64,
    elapsed_s: f64,
}

fn run(maker: &mut Maker<'_>, kind: Kind, saying: &Saying) -> Result<Run> {
    let begun = Instant::now();
    let memory = maker.make(kind, PAGES * PAGE)?;
    let (first, second) = (pass(memory.view()), pass(memory.view()));
    let forked = Instant::now();
    let [faults, nanoseconds] = saying.of_child(|| {
        pass(saying.page());
        let child = pass(memory.view());
        [child.faults, (child.seconds * 1e9) as u64]
    })?;
    let child = Pass { seconds: nanoseconds as f64 * 1e-9, faults };
    let fork_s = forked.elapsed().as_secs_f64() - child.seconds;
    let elapsed_s = begun.elapsed().as_secs_f64();
    maker.end(memory)?;
    Ok(Run { first, second, child, fork_s, elapsed_s })
}

/// Medians of one kind: µs a page, and faults a page (the most of any round).
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    zero_fill: f64,
    lazy: f64,
    fork: f64,
    elapsed: f64,
    faults: [f64; 3],
}

impl Figures {
    fn of(runs: &[Run]) -> Figures {
        let page =
            |of: &dyn Fn(&Run) -> f64| median(&runs.iter().map(of).collect::<Vec<_>>()) * 1e6 / PAGES as f64;
        let faults = |of: &dyn Fn(&Run) -> u64| {
            most(&runs.iter().map(|run| of(run) as f64).collect::<Vec<_>>()) / PAGES as f64
        };
        Figures {
            zero_fill: page(&|run| run.first.seconds - run.second.seconds),
            lazy: page(&|run| run.child.seconds - run.second.seconds),
            fork: page(&|run| run.fork_s),
            elapsed: page(&|run| run.elapsed_s),
            faults: [
                faults(&|run| run.first.faults),
                faults(&|run| run.second.faults),
                faults(&|run| run.child.faults),
            ],
        }
    }
}

fn measure(context: &Context) -> Result<Found> {
    let (_bench, host, _pool) = wired::begin(context, 16 << 20)?;
    let mut maker = Maker::new(&host, 2 * PAGES * PAGE)?;
    let saying = Saying::new()?;
    // What the code itself takes, and its stack, is taken before.
    for (kind, _) in KINDS {
        run(&mut maker, kind, &saying)?;
    }
    let mut runs: Vec<Vec<Run>> = KINDS.iter().map(|_| Vec::new()).collect();
    let rounds = Rounds::run(KINDS.len(), context.pick(101, 9), |n| {
        let run = run(&mut maker, KINDS[n].0, &saying)?;
        let elapsed = run.elapsed_s;
        runs[n].push(run);
        Ok(elapsed)
    })?;
    let figures: Vec<Figures> = runs.iter().map(|runs| Figures::of(runs)).collect();
    Ok(Found {
        runs: rounds.len(),
        lines: lines(&figures),
        conclusions: conclude(&figures),
        notes: vec![
            "Zero-fill: the first pass less the second; lazy: the child's pass less the second; \
             elapsed: from before the memory is made until the child has ended. All of them by \
             page."
                .into(),
            "Faults are those of the thread that makes the pass, by page, the most of any round. \
             The kernel's own copies and fillings, which no touch asked for, are none."
                .into(),
            "The paper prints ms; by its own page copy of 1 ms its figures are µs.".into(),
        ],
    })
}

fn lines(figures: &[Figures]) -> Vec<Line> {
    let published = |n| match n {
        PLAIN => Some((508.0, 196.0, 8984.0)),
        WIRED_COPY => Some((0.0, 0.0, 9765.0)),
        _ => None,
    };
    let line = |(n, figures): (usize, &Figures)| {
        let paper = published(n);
        Line::new(KINDS[n].1)
            .with("faults, first pass", figures.faults[0])
            .with("second", figures.faults[1])
            .with("the child's", figures.faults[2])
            .with("zero fill, µs", figures.zero_fill)
            .with("lazy fault, µs", figures.lazy)
            .with("fork and exit, µs", figures.fork)
            .with("elapsed, µs", figures.elapsed)
            .maybe("paper: zero fill, µs", paper.map(|paper| paper.0))
            .maybe("paper: lazy fault, µs", paper.map(|paper| paper.1))
            .maybe("paper: elapsed, µs", paper.map(|paper| paper.2))
    };
    figures.iter().enumerate().map(line).collect()
}

fn conclude(figures: &[Figures]) -> Vec<Conclusion> {
    let wired = [WIRED, WIRED_COPY].map(|n| figures[n].faults.iter().sum::<f64>());
    let paged = &figures[PAGED];
    let slower = [
        ("by no object", figures[WIRED_COPY].elapsed / figures[PLAIN].elapsed),
        ("by a paged one, shared", figures[WIRED_COPY].elapsed / paged.elapsed),
    ];
    vec![
        Conclusion::new(
            "on real memory the program never takes a page fault",
            "faults a page in wired memory, of both passes and the child's",
            most(&wired),
            Bar::Exactly(0.0),
        ),
        Conclusion::new(
            "with pages each page is one zero-fill fault, and one lazy fault after a fork",
            named(
                "faults a page of a paged object, the least",
                &[("first pass", paged.faults[0]), ("child", paged.faults[2])],
            ),
            paged.faults[0].min(paged.faults[2]),
            Bar::Between(0.95, 1.1),
        ),
        Conclusion::new(
            "a zero-fill fault costs more than twice what a lazy one does (508 and 196)",
            "zero fill ÷ lazy, of a paged object",
            paged.zero_fill / paged.lazy,
            Bar::AtLeast(2.0),
        )
        .unless(
            "zeroing a page was half of the paper's fault; today the trap and the kernel's \
             bookkeeping are most of either",
        ),
        Conclusion::new(
            "on real memory all of it takes longer, as the pages are copied at the fork (9765 and \
             8984)",
            named("wired, copied ÷ with pages, the least", &slower),
            slower[0].1.min(slower[1].1),
            Bar::AtLeast(1.0),
        )
        .unless("copying a page at the fork costs less than the faults that it saves"),
        Conclusion::new(
            "the copies of the pages are that difference",
            "what a wired copy adds to the fork ÷ what it takes longer than a paged object, shared",
            (figures[WIRED_COPY].fork - figures[WIRED].fork) / (figures[WIRED_COPY].elapsed - paged.elapsed),
            MOST,
        )
        .unless("making a wired object, which zeroes it, and giving a child its arena cost more"),
        Conclusion::new(
            "with pages the copy is put off until somebody writes",
            "what a paged copy adds to the fork ÷ a zero-fill fault, by page",
            (figures[PAGED_COPY].fork - paged.fork) / paged.zero_fill,
            Bar::AtMost(0.25),
        )
        .unless(
            "an object's copy is made at the fork: one on write would show the child what others \
             write (docs/MAPPING.md)",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::held;
    use super::*;

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        let mach =
            Figures { zero_fill: 508.0, lazy: 196.0, fork: 10.0, elapsed: 8984.0, faults: [1.0, 0.0, 1.0] };
        let real = Figures { fork: 1000.0, elapsed: 9765.0, ..Figures::default() };
        let shared = Figures { fork: 10.0, ..real };
        assert_eq!(held(&conclude(&[mach, mach, shared, mach, real])), (6, 6));
        let other = Figures { zero_fill: 0.2, lazy: 0.2, faults: [0.5, 0.0, 0.0], ..mach };
        let quick = Figures { elapsed: 8000.0, ..other };
        assert_eq!(held(&conclude(&[mach, other, other, real, quick])), (0, 6));
    }
}
