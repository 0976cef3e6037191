//! Table 3: memory allocated at once, or page by page, and touched.

use super::super::wired;
use super::memory::{Kind, Maker, Memory, inherited, options};
use super::round::Rounds;
use super::{Found, Line, MOST, Table};
use crate::conclusions::{Conclusion, named};
use crate::context::Context;
use crate::failure::{Doing, Result, failed};
use crate::measure::{least, median, seconds};
use crate::objects;
use crate::processes::thread_faults;
use crate::row::Bar;
use crate::view::{PAGE, View};
use commonhold::{Access, EntryInfo, Host, Inherit, MapOptions, Mapping, Translation};
use commonhold_segments::{Arena, Tlsf};
use std::cell::RefCell;

/// The row.
pub const TABLE_3: Table = Table {
    id: "mach.rm_table3",
    about: "Bernadat & Black's Table 3, µs a page of memory that is allocated at once and touched, \
            allocated page by page and touched, and grown page by page: objects, and segments \
            within a wired object beside the kernel's own memory",
    measure,
};

/// How memory is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    AtOnce,
    PageByPage,
    Grown,
}

const MODES: [Mode; 3] = [Mode::AtOnce, Mode::PageByPage, Mode::Grown];

/// By whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Object(Translation),
    /// mmap without an object, as `malloc` asks for it.
    Kernel,
    /// The allocator of segments, in a wired object that the program has mapped: as `malloc` is, it
    /// is a part of the program. What it gives is zeroed, as the paper's is.
    Segments,
}

const WHO: [(Who, &str); 4] = [
    (Who::Object(Translation::Paged), "paged objects, µs"),
    (Who::Object(Translation::Wired), "wired objects, µs"),
    (Who::Kernel, "mmap, µs"),
    (Who::Segments, "segments in a wired object, µs"),
];
const FAULTS: [&str; 4] = ["faults, paged", "faults, wired", "faults, mmap", "faults, segments"];
const PAGED: usize = 0;
const WIRED: usize = 1;
const KERNEL: usize = 2;
const SEGMENTS: usize = 3;

/// Who does what. Only objects grow.
fn all() -> Vec<(usize, Mode)> {
    let grows = |who: usize| matches!(WHO[who].0, Who::Object(_));
    let pairs = MODES.iter().flat_map(|mode| (0..WHO.len()).map(|who| (who, *mode)));
    pairs.filter(|(who, mode)| *mode != Mode::Grown || grows(*who)).collect()
}

/// What allocates.
struct Bench<'h> {
    host: &'h Host,
    maker: RefCell<Maker<'h>>,
    /// The program's own memory for segments.
    own: Mapping,
    pages: usize,
    /// How often an object that grew lay elsewhere afterwards.
    moves: RefCell<u64>,
}

