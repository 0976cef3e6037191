//! `sharer`: a client of one host of a cluster, which does with one shared object what it is told, line by line.

use crate::failure::{Failure, Result, failed};
use crate::measure::seconds;
use crate::objects;
use crate::view::{PAGE, View};
use crate::worker;
use commonhold::{
    Access, Coherence, CreateOptions, ErrorKind, Host, MapOptions, Mapping, Object, OnLoss, PageSize,
    PagerKind, Sharing, SyncMode,
};
use std::hint::black_box;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an object of another host may take to be found.
const DEADLINE: Duration = Duration::from_secs(20);

/// Serves until its input ends.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state] = arguments else { return failed("sharer takes a state directory") };
    let mut sharer = Sharer { host: Host::connect_to(Path::new(state))?, object: None, mapping: None };
    worker::say("ready")?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        worker::say(&sharer.act(&words)?)?;
    }
    Ok(())
}

struct Sharer {
    host: Host,
    object: Option<Object>,
    mapping: Option<Mapping>,
}

impl Sharer {
    fn act(&mut self, words: &[&str]) -> Result<String> {
        let done = || Ok("done".to_owned());
        match words {
            ["create", name, size, hold, scheduler] => {
                let options = CreateOptions { size_bytes: size.parse()?, ..strict(scheduler, hold)? };
                self.create(name, &options, None).and_then(|()| done())
            }
            ["create-in-pages", name, size, page] => {
                let page_size = PageSize::new(page.parse()?)?;
                let options =
                    CreateOptions { size_bytes: size.parse()?, page_size, ..strict("central", "-")? };
                self.create(name, &options, None).and_then(|()| done())
            }
            ["create-on-file", name, path] => {
                let file = std::fs::File::options().read(true).write(true).open(path)?;
                let on_file = CreateOptions {
                    pager: PagerKind::File,
                    sync: SyncMode::Ordered,
                    ..strict("forwarding", "-")?
                };
                self.create(name, &on_file, Some(&file)).and_then(|()| done())
            }
            ["open", name] => self.open(name).and_then(|()| done()),
            ["tag", tag] => {
                self.object()?.tag(0, 0, tag)?;
                done()
            }
            ["map-private"] => {
                let options = MapOptions { sharing: Sharing::Private, ..objects::everything() };
                self.mapping = Some(self.object()?.map(&options)?);
                done()
            }
            ["close"] => {
                self.mapping = None;
                self.object = None;
                done()
            }
            ["remove", name] => {
                self.host.remove(name)?;
                done()
            }
            ["write-all"] => {
                self.view()?.write_pages();
                done()
            }
            ["touch", what, gap, pages @ ..] => touch(self.view()?, *what == "write", gap.parse()?, pages),
            ["sum"] => in_seconds(|| self.view().map(View::sum_words)),
            ["touch-pages"] => in_seconds(|| self.view().map(View::touch_pages)),
            ["write-pages"] => in_seconds(|| self.view().map(View::write_pages)),
            ["getc"] => in_seconds(|| getc(self.object()?)),
            ["read-blocks"] => in_seconds(|| read_blocks(self.object()?)),
            ["read-bytes", offsets @ ..] => read_bytes(self.object()?, offsets),
            ["probe", offsets @ ..] => probe(self.view()?, offsets),
            ["add-one"] => Ok(add_one(self.view()?, false)),
            ["add-one", "atomically"] => Ok(add_one(self.view()?, true)),
            ["add", time] => Ok(add(self.view()?, Duration::from_micros(time.parse()?))),
            _ => failed(format!("sharer does not know `{}`", words.join(" "))),
        }
    }

