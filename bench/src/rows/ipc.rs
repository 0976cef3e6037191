//! `ipc.…`: what a message costs, beside what it is made of.

use super::wired;
use crate::context::Context;
use crate::failure::{Doing, Result, failed, skipped};
use crate::host::BenchHost;
use crate::measure::{Pairs, alternate, seconds};
use crate::objects;
use crate::placement::Placement;
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::View;
use crate::worker::Worker;
use crate::workers::channel_partner::{END, ask, receive_at_once};
use commonhold::{Access, Channel, ChannelOptions, CreateOptions, Host, Mapping};
use commonhold_sys::frames;
use serde_json::json;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;

const REGION: usize = 16 << 20;

/// A null message and its answer.
pub struct NullRatio;
/// A large region.
pub struct WiredRatio;
/// How often a byte is copied.
pub struct Copies;

pub(super) fn partner(bench: &BenchHost, words: &[&str]) -> Result<Worker> {
    let mut arguments: Vec<OsString> = vec![bench.state().into()];
    arguments.extend(words.iter().map(OsString::from));
    Worker::start("channel-partner", &arguments)
}

pub(super) fn channel(host: &Host, name: &str) -> Result<Channel> {
    Ok(Channel::create(host, name, &ChannelOptions::default())?)
}

impl Row for NullRatio {
    fn id(&self) -> &'static str {
        "ipc.null_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.3))
    }

    fn about(&self) -> &'static str {
        "an empty message to another process and its answer, through two channels ÷ two processes \
         that wake each other by two words (futex), all on one processor; on two, asleep and spinning, in detail"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let (there, back) = (channel(&host, "/bench/there")?, channel(&host, "/bench/back")?);
        let options = CreateOptions { size_bytes: 8192, ..CreateOptions::default() };
        let words = host.create("/bench/words", &options, None)?.map(&objects::everything())?;
        let place = Placement::begin()?;
        let by_hand = partner(&bench, &["futex", "/bench/words"])?;
        let sleeping = partner(&bench, &["sleep", "/bench/there", "/bench/back"])?;
        let rounds = context.pick(20_000, 2_000);
        let mut bytes = Vec::new();
        let mut exchange = || -> Result<f64> {
            let all = seconds(|| {
                for _ in 0..rounds {
                    there.send(1, b"", None)?;
                    back.receive_into(&mut bytes, None)?;
                }
                Ok(())
            });
            Ok(all? / f64::from(rounds))
        };
        let ping_pong = || -> Result<f64> {
            let all = seconds(|| {
                (0..rounds).for_each(|_| ask(View::of(&words)));
                Ok(())
            });
            Ok(all? / f64::from(rounds))
        };
        let mut measured: Vec<(&str, Pairs)> = Vec::new();
        for (name, processor) in place.places() {
            place.put(by_hand.pid(), processor)?;
            place.put(sleeping.pid(), processor)?;
            measured.push((name, alternate(context.pick(31, 5), |_| exchange(), |_| ping_pong())?));
        }
        end(&there, &back, sleeping)?;
        let mut detail = json!({ "unit_of_times": "µs, a message and its answer; a ping and a pong" });
        for (name, pairs) in &measured {
            detail[*name] = json!({ "ratio": rounded(pairs.ratio()), "times": pairs.summary(1e6) });
        }
        if let Some((_, apart)) = place.places().get(1) {
            let spinning = partner(&bench, &["spin", "/bench/there", "/bench/back"])?;
            place.put(spinning.pid(), *apart)?;
            let one = seconds(|| {
                (0..rounds).try_for_each(|_| {
                    there.send(1, b"", None)?;
                    receive_at_once(&back, &mut bytes).map(drop)
                })
            })?;
            detail["apart, both spin, µs"] = json!(rounded(one / f64::from(rounds) * 1e6));
            end(&there, &back, spinning)?;
        }
        let (_, pairs) = measured.swap_remove(0);
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

pub(super) fn end(there: &Channel, back: &Channel, mut worker: Worker) -> Result<()> {
    there.send(END, b"", None)?;
    back.receive(None)?;
    worker.line().map(drop)
}

/// Two wired objects of a channel's class, one of them its receiver's.
struct Pair {
    bench: BenchHost,
    host: Host,
    channel: Channel,
    back: Channel,
    from: Mapping,
    to: Mapping,
    _pool: commonhold_tables::Pool,
}