impl Bench<'_> {
    /// One measurement: seconds of all, and of the touches; and how many faults the touches took.
    fn once(&self, who: usize, mode: Mode) -> Result<(f64, f64, u64)> {
        match (WHO[who].0, mode) {
            (Who::Object(translation), Mode::Grown) => self.grown(translation),
            (Who::Object(Translation::Wired), _) => self.made(Kind::Wired(Inherit::Share), mode),
            (Who::Object(_), _) => self.made(Kind::Paged(Inherit::Share), mode),
            (Who::Kernel, _) => self.made(Kind::Plain, mode),
            (Who::Segments, _) => self.segments(mode),
        }
    }

    fn sizes(&self, mode: Mode) -> (usize, usize) {
        if mode == Mode::AtOnce { (1, self.pages) } else { (self.pages, 1) }
    }

    fn made(&self, kind: Kind, mode: Mode) -> Result<(f64, f64, u64)> {
        let (count, pages) = self.sizes(mode);
        let mut maker = self.maker.borrow_mut();
        let mut memories: Vec<Memory> = Vec::with_capacity(count);
        let mut touched = Touched::default();
        let all = seconds(|| {
            for _ in 0..count {
                memories.push(maker.make(kind, pages * PAGE)?);
                touched.touch(memories[memories.len() - 1].view());
            }
            Ok(())
        })?;
        maker.end_all(memories)?;
        Ok((all, touched.seconds, touched.faults))
    }

    fn segments(&self, mode: Mode) -> Result<(f64, f64, u64)> {
        let (count, pages) = self.sizes(mode);
        let view = View::of(&self.own);
        let mut arena: Arena<Tlsf> = Arena::new(self.pages as u32);
        let mut touched = Touched::default();
        let all = seconds(|| {
            for _ in 0..count {
                let segment = arena.alloc(pages as u32, 1, 0).doing("a segment")?;
                let run = arena.run(segment).doing("a segment's pages")?;
                let part = view.part(run.start as usize * PAGE, pages * PAGE);
                part.zero();
                arena.filled(segment, run.pages).doing("a segment that is filled")?;
                touched.touch(part);
            }
            Ok(())
        })?;
        Ok((all, touched.seconds, touched.faults))
    }

    /// One object that grows by a page at a time, which is mapped then and touched.
    fn grown(&self, translation: Translation) -> Result<(f64, f64, u64)> {
        const NAME: &str = "/bench/grows";
        let object = self.host.create(NAME, &options(translation, PAGE), None)?;
        let first = object.map(&inherited(Inherit::Share))?;
        let place = || match self.host.stat(NAME)? {
            EntryInfo::Object(info) => Ok(info.place.map(|place| (place.arena, place.offset_bytes))),
            EntryInfo::Directory { .. } => failed("an object is a directory"),
        };
        let before = place()?;
        let (mut mappings, mut touched) = (vec![first], Touched::default());
        let all = seconds(|| {
            touched.touch(View::of(&mappings[0]));
            for page in 1..self.pages as u64 {
                let (offset, length) = (page * PAGE as u64, Some(PAGE as u64));
                self.host.resize(NAME, offset + PAGE as u64)?;
                mappings.push(object.map(&MapOptions { offset, length, ..MapOptions::default() })?);
                touched.touch(View::of(&mappings[mappings.len() - 1]));
            }
            Ok(())
        })?;
        *self.moves.borrow_mut() += u64::from(place()? != before);
        drop((mappings, object));
        self.host.remove(NAME)?;
        Ok((all, touched.seconds, touched.faults))
    }
}

/// Touches, one word of each page.
#[derive(Default)]
struct Touched {
    seconds: f64,
    faults: u64,
}

impl Touched {
    fn touch(&mut self, view: View<'_>) {
        let (before, begun) = (thread_faults(), std::time::Instant::now());
        view.write_pages();
        self.seconds += begun.elapsed().as_secs_f64();
        self.faults += thread_faults() - before;
    }
}

/// By who and mode: µs a page, of which touches are so many; faults a page.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    us: f64,
    touch_us: f64,
    faults: f64,
}

type All = [[Option<Figures>; 3]; 4];

fn measure(context: &Context) -> Result<Found> {
    let pages = context.pick(256, 16);
    let (_bench, host, _pool) = wired::begin(context, 16 << 20)?;
    let maker = RefCell::new(Maker::new(&host, 4 * pages * PAGE)?);
    wired::create(&host, "/bench/own", pages * PAGE)?;
    let own = host.open("/bench/own", Access::ReadWrite)?.map(&objects::everything())?;
    let bench = Bench { host: &host, maker, own, pages, moves: RefCell::new(0) };
    let kinds = all();
    let mut touches = vec![Vec::new(); kinds.len()];
    let mut faults = vec![0; kinds.len()];
    for (who, mode) in &kinds {
        bench.once(*who, *mode)?;
    }
    let rounds = Rounds::run(kinds.len(), context.pick(15, 3), |n| {
        let (all, touch, count) = bench.once(kinds[n].0, kinds[n].1)?;
        touches[n].push(touch);
        faults[n] = count.max(faults[n]);
        Ok(all)
    })?;
    let page = |seconds: f64| seconds * 1e6 / pages as f64;
    let mut figures: All = Default::default();
    for (n, (who, mode)) in kinds.iter().enumerate() {
        let (us, touch_us) = (page(rounds.of(n)), page(median(&touches[n])));
        let faults = faults[n] as f64 / pages as f64;
        figures[*who][*mode as usize] = Some(Figures { us, touch_us, faults });
    }
    let moves = *bench.moves.borrow();
    Ok(Found {
        runs: rounds.len(),
        lines: lines(&figures),
        conclusions: conclude(&figures, Some(moves as f64)),
        notes: vec![
            format!(
                "{pages} pages; one word of each is written. Objects are made and mapped; \
                 their ends are not in the times."
            ),
            "Segments in a wired object are zeroed before they are given, as wired objects are; \
             what mmap gives is zeroed by the fault."
                .into(),
            "Grown: an object of one page gets one more at a time, which is mapped and touched \
             (resize, map). Touches alone have their faults counted."
                .into(),
            "The paper prints ms; by its own page copy of 1 ms its figures are µs.".into(),
        ],
    })
}

