//! `wired.…`: memory in which no fault happens: whether none does, and what it costs and saves.

use crate::context::{Context, GIB};
use crate::failure::{Result, failed, skipped};
use crate::host::BenchHost;
use crate::measure::{alternate, each, percentile, seconds};
use crate::objects;
use crate::processes;
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::View;
use crate::worker::Worker;
use crate::workers::attach_server;
use commonhold::{Access, CreateOptions, EntryInfo, Host, MapOptions, Translation};
use commonhold_sys::process;
use commonhold_sys::socket::{self, Wait};
use commonhold_tables::{HUGE, Pool};
use rand::RngExt;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::time::Instant;

const MIB: usize = 1 << 20;

/// Faults of touches.
pub struct Faults;
/// Attaching a gigabyte.
pub struct AttachRatio;
/// Virtual segments of a process.
pub struct Mappings;
/// How long the slowest writes take.
pub struct TailRatio;

pub(super) fn begin(context: &Context, bytes: usize) -> Result<(BenchHost, Host, Pool)> {
    let pages = bytes as u64 / HUGE;
    let pool =
        Pool::more(pages).or_else(|error| skipped(format!("{pages} huge pages cannot be had: {error}")))?;
    let bench = context.start_host()?;
    let host = bench.connect()?;
    Ok((bench, host, pool))
}

pub(super) fn create(host: &Host, name: &str, size_bytes: usize) -> Result<()> {
    let translation = Translation::Wired;
    let options = CreateOptions { size_bytes: size_bytes as u64, translation, ..CreateOptions::default() };
    drop(host.create(name, &options, None)?);
    match host.stat(name)? {
        EntryInfo::Object(info) if info.place.is_some() => Ok(()),
        _ => failed(format!("{name} is of ordinary pages")),
    }
}

fn worker(bench: &BenchHost, names: &[String]) -> Result<Worker> {
    let mut arguments: Vec<OsString> = vec![bench.state().into()];
    arguments.extend(names.iter().map(OsString::from));
    Worker::start("wired-client", &arguments)
}

fn count(worker: &mut Worker, what: &str) -> Result<f64> {
    Ok(worker.ask(what)?.parse()?)
}

impl Row for Faults {
    fn id(&self) -> &'static str {
        "wired.faults"
    }

    fn unit(&self) -> &'static str {
        "faults"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn about(&self) -> &'static str {
        "faults while every page of wired objects is touched: by the first process, the second, a fork child, after growth, \
         moves, swapping in and the host's death; and in a control loop of 1 kHz, 60 s"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (bench, host, pool) = begin(context, 16 * MIB)?;
        let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
        let names: Vec<String> = (0..7).map(|n| format!("/bench/loop/{n}")).collect();
        names.iter().try_for_each(|name| create(&host, name, MIB / 2))?;
        let mut first = worker(&bench, &names)?;
        counts.insert("first process", count(&mut first, "touch")?);
        counts.insert("second process", count(&mut worker(&bench, &names)?, "touch")?);
        counts.insert("child after fork", count(&mut first, "fork")?);
        host.resize(&names[6], MIB as u64)?; // into the free pages behind it
        counts.insert("after growth", count(&mut first, "again")?);
        let [served_by, _] = bench.processes()?;
        processes::kill(process::identity(served_by)?);
        counts.insert("after the host's death", count(&mut first, "touch")?);
        counts.insert("of the next host", count(&mut worker(&bench, &names)?, "touch")?);
        let seconds = context.pick(60, 2);
        counts.insert("control loop", count(&mut first, &format!("loop {seconds}"))?);
        drop(first);
        let host = bench.connect()?;
        counts.insert("after moves", after_moves(&bench, &host)?);
        counts.insert("after swapping in", after_swapping(&bench, &host, &pool)?);
        let all: f64 = counts.values().sum();
        Ok(Measured::single(all, 1, json!({ "faults": counts, "control_loop_s": seconds })))
    }
}

/// Every second object of an arena goes, and another takes their place by moves of the rest.
fn after_moves(bench: &BenchHost, host: &Host) -> Result<f64> {
    let names: Vec<String> = (0..8).map(|n| format!("/bench/moves/{n}")).collect();
    names.iter().try_for_each(|name| create(host, name, MIB / 4))?;
    let places = |names: &[String]| -> Result<Vec<_>> {
        let place = |name: &String| match host.stat(name)? {
            EntryInfo::Object(info) => Ok(info.place),
            EntryInfo::Directory { .. } => failed("an object is a directory"),
        };
        names.iter().map(place).collect()
    };
    let stay: Vec<String> = names.iter().step_by(2).cloned().collect();
    let before = places(&stay)?;
    names.iter().skip(1).step_by(2).try_for_each(|name| host.remove(name))?;
    create(host, "/bench/moves/large", 3 * MIB / 4)?;
    if places(&stay)? == before {
        return failed("nothing moved");
    }
    count(&mut worker(bench, &stay)?, "touch")
}

/// More objects than there is memory, each of which is touched.
fn after_swapping(bench: &BenchHost, host: &Host, pool: &Pool) -> Result<f64> {
    let names: Vec<String> = (0..pool.free()? + 4).map(|n| format!("/bench/swap/{n}")).collect();
    names.iter().try_for_each(|name| create(host, name, 2 * MIB))?;
    let on_disk = names
        .iter()
        .filter(|name| matches!(host.stat(name), Ok(EntryInfo::Object(info)) if info.spilled_bytes > 0));
    if on_disk.count() == 0 {
        return failed("no object went to disk");
    }
    let touched = |name: &String| count(&mut worker(bench, std::slice::from_ref(name))?, "touch");
    names.iter().map(touched).sum()
}