impl Pair {
    fn begin(context: &Context) -> Result<Pair> {
        let (bench, host, pool) = wired::begin(context, 4 * REGION)?;
        let map = |name: &str| -> Result<Mapping> {
            wired::create(&host, name, REGION)?;
            Ok(host.open(name, Access::ReadWrite)?.map(&objects::everything())?)
        };
        let (from, to) = (map("/bench/from")?, map("/bench/to")?);
        View::of(&from).write_pages();
        let (channel, back) = (channel(&host, "/bench/regions")?, channel(&host, "/bench/back")?);
        Ok(Pair { bench, host, channel, back, from, to, _pool: pool })
    }

    fn partner(&self) -> Result<Worker> {
        let bytes = REGION.to_string();
        partner(&self.bench, &["land", "/bench/regions", "/bench/back", "/bench/to", &bytes])
    }

    fn exchange(&self) -> Result<()> {
        // SAFETY: the mapping has them, for as long as this lives.
        unsafe { self.channel.send_region_from(1, b"", (self.from.as_ptr(), REGION), None) }?;
        self.back.receive(None).map(drop).map_err(Into::into)
    }

    /// What the partner copied.
    fn end(&self, mut partner: Worker) -> Result<u64> {
        self.channel.send(END, b"", None)?;
        Ok(partner.line()?.parse()?)
    }
}

impl Row for WiredRatio {
    fn id(&self) -> &'static str {
        "ipc.wired_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.15))
    }

    fn about(&self) -> &'static str {
        "16 MiB from a wired object to another process's, by a channel, until its answer is there \
         ÷ memcpy between the same two objects in one process"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let pair = Pair::begin(context)?;
        let partner = pair.partner()?;
        pair.exchange()?; // opens and maps
        let to = View::of(&pair.to);
        let rounds = context.pick(40, 3);
        let each = |work: &dyn Fn() -> Result<()>| {
            Ok(seconds(|| (0..rounds).try_for_each(|_| work()))? / f64::from(rounds))
        };
        let copy = || {
            to.copy(View::of(&pair.from));
            Ok(())
        };
        let pairs = alternate(context.pick(31, 5), |_| each(&|| pair.exchange()), |_| each(&copy))?;
        pair.end(partner)?;
        let detail = json!({ "unit_of_times": "µs, 16 MiB", "times": pairs.summary(1e6) });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

impl Row for Copies {
    fn id(&self) -> &'static str {
        "ipc.copies"
    }

    fn unit(&self) -> &'static str {
        "copies"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn about(&self) -> &'static str {
        "how often a byte is copied beyond once: 16 MiB to another process's wired object by a \
         channel, counted by both; and of a file into another process's wired object, by the disk itself, past the page cache"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let pair = Pair::begin(context)?;
        let partner = pair.partner()?;
        pair.exchange()?;
        let there = pair.channel.copied_bytes() + pair.end(partner)?;
        if View::of(&pair.to).sum_words() != View::of(&pair.from).sum_words() {
            return failed("what landed is not what was sent");
        }
        // What goes with it through the queue is a few words.
        let by_message = there / REGION as u64;
        let path = context.directory.join("third-party");
        if written(&path, &vec![7; REGION])? > 0 {
            return skipped("the benchmark's directory lies in memory: no disk reads from there");
        }
        let file = File::open(&path).doing("opening the file")?;
        let read = pair.host.open("/bench/to", Access::ReadWrite)?.read_into(&file, 0, 0, REGION as u64)?;
        let cached = frames::cache_state(&file, 0, REGION as u64)?.cached;
        if read.bytes != REGION as u64 || View::of(&pair.to).read_byte(REGION - 1) != 7 {
            return failed(format!("{} bytes of the file came", read.bytes));
        }
        // Through the page cache each byte is copied once more, and is in the cache afterwards.
        let by_file = 1 + u64::from(read.direct_bytes < read.bytes || cached > 0);
        let excess = by_message.abs_diff(1) + by_file - 1;
        let detail = json!({
            "of a region": by_message, "bytes that both copied": there, "of a file": by_file,
            "bytes past the page cache": read.direct_bytes, "pages of the file in the page cache afterwards": cached,
        });
        Ok(Measured::single(excess as f64, 1, detail))
    }
}

/// Makes a file whose bytes are on the disk alone; gives how many of its pages are in the page
/// cache all the same.
fn written(path: &Path, bytes: &[u8]) -> Result<u64> {
    let mut file = File::create(path).doing("making a file")?;
    file.write_all(bytes)?;
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).map_err(std::io::Error::from)?;
    Ok(frames::cache_state(&file, 0, bytes.len() as u64)?.cached)
}
