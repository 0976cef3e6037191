//! Table 4: a file of 8 MiB written and copied to /dev/null, through a server.

use super::super::wired;
use super::memory::options;
use super::round::Rounds;
use super::{ALIKE, Found, Line, Table};
use crate::conclusions::{Conclusion, furthest, named};
use crate::context::Context;
use crate::failure::Result;
use crate::host::BenchHost;
use crate::measure::{least, median, most, seconds};
use crate::objects;
use crate::placement::Placement;
use crate::row::Bar;
use crate::transfer::pour_to;
use crate::view::View;
use crate::worker::Worker;
use crate::workers::file_server::{BLOCK, EMPTY, END, FORGET, READ, SYNC, WRITE};
use commonhold::{Channel, ChannelOptions, Host, Mapping, Object, Translation};
use std::ffi::OsString;
use std::fs::File;

/// The row.
pub const TABLE_4: Table = Table {
    id: "mach.rm_table4",
    about: "Bernadat & Black's Table 4, a file of 8 MiB made by a server for a client and copied \
            to /dev/null, whose bytes go by shared memory or in messages, paged and wired; in the \
            page cache, and with the disk",
    measure,
};

/// How the bytes go.
#[derive(Clone, Copy, Debug)]
struct Way {
    how: &'static str,
    translation: Translation,
    name: &'static str,
    published: Option<[f64; 2]>,
}

const WAYS: [Way; 4] = [
    Way {
        how: "shared",
        translation: Translation::Paged,
        name: "paged, shared memory",
        published: Some([450.0, 394.0]),
    },
    Way {
        how: "in-line",
        translation: Translation::Paged,
        name: "paged, in messages",
        published: Some([391.0, 320.0]),
    },
    Way {
        how: "landed",
        translation: Translation::Wired,
        name: "wired, in messages (landed)",
        published: Some([335.0, 301.0]),
    },
    Way { how: "shared", translation: Translation::Wired, name: "wired, shared memory", published: None },
];
const SHARED: usize = 0;
const IN_LINE: usize = 1;
const LANDED: usize = 2;

/// Client and server of one way.
struct Client {
    way: Way,
    ask: Channel,
    answer: Channel,
    server: Worker,
    /// Shared with the server, or where blocks land here.
    object: Object,
    memory: Mapping,
    /// The program's own: a block, behind its number.
    own: Vec<u8>,
    null: File,
    copied: u64,
    moved: u64,
}

impl Client {
    fn begin(context: &Context, bench: &BenchHost, host: &Host, n: usize) -> Result<Client> {
        let way = WAYS[n];
        let names = ["ask", "answer", "block", "own"].map(|what| format!("/bench/{what}-{n}"));
        let channel = ChannelOptions { translation: way.translation, ..ChannelOptions::default() };
        let (ask, answer) =
            (Channel::create(host, &names[0], &channel)?, Channel::create(host, &names[1], &channel)?);
        let make = |name: &str| host.create(name, &options(way.translation, BLOCK), None);
        let block = make(&names[2])?;
        let object = if way.how == "landed" { make(&names[3])? } else { block };
        let memory = object.map(&objects::everything())?;
        let path = context.directory.join(format!("file-{n}"));
        let words = [bench.state().into(), way.how.into(), path.into()];
        let words: Vec<OsString> = words.into_iter().chain(names[..3].iter().map(OsString::from)).collect();
        let server = Worker::start("file-server", &words)?;
        if way.how == "landed" {
            answer.post(&object, 0, BLOCK as u64)?;
        }
        let (own, null) = (vec![7; 8 + BLOCK], File::options().write(true).open("/dev/null")?);
        Ok(Client { way, ask, answer, server, object, memory, own, null, copied: 0, moved: 0 })
    }

    fn say(&mut self, what: u32) -> Result<()> {
        self.ask.send(what, b"", None)?;
        Ok(self.answer.receive(None).map(drop)?)
    }