impl Row for AttachRatio {
    fn id(&self) -> &'static str {
        "wired.attach_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.2))
    }

    fn about(&self) -> &'static str {
        "open + map + unmap of a wired object of 1 GiB ÷ the same by hand: descriptor through a Unix socket, mmap with \
         MAP_POPULATE where a gigabyte begins; the host and the server by hand have theirs mapped"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        const NAME: &str = "/bench/wired";
        let (_bench, host, _pool) = begin(context, 2 * GIB)?;
        create(&host, NAME, GIB)?;
        let arguments = [context.directory.as_os_str(), OsStr::new("huge")];
        let server = Worker::start("attach-server", &arguments)?;
        let connection = socket::connect(&context.directory, attach_server::SOCKET)?;
        let rounds = context.pick(100, 10);
        let ours = || {
            // As by hand, the length is known.
            let all = MapOptions { length: Some(GIB as u64), ..MapOptions::default() };
            let mapping = host.open(NAME, Access::ReadWrite)?.map(&all)?;
            if View::of(&mapping).len() == GIB { Ok(()) } else { failed("not all of it is mapped") }
        };
        let pairs = alternate(
            context.pick(31, 5),
            |_| each(rounds, ours),
            |_| each(rounds, || attach_by_hand(&connection)),
        )?;
        drop(server);
        let detail =
            json!({ "unit_of_times": "µs, medians of single attaches", "times": pairs.summary(1e6) });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

fn attach_by_hand(connection: &OwnedFd) -> Result<()> {
    socket::send(connection, b"wired", &[], Wait::Yes)?;
    let (mut answer, mut descriptors) = ([0; 64], Vec::new());
    socket::receive(connection, &mut answer, &mut descriptors, Wait::Yes)?;
    let Some(memory) = descriptors.pop() else { return failed("the server by hand sent no descriptor") };
    attach_server::map_populated(&memory, GIB)
}

impl Row for Mappings {
    fn id(&self) -> &'static str {
        "wired.mappings"
    }

    fn unit(&self) -> &'static str {
        "mappings"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn about(&self) -> &'static str {
        "lines of /proc/self/maps of a process that has 100 wired objects of one class mapped, less those of before, less the \
         arenas they lie in"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (_bench, host, _pool) = begin(context, 32 * MIB)?;
        let names: Vec<String> = (0..100).map(|n| format!("/bench/many/{n}")).collect();
        names.iter().try_for_each(|name| create(&host, name, 64 * 1024))?;
        let lines = || -> Result<Vec<String>> {
            let maps = std::fs::read_to_string("/proc/self/maps")?;
            Ok(maps.lines().filter(|line| line.contains("commonhold-arena")).map(str::to_owned).collect())
        };
        let before = lines()?.len();
        let map = |name: &String| Ok(host.open(name, Access::ReadWrite)?.map(&objects::everything())?);
        let mappings: Vec<commonhold::Mapping> = names.iter().map(map).collect::<Result<_>>()?;
        let after = lines()?.len();
        let mut arenas = std::collections::BTreeSet::new();
        for name in &names {
            if let EntryInfo::Object(info) = host.stat(name)? {
                arenas.extend(info.place.map(|place| place.arena.0));
            }
        }
        mappings.iter().for_each(|mapping| View::of(mapping).write_pages());
        let more = after as f64 - before as f64 - arenas.len() as f64;
        let detail = json!({ "objects": names.len(), "mappings": after - before, "arenas": arenas.len() });
        Ok(Measured::single(more, 1, detail))
    }
}

impl Row for TailRatio {
    fn id(&self) -> &'static str {
        "wired.tail_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtLeast(10.0))
    }

    fn about(&self) -> &'static str {
        "99th percentile of random writes of 64 bytes over 1 GiB just attached: a plain sparse object, whose pages are first \
         touched then ÷ a wired one; a plain object whose pages are there, and the cost of filling, in detail"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (_bench, host, _pool) = begin(context, GIB)?;
        create(&host, "/bench/wired", GIB)?;
        let writes = context.pick(100_000, 20_000);
        let tail = |name: &str, stream: u64| -> Result<f64> {
            let mapping = host.open(name, Access::ReadWrite)?.map(&objects::everything())?;
            let (view, mut random) = (View::of(&mapping), context.random(stream));
            let mut times = Vec::with_capacity(writes);
            for _ in 0..writes {
                let at = random.random_range(0..GIB / 64) * 64;
                let begun = Instant::now();
                view.write(at, &[7; 64]);
                times.push(begun.elapsed().as_secs_f64());
            }
            Ok(percentile(&times, 0.99))
        };
        let sparse =
            CreateOptions { size_bytes: GIB as u64, reserve: Some(false), ..CreateOptions::default() };
        // The plain one is the dividend: "ours" of the pair.
        let pairs = alternate(
            context.pick(9, 3),
            |n| {
                drop(host.create("/bench/plain", &sparse, None)?);
                let first = tail("/bench/plain", n as u64);
                host.remove("/bench/plain")?;
                first
            },
            |n| tail("/bench/wired", n as u64),
        )?;
        drop(host.create("/bench/plain", &sparse, None)?);
        let object = host.open("/bench/plain", Access::ReadWrite)?;
        let filling = seconds(|| {
            View::of(&object.map(&objects::everything())?).write_pages();
            Ok(())
        })?;
        let resident = tail("/bench/plain", 99)?;
        let detail = json!({
            "unit_of_times": "ns, 99th percentile",
            "times (plain, wired)": pairs.summary(1e9),
            "plain, frames there, page tables not": rounded(resident * 1e9),
            "filling 1 GiB of a plain one by touching, ms": rounded(filling * 1e3),
            "writes": writes,
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}
