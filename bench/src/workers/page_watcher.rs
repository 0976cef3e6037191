//! `page-watcher`: a client of one host that notes until when it could read the pages that it has.
//!
//! Threads read windows of pages that lie all over the object, each until a read has to wait. The
//! page tables tell of all other pages.

use crate::failure::{Failure, Result, failed};
use crate::measure::seconds;
use crate::objects;
use crate::view::{PAGE, View};
use crate::worker;
use commonhold::{Access, Coherence, CreateOptions, ErrorKind, Host, Mapping, OnLoss};
use commonhold_sys::clock;
use std::fs::File;
use std::hint::black_box;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an object of another host may take to be found.
const DEADLINE: Duration = Duration::from_secs(20);
/// Threads that write pages when all are written.
const WRITERS: usize = 8;
/// Windows of pages that are read all the time.
const WINDOWS: usize = 16;
/// Pages of a window, at most.
const WINDOW: usize = 64;
/// A read that takes so long has waited for a host: the page was not there any more.
const WAITED: u64 = 50_000_000;
/// Between two rounds through a window.
const GAP: Duration = Duration::from_millis(1);
/// Between two looks at the page tables.
const LOOK: Duration = Duration::from_millis(20);
/// Pages whose entries are read at once.
const AT_ONCE: usize = 8192;
/// The bit of a page table's entry that says that the page is there.
const PRESENT: u64 = 1 << 63;

/// Serves until its input ends.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state] = arguments else { return failed("page-watcher takes a state directory") };
    let host = Host::connect_to(Path::new(state))?;
    let mut mapping = None;
    worker::say("ready")?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        worker::say(&act(&host, &mut mapping, &words)?)?;
    }
    Ok(())
}

fn act(host: &Host, mapping: &mut Option<&'static Mapping>, words: &[&str]) -> Result<String> {
    let mapped = || mapping.ok_or_else(|| Failure::Failed("nothing is mapped".into()));
    let view = || mapped().map(View::of);
    match words {
        ["create", name, size] => {
            let options = CreateOptions {
                size_bytes: size.parse()?,
                coherence: Coherence::strict(OnLoss::Revert),
                reserve: Some(false),
                ..CreateOptions::default()
            };
            *mapping = Some(keep(host.create(name, &options, None)?.map(&objects::everything())?));
            Ok("done".into())
        }
        ["open", name] => {
            *mapping = Some(keep(open(host, name)?));
            Ok("done".into())
        }
        ["write-all"] => Ok(seconds(|| view().map(write_all))?.to_string()),
        ["read-all"] => Ok(seconds(|| view().map(|view| black_box(view.touch_pages())))?.to_string()),
        ["write-last"] => {
            let view = view()?;
            view.write_word((view.pages() - 1) * PAGE, u64::MAX);
            Ok(clock::now().to_string())
        }
        ["watch", until] => watch(mapped()?, until.parse()?),
        _ => failed(format!("page-watcher does not know `{}`", words.join(" "))),
    }
}

/// Several threads write, because each write of a page that another host has waits for that host.
fn write_all(view: View<'static>) {
    let each = view.pages().div_ceil(WRITERS);
    let write =
        move |pages: Range<usize>| pages.for_each(|page| view.write_word(page * PAGE, page as u64 + 1));
    std::thread::scope(|scope| {
        for first in (0..view.pages()).step_by(each.max(1)) {
            scope.spawn(move || write(first..(first + each).min(view.pages())));
        }
    });
}

/// For as long as the process lives: threads that wait for a page of it never end.
fn keep(mapping: Mapping) -> &'static Mapping {
    Box::leak(Box::new(mapping))
}

fn open(host: &Host, name: &str) -> Result<Mapping> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match host.open(name, Access::ReadWrite) {
            Ok(object) => return Ok(object.map(&objects::everything())?),
            Err(error) if error.kind != ErrorKind::NotFound || Instant::now() > deadline => {
                return Err(error.into());
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// What the threads that read have noted: it is known even of a thread that waits for a page.
#[derive(Default)]
struct Notes {
    /// When the last read was done that did not wait.
    at: AtomicU64,
    reads: AtomicU64,
}

/// What the page tables say.
struct Look {
    /// Pages that are there, but for those that threads here touch.
    present: u64,
    /// When the last of them was seen.
    at: u64,
}

/// Watches until that instant, or until no page is in the page tables any more. Gives when the last
/// read was done that did not wait, how many reads there were, when the page tables last had a page
/// that nobody here touches, and how often they were looked at. A thread that waits for a page is
/// left behind.
fn watch(mapping: &'static Mapping, until: u64) -> Result<String> {
    let view = View::of(mapping);
    let windows = windows(view.pages());
    let tables = File::open("/proc/self/pagemap")?;
    let mut seen = look(&tables, mapping, &windows)?;
    if seen.present == 0 {
        return failed("no page is in the page tables before anything has happened");
    }
    let notes = Arc::new(Notes::default());
    for pages in windows.clone() {
        let notes = notes.clone();
        std::thread::spawn(move || read_window(view, pages, until, &notes));
    }
    let (mut at, mut looks) = (seen.at, 1u64);
    while seen.present > 0 && clock::now() < until {
        std::thread::sleep(LOOK);
        seen = look(&tables, mapping, &windows)?;
        (at, looks) = (at.max(seen.at), looks + 1);
    }
    // Threads end by themselves at that instant, or wait for a page.
    clock::sleep_until(until);
    let (read_at, reads) = (notes.at.load(Ordering::SeqCst), notes.reads.load(Ordering::SeqCst));
    Ok(format!("{read_at} {reads} {at} {looks}"))
}

/// Pages that are read all the time: of the begin, the end, and between.
fn windows(pages: usize) -> Vec<Range<usize>> {
    let length = WINDOW.min(pages / WINDOWS).max(1);
    let last = pages - length;
    (0..WINDOWS).map(|n| last * n / (WINDOWS - 1)).map(|first| first..first + length).collect()
}

fn read_window(view: View<'static>, pages: Range<usize>, until: u64, notes: &Notes) {
    loop {
        for page in pages.clone() {
            let before = clock::now();
            black_box(view.read_word(page * PAGE));
            let after = clock::now();
            if after - before > WAITED || after > until {
                return;
            }
            notes.at.fetch_max(after, Ordering::SeqCst);
            notes.reads.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(GAP);
    }
}

fn look(tables: &File, mapping: &Mapping, windows: &[Range<usize>]) -> Result<Look> {
    let (first, pages) = (mapping.as_ptr() as usize / PAGE, mapping.len() / PAGE);
    let mut bytes = vec![0; AT_ONCE * 8];
    let mut seen = Look { present: 0, at: 0 };
    for from in (0..pages).step_by(AT_ONCE) {
        let count = AT_ONCE.min(pages - from);
        tables.read_exact_at(&mut bytes[..count * 8], ((first + from) * 8) as u64)?;
        let is_there = |entry: &[u8; 8]| u64::from_ne_bytes(*entry) & PRESENT != 0;
        let touched = |page: usize| windows.iter().any(|window| window.contains(&page));
        let (entries, _) = bytes[..count * 8].as_chunks();
        let here = entries.iter().zip(from..).filter(|(entry, page)| is_there(entry) && !touched(*page));
        let here = here.count() as u64;
        if here > 0 {
            (seen.present, seen.at) = (seen.present + here, clock::now());
        }
    }
    Ok(seen)
}
