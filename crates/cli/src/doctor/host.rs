//! The host that is running, if one is.

use super::report::Check;
use crate::place::HostPlace;
use commonhold::HostStatus;

const NAME: &str = "host";

/// Whether a host runs, and is of this program's version.
pub fn running(asked: &HostPlace) -> Check {
    let (directory, host) = match asked.running() {
        Ok(found) => found,
        Err(error) => return Check::warn(NAME, error.message, "name its state directory with --host"),
    };
    let place = directory.display();
    match host {
        Ok(host) => match host.status() {
            Ok(status) => judge(&status),
            Err(error) => Check::fail(
                NAME,
                format!("the host in {place} does not say how it is: {error}"),
                format!("commonhold --host {place} host restart; what happened is in {place}/log"),
            ),
        },
        Err(_) if directory.join("host.sock").exists() => Check::warn(
            NAME,
            format!("none answers in {place}, though one was there"),
            format!("commonhold host start --state {place} takes over what it left"),
        ),
        Err(_) if asked.is_named() => Check::info(
            NAME,
            format!("none is running in {place}: start it with commonhold host start --state {place}"),
        ),
        Err(_) => Check::info(NAME, "none is running: the first client of a user starts one"),
    }
}

fn judge(status: &HostStatus) -> Check {
    let ours = env!("CARGO_PKG_VERSION");
    let found = format!("{}, process {}, in {}", status.version, status.host_pid, status.state_directory);
    if status.version == ours {
        return Check::ok(NAME, found);
    }
    Check::warn(NAME, format!("{found}; this program is {ours}"), "commonhold host upgrade")
}
