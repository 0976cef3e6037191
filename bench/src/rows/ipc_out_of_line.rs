//! `ipc.out_of_line_ratio`: a large region that nobody writes, by reference.

use super::ipc::{channel, end, partner};
use crate::context::Context;
use crate::failure::{Doing, Result, failed};
use crate::host::BenchHost;
use crate::measure::{Pairs, alternate, seconds};
use crate::objects;
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::View;
use crate::worker::Worker;
use crate::workers::channel_partner::{MAP, TOUCH};
use commonhold::{Channel, CreateOptions, Mapping, Object};
use rustix::net::sockopt;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const REGION: usize = 16 << 20;
/// Of a tuned socket, at each end.
const BUFFER: usize = 4 << 20;

/// The row.
pub struct OutOfLineRatio;

/// A region, and a process to which it is sent.
struct Region {
    object: Object,
    mapping: Mapping,
    there: Channel,
    back: Channel,
}

impl Region {
    /// Sends it by reference; gives what the other says of it.
    fn exchange(&self, kind: u32) -> Result<Vec<u8>> {
        self.there.send_by_reference(kind, b"", &self.object, (0, REGION as u64), None)?;
        Ok(self.back.receive(None)?.bytes)
    }
}

/// The other end of a stream socket, which reads into memory that it touched before.
struct Socket {
    stream: UnixStream,
    _partner: Worker,
}

impl Socket {
    fn begin(bench: &BenchHost, name: &str, is_tuned: bool) -> Result<Socket> {
        let path = bench.state().join(name);
        let bytes = REGION.to_string();
        let _partner = partner(bench, &["socket", &path.to_string_lossy(), &bytes])?;
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(&path) {
                Ok(stream) => break stream,
                Err(_) if begun.elapsed() < Duration::from_secs(5) => std::thread::yield_now(),
                Err(error) => return Err(error).doing("connecting to the partner's socket"),
            }
        };
        if is_tuned {
            sockopt::set_socket_send_buffer_size(&stream, BUFFER).map_err(std::io::Error::from)?;
        }
        Ok(Socket { stream, _partner })
    }

    fn exchange(&self, from: &[u8]) -> Result<()> {
        let mut stream = &self.stream;
        stream.write_all(from)?;
        stream.read_exact(&mut [0]).doing("waiting for the answer")
    }
}

fn told(pairs: &Pairs) -> Value {
    json!({ "ratio": rounded(pairs.ratio()), "times": pairs.summary(1e6) })
}

impl Row for OutOfLineRatio {
    fn id(&self) -> &'static str {
        "ipc.out_of_line_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.05))
    }

    fn about(&self) -> &'static str {
        "16 MiB of a paged object that nobody writes, by reference, to another process, which maps \
         it and lets it go, until its answer is there ÷ as many bytes through a Unix stream socket with default buffers; \
         with tuned buffers, and with each page touched by the receiver, in detail"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let options = CreateOptions {
            size_bytes: REGION as u64,
            controlled: true,
            freezable: true,
            ..CreateOptions::default()
        };
        let object = host.create("/bench/region", &options, None)?;
        let mapping = object.map(&objects::everything())?;
        View::of(&mapping).write_pages();
        let (there, back) = (channel(&host, "/bench/there")?, channel(&host, "/bench/back")?);
        let region = Region { object, mapping, there, back };
        let maps = partner(&bench, &["map", "/bench/there", "/bench/back"])?;
        let (plain, tuned) = (Socket::begin(&bench, "plain", false)?, Socket::begin(&bench, "tuned", true)?);
        let sum = View::of(&region.mapping).touch_pages();
        if region.exchange(TOUCH)? != sum.to_le_bytes() {
            return failed("what came by reference is not what was sent");
        }
        let bytes = vec![7; REGION];
        let by_reference = |kind| seconds(|| region.exchange(kind).map(drop));
        let by = |socket: &Socket| seconds(|| socket.exchange(&bytes));
        let (many, few) = (context.pick(101, 5), context.pick(31, 3));
        let before = region.there.copied_bytes();
        let pairs = alternate(many, |_| by_reference(MAP), |_| by(&plain))?;
        let copied = region.there.copied_bytes() - before;
        let with_tuned = alternate(few, |_| by_reference(MAP), |_| by(&tuned))?;
        let touched = alternate(few, |_| by_reference(TOUCH), |_| by(&plain))?;
        end(&region.there, &region.back, maps)?;
        let detail = json!({
            "unit_of_times": "µs, 16 MiB and its answer",
            "bytes that the sender copied, each": copied / many as u64,
            "times": pairs.summary(1e6),
            "tuned socket": told(&with_tuned),
            "each page touched by the receiver": told(&touched),
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}
