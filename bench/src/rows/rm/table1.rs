//! Table 1: remote procedure calls that carry nothing, 4, 8 and 16 KiB.

use super::super::{ipc, wired};
use super::round::Rounds;
use super::{ALIKE, Found, Line, MOST, Table};
use crate::conclusions::{Conclusion, furthest, named};
use crate::context::Context;
use crate::failure::Result;
use crate::host::BenchHost;
use crate::measure::seconds;
use crate::objects;
use crate::placement::Placement;
use crate::row::Bar;
use crate::view::{RawMapping, View};
use crate::worker::Worker;
use crate::workers::channel_partner::{END, MAP};
use commonhold::{Access, Channel, ChannelOptions, CreateOptions, Host, Mapping, Object, Translation};

/// The row.
pub const TABLE_1: Table = Table {
    id: "mach.rm_table1",
    about: "Bernadat & Black's Table 1, calls that carry nothing, 4, 8 and 16 KiB to another \
            process, and an empty answer: in line through paged and through wired channels, \
            landed in wired memory, and by reference, mapped by who receives it",
    measure,
};

const SIZES: [usize; 4] = [0, 4 << 10, 8 << 10, 16 << 10];
const LARGEST: usize = SIZES.len() - 1;

/// How the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    PagedInLine,
    WiredInLine,
    WiredLanded,
    PagedByReference,
}

const WAYS: [Way; 4] = [Way::PagedInLine, Way::WiredInLine, Way::WiredLanded, Way::PagedByReference];

impl Way {
    fn column(self) -> &'static str {
        match self {
            Way::PagedInLine => "paged, in line, µs",
            Way::WiredInLine => "wired, in line, µs",
            Way::WiredLanded => "wired, landed, µs",
            Way::PagedByReference => "paged, by reference, µs",
        }
    }

    fn copies(self) -> &'static str {
        match self {
            Way::PagedInLine => "copies, paged in line",
            Way::WiredInLine => "copies, wired in line",
            Way::WiredLanded => "copies, wired landed",
            Way::PagedByReference => "copies, paged by reference",
        }
    }

    fn translation(self) -> Translation {
        match self {
            Way::PagedInLine | Way::PagedByReference => Translation::Paged,
            Way::WiredInLine | Way::WiredLanded => Translation::Wired,
        }
    }
}

/// The paper's times: with pages (out of line, by reference), and without.
const PUBLISHED: [(f64, f64); 4] = [(310.0, 290.0), (730.0, 2640.0), (730.0, 4320.0), (730.0, 7930.0)];

/// One way and one size: two channels, and who answers.
struct Call {
    way: Way,
    size: usize,
    ask: Channel,
    answer: Channel,
    partner: Worker,
    /// Whose pages go by reference. It is mapped, and was written.
    region: Option<(Object, Mapping)>,
    calls: u64,
}

impl Call {
    fn begin(bench: &BenchHost, host: &Host, way: Way, size: usize) -> Result<Call> {
        let names = ["ask", "answer", "landing"].map(|what| format!("/bench/{what}-{way:?}-{size}"));
        let options = ChannelOptions { translation: way.translation(), ..ChannelOptions::default() };
        let ask = Channel::create(host, &names[0], &options)?;
        let answer = Channel::create(host, &names[1], &options)?;
        let mut region = None;
        let partner = match way {
            Way::WiredLanded if size > 0 => {
                wired::create(host, &names[2], size)?;
                ipc::partner(bench, &["land", &names[0], &names[1], &names[2], &size.to_string()])
            }
            Way::PagedByReference if size > 0 => {
                let size_bytes = size as u64;
                let options = CreateOptions { size_bytes, freezable: true, ..CreateOptions::default() };
                let object = host.create(&names[2], &options, None)?;
                let mapping = object.map(&objects::everything())?;
                View::of(&mapping).write_pages();
                region = Some((object, mapping));
                ipc::partner(bench, &["map", &names[0], &names[1]])
            }
            _ => ipc::partner(bench, &["take", &names[0], &names[1]]),
        };
        Ok(Call { way, size, ask, answer, partner: partner?, region, calls: 0 })
    }

