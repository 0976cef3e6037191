//! What the hidden subcommand `worker NAME` does, by name.

mod adder;
pub mod attach_server;
pub mod channel_partner;
mod ephemeral_client;
pub mod fault_server;
pub mod file_server;
mod forker;
mod gap_watcher;
mod idle_client;
mod locker;
pub mod page_server;
mod page_watcher;
pub mod ping_partner;
mod prober;
mod recorder;
pub mod relay;
mod row;
mod segment_client;
mod sharer;
pub mod slow_file;
mod slow_pager;
mod stream_server;
pub mod tcp_peer;
mod turn_writer;
mod wired_client;

use crate::failure::{Result, failed};
use commonhold::{Access, Host, Object};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an object may take until it is found.
const FOUND_WITHIN: Duration = Duration::from_secs(60);

/// Opens an object of a host that may just be starting, or does not know it yet.
fn open_soon(state: &Path, name: &str) -> Result<Object> {
    let deadline = Instant::now() + FOUND_WITHIN;
    loop {
        match Host::connect_to(state).and_then(|host| host.open(name, Access::ReadWrite)) {
            Ok(object) => return Ok(object),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Does the work of the worker `name`.
pub fn run(name: &str, arguments: &[String]) -> Result<()> {
    match name {
        "adder" => adder::run(arguments),
        "pointer-tree" => crate::pointer_tree::worker::run(arguments),
        "prober" => prober::run(arguments),
        "recorder" => recorder::run(arguments),
        "relay" => relay::relay(arguments),
        "relay-user" => relay::user(arguments),
        "row" => row::run(arguments),
        "attach-server" => attach_server::run(arguments),
        "bank-client" => crate::bank::client::run(arguments),
        "channel-partner" => channel_partner::run(arguments),
        "ephemeral-client" => ephemeral_client::run(arguments),
        "fault-server" => fault_server::run(),
        "file-server" => file_server::run(arguments),
        "forker" => forker::run(arguments),
        "gap-watcher" => gap_watcher::run(arguments),
        "heap-client" => crate::heaps::worker::run(arguments),
        "idle-client" => idle_client::run(arguments),
        "locker" => locker::run(arguments),
        "page-server" => page_server::run(arguments),
        "page-watcher" => page_watcher::run(arguments),
        "ping-partner" => ping_partner::run(),
        "segment-client" => segment_client::run(arguments),
        "sharer" => sharer::run(arguments),
        "slow-file" => slow_file::run(arguments),
        "slow-pager" => slow_pager::run(arguments),
        "tcp-peer" => tcp_peer::run(),
        "turn-writer" => turn_writer::run(arguments),
        "wired-client" => wired_client::run(arguments),
        "stream-server" => stream_server::run(arguments),
        "crash-trials" => crate::crash::trials::run(arguments),
        "crash-lanes" => crate::crash::lane_writer::run(arguments),
        "crash-pages" => crate::crash::page_writer::run(arguments),
        #[cfg(feature = "faults")]
        "inject-campaign" => crate::inject::campaign::run(arguments),
        #[cfg(feature = "faults")]
        "inject-load" => crate::inject::load::run(arguments),
        _ => failed(format!("there is no worker `{name}`")),
    }
}