    fn view(&self) -> Result<View<'_>> {
        self.mapping.as_ref().map(View::of).ok_or_else(|| Failure::Failed("nothing is mapped".into()))
    }

    fn object(&self) -> Result<&Object> {
        self.object.as_ref().ok_or_else(|| Failure::Failed("nothing is open".into()))
    }

    fn create(&mut self, name: &str, options: &CreateOptions, file: Option<&std::fs::File>) -> Result<()> {
        let object = self.host.create(name, options, file.map(AsFd::as_fd))?;
        self.mapping = Some(object.map(&objects::everything())?);
        self.object = Some(object);
        Ok(())
    }

    fn open(&mut self, name: &str) -> Result<()> {
        let deadline = Instant::now() + DEADLINE;
        let object = loop {
            match self.host.open(name, Access::ReadWrite) {
                Ok(object) => break object,
                Err(error) if error.kind != ErrorKind::NotFound || Instant::now() > deadline => {
                    return Err(error.into());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        self.mapping = Some(object.map(&objects::everything())?);
        self.object = Some(object);
        Ok(())
    }
}

/// Strict, by that scheduler; no hold (`-`): the scheduler's own.
fn strict(scheduler: &str, hold: &str) -> Result<CreateOptions> {
    let mut coherence = match scheduler {
        "central" => Coherence::central(OnLoss::Error),
        "forwarding" => Coherence::strict(OnLoss::Error),
        other => return failed(format!("an object is scheduled central or forwarding, not {other}")),
    };
    if hold != "-" {
        coherence = coherence.with_hold(hold.parse()?);
    }
    Ok(CreateOptions { coherence, reserve: Some(false), ..CreateOptions::default() })
}

fn in_seconds<T>(work: impl FnOnce() -> Result<T>) -> Result<String> {
    Ok(seconds(|| work().map(black_box))?.to_string())
}

fn touch(view: View<'_>, write: bool, gap_us: u64, pages: &[&str]) -> Result<String> {
    let pages: std::result::Result<Vec<usize>, _> = pages.iter().map(|page| page.parse()).collect();
    let mut times = String::new();
    for page in pages? {
        if gap_us > 0 {
            std::thread::sleep(Duration::from_micros(gap_us));
        }
        let offset = page * PAGE;
        let before = Instant::now();
        if write {
            view.write_word(offset, 1);
        } else {
            black_box(view.read_byte(offset));
        }
        times.push_str(&format!("{} ", before.elapsed().as_nanos()));
    }
    Ok(times)
}

/// Blocks of a page, copied out one by one.
fn read_blocks(object: &Object) -> Result<u64> {
    let (mut block, mut at, end) = ([0; PAGE], 0, object.size_bytes());
    while at < end {
        let part = (end - at).min(PAGE as u64) as usize;
        object.read_at(&mut block[..part], at)?;
        black_box(&block);
        at += part as u64;
    }
    Ok(at)
}

/// Byte by byte, by way of a buffer of a page, as stdio does it.
fn getc(object: &Object) -> Result<u64> {
    let (mut block, mut sum, end) = ([0; PAGE], 0u64, object.size_bytes());
    for at in 0..end {
        let within = (at % PAGE as u64) as usize;
        if within == 0 {
            let part = (end - at).min(PAGE as u64) as usize;
            object.read_at(&mut block[..part], at)?;
        }
        sum += u64::from(black_box(&block)[within]);
    }
    Ok(sum)
}

fn read_bytes(object: &Object, offsets: &[&str]) -> Result<String> {
    let offsets: std::result::Result<Vec<u64>, _> = offsets.iter().map(|offset| offset.parse()).collect();
    let offsets = offsets?;
    in_seconds(|| {
        let mut byte = [0];
        offsets.iter().try_for_each(|offset| object.read_at(black_box(&mut byte), *offset))?;
        Ok(())
    })
}

fn probe(view: View<'_>, offsets: &[&str]) -> Result<String> {
    let offsets: std::result::Result<Vec<usize>, _> = offsets.iter().map(|offset| offset.parse()).collect();
    let offsets = offsets?;
    in_seconds(|| Ok(offsets.iter().map(|offset| u64::from(view.read_byte(*offset))).sum::<u64>()))
}

/// Adds one to the first word until the time is over: how often, and how often another had added meanwhile.
fn add_one(view: View<'_>, atomically: bool) -> String {
    let begin = Instant::now();
    let before = if atomically {
        view.increment(0)
    } else {
        let before = view.read_word(0);
        view.write_word(0, before + 1);
        before
    };
    format!("{before} {}", begin.elapsed().as_nanos())
}

fn add(view: View<'_>, time: Duration) -> String {
    let (mut times, mut came, mut last) = (0u64, 0u64, u64::MAX);
    let begin = Instant::now();
    while begin.elapsed() < time {
        let before = view.increment(0);
        came += u64::from(before != last);
        last = before + 1;
        times += 1;
    }
    format!("{times} {came} {}", begin.elapsed().as_secs_f64())
}