    /// One call and its answer.
    fn call(&mut self, bytes: &[u8], from: &Mapping, reply: &mut Vec<u8>) -> Result<()> {
        self.calls += 1;
        if let Some((object, _)) = &self.region {
            self.ask.send_by_reference(MAP, b"", object, (0, self.size as u64), None)?;
        } else if self.way == Way::WiredLanded && self.size > 0 {
            // SAFETY: the mapping has them, and lives.
            unsafe { self.ask.send_region_from(1, b"", (from.as_ptr(), self.size), None) }?;
        } else {
            self.ask.send(1, &bytes[..self.size], None)?;
        }
        self.answer.receive_into(reply, None)?;
        Ok(())
    }

    /// How often a byte was copied, as both ends counted it.
    fn end(mut self) -> Result<f64> {
        let copied = self.ask.copied_bytes() + self.answer.copied_bytes();
        self.ask.send(END, b"", None)?;
        let copied = copied + self.partner.line()?.parse::<u64>()?;
        Ok(copied as f64 / (self.calls * self.size as u64) as f64)
    }
}

/// Times in µs by way and size, copies of a byte by way, and what the copy of 16 KiB costs.
struct Figures {
    times: [[f64; SIZES.len()]; WAYS.len()],
    copies: [f64; WAYS.len()],
    copy_us: f64,
    null_ratio: f64,
}

fn measure(context: &Context) -> Result<Found> {
    let (bench, host, _pool) = wired::begin(context, 32 << 20)?;
    let place = Placement::begin()?;
    let kinds: Vec<(Way, usize)> = WAYS.iter().flat_map(|way| SIZES.map(|size| (*way, size))).collect();
    let mut calls = Vec::new();
    for (way, size) in &kinds {
        let call = Call::begin(&bench, &host, *way, *size)?;
        place.put(call.partner.pid(), place.own())?;
        calls.push(call);
    }
    wired::create(&host, "/bench/from", SIZES[LARGEST])?;
    let from = host.open("/bench/from", Access::ReadWrite)?.map(&objects::everything())?;
    View::of(&from).write_pages();
    let (bytes, mut reply) = (vec![7; SIZES[LARGEST]], Vec::new());
    let copied = RawMapping::anonymous(2 * SIZES[LARGEST])?;
    copied.view().write_words(1);
    let each = context.pick(2000, 100);
    let rounds = Rounds::run(kinds.len() + 1, context.pick(31, 5), |n| {
        // Two requests to the host, and two more to map: fewer of them.
        let each = if calls.get(n).is_some_and(|call| call.region.is_some()) { each / 20 } else { each };
        let all = seconds(|| {
            for _ in 0..each {
                match calls.get_mut(n) {
                    Some(call) => call.call(&bytes, &from, &mut reply)?,
                    None => copied
                        .view()
                        .part(0, SIZES[LARGEST])
                        .copy(copied.view().part(SIZES[LARGEST], SIZES[LARGEST])),
                }
            }
            Ok(())
        })?;
        Ok(all / f64::from(each))
    })?;
    let copies = calls.into_iter().map(Call::end).collect::<Result<Vec<f64>>>()?;
    let us = |way: usize, size: usize| rounds.of(way * SIZES.len() + size) * 1e6;
    let figures = Figures {
        times: std::array::from_fn(|way| std::array::from_fn(|size| us(way, size))),
        copies: std::array::from_fn(|way| copies[way * SIZES.len() + LARGEST]),
        copy_us: rounds.of(kinds.len()) * 1e6,
        null_ratio: rounds.ratio(0, SIZES.len()),
    };
    Ok(Found {
        runs: rounds.len(),
        lines: lines(&figures, &copies),
        conclusions: conclude(&figures),
        notes: vec![
            format!(
                "A call carries so many bytes, its answer none; client and server sleep, on \
                 one processor; {each} calls a round."
            ),
            format!(
                "Copying 16 KiB in one process takes {:.2} µs here; the paper's page takes 1 ms.",
                figures.copy_us
            ),
            "Copies: how often a byte that was carried was copied, as client and server count it \
             in the code that copies."
                .into(),
            "The paper prints ms; by its own page copy of 1 ms its figures are µs.".into(),
            format!(
                "What goes by reference the receiver maps, and lets go; nobody writes or reads \
                 it. Of these, {} calls a round.",
                each / 20
            ),
        ],
    })
}

