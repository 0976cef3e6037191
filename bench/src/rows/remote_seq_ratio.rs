//! `remote.seq_ratio`: an object of another host read from end to end, against one TLS stream of as many bytes.

use crate::backed;
use crate::cluster::{Awaiting, Cluster, Sharer};
use crate::context::Context;
use crate::failure::{Doing, Result, failed};
use crate::measure::{alternate, median, seconds};
use crate::processes::processor_time;
use crate::row::{Bar, Measured, Row, rounded};
use crate::worker::Worker;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::json;
use std::ffi::OsString;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::TcpStream;

const BYTES: usize = 256 << 20;
/// As much free memory is really there when a side begins.
const FREE: usize = 4 * BYTES;
/// What the bare stream is read by.
const PIECE: usize = 256 << 10;

/// The row.
pub struct SeqRatio;

impl Row for SeqRatio {
    fn id(&self) -> &'static str {
        "remote.seq_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.3))
    }

    fn about(&self) -> &'static str {
        "every word of a 256 MiB object of another host added up in order ÷ one TLS 1.3 stream of as many \
         bytes over the same veth into memory, and the same sum"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let cluster = Cluster::start_two(context, Awaiting::Asleep)?;
        let (mut home, mut other) = (cluster.sharer(0)?, cluster.sharer(1)?);
        let mut bare = Bare::start(&cluster)?;
        let mut cipher = String::new();
        let mut without_sum = Vec::new();
        let mut cost = [Vec::new(), Vec::new()];
        let [our_cost, their_cost] = &mut cost;
        let hosts = [cluster.host(0).processes()?[0], cluster.host(1).processes()?[0]];
        let pairs = alternate(
            context.pick(9, 2),
            |pair| {
                let (time, spent) = ours(&mut home, &mut other, hosts, pair)?;
                our_cost.push(spent);
                Ok(time)
            },
            |_| {
                let mut stream = bare.connect(&cluster)?;
                backed::touch(FREE)?;
                let who = [std::process::id(), bare.server.pid()];
                let before = spent(&who)?;
                let (all, received) = read_stream(&mut stream)?;
                their_cost.push(spent(&who)? - before);
                without_sum.push(received);
                cipher = stream
                    .conn
                    .negotiated_cipher_suite()
                    .map_or("none".into(), |s| format!("{:?}", s.suite()));
                Ok(all)
            },
        )?;
        let per_second = |times: &[f64]| rounded(BYTES as f64 / 1e6 / median(times));
        let detail = json!({
            "seconds": pairs.summary(1.0),
            "mb_per_second": per_second(&pairs.ours),
            "mb_per_second_of_the_stream": per_second(&pairs.theirs),
            "ratio_to_the_stream_without_the_sum": rounded(median(&pairs.ours) / median(&without_sum)),
            "processor_seconds": { "commonhold": rounded(median(&cost[0])), "peer": rounded(median(&cost[1])) },
            "cipher_of_the_stream": cipher,
            "network": cluster.network().words(),
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

/// A new object that its home has written; the other host has none of it. Seconds, and those of all processors.
fn ours(home: &mut Sharer, other: &mut Sharer, hosts: [u32; 2], number: usize) -> Result<(f64, f64)> {
    let name = format!("/bench/sequential-{number}");
    home.create(&name, BYTES, None)?;
    home.write_all()?;
    other.open(&name)?;
    backed::touch(FREE)?;
    let who = [hosts[0], hosts[1], other.pid()];
    let before = spent(&who)?;
    let time = other.sum()?;
    let after = spent(&who)?;
    other.close()?;
    home.close()?;
    home.remove(&name)?;
    Ok((time, after - before))
}

/// Seconds of processor time that these processes have had.
fn spent(who: &[u32]) -> Result<f64> {
    who.iter().map(|pid| Ok(processor_time(*pid)?.as_secs_f64())).sum()
}

/// The far end of the bare stream.
struct Bare {
    address: std::net::SocketAddr,
    server: Worker,
}

impl Bare {
    fn start(cluster: &Cluster) -> Result<Bare> {
        let address = cluster.network().free_address(0)?;
        let words: [OsString; 3] =
            [address.to_string().into(), cluster.identity_directory(0).into(), BYTES.to_string().into()];
        let server = cluster.network().at(0, || Worker::start("stream-server", &words))?;
        Ok(Bare { address, server })
    }

    fn connect(&mut self, cluster: &Cluster) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        let connect = || TcpStream::connect(self.address).doing("connecting to the stream server");
        let socket = cluster.network().at(1, connect)?;
        socket.set_nodelay(true)?;
        let (config, _) = cluster.identity(1)?.tls();
        let name = ServerName::IpAddress(self.address.ip().into());
        let mut stream = StreamOwned::new(ClientConnection::new(config, name)?, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(stream)
    }
}

/// Seconds until all bytes are in fresh memory and added up, and until they are in memory.
fn read_stream(stream: &mut StreamOwned<ClientConnection, TcpStream>) -> Result<(f64, f64)> {
    // Zeroed by the kernel, page by page, as they come.
    let mut memory = vec![0u8; BYTES];
    let mut received = 0.0;
    let all = seconds(|| {
        received = seconds(|| {
            stream.write_all(&[1]).and_then(|()| stream.flush())?;
            memory.chunks_mut(PIECE).try_for_each(|piece| Ok(stream.read_exact(piece)?))
        })?;
        let words =
            memory.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        Ok(black_box(words.fold(0u64, u64::wrapping_add)))
    })?;
    if memory.contains(&0) { failed("the stream server sent something else") } else { Ok((all, received)) }
}