fn lines(figures: &All) -> Vec<Line> {
    let names = ["1 allocation, n touches", "n allocations and touches", "grown n times, and touched"];
    let published = [Some((566.0, 390.0)), Some((2109.0, 1835.0)), None];
    let line = |mode: usize| {
        let mut line = Line::new(names[mode]);
        for (who, (_, column)) in WHO.iter().enumerate() {
            line = line.maybe(column, figures[who][mode].map(|figures| figures.us));
        }
        for (who, column) in FAULTS.iter().enumerate() {
            line = line.maybe(column, figures[who][mode].map(|figures| figures.faults));
        }
        let ratio = |above: usize, below: usize| Some(figures[above][mode]?.us / figures[below][mode]?.us);
        line.maybe("relative, objects", ratio(PAGED, WIRED))
            .maybe("relative, mmap ÷ segments", ratio(KERNEL, SEGMENTS))
            .maybe("paper: paged, µs", published[mode].map(|both: (f64, f64)| both.0))
            .maybe("paper: real memory, µs", published[mode].map(|both| both.1))
            .maybe("paper: relative", published[mode].map(|both| both.0 / both.1))
    };
    (0..MODES.len()).map(line).collect()
}

fn conclude(figures: &All, moves: Option<f64>) -> Vec<Conclusion> {
    let of = |who: usize, mode: Mode| figures[who][mode as usize].unwrap_or_default();
    let us = |who, mode| of(who, mode).us;
    let faster = |mode| {
        [
            ("objects", us(PAGED, mode) / us(WIRED, mode)),
            ("mmap ÷ segments", us(KERNEL, mode) / us(SEGMENTS, mode)),
        ]
    };
    let (at_once, each) = (faster(Mode::AtOnce), faster(Mode::PageByPage));
    let ratios = |named: &[(&str, f64)]| least(&named.iter().map(|(_, ratio)| *ratio).collect::<Vec<_>>());
    let (paged, wired) = (of(PAGED, Mode::AtOnce), of(WIRED, Mode::AtOnce));
    let dearer = [PAGED, WIRED].map(|who| us(who, Mode::PageByPage) / us(who, Mode::AtOnce));
    vec![
        Conclusion::new(
            "memory that is allocated at once and touched costs less on real memory (1.45)",
            named("paged ÷ wired, the least", &at_once),
            ratios(&at_once),
            Bar::AtLeast(1.1),
        ),
        Conclusion::new(
            "the difference is primarily the faults",
            "touches, paged less wired ÷ all, paged less wired, of objects at once",
            (paged.touch_us - wired.touch_us) / (paged.us - wired.us),
            MOST,
        )
        .unless("a wired object is zeroed by its host when it is made, which takes more than the faults"),
        Conclusion::new(
            "memory that is allocated page by page costs less on real memory, too (1.15)",
            named("paged ÷ wired, the least", &each),
            ratios(&each),
            Bar::AtLeast(1.05),
        )
        .unless("what the host does to make an object is most of the time, and alike in both"),
        Conclusion::new(
            "page by page costs several times as much as at once, in both (3.7 and 4.7)",
            "page by page ÷ at once, of objects, the least",
            least(&dearer),
            Bar::AtLeast(2.0),
        ),
        match moves {
            Some(moves) => Conclusion::new(
                "growth at every call may move or copy segments",
                "objects that lay elsewhere after they had grown",
                moves,
                Bar::AtLeast(1.0),
            )
            .unless(
                "the arena is not fragmented, and its free pages lie behind the object: it grows \
                 in place",
            ),
            None => Conclusion::not_asked("growth at every call may move or copy segments", "nothing grew"),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::held;
    use super::*;

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        let of = |us, touch_us| Some(Figures { us, touch_us, faults: 0.0 });
        let mach = [of(566.0, 196.0), of(2109.0, 196.0), None];
        let real = [of(390.0, 6.0), of(1835.0, 6.0), None];
        assert_eq!(held(&conclude(&[mach, real, mach, real], None)), (4, 4));
        let slow = [of(600.0, 190.0), of(1000.0, 6.0), None];
        let fast = [of(550.0, 190.0), of(700.0, 6.0), None];
        assert_eq!(held(&conclude(&[fast, slow, mach, real], Some(0.0))), (0, 5));
    }
}
