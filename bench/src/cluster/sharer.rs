//! A process that uses an object by way of one host, as the row that started it sees it.

use crate::failure::{Result, failed};
use crate::faults::Touch;
use crate::worker::Worker;
use commonhold_simulator::measure::Strict;
use std::path::Path;
use std::time::Duration;

/// The process. It has one object mapped at a time.
#[derive(Debug)]
pub struct Sharer(Worker);

/// What a process that added to a word saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Added {
    /// How often it added one.
    pub times: u64,
    /// How often somebody else had added since its last time: so often the page came to it.
    pub came: u64,
    /// How long it took.
    pub seconds: f64,
}

impl Sharer {
    /// Starts one that is a client of the host of that state directory.
    pub fn start(state: &Path) -> Result<Sharer> {
        Ok(Sharer(Worker::start("sharer", &[state])?))
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Creates a strict object as it is unless somebody chooses its scheduler, and maps it. No hold: the scheduler's own.
    pub fn create(&mut self, name: &str, size_bytes: usize, hold: Option<Duration>) -> Result<()> {
        self.create_scheduled(name, size_bytes, hold, Strict::Forwarding)
    }

    /// Creates a strict object of that scheduler and maps it. No hold: the scheduler's own.
    pub fn create_scheduled(
        &mut self,
        name: &str,
        size_bytes: usize,
        hold: Option<Duration>,
        strict: Strict,
    ) -> Result<()> {
        let hold = hold.map_or("-".into(), |hold| hold.as_micros().to_string());
        let scheduler = match strict {
            Strict::Central => "central",
            Strict::Forwarding => "forwarding",
        };
        self.done(&format!("create {name} {size_bytes} {hold} {scheduler}"))
    }

    /// Writes the first word.
    pub fn write_first(&mut self) -> Result<()> {
        self.begin_write_first()?;
        self.wrote_first()
    }

    /// Begins to write the first word.
    pub fn begin_write_first(&mut self) -> Result<()> {
        self.0.tell("touch write 0 0")
    }

    /// Waits until it is written.
    pub fn wrote_first(&mut self) -> Result<()> {
        match numbers(&self.0.line()?)?[..] {
            [_] => Ok(()),
            _ => failed("a sharer wrote something else than the first word"),
        }
    }

    /// Creates a centrally scheduled object in pages of so many bytes, and maps it.
    pub fn create_in_pages(&mut self, name: &str, size_bytes: usize, page_bytes: u64) -> Result<()> {
        self.done(&format!("create-in-pages {name} {size_bytes} {page_bytes}"))
    }

    /// Creates a strict object on a file and maps it.
    pub fn create_on_file(&mut self, name: &str, file: &Path) -> Result<()> {
        self.done(&format!("create-on-file {name} {}", file.display()))
    }

    /// Opens an object, as soon as it is found, and maps it.
    pub fn open(&mut self, name: &str) -> Result<()> {
        self.done(&format!("open {name}"))
    }

    /// Maps what is open so that nobody else sees its writes.
    pub fn map_private(&mut self) -> Result<()> {
        self.done("map-private")
    }

    /// Says what is in all of its pages.
    pub fn tag(&mut self, tag: &str) -> Result<()> {
        self.done(&format!("tag {tag}"))
    }

    /// Unmaps and closes it.
    pub fn close(&mut self) -> Result<()> {
        self.done("close")
    }

    /// Removes an object.
    pub fn remove(&mut self, name: &str) -> Result<()> {
        self.done(&format!("remove {name}"))
    }

    /// Writes a word of every page, in order.
    pub fn write_all(&mut self) -> Result<()> {
        self.done("write-all")
    }

    /// Touches those pages in that order, after a sleep each where there is a gap; nanoseconds of each.
    pub fn touch(&mut self, touch: Touch, gap: Option<Duration>, pages: &[u32]) -> Result<Vec<f64>> {
        let what = if touch == Touch::Read { "read" } else { "write" };
        let mut line = format!("touch {what} {}", gap.map_or(0, |gap| gap.as_micros()));
        pages.iter().for_each(|page| line.push_str(&format!(" {page}")));
        numbers(&self.0.ask(&line)?)
    }

    /// Adds up every word, in order; seconds.
    pub fn sum(&mut self) -> Result<f64> {
        self.seconds("sum")
    }

    /// Reads one byte of every page, in order; seconds.
    pub fn touch_pages(&mut self) -> Result<f64> {
        self.seconds("touch-pages")
    }

    /// Writes a word of every page, in order; seconds.
    pub fn write_pages(&mut self) -> Result<f64> {
        self.seconds("write-pages")
    }

    /// Reads all of the object byte by byte, by way of a buffer of a page that is copied into; seconds.
    pub fn getc(&mut self) -> Result<f64> {
        self.seconds("getc")
    }

    /// Copies all of the object out, a page at a time; seconds.
    pub fn read_blocks(&mut self) -> Result<f64> {
        self.seconds("read-blocks")
    }

    /// Touches single bytes at those offsets; seconds.
    pub fn probe(&mut self, offsets: &[usize]) -> Result<f64> {
        self.seconds(&format!("probe {}", words(offsets)))
    }

    /// Copies single bytes out from those offsets; seconds.
    pub fn read_bytes(&mut self, offsets: &[usize]) -> Result<f64> {
        self.seconds(&format!("read-bytes {}", words(offsets)))
    }

    /// Adds one to the first word, by an atomic addition or by a load and a store; what was there, and nanoseconds.
    pub fn add_one(&mut self, atomically: bool) -> Result<(u64, f64)> {
        let line = self.0.ask(if atomically { "add-one atomically" } else { "add-one" })?;
        match numbers(&line)?[..] {
            [before, nanoseconds] => Ok((before as u64, nanoseconds)),
            _ => failed(format!("a sharer said `{line}`")),
        }
    }

    /// Begins to add one to the first word, as fast as it can, for so long.
    pub fn begin_adding(&mut self, time: Duration) -> Result<()> {
        self.0.tell(&format!("add {}", time.as_micros()))
    }

    /// What came of it.
    pub fn added(&mut self) -> Result<Added> {
        let line = self.0.line()?;
        match numbers(&line)?[..] {
            [times, came, seconds] => Ok(Added { times: times as u64, came: came as u64, seconds }),
            _ => failed(format!("a sharer said `{line}`")),
        }
    }

    fn done(&mut self, line: &str) -> Result<()> {
        self.0.tell(line)?;
        self.0.expect("done")
    }

    fn seconds(&mut self, line: &str) -> Result<f64> {
        let answer = self.0.ask(line)?;
        match numbers(&answer)?[..] {
            [seconds] => Ok(seconds),
            _ => failed(format!("a sharer said `{answer}`")),
        }
    }
}

fn words(offsets: &[usize]) -> String {
    offsets.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")
}

fn numbers(line: &str) -> Result<Vec<f64>> {
    let parsed: std::result::Result<Vec<f64>, _> = line.split_ascii_whitespace().map(str::parse).collect();
    parsed.or_else(|_| failed(format!("a sharer said `{line}`")))
}