fn lines(figures: &Figures, copies: &[f64]) -> Vec<Line> {
    let line = |size: usize| {
        let name = if SIZES[size] == 0 { "nothing".into() } else { format!("{} KiB", SIZES[size] >> 10) };
        let mut line = Line::new(name);
        for (way, name) in WAYS.iter().enumerate() {
            line = line.with(name.column(), figures.times[way][size]);
        }
        for (way, name) in WAYS.iter().enumerate() {
            let counted = (SIZES[size] > 0).then(|| copies[way * SIZES.len() + size]);
            line = line.maybe(name.copies(), counted);
        }
        let (paged, real) = PUBLISHED[size];
        line.with("relative (in line ÷ landed)", figures.times[0][size] / figures.times[2][size])
            .with("paper: paged, µs", paged)
            .with("paper: real memory, µs", real)
            .with("paper: relative", paged / real)
    };
    (0..SIZES.len()).map(line).collect()
}

fn conclude(figures: &Figures) -> Vec<Conclusion> {
    let [_, in_line, landed, by_reference] = figures.times;
    let grows = |times: [f64; 4]| times[LARGEST] - times[0];
    let explained = |way: usize, times: [f64; 4]| figures.copies[way] * figures.copy_us / grows(times);
    let shares = [("in line", explained(1, in_line)), ("landed", explained(2, landed))];
    vec![
        Conclusion::new(
            "a call without bytes is alike in both (1.07)",
            "paged ÷ wired channels",
            figures.null_ratio,
            ALIKE,
        ),
        Conclusion::new(
            "real memory must copy what is sent twice",
            "copies of a byte that lands in wired memory",
            figures.copies[2],
            Bar::Between(1.9, 2.1),
        )
        .unless(
            "the sender has the receiver's memory mapped, and copies straight to it: once \
             (docs/MESSAGES.md)",
        ),
        Conclusion::new(
            "the cost of these copies accounts for most of what bytes add to a call",
            named("copies × the cost of one ÷ what 16 KiB add, what is furthest from 1", &shares),
            furthest(&shares.map(|(_, share)| share)),
            MOST,
        )
        .unless(
            "one copy of what lies in the processor's cache is less than the bookkeeping of a \
             call with bytes",
        ),
        Conclusion::new(
            "what goes by reference takes as long for 16 KiB as for 4",
            "16 KiB ÷ 4 KiB",
            by_reference[LARGEST] / by_reference[1],
            ALIKE,
        ),
        Conclusion::new(
            "with bytes a call takes several times as long on real memory (0.28, 0.17, 0.09)",
            "by reference ÷ landed, 16 KiB",
            by_reference[LARGEST] / landed[LARGEST],
            Bar::AtMost(0.5),
        )
        .unless(
            "copying 16 KiB costs less than one request to the host, and a reference takes four \
             (offer, take, map, unmap): it pays from some MiB on (ipc.out_of_line_ratio)",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::held;
    use super::*;

    /// The paper's: what lands is copied twice, at 1 ms a page; the rest of what out-of-line memory
    /// adds is there with pages, too.
    fn published() -> Figures {
        let (paged, real) = (PUBLISHED.map(|both| both.0), PUBLISHED.map(|both| both.1));
        Figures { times: [real, real, real, paged], copies: [2.0; 4], copy_us: 4000.0, null_ratio: 1.07 }
    }

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        assert_eq!(held(&conclude(&published())), (5, 5));
        let mut other = published();
        other.copies = [1.0; 4];
        other.copy_us = 100.0;
        other.null_ratio = 2.0;
        other.times[3] = PUBLISHED.map(|both| both.1);
        assert_eq!(held(&conclude(&other)), (0, 5));
    }
}
