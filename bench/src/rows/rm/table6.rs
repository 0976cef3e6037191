//! Table 6: what a program is told without asking a server, and what it has to ask for.

use super::super::{ipc, wired};
use super::memory::options;
use super::round::Rounds;
use super::{ALIKE, Found, Line, Table};
use crate::conclusions::{Conclusion, furthest, named};
use crate::context::Context;
use crate::failure::{Result, failed};
use crate::measure::seconds;
use crate::objects;
use crate::placement::Placement;
use crate::row::Bar;
use crate::view::{PAGE, View};
use crate::workers::channel_partner::END;
use commonhold::{Access, Channel, ChannelOptions, EntryInfo, Host, Mapping, Object, Translation};
use std::hint::black_box;

/// The row.
pub const TABLE_6: Table = Table {
    id: "mach.rm_table6",
    about: "Bernadat & Black's Table 6, an object's state from a page that its owner shares, by \
            message to its owner, and by message to the host, paged and wired: calls a second",
    measure,
};

/// How the state is had, and the paper's figures: paged, real memory.
const WAYS: [(&str, [Option<f64>; 2]); 4] = [
    ("from a shared page (getpid, DEFAULT)", [Some(13888.0), None]),
    ("by message to its owner (getpid, SMALL)", [Some(1562.0), Some(1666.0)]),
    ("by message to the host (getuid, SMALL)", [Some(1538.0), Some(1639.0)]),
    ("place and size of a movable object (guard)", [None, None]),
];
const PAGE_SHARED: usize = 0;
const BY_OWNER: usize = 1;
const BY_HOST: usize = 2;
const BY_GUARD: usize = 3;

const TRANSLATIONS: [Translation; 2] = [Translation::Paged, Translation::Wired];

/// What is asked in one translation.
struct Asked {
    name: String,
    page: Mapping,
    there: Channel,
    back: Channel,
    /// Only what is wired moves.
    movable: Option<Object>,
}

impl Asked {
    fn begin(host: &Host, translation: Translation) -> Result<Asked> {
        let name = |what: &str| format!("/bench/{what}-{translation:?}");
        let channel = ChannelOptions { translation, ..ChannelOptions::default() };
        let written =
            host.create(&name("state"), &options(translation, PAGE), None)?.map(&objects::everything())?;
        View::of(&written).write_pages();
        let page = host.open(&name("state"), Access::Read)?.map(&read_only())?;
        let movable = match translation {
            Translation::Wired => {
                wired::create(host, &name("movable"), PAGE)?;
                Some(host.open_movable(&name("movable"), Access::ReadWrite)?)
            }
            _ => None,
        };
        let there = Channel::create(host, &name("there"), &channel)?;
        let back = Channel::create(host, &name("back"), &channel)?;
        Ok(Asked { name: name("state"), page, there, back, movable })
    }

    /// Asks once; gives what it was told.
    fn ask(&self, host: &Host, way: usize, bytes: &mut Vec<u8>) -> Result<u64> {
        match way {
            PAGE_SHARED => Ok(View::of(&self.page).read_word(0)),
            BY_OWNER => {
                self.there.send(1, &[0; 8], None)?;
                self.back.receive_into(bytes, None)?;
                Ok(bytes.len() as u64)
            }
            BY_HOST => match host.stat(&self.name)? {
                EntryInfo::Object(info) => Ok(info.options.size_bytes),
                EntryInfo::Directory { .. } => failed("an object is a directory"),
            },
            _ => match &self.movable {
                Some(object) => Ok(object.guard()?.len() as u64),
                None => failed("what is paged does not move"),
            },
        }
    }
}

fn read_only() -> commonhold::MapOptions {
    commonhold::MapOptions { protection: commonhold::Protection::Read, ..objects::everything() }
}

/// Calls a second by way, paged and wired; of wired by paged, by way, medians of rounds.
struct Figures {
    rates: [[Option<f64>; 2]; 4],
    relative: [Option<f64>; 4],
}

