//! `swap.lost`: wired objects for which there is too little memory, so that some are on disk at any time and others move, while
//! host and keeper are killed.

use crate::context::{Context, Random};
use crate::failure::{Result, failed, skipped};
use crate::host::BenchHost;
use crate::objects;
use crate::processes;
use crate::row::{Bar, Measured, Row};
use crate::view::{PAGE, View};
use commonhold::{Access, CreateOptions, EntryInfo, ErrorKind, Host, Object, Translation};
use commonhold_sys::process;
use commonhold_tables::Pool;
use rand::RngExt;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Huge pages, of 2 MiB: a third of what the objects take.
const POOL: u64 = 6;
const OBJECTS: usize = 32;
/// How long the objects may be away after a kill.
const PATIENCE: Duration = Duration::from_secs(60);

/// The row.
pub struct Lost;

/// What one object is to have in each of its pages.
struct Known {
    size: u64,
    value: u64,
    /// What was counted of deaths of host and keeper together when it was closed last.
    closed_in: u64,
}

struct World<'a> {
    host: &'a Host,
    random: Random,
    known: Vec<Option<Known>>,
    /// Counts up before and after host and keeper die together: one that was closed in between may have died, too.
    deaths: &'a AtomicU64,
    values: u64,
    differ: u64,
    checked: u64,
    /// Objects that were on disk when they were asked for.
    on_disk: u64,
    gone: u64,
    refused: u64,
}

fn name(number: usize) -> String {
    format!("/bench/swapped/{}/{number}", number % 3)
}

