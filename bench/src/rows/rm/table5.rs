//! Table 5: a file sent and received by TCP.

use super::super::wired;
use super::memory::{Kind, Maker, Memory};
use super::round::Rounds;
use super::{Found, Line, Table};
use crate::conclusions::{Conclusion, named};
use crate::context::Context;
use crate::failure::Result;
use crate::measure::{least, most, seconds};
use crate::processes::thread_faults;
use crate::row::Bar;
use crate::transfer::{fill_from, fill_from_file, pour_to, pour_to_file};
use crate::view::{View, memory_file};
use crate::worker::Worker;
use crate::workers::tcp_peer::{SEND, TAKE, request};
use commonhold::Inherit;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

/// The row.
pub const TABLE_5: Table = Table {
    id: "mach.rm_table5",
    about: "Bernadat & Black's Table 5, a file sent and received by TCP (loopback) through memory \
            without an object, paged and wired objects: KB/s, in new memory and in memory that is \
            there",
    measure,
};

const BLOCK: usize = 64 << 10;

const KINDS: [(Kind, &str); 3] = [
    (Kind::Plain, "no object"),
    (Kind::Paged(Inherit::Share), "paged"),
    (Kind::Wired(Inherit::Share), "wired"),
];
const PAGED: usize = 1;
const WIRED: usize = 2;

/// Send or receive; in new memory, which is made in the time, or in what the same memory is then.
const WORK: [&str; 4] = ["send", "receive", "send, memory is there", "receive, memory is there"];
const PUBLISHED: [Option<(f64, f64)>; 4] = [Some((110.0, 100.0)), Some((200.0, 180.0)), None, None];

struct Sides<'h> {
    maker: Maker<'h>,
    file: OwnedFd,
    socket: TcpStream,
    bytes: usize,
}

impl Sides<'_> {
    /// The file through the memory to the peer, until it has said that all is there.
    fn send(&mut self, view: View<'_>) -> Result<()> {
        self.socket.write_all(&request(TAKE, self.bytes as u64))?;
        for at in (0..self.bytes).step_by(BLOCK) {
            fill_from_file(&self.file, at as u64, view.part(at, BLOCK))?;
            pour_to(&self.socket, view.part(at, BLOCK))?;
        }
        Ok(self.socket.read_exact(&mut [0])?)
    }

    /// What the peer sends through the memory to the file.
    fn receive(&mut self, view: View<'_>) -> Result<()> {
        self.socket.write_all(&request(SEND, self.bytes as u64))?;
        for at in (0..self.bytes).step_by(BLOCK) {
            fill_from(&self.socket, view.part(at, BLOCK))?;
            pour_to_file(&self.file, at as u64, view.part(at, BLOCK))?;
        }
        Ok(())
    }

    /// New memory, and then the same again: seconds of each, and faults.
    fn twice(&mut self, kind: Kind, sends: bool) -> Result<([f64; 2], [u64; 2])> {
        let mut memory: Option<Memory> = None;
        let (mut times, mut faults) = ([0.0; 2], [0; 2]);
        for again in 0..2 {
            let before = thread_faults();
            times[again] = seconds(|| {
                if again == 0 {
                    memory = Some(self.maker.make(kind, self.bytes)?);
                }
                let Some(view) = memory.as_ref().map(Memory::view) else { return Ok(()) };
                if sends { self.send(view) } else { self.receive(view) }
            })?;
            faults[again] = thread_faults() - before;
        }
        memory.map_or(Ok(()), |memory| self.maker.end(memory))?;
        Ok((times, faults))
    }
}

/// By work and kind: seconds, and faults a page (the most of any round).
struct Figures {
    times: [[f64; 3]; 4],
    faults: [[f64; 3]; 4],
    /// Wired as fast as paged, by work: medians of rounds.
    relative: [f64; 4],
}