fn measure(context: &Context) -> Result<Found> {
    let (bench, host, _pool) = wired::begin(context, 8 << 20)?;
    let place = Placement::begin()?;
    let asked = TRANSLATIONS.map(|translation| Asked::begin(&host, translation));
    let [paged, wired] = asked;
    let asked = [paged?, wired?];
    let mut owners = Vec::new();
    for (asked, translation) in asked.iter().zip(TRANSLATIONS) {
        let names = ["there", "back"].map(|what| format!("/bench/{what}-{translation:?}"));
        let owner = ipc::partner(&bench, &["sleep", &names[0], &names[1]])?;
        place.put(owner.pid(), place.own())?;
        owners.push((asked, owner));
    }
    let kinds: Vec<(usize, usize)> =
        (0..WAYS.len()).flat_map(|way| [(way, 0), (way, 1)]).filter(|kind| *kind != (BY_GUARD, 0)).collect();
    let counts = [context.pick(1_000_000, 10_000), context.pick(2_000, 200), context.pick(2_000, 200)];
    let mut bytes = Vec::new();
    let rounds = Rounds::run(kinds.len(), context.pick(31, 5), |n| {
        let (way, which) = kinds[n];
        let count = counts[way % counts.len()];
        let all = seconds(|| {
            (0..count).try_for_each(|_| asked[which].ask(&host, way, &mut bytes).map(black_box).map(drop))
        })?;
        Ok(all / f64::from(count))
    })?;
    for (asked, mut owner) in owners {
        asked.there.send(END, b"", None)?;
        asked.back.receive(None)?;
        owner.line()?;
    }
    let number = |way: usize, which: usize| kinds.iter().position(|kind| *kind == (way, which));
    let figures = Figures {
        rates: std::array::from_fn(|way| [0, 1].map(|which| number(way, which).map(|n| 1.0 / rounds.of(n)))),
        relative: std::array::from_fn(|way| Some(rounds.ratio(number(way, 0)?, number(way, 1)?))),
    };
    Ok(Found {
        runs: rounds.len(),
        lines: lines(&figures),
        conclusions: conclude(&figures),
        notes: vec![
            "Calls a second. Client and owner are on one processor, and sleep while they wait. The \
             host is where the kernel puts it, and looks again for a while before it sleeps, as it \
             always does."
                .into(),
            "The counterpart of the page that emulator and server share is a page of an object, \
             written by its owner and mapped to read by who asks; of getpid by message, 8 bytes to \
             another process and 8 back; of getuid, the host's answer to what an object is (stat)."
                .into(),
            "A guard is how a program learns where a movable object lies: one change of a word. \
             What is paged does not move."
                .into(),
        ],
    })
}

fn lines(figures: &Figures) -> Vec<Line> {
    let line = |(way, (name, published)): (usize, &(&str, [Option<f64>; 2]))| {
        let relative = published[0].zip(published[1]).map(|(paged, real)| real / paged);
        let messages = [0.0, 2.0, 2.0, 0.0][way];
        Line::new(*name)
            .with("messages a call", messages)
            .maybe("paged, calls/s", figures.rates[way][0])
            .maybe("wired, calls/s", figures.rates[way][1])
            .maybe("relative", figures.relative[way])
            .maybe("paper: paged, calls/s", published[0])
            .maybe("paper: real memory, calls/s", published[1])
            .maybe("paper: relative", relative)
    };
    WAYS.iter().enumerate().map(line).collect()
}

fn conclude(figures: &Figures) -> Vec<Conclusion> {
    let relative = |way: usize| figures.relative[way].unwrap_or(f64::NAN);
    let rate = |way: usize, which: usize| figures.rates[way][which].unwrap_or(f64::NAN);
    let messages = [("owner", relative(BY_OWNER)), ("host", relative(BY_HOST))];
    vec![
        Conclusion::new(
            "what a shared page tells is had considerably faster than by message (13888 and 1562)",
            "from a page ÷ by message to its owner, paged",
            rate(PAGE_SHARED, 0) / rate(BY_OWNER, 0),
            Bar::AtLeast(5.0),
        ),
        Conclusion::new(
            "by message there is no difference between paged and real memory (1.07 and 1.06)",
            named("relative, what is furthest from 1", &messages),
            furthest(&messages.map(|(_, relative)| relative)),
            ALIKE,
        ),
        Conclusion::new(
            "real memory has no shared page to spare a segment for, and is left with messages \
             (0.12)",
            "what real memory has at best ÷ the paged shared page",
            relative(PAGE_SHARED),
            Bar::AtMost(0.5),
        )
        .unless(
            "a wired page lies in an arena with others and costs no segment of its own: it can \
             be shared (docs/REAL-MEMORY.md)",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::held;
    use super::*;

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        let both = |n: usize| WAYS[n].1;
        let relative = |n: usize| both(n)[0].zip(both(n)[1]).map(|(paged, real)| real / paged);
        let figures = Figures {
            rates: std::array::from_fn(both),
            relative: [Some(1666.0 / 13888.0), relative(1), relative(2), None],
        };
        assert_eq!(held(&conclude(&figures)), (3, 3));
        let alike = Figures { rates: [[Some(1.0); 2]; 4], relative: [Some(1.0), Some(3.0), Some(1.0), None] };
        assert_eq!(held(&conclude(&alike)), (0, 3));
    }
}