    fn write(&mut self, block: u64) -> Result<()> {
        let number = block.to_le_bytes();
        match self.way.how {
            "in-line" => {
                self.own[..8].copy_from_slice(&number);
                self.ask.send(WRITE, &self.own, None)?;
            }
            "shared" => {
                View::of(&self.memory).write(0, &self.own[8..]);
                self.copied += BLOCK as u64;
                self.ask.send(WRITE, &number, None)?;
            }
            _ => self.ask.send_region(WRITE, &number, &self.own[8..], None)?,
        }
        self.moved += BLOCK as u64;
        Ok(self.answer.receive(None).map(drop)?)
    }

    fn read(&mut self, block: u64) -> Result<()> {
        use std::io::Write;
        self.ask.send(READ, &block.to_le_bytes(), None)?;
        self.moved += BLOCK as u64;
        let memory = View::of(&self.memory).part(0, BLOCK);
        match self.way.how {
            "in-line" => {
                self.answer.receive_into(&mut self.own, None)?;
                self.null.write_all(&self.own)?;
                self.own.resize(8 + BLOCK, 7);
            }
            "shared" => {
                self.answer.receive(None)?;
                memory.read(0, &mut self.own[8..]);
                self.copied += BLOCK as u64;
                self.null.write_all(&self.own[8..])?;
            }
            _ => {
                self.answer.receive(None)?;
                pour_to(&self.null, memory)?;
                self.answer.post(&self.object, 0, BLOCK as u64)?;
            }
        }
        Ok(())
    }

    /// How often a byte was copied between client and server, as both counted it.
    fn end(mut self) -> Result<f64> {
        let copied = self.copied + self.ask.copied_bytes() + self.answer.copied_bytes();
        self.ask.send(END, b"", None)?;
        let copied = copied + self.server.line()?.parse::<u64>()?;
        Ok(copied as f64 / self.moved as f64)
    }
}

/// What is done with the file.
const DONE: [&str; 4] =
    ["create", "create, to the disk", "copy to /dev/null", "copy to /dev/null, from the disk"];
const CREATE: usize = 0;
const COPY: usize = 2;

/// By what is done and by way: seconds. By way: copies of a byte.
struct Figures {
    times: [[f64; 4]; 4],
    copies: [f64; 4],
}

fn measure(context: &Context) -> Result<Found> {
    let bytes = context.pick(8 << 20, 1 << 20);
    let blocks = (bytes / BLOCK) as u64;
    let (bench, host, _pool) = wired::begin(context, 16 << 20)?;
    let place = Placement::begin()?;
    let mut clients = Vec::new();
    for n in 0..WAYS.len() {
        let client = Client::begin(context, &bench, &host, n)?;
        place.put(client.server.pid(), place.own())?;
        clients.push(client);
    }
    let mut times = vec![vec![Vec::new(); WAYS.len()]; DONE.len()];
    let rounds = Rounds::run(WAYS.len(), context.pick(21, 3), |n| {
        let client = &mut clients[n];
        client.say(EMPTY)?;
        let create = seconds(|| (0..blocks).try_for_each(|block| client.write(block)))?;
        let sync = seconds(|| client.say(SYNC))?;
        let copy = seconds(|| (0..blocks).try_for_each(|block| client.read(block)))?;
        client.say(FORGET)?;
        let from_disk = seconds(|| (0..blocks).try_for_each(|block| client.read(block)))?;
        for (done, time) in [create, create + sync, copy, from_disk].into_iter().enumerate() {
            times[done][n].push(time);
        }
        Ok(create)
    })?;
    let copies = clients.into_iter().map(Client::end).collect::<Result<Vec<f64>>>()?;
    let figures = Figures {
        times: std::array::from_fn(|done| std::array::from_fn(|way| median(&times[done][way]))),
        copies: std::array::from_fn(|way| copies[way]),
    };
    Ok(Found {
        runs: rounds.len(),
        lines: lines(&figures, bytes),
        conclusions: conclude(&figures),
        notes: vec![
            format!(
                "KB (10³ bytes) a second, {} KiB, 8 KiB at a time, each a message to the server \
                 and its answer; both sleep, on one processor.",
                bytes >> 10
            ),
            "The program's own memory is the beginning and the end of each way; copies are those \
             between client and server, without the file system's own, as both count them in the \
             code that copies."
                .into(),
            "The paper's DEFAULT server shares memory with its programs, its SMALL server gets \
             messages; real memory has messages alone. Wired shared memory has no counterpart \
             there."
                .into(),
            "A landing saves a copy of 8 KiB, and costs more than that: it is posted and taken each \
             time."
                .into(),
            "What is paged goes in line, copied: messages with regions by reference are not there \
             yet."
                .into(),
        ],
    })
}