fn measure(context: &Context) -> Result<Found> {
    let bytes = context.pick(64 << 20, 4 << 20);
    let (_bench, host, _pool) = wired::begin(context, 2 * bytes + (8 << 20))?;
    let maker = Maker::new(&host, bytes)?;
    let mut peer = Worker::start::<&str>("tcp-peer", &[])?;
    let port: u16 = peer.line()?.parse()?;
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_nodelay(true)?;
    let mut sides = Sides { maker, file: memory_file(bytes)?, socket, bytes };
    // The file gets its bytes.
    sides.twice(Kind::Plain, false)?;
    let mut times = vec![vec![Vec::new(); KINDS.len()]; WORK.len()];
    let mut faults = [[0.0_f64; 3]; 4];
    let runs = context.pick(15, 3);
    // A measurement is both, new and again; the rounds are of the first.
    let rounds = Rounds::run(2 * KINDS.len(), runs, |n| {
        let (kind, sends) = (n % KINDS.len(), n < KINDS.len());
        let (took, counted) = sides.twice(KINDS[kind].0, sends)?;
        for again in 0..2 {
            let work = 2 * again + usize::from(!sends);
            times[work][kind].push(took[again]);
            let pages = counted[again] as f64 / (bytes / 4096) as f64;
            faults[work][kind] = faults[work][kind].max(pages);
        }
        Ok(took[0])
    })?;
    let median = |work: usize, kind: usize| crate::measure::median(&times[work][kind]);
    let ratio = |work: usize| {
        let pairs = times[work][PAGED].iter().zip(&times[work][WIRED]);
        crate::measure::median(&pairs.map(|(paged, wired)| paged / wired).collect::<Vec<_>>())
    };
    let figures = Figures {
        times: std::array::from_fn(|work| std::array::from_fn(|kind| median(work, kind))),
        faults,
        relative: std::array::from_fn(ratio),
    };
    Ok(Found {
        runs: rounds.len(),
        lines: lines(&figures, bytes),
        conclusions: conclude(&figures),
        notes: vec![
            format!(
                "KB (10³ bytes) a second; {} MiB, 64 KiB at a time, each at its own place in \
                 the memory.",
                bytes >> 20
            ),
            "The file lies in memory (a memfd), so that no disk is timed. Sending ends with the \
             peer's word that all is there. The first two lines include making and mapping the \
             memory."
                .into(),
            "Faults are those of the calling thread by page, also within calls, the most of any \
             round; those of wired memory, new, are pages of the library's own memory and the \
             making of an arena's mapping."
                .into(),
        ],
    })
}

fn lines(figures: &Figures, bytes: usize) -> Vec<Line> {
    let line = |work: usize| {
        let mut line = Line::new(WORK[work]);
        for (kind, (_, name)) in KINDS.iter().enumerate() {
            line = line.with(name, bytes as f64 / 1e3 / figures.times[work][kind]);
        }
        for (kind, column) in ["faults, no object", "faults, paged", "faults, wired"].iter().enumerate() {
            line = line.with(column, figures.faults[work][kind]);
        }
        line.with("relative", figures.relative[work])
            .maybe("paper: paged", PUBLISHED[work].map(|both| both.0))
            .maybe("paper: real memory", PUBLISHED[work].map(|both| both.1))
            .maybe("paper: relative", PUBLISHED[work].map(|both| both.1 / both.0))
    };
    (0..WORK.len()).map(line).collect()
}

fn conclude(figures: &Figures) -> Vec<Conclusion> {
    let there = [("send", figures.relative[2]), ("receive", figures.relative[3])];
    let values = |named: &[(&str, f64); 2]| [named[0].1, named[1].1];
    vec![
        Conclusion::new(
            "sending and receiving are slower on real memory, by the copies that it makes (0.91 \
             and 0.9)",
            named("relative, where the memory is there, the most", &there),
            most(&values(&there)),
            Bar::AtMost(0.97),
        )
        .unless(
            "the kernel's sockets copy from and to wired memory as from and to any other: \
             there is no copy more",
        ),
        Conclusion::new(
            "they are slower by no more than a tenth: what waits for the network does not wait for \
             the copies",
            named("relative, where the memory is there, the least", &there),
            least(&values(&there)),
            Bar::AtLeast(0.88),
        )
        .unless("there is no network here to wait for"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::held;
    use super::*;

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        let figures = |relative| Figures { times: [[1.0; 3]; 4], faults: [[0.0; 3]; 4], relative };
        assert_eq!(held(&conclude(&figures([0.5, 0.6, 0.91, 0.9]))), (2, 2));
        assert_eq!(held(&conclude(&figures([0.5, 1.1, 0.5, 1.4]))), (0, 2));
    }
}