impl World<'_> {
    fn go_on(&mut self, stop: &AtomicBool) -> Result<()> {
        // Held open all the time: what is mapped survives the two.
        let held = self.make(0)?.map(&objects::everything())?;
        View::of(&held).write_pages();
        while !stop.load(Ordering::Relaxed) {
            let number = self.random.random_range(1..OBJECTS);
            match self.random.random_range(0..8) {
                0 => self.replace(number)?,
                _ => self.use_one(number)?,
            }
            self.differ += (0..held.len() / PAGE)
                .filter(|page| View::of(&held).read_word(page * PAGE) != *page as u64 + 1)
                .count() as u64;
        }
        Ok(())
    }

    fn make(&mut self, number: usize) -> Result<Object> {
        let size_bytes = self.random.random_range(1..=8) * MIB / 4;
        let translation = Translation::Wired;
        let options = CreateOptions { size_bytes, translation, ..CreateOptions::default() };
        let object = self.again(|host| host.create(&name(number), &options, None))?;
        let closed_in = self.deaths.load(Ordering::SeqCst);
        self.known[number] = Some(Known { size: size_bytes, value: 0, closed_in });
        Ok(object)
    }

    fn replace(&mut self, number: usize) -> Result<()> {
        if self.known[number].take().is_some() {
            self.remove(number)?;
        }
        self.make(number).map(drop)
    }

    fn remove(&mut self, number: usize) -> Result<()> {
        match self.again(|host| host.remove(&name(number))) {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()), // it was asked again, of the next host
            other => Ok(other?),
        }
    }

    /// Brings it in, looks at it, and writes it anew.
    fn use_one(&mut self, number: usize) -> Result<()> {
        let Some(known) = self.known[number].take() else { return self.make(number).map(drop) };
        let entry = self.again(|host| host.stat(&name(number)));
        let is_on_disk = matches!(entry, Ok(EntryInfo::Object(info)) if info.spilled_bytes > 0);
        self.on_disk += u64::from(is_on_disk);
        let opened = self.again(|host| host.open(&name(number), Access::ReadWrite));
        let object = match opened {
            Ok(object) => object,
            // What nobody had open dies with the two; its name, too, if they died when it was just made.
            Err(error)
                if [ErrorKind::Lost, ErrorKind::NotFound].contains(&error.kind)
                    && self.deaths.load(Ordering::SeqCst) > known.closed_in =>
            {
                self.gone += 1;
                return self.remove(number);
            }
            Err(error) => return Err(error.into()),
        };
        let mapping = self.again(|_| object.map(&objects::everything()))?;
        let view = View::of(&mapping);
        let pages = (known.size as usize) / PAGE;
        let differs = |page: &usize| view.read_word(page * PAGE) != known.value;
        self.differ += (0..pages).filter(differs).count() as u64;
        self.checked += pages as u64;
        self.values += 1;
        (0..pages).for_each(|page| view.write_word(page * PAGE, self.values));
        drop(mapping);
        // Before it is closed: from then on it may die with the two.
        let closed_in = self.deaths.load(Ordering::SeqCst);
        self.known[number] = Some(Known { value: self.values, closed_in, ..known });
        Ok(())
    }

    /// There may be no pages for a moment, or no host.
    fn again<T>(&mut self, call: impl Fn(&Host) -> commonhold::Result<T>) -> commonhold::Result<T> {
        let begun = Instant::now();
        loop {
            let error = match call(self.host) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let passes = [ErrorKind::NoSpace, ErrorKind::Busy, ErrorKind::Disconnected].contains(&error.kind);
            if !passes || begun.elapsed() > PATIENCE {
                return Err(error);
            }
            self.refused += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn strike(bench: &BenchHost, random: &mut Random, deaths: &AtomicU64) -> Result<()> {
    std::thread::sleep(Duration::from_millis(random.random_range(5..200)));
    let [served_by, kept_by] = bench.processes()?;
    let (host, keeper) = (process::identity(served_by)?, process::identity(kept_by)?);
    // A keeper waits longer each time that its host dies young.
    if random.random_bool(0.5) {
        processes::kill(host);
    } else {
        deaths.fetch_add(1, Ordering::SeqCst);
        processes::kill(keeper);
        processes::kill(host);
        while process::is_alive(host) || process::is_alive(keeper) {
            std::thread::sleep(Duration::from_millis(1));
        }
        deaths.fetch_add(1, Ordering::SeqCst);
        bench.start_again()?;
    }
    let begun = Instant::now();
    while !bench.processes().is_ok_and(|[served_by, _]| served_by != host.pid) {
        if begun.elapsed() > PATIENCE {
            return failed("no other host came");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

impl Row for Lost {
    fn id(&self) -> &'static str {
        "swap.lost"
    }

    fn unit(&self) -> &'static str {
        "pages"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn about(&self) -> &'static str {
        "pages of wired objects that are not as they were written, of three times as many as there is memory for, which go to disk, \
         come back and move while the host is killed 500 times, half of them together with its keeper"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let pool =
            Pool::more(POOL).or_else(|error| skipped(format!("{POOL} huge pages cannot be had: {error}")))?;
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let (stop, deaths) = (AtomicBool::new(false), AtomicU64::new(0));
        let kills = context.pick(500, 16);
        let mut random = context.random(1);
        let (struck, world) = std::thread::scope(|scope| {
            let user = scope.spawn(|| {
                let known = std::iter::repeat_with(|| None).take(OBJECTS).collect();
                let (random, deaths) = (context.random(2), &deaths);
                let mut world = World {
                    host: &host,
                    random,
                    known,
                    deaths,
                    values: 0,
                    differ: 0,
                    checked: 0,
                    on_disk: 0,
                    gone: 0,
                    refused: 0,
                };
                world.go_on(&stop).map(|()| world)
            });
            let struck: Result<()> = (0..kills).try_for_each(|_| {
                if user.is_finished() { Ok(()) } else { strike(&bench, &mut random, &deaths) }
            });
            stop.store(true, Ordering::Relaxed);
            let world = user.join().unwrap_or_else(|_| failed("the objects' user panicked"));
            (struck, world)
        });
        let world = world?;
        struck?;
        drop(pool);
        if world.on_disk == 0 {
            return failed("no object was on disk");
        }
        let detail = json!({
            "kills": kills,
            "of host and keeper together": deaths.load(Ordering::SeqCst) / 2,
            "pages looked at": world.checked,
            "objects brought in from disk": world.on_disk,
            "objects that nobody had open and that died with the two": world.gone,
            "calls that were tried again": world.refused,
        });
        Ok(Measured::single(world.differ as f64, kills, detail))
    }
}
