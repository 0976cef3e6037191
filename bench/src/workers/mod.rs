//! What the hidden subcommand `worker NAME` does, by name.

mod adder;
pub mod attach_server;
pub mod fault_server;
mod gap_watcher;
mod idle_client;
pub mod page_server;
mod page_watcher;
mod prober;
mod recorder;
mod row;
mod sharer;
pub mod slow_file;
mod slow_pager;
mod stream_server;

use crate::failure::{Result, failed};

/// Does the work of the worker `name`.
pub fn run(name: &str, arguments: &[String]) -> Result<()> {
    match name {
        "adder" => adder::run(arguments),
        "pointer-tree" => crate::pointer_tree::worker::run(arguments),
        "prober" => prober::run(arguments),
        "recorder" => recorder::run(arguments),
        "row" => row::run(arguments),
        "attach-server" => attach_server::run(arguments),
        "fault-server" => fault_server::run(),
        "gap-watcher" => gap_watcher::run(arguments),
        "idle-client" => idle_client::run(arguments),
        "page-server" => page_server::run(arguments),
        "page-watcher" => page_watcher::run(arguments),
        "sharer" => sharer::run(arguments),
        "slow-file" => slow_file::run(arguments),
        "slow-pager" => slow_pager::run(arguments),
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
