//! `idle-client`: a client that has mapped and touched a controlled object, and then does nothing.

use crate::failure::{Result, failed};
use crate::objects;
use crate::view::View;
use crate::worker;
use commonhold::{Access, Host};
use std::path::Path;

/// Maps the object of that name in the host of that state directory, and sleeps until its input ends.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, name] = arguments else { return failed("idle-client takes a state directory and a name") };
    let host = Host::connect_to(Path::new(state))?;
    let mapping = host.open(name, Access::ReadWrite)?.map(&objects::everything())?;
    View::of(&mapping).write_pages();
    worker::say("ready")?;
    worker::wait_for_end();
    Ok(())
}
