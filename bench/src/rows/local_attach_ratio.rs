//! `local.attach_ratio`: open, map, touch and unmap a direct object, against the same by hand.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::host::BenchHost;
use crate::measure::{Pairs, alternate, each};
use crate::objects;
use crate::placement::{Placement, worse};
use crate::row::{Bar, Measured, Row};
use crate::view::{PAGE, RawMapping, View};
use crate::worker::Worker;
use crate::workers::attach_server;
use commonhold::{Access, Host};
use commonhold_sys::socket::{self, Wait};
use serde_json::json;
use std::os::fd::OwnedFd;

const NAME: &str = "/bench/attach";
const BYTES: usize = 1 << 20;

/// The row.
pub struct AttachRatio;

impl Row for AttachRatio {
    fn id(&self) -> &'static str {
        "local.attach_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(2.0))
    }

    fn about(&self) -> &'static str {
        "open + map + touch + unmap of an existing direct object ÷ the same by hand (Unix socket, descriptor \
         passing, mmap, munmap), both over a connection that stands; client and server on one processor, and on two: the \
         worse"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let server = Worker::start("attach-server", &[context.directory.as_os_str()])?;
        let object = objects::direct(&bench.connect()?, NAME, BYTES)?;
        object.write_at(&[1], 0)?;
        let placement = Placement::begin()?;
        let [host, _] = bench.processes()?;
        let mut places = Vec::new();
        for (place, processor) in placement.places() {
            placement.put(host, processor)?;
            placement.put(server.pid(), processor)?;
            places.push((place, over_standing_connection(context, &bench)?));
        }
        drop(object);
        let connecting = connecting_each_time(context, &bench)?;
        drop((server, placement));
        let (worse, summaries) = worse(places)?;
        let detail = json!({
            "unit_of_times": "µs, p50 of single attaches",
            "standing_connection, client and server by processor": summaries,
            "connecting_each_time, apart": connecting.summary(1e6),
        });
        Ok(worse.measured(worse.ratio(), detail))
    }
}

fn over_standing_connection(context: &Context, bench: &BenchHost) -> Result<Pairs> {
    let host = bench.connect()?;
    let connection = socket::connect(&context.directory, attach_server::SOCKET)?;
    let rounds = context.pick(300, 50);
    alternate(
        context.pick(41, 9),
        |_| each(rounds, || attach(&host)),
        |_| each(rounds, || attach_by_hand(&connection)),
    )
}

/// Both sides connect anew for every attach. The client's library shares one connection among all users of a
/// process, so it must have none left over.
fn connecting_each_time(context: &Context, bench: &BenchHost) -> Result<Pairs> {
    let rounds = context.pick(100, 20);
    let ours = || attach(&bench.connect()?);
    let theirs = || attach_by_hand(&socket::connect(&context.directory, attach_server::SOCKET)?);
    alternate(context.pick(21, 5), |_| each(rounds, ours), |_| each(rounds, theirs))
}

fn attach(host: &Host) -> Result<()> {
    let object = host.open(NAME, Access::ReadWrite)?;
    let mapping = object.map(&objects::everything())?;
    touch(View::of(&mapping))
}

fn attach_by_hand(connection: &OwnedFd) -> Result<()> {
    socket::send(connection, NAME.as_bytes(), &[], Wait::Yes)?;
    let (mut answer, mut descriptors) = ([0; 64], Vec::new());
    socket::receive(connection, &mut answer, &mut descriptors, Wait::Yes)?;
    let Some(frames) = descriptors.pop() else { return failed("the server by hand sent no descriptor") };
    let mapping = RawMapping::shared(frames, BYTES)?;
    touch(mapping.view())
}

/// One page that has a frame, written.
fn touch(view: View<'_>) -> Result<()> {
    let before = view.read_byte(0);
    if before != 1 || view.len() / PAGE != BYTES / PAGE {
        return failed("the attached memory is not the object");
    }
    view.write_word(8, 1);
    Ok(())
}