fn lines(figures: &Figures, bytes: usize) -> Vec<Line> {
    let line = |(n, way): (usize, &Way)| {
        let rate = |done: usize| bytes as f64 / 1e3 / figures.times[done][n];
        let mut line = Line::new(way.name).with("copies of a byte", figures.copies[n]);
        for (done, column) in DONE.iter().enumerate() {
            line = line.with(column, rate(done));
        }
        line.maybe("paper: create", way.published.map(|both| both[0]))
            .maybe("paper: copy to /dev/null", way.published.map(|both| both[1]))
    };
    WAYS.iter().enumerate().map(line).collect()
}

fn conclude(figures: &Figures) -> Vec<Conclusion> {
    let relative = |above: usize, below: usize, done: usize| {
        (DONE[done], figures.times[done][above] / figures.times[done][below])
    };
    let cached = |above, below| [relative(above, below, CREATE), relative(above, below, COPY)];
    let with_disk = [relative(IN_LINE, LANDED, CREATE + 1), relative(IN_LINE, LANDED, COPY + 1)];
    let (shared, wired) = (cached(IN_LINE, SHARED), cached(IN_LINE, LANDED));
    let values = |named: &[(&str, f64); 2]| [named[0].1, named[1].1];
    vec![
        Conclusion::new(
            "with pages, shared memory is faster than messages (450 and 391, 394 and 320)",
            named("in messages ÷ by shared memory, page cache, the least", &shared),
            least(&values(&shared)),
            Bar::AtLeast(1.05),
        )
        .unless(
            "either way takes a message a block, and the one copy more is of what lies in the \
             processor's cache",
        ),
        Conclusion::new(
            "in messages, real memory implies two extra page copies",
            "copies of a byte, wired less paged",
            figures.copies[LANDED] - figures.copies[IN_LINE],
            Bar::Between(1.9, 2.1),
        )
        .unless("what lands is copied once, and what goes in line twice: wired memory saves a copy"),
        Conclusion::new(
            "in messages, real memory is slower (0.86 and 0.94)",
            named("relative, page cache, the most", &wired),
            most(&values(&wired)),
            Bar::AtMost(0.97),
        )
        .unless("it has no copy more, but one less"),
        Conclusion::new(
            "most of the time is spent waiting for the disk, beside which the extra copies do not \
             matter",
            named("relative, with the disk, what is furthest from 1", &with_disk),
            furthest(&values(&with_disk)),
            ALIKE,
        )
        .unless("the disk is as fast as memory, or the file came from its own cache"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::held;
    use super::*;

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        let rates: [[f64; 2]; 3] = std::array::from_fn(|n| WAYS[n].published.unwrap());
        let times = |which: usize| [rates[0], rates[1], rates[2], rates[0]].map(|both| 1.0 / both[which]);
        let (create, copy) = (times(0), times(1));
        let figures = Figures { times: [create, create, copy, copy], copies: [1.0, 2.0, 4.0, 1.0] };
        assert_eq!(held(&conclude(&figures)), (4, 4));
        let (fast, slow) = ([1.0, 1.0, 0.5, 1.0], [1.0, 1.0, 3.0, 1.0]);
        let figures = Figures { times: [fast, slow, fast, slow], copies: [1.0, 2.0, 1.0, 1.0] };
        assert_eq!(held(&conclude(&figures)), (0, 4));
    }
}
