//! `pager.fault_ratio` and `pager.throughput_ratio`: objects whose pages another process supplies.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::faults::{BareService, FreshPages, Touch};
use crate::measure::{Pairs, alternate, median, seconds};
use crate::pager::{RamPager, StandIn};
use crate::placement::{Placement, on};
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::{PAGE, View, memory_file};
use crate::worker::{self, Worker};
use crate::workers::ping_partner::Words;
use commonhold::{Host, Mapping};
use commonhold_sys::socket::{self, Wait};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::hint::black_box;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

const PAGES: usize = 16_384;
/// First faults of each batch that do not count: somebody may still be asleep.
const WARM_UP: usize = 16;
const THREADS: usize = 16;

/// The row.
pub struct FaultRatio;

impl Row for FaultRatio {
    fn id(&self) -> &'static str {
        "pager.fault_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.5))
    }

    fn about(&self) -> &'static str {
        "read fault of one page that a user's pager in C, another process, supplies ÷ (bare userfaultfd fault served by another \
         process + one futex ping-pong with another process), both between the same processors: all on one, or the program on one \
         and host and pager on another, or the host alone (the worst); p50 of single faults, everybody \
         asleep while waiting"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let program = RamPager::compile(context)?;
        let mut detail = Map::new();
        let mut worst: Option<Pairs> = None;
        for place in Place::all()? {
            let pairs = Sides::start(context, &program, &place)?.compare(context, &place)?;
            detail.insert(place.name.to_owned(), pairs.summary(1e-3));
            if place.counts && worst.as_ref().is_none_or(|worst| pairs.ratio() > worst.ratio()) {
                worst = Some(pairs);
            }
        }
        detail.insert("unit_of_times".into(), json!("µs, p50 of single faults"));
        match worst {
            Some(pairs) => Ok(pairs.measured(pairs.ratio(), Value::Object(detail))),
            None => failed("nothing was measured"),
        }
    }
}

/// Where everybody is. No processors: wherever the kernel puts them.
struct Place {
    name: &'static str,
    counts: bool,
    program: Vec<usize>,
    host: Vec<usize>,
    pager: Vec<usize>,
}

impl Place {
    fn all() -> Result<Vec<Place>> {
        let placement = Placement::begin()?;
        let places = placement.places();
        let own = vec![placement.own()];
        let of = |name, host: &Vec<usize>, pager: &Vec<usize>| {
            let (program, host, pager) = (own.clone(), host.clone(), pager.clone());
            Place { name, counts: true, program, host, pager }
        };
        let mut all = vec![of("all on one processor", &own, &own)];
        if let Some((_, other)) = places.get(1) {
            let other = vec![*other];
            all.push(of("host and pager on another", &other, &other));
            all.push(of("the host on another", &other, &own));
        }
        // Who is where then is the kernel's choice, and another one for each side: it is told, and does not count.
        let free = || Vec::new();
        all.push(Place { name: "free", counts: false, program: free(), host: free(), pager: free() });
        Ok(all)
    }
}

/// A host, a pager and an object of it; a bare server of faults, and a partner that answers pings.
struct Sides {
    bare: BareService,
    words: Words,
    mapping: Mapping,
    ours: FreshPages,
    _partner: (Worker, OwnedFd),
    _pager: RamPager,
    _host: (Host, crate::host::BenchHost),
}

impl Sides {
    fn start(context: &Context, program: &PathBuf, place: &Place) -> Result<Sides> {
        let bench = on(&place.host, || context.start_host())?;
        let host = bench.connect()?;
        let pager = on(&place.pager, || RamPager::start(program, &bench, PAGES * PAGE))?;
        let partner = on(&place.pager, || worker::start_with_socket("ping-partner"))?;
        let memory = memory_file(PAGE)?;
        socket::send(&partner.1, &[0; 8], &[memory.as_fd()], Wait::Yes)?;
        Ok(Sides {
            bare: on(&place.host, BareService::start)?,
            words: Words::new(memory)?,
            mapping: RamPager::fresh(&host, PAGES * PAGE)?,
            ours: FreshPages::new(PAGES, &mut context.random(1)),
            _partner: partner,
            _pager: pager,
            _host: (host, bench),
        })
    }

