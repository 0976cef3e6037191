//! Serves a host for as long as there is one, and the next one in the same place.

use commonhold::{ErrorKind, Host, Pager, Result};
use std::path::Path;
use std::time::Duration;

/// How long to wait before looking for the next host.
const PAUSE: Duration = Duration::from_millis(200);

/// Serves as the pager `name` of the host in `state` (else the one any program finds), until the process is ended.
pub fn serve(state: Option<&Path>, name: &str, mut pager: impl Pager) -> Result<()> {
    let mut host = match state {
        Some(directory) => Host::connect_to(directory)?,
        None => Host::connect()?,
    };
    let directory = host.state_directory().to_owned();
    loop {
        eprintln!("serving {name} for the host in {}", directory.display());
        match host.serve_pager(name, &mut pager) {
            Err(error) if error.kind != ErrorKind::Disconnected => return Err(error),
            _ => eprintln!("the host is gone: waiting for the next one"),
        }
        host = loop {
            std::thread::sleep(PAUSE);
            if let Ok(next) = Host::connect_to(&directory) {
                break next;
            }
        };
    }
}