    fn compare(self, context: &Context, place: &Place) -> Result<Pairs> {
        let (count, pairs) = (context.pick(256, 64), context.pick(21, 3));
        let Sides { bare, words, mapping, ours, .. } = &self;
        let memory = bare.memory(PAGES)?;
        let theirs = RefCell::new(FreshPages::new(PAGES, &mut context.random(2)));
        let ours = RefCell::new(ours.clone());
        let p50 = |pages: &RefCell<FreshPages>, view: View<'_>| {
            let touch = || Ok(pages.borrow_mut().touch(view, WARM_UP + count, Touch::Read, None));
            let times = on(&place.program, touch)?;
            match times.get(WARM_UP..) {
                Some(counted) if counted.len() == count => Ok(median(counted)),
                _ => failed("there are no pages left that were not touched"),
            }
        };
        // As host and pager speak with each other.
        let ping = || on(&place.host, || pings(words, count));
        alternate(pairs, |_| p50(&ours, View::of(mapping)), |_| Ok(p50(&theirs, memory.view())? + ping()?))
    }
}

fn pings(words: &Words, count: usize) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..WARM_UP + count {
        let began = Instant::now();
        words.ping()?;
        times.push(began.elapsed().as_nanos() as f64);
    }
    Ok(median(&times[WARM_UP..]))
}

/// The row.
pub struct ThroughputRatio;

impl Row for ThroughputRatio {
    fn id(&self) -> &'static str {
        "pager.throughput_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtLeast(1.0))
    }

    fn about(&self) -> &'static str {
        "16 threads touch every page of an object of a user's pager in C, another process: pages a second ÷ the same with a program \
         that serves its own faults (one thread reads them, one for each processor fills pages); in order and at random (the worst)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let program = RamPager::compile(context)?;
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let _pager = RamPager::start(&program, &bench, PAGES * PAGE)?;
        let pairs = context.pick(11, 3);
        let mut random = FreshPages::new(PAGES, &mut context.random(1)).take(PAGES);
        let in_order: Vec<u32> = (0..PAGES as u32).collect();
        let mut detail = Map::new();
        let mut worst: Option<Pairs> = None;
        for (name, order) in [("in order", &in_order), ("at random", &mut random)] {
            let pairs = alternate(
                pairs,
                |_| {
                    let mapping = RamPager::fresh(&host, PAGES * PAGE)?;
                    pages_a_second(View::of(&mapping), order)
                },
                |_| {
                    let stand_in = StandIn::new(PAGES * PAGE)?;
                    let speed = pages_a_second(stand_in.view(), order)?;
                    stand_in.end().map(|()| speed)
                },
            )?;
            detail.insert(name.to_owned(), pairs.summary(1.0));
            detail.insert(format!("ratio, {name}"), json!(rounded(pairs.ratio())));
            if worst.as_ref().is_none_or(|worst| pairs.ratio() < worst.ratio()) {
                worst = Some(pairs);
            }
        }
        detail.insert("unit".into(), json!("pages a second"));
        match worst {
            Some(pairs) => Ok(pairs.measured(pairs.ratio(), Value::Object(detail))),
            None => failed("nothing was measured"),
        }
    }
}

/// Each thread reads a byte of each page of its share, in that order.
fn pages_a_second(view: View<'_>, order: &[u32]) -> Result<f64> {
    let took = seconds(|| {
        std::thread::scope(|scope| {
            for pages in order.chunks(order.len().div_ceil(THREADS)) {
                scope.spawn(move || touch(view, pages));
            }
        });
        Ok(())
    })?;
    Ok(order.len() as f64 / took)
}

fn touch(view: View<'_>, pages: &[u32]) {
    for page in pages {
        black_box(view.read_byte(*page as usize * PAGE));
    }
}
